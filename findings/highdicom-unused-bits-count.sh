#!/usr/bin/env bash
# Guess: a frame of 12-bit numbers in 16 bits is those 12 bits, whatever a scanner leaves in the other four, and is the
# same however one asks for it.
# What happens: get_frame takes all 16 bits. Air of a CT with signed numbers, whose unused bits are 0, is 3096 in place
# of -1000 Hounsfield units, denser than bone; and a picture with overlays in these bits, as older scanners draw them,
# has values beyond 4095. After pixel_array was asked for, the same call gives the right ones. No word is said.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile \
    highdicom==0.28.2 pydicom==3.0.2 SimpleITK==2.5.7 numpy==2.4.6
cd "$place"

expected=$(cat <<'END'
highdicom 0.28.2, pydicom 3.0.2, SimpleITK 2.5.7
signed, unused bits 0
  highdicom: [3096, 4046, 40, 1000], after pixel_array: [-1000, -50, 40, 1000]
  pydicom: [-1000, -50, 40, 1000], SimpleITK: [-1000, -50, 40, 1000]
unsigned, an overlay in bit 12
  highdicom: [4120, 950, 1064, 6096], after pixel_array: [24, 950, 1064, 2000]
  pydicom: [24, 950, 1064, 2000], SimpleITK: [24, 950, 1064, 2000]
END
)
seen=$(bin/python -W ignore - <<'PY'
import highdicom
import numpy as np
import pydicom
import SimpleITK as sitk
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid


def save(path, stored, signed):
    scan = Dataset()
    scan.file_meta = FileMetaDataset()
    scan.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    scan.SOPClassUID = scan.file_meta.MediaStorageSOPClassUID = CTImageStorage
    scan.SOPInstanceUID = scan.file_meta.MediaStorageSOPInstanceUID = generate_uid()
    scan.Rows, scan.Columns, scan.SamplesPerPixel, scan.PhotometricInterpretation = 2, 2, 1, "MONOCHROME2"
    scan.BitsAllocated, scan.BitsStored, scan.HighBit, scan.PixelRepresentation = 16, 12, 11, int(signed)
    scan.PixelSpacing, scan.ImageOrientationPatient = [1, 1], [1, 0, 0, 0, 1, 0]
    scan.ImagePositionPatient, scan.SliceThickness = [0, 0, 0], 1
    scan.RescaleSlope, scan.RescaleIntercept = 1, 0
    scan.PixelData = np.asarray(stored, np.uint16).tobytes()
    scan.save_as(path, enforce_file_format=True)


def numbers(frame):
    return np.ravel(frame).astype(int).tolist()


print(f"highdicom {highdicom.__version__}, pydicom {pydicom.__version__}, SimpleITK {sitk.Version.VersionString()}")
cases = {"signed, unused bits 0": (np.array([-1000, -50, 40, 1000]) & 0x0FFF, True)}
cases["unsigned, an overlay in bit 12"] = (np.array([24, 950, 1064, 2000]) | [0x1000, 0, 0, 0x1000], False)
for name, (stored, signed) in cases.items():
    save("scan.dcm", stored, signed)
    image = highdicom.imread("scan.dcm")
    first = numbers(image.get_frame(1))
    pixels = image.pixel_array
    print(f"{name}\n  highdicom: {first}, after pixel_array: {numbers(image.get_frame(1))}")
    others = pydicom.dcmread("scan.dcm").pixel_array, sitk.GetArrayFromImage(sitk.ReadImage("scan.dcm"))
    print("  pydicom: {}, SimpleITK: {}".format(*map(numbers, others)))
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
