#!/usr/bin/env bash
# Guess: a contour of radiotherapy (RTSTRUCT) has about its own area as a mask, and a mask about its own as a contour,
# to half a pixel on either side at random.
# What happens: rt-utils puts contours through the middle of the outermost pixels, and fills each pixel that a line
# touches. Contours of other programs grow: a square of 10 mm is 121 mm2, a circle of 10 mm across a quarter too large.
# Those that it writes are as much smaller for other programs: a mask of 100 mm2 is a contour of 81. Only its own come
# back as they were.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile --no-deps \
    rt-utils==1.2.7 pydicom==3.0.2 numpy==2.4.6 opencv-python-headless==4.13.0.92
cd "$place"

expected=$(cat <<'END'
rt-utils 1.2.7
mask of 100 mm2: contour of 81 mm2, mask of 100 again
square of 10 mm: contour of 100 mm2, mask of 121 mm2, +21%
circle of 5 mm: contour of 20 mm2, mask of 31 mm2, +58%
circle of 10 mm: contour of 79 mm2, mask of 99 mm2, +26%
circle of 20 mm: contour of 314 mm2, mask of 355 mm2, +13%
circle of 40 mm: contour of 1257 mm2, mask of 1333 mm2, +6%
END
)
seen=$(bin/python -W ignore - <<'PY'
import contextlib
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pydicom
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid
from rt_utils import RTStructBuilder

Path("ct").mkdir()
scan = Dataset()
scan.file_meta = FileMetaDataset()
scan.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
scan.SOPClassUID = scan.file_meta.MediaStorageSOPClassUID = CTImageStorage
scan.SOPInstanceUID = scan.file_meta.MediaStorageSOPInstanceUID = generate_uid()
scan.SeriesInstanceUID, scan.StudyInstanceUID, scan.FrameOfReferenceUID = (generate_uid() for _ in range(3))
scan.Modality, scan.InstanceNumber = "CT", 1
scan.StudyID, scan.StudyDate, scan.StudyTime = "1", "20200101", "120000"
scan.Rows, scan.Columns, scan.SamplesPerPixel, scan.PhotometricInterpretation = 64, 64, 1, "MONOCHROME2"
scan.BitsAllocated, scan.BitsStored, scan.HighBit, scan.PixelRepresentation = 16, 16, 15, 1
scan.PixelSpacing, scan.SliceThickness, scan.PixelData = [1, 1], 3, bytes(64 * 64 * 2)
scan.ImagePositionPatient, scan.ImageOrientationPatient = [0, 0, 0], [1, 0, 0, 0, 1, 0]
scan.save_as("ct/0.dcm", enforce_file_format=True)


def areas(points):
    """Of the contour, and of the mask that is read."""
    x, y = np.transpose(points)
    read = RTStructBuilder.create_from("ct", "plan.dcm").get_roi_mask_by_name("tumour")
    return abs(np.dot(x, np.roll(y, 1)) - np.dot(y, np.roll(x, 1))) / 2, read.sum()


print("rt-utils", version("rt-utils"))
mask = np.zeros((64, 64, 1), bool)
mask[20:30, 20:30] = True
structures = RTStructBuilder.create_new(dicom_series_path="ct")
structures.add_roi(mask=mask, name="tumour")
with contextlib.redirect_stdout(None):
    structures.save("plan.dcm")
plan = pydicom.dcmread("plan.dcm")
(contour,) = plan.ROIContourSequence[0].ContourSequence
line, again = areas(np.reshape(contour.ContourData, (-1, 3))[:, :2].astype(float))
print(f"mask of {mask.sum()} mm2: contour of {line:.0f} mm2, mask of {again} again")
shapes = {"square of 10 mm": [(19.5, 19.5), (29.5, 19.5), (29.5, 29.5), (19.5, 29.5)]}
angles = np.arange(0, 2 * np.pi, np.pi / 180)
for size in (5, 10, 20, 40):
    shapes[f"circle of {size} mm"] = [(30.2 + size / 2 * np.cos(a), 30.3 + size / 2 * np.sin(a)) for a in angles]
for name, points in shapes.items():
    contour.ContourData = [round(float(value), 3) for x, y in points for value in (x, y, 0)]
    contour.NumberOfContourPoints = len(points)
    plan.save_as("plan.dcm")
    line, read = areas(points)
    print(f"{name}: contour of {line:.0f} mm2, mask of {read} mm2, {read / line - 1:+.0%}")
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
