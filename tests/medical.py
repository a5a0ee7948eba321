"""DICOM and NIfTI files, as pydicom and nibabel write them, and damaged ones."""

import random
import warnings
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

PATIENT = "Doe^Jane"
"""What no output may hold."""
EIGHT = {"BitsAllocated": 8, "BitsStored": 8, "HighBit": 7}


def dicom(pixels: Any, **tags: Any) -> bytes:
    """A DICOM file: grey, 12 of 16 bits, no sign, unless tags say otherwise."""
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import UID, CTImageStorage, ExplicitVRLittleEndian

    dataset = Dataset()
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset.file_meta.MediaStorageSOPClassUID = dataset.SOPClassUID = CTImageStorage
    dataset.file_meta.MediaStorageSOPInstanceUID = dataset.SOPInstanceUID = UID("1.2.3")
    dataset.Rows, dataset.Columns = pixels.shape[-2:]
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 1, "MONOCHROME2"
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit = 16, 12, 11
    dataset.PixelRepresentation = 0
    dataset.PatientName, dataset.PatientID = PATIENT, f"{PATIENT} 1"
    with warnings.catch_warnings(action="ignore"):  # wrong values are written on purpose
        for name, value in tags.items():
            setattr(dataset, name, value)
    dataset.PixelData = pixels.astype(f"<u{dataset.BitsAllocated // 8}").tobytes()
    return saved(dataset)


def saved(dataset: Any) -> bytes:
    """The content of a DICOM file."""
    stream = BytesIO()
    dataset.save_as(stream, enforce_file_format=True)
    return stream.getvalue()


def nifti(values: Any, affine: Any = None, code: int = 1, slope: float = 1, intercept: float = 0) -> bytes:
    """A NIfTI file, by default of a volume that lies as RAS+."""
    from nibabel.nifti1 import Nifti1Image

    image = Nifti1Image(values, np.eye(4) if affine is None else affine)
    image.header.set_slope_inter(slope, intercept)
    image.set_sform(image.affine, code)
    image.set_qform(None, 0)
    return bytes(image.to_bytes())


def damaged(content: bytes, number: int = 200) -> Iterator[bytes]:
    """Copies that are cut, or of which some bytes are changed."""
    draw = random.Random(0)
    for _ in range(number):
        copy = bytearray(content[: draw.randrange(len(content))] if draw.random() < 0.3 else content)
        for _ in range(draw.randrange(1, 9)):
            if copy:
                copy[draw.randrange(min(len(copy), draw.choice((400, 4000))))] = draw.randrange(256)
        yield bytes(copy)


def write_scans(folder: Path, content: Callable[[Any], bytes], suffix: str, count: int = 10) -> Path:
    """Two sites of two classes, of which the second is bright below; each file of one of five patients."""
    for at, site in enumerate(("bonn", "mainz")):
        for label in (0, 1):
            place = folder / site / ("well", "ill")[label]
            place.mkdir(parents=True)
            for i in range(count):
                values = np.random.default_rng([at, label, i]).integers(0, 500, (16, 16))
                values[slice(8) if label else slice(8, 16)] += 1500
                (place / f"{i}{suffix}").write_bytes(content(values))
    return folder
