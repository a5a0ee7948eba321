#!/usr/bin/env bash
# Guess: apply_rescale turns the stored numbers of an Enhanced CT into Hounsfield units, as it does for a plain
# CT.
# What happens: an Enhanced CT keeps slope and intercept in its functional groups, frame by frame; they are not
# looked at, and the stored numbers come back unchanged, without a word: water is at 1024, not at 0.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile pydicom==3.0.2 numpy==2.4.6
cd "$place"

expected=$(cat <<'END'
pydicom 3.0.2
plain [-1000.0, 0.0]
enhanced [24, 1024, 24, 1024]
END
)
seen=$(bin/python - <<'PY'
import numpy as np
import pydicom
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.pixels import apply_rescale
from pydicom.uid import CTImageStorage, EnhancedCTImageStorage, ExplicitVRLittleEndian, generate_uid


def image(kind, frames):
    scan = Dataset()
    scan.file_meta = FileMetaDataset()
    scan.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    scan.SOPClassUID, scan.SOPInstanceUID = kind, generate_uid()
    scan.Rows, scan.Columns, scan.NumberOfFrames, scan.SamplesPerPixel = 1, 2, frames, 1
    scan.BitsAllocated, scan.BitsStored, scan.HighBit, scan.PixelRepresentation = 16, 12, 11, 0
    scan.PhotometricInterpretation = "MONOCHROME2"
    scan.PixelData = np.array([[24, 1024]] * frames, np.uint16).tobytes()
    return scan


plain = image(CTImageStorage, 1)
plain.RescaleSlope, plain.RescaleIntercept = 1, -1024
enhanced = image(EnhancedCTImageStorage, 2)
group, rescale = Dataset(), Dataset()
rescale.RescaleSlope, rescale.RescaleIntercept, rescale.RescaleType = 1, -1024, "HU"
group.PixelValueTransformationSequence = [rescale]
enhanced.PerFrameFunctionalGroupsSequence = [group, group]
print("pydicom", pydicom.__version__)
for name, scan in (("plain", plain), ("enhanced", enhanced)):
    print(name, apply_rescale(scan.pixel_array, scan).ravel().tolist())
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
