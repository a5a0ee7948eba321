"""Make the data that README's commands read, in the working directory, of what the extras' packages bring.

``python data.py NAME...`` makes each NAME once; it runs in the environment that it makes data for.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def hospitals() -> None:
    """Make three hospitals of scikit-learn's breast cancers, each with scales of its own, and `new.csv`."""
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    features = bunch.data[:, :8]
    names = [name.replace(" ", "_") for name in bunch.feature_names[:8]]
    draw = np.random.default_rng(0)
    rows = np.split(draw.permutation(len(features)), [250, 450, 530])
    for name, part in zip(("east", "north", "west", ""), rows, strict=True):
        scale = draw.uniform(0.9, 1.1, 8)
        columns = {column: features[part, i] * scale[i] for i, column in enumerate(names)}
        if name:
            write_csv(f"hospitals/{name}.csv", columns | {"label": bunch.target_names[bunch.target[part]]})
        else:
            write_csv("new.csv", columns)


def photos() -> None:
    """Make three sites' pictures of the digits 0 and 1 of scikit-learn, each in another colour, and `new`."""
    for number, (site, name, pixels) in enumerate(digits()):
        colour = {"amber": (255, 190, 0), "blue": (60, 90, 255), "cyan": (0, 220, 220)}[site]
        picture = image(pixels, colour)
        picture.save(folder("photos", site, name) / f"{number}.png")
        if site == "cyan" and number % 4 == 0:
            picture.save(folder("new") / f"{number}.png")


def excel() -> None:
    """Make a workbook with a sheet for each hospital."""
    from openpyxl import Workbook

    book = Workbook()
    book.remove(book.active)
    for path in files():
        sheet = book.create_sheet(path.stem)
        head, *rows = (line.split(",") for line in path.read_text().splitlines())
        sheet.append(head)
        for *numbers, label in rows:
            sheet.append([*map(float, numbers), label])
    book.save("hospitals.xlsx")


def parquet() -> None:
    """Make a Parquet file for each hospital."""
    from pyarrow import csv
    from pyarrow import parquet as pq

    for path in files():
        pq.write_table(csv.read_csv(path), folder("parquet") / f"{path.stem}.parquet")


def statistics() -> None:
    """Make a file of SPSS for each hospital."""
    import pandas as pd
    import pyreadstat

    for path in files():
        pyreadstat.write_sav(pd.read_csv(path), folder("statistics") / f"{path.stem}.sav")


def hf() -> None:
    """Make one table of all hospitals, with a column `site`."""
    head, lines = "", []
    for path in files():
        head, *rows = path.read_text().splitlines()
        lines += [f"{row},{path.stem}" for row in rows]
    (folder("together") / "all.csv").write_text("\n".join([f"{head},site", *lines]) + "\n")


def text() -> None:
    """Make two sites' notes, which say whether something was good."""
    words = {"good": ("lovely", "a joy", "great"), "bad": ("awful", "dull", "a bore")}
    for site in ("east", "west"):
        days = [(i, word, label) for i in range(10) for label in words for word in words[label]]
        lines = [f"The day {i} in the {site} was {word}.,{i},{label}" for i, word, label in days]
        (folder("notes") / f"{site}.csv").write_text("\n".join(["note,day,label", *lines]) + "\n")


def dicom() -> None:
    """Make two sites' DICOM files."""
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

    for number, (site, name, pixels) in enumerate(digits(sites=("east", "west"))):
        scan = Dataset()
        scan.file_meta = FileMetaDataset()
        scan.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
        scan.file_meta.MediaStorageSOPClassUID = scan.SOPClassUID = CTImageStorage
        scan.file_meta.MediaStorageSOPInstanceUID = scan.SOPInstanceUID = generate_uid()
        scan.PatientID = str(number)
        scan.Rows, scan.Columns = pixels.shape
        scan.SamplesPerPixel, scan.PhotometricInterpretation, scan.PixelRepresentation = 1, "MONOCHROME2", 0
        scan.BitsAllocated, scan.BitsStored, scan.HighBit = 16, 12, 11
        scan.PixelData = (pixels * 10).astype("<u2").tobytes()
        scan.save_as(folder("scans", site, name) / f"{number}.dcm", enforce_file_format=True)


def nifti() -> None:
    """Make two sites' volumes."""
    import nibabel

    for number, (site, name, pixels) in enumerate(digits(sites=("east", "west"))):
        volume = np.repeat((pixels * 10).astype(np.int16)[:, :, None], 3, axis=2)
        scan = nibabel.Nifti1Image(volume, np.eye(4))  # type: ignore[no-untyped-call]
        nibabel.save(scan, folder("volumes", site, name) / f"{number}.nii")


def heic() -> None:
    """Make two sites' pictures as a phone stores them."""
    import pillow_heif

    pillow_heif.register_heif_opener()
    for number, (site, name, pixels) in enumerate(digits(sites=("east", "west"))):
        image(pixels, (255, 255, 255)).save(folder("phone", site, name) / f"{number}.heic")


def digits(
    sites: Sequence[str] = ("amber", "blue", "cyan"), count: int = 16
) -> Iterator[tuple[str, str, NDArray[Any]]]:
    """Yield site, class and 64 x 64 values in [0, 255]: `count` digits of two classes for each site."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    for label, name in enumerate(("nought", "one")):
        every = bunch.images[bunch.target == label]
        for i, picture in enumerate(every[: count * len(sites)]):
            yield sites[i % len(sites)], name, np.kron(picture * 15.9, np.ones((8, 8))).round()


def image(pixels: NDArray[Any], colour: tuple[int, int, int]) -> Any:
    """Return a picture in a colour."""
    from PIL import Image

    return Image.fromarray((pixels[:, :, None] * np.array(colour) / 255).astype(np.uint8))


def files() -> list[Path]:
    """Return the hospitals' tables."""
    return sorted(Path("hospitals").glob("*.csv"))


def folder(*parts: str) -> Path:
    """Return a folder that exists."""
    path = Path(*parts)
    path.mkdir(parents=True, exist_ok=True)
    return path


def write_csv(path: str, columns: Mapping[str, Iterable[Any]]) -> None:
    """Write columns of equal length."""
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    folder(str(Path(path).parent))
    Path(path).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        globals()[name]()
