#!/usr/bin/env bash
# Guess: a PET series has its values when it is read as a volume, although each slice has a slope of its own, as
# scanners write it.
# What happens: the first slice decides the type of the whole volume. If its slope is 1, as of a slice at the end
# without much activity, all others are cut to whole numbers, without a word: 0.37, 0.74 and 1.11 are 0, 0 and 1.
# With another slice at the end, the volume has floats.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile SimpleITK==2.5.7 pydicom==3.0.2 numpy==2.4.6
cd "$place"

expected=$(cat <<'END'
SimpleITK 2.5.7
slopes 1, 0.25, 0.37: 16-bit unsigned integer
[0, 1, 2, 3] [0, 0, 0, 0] [0, 0, 0, 1]
slopes 0.37, 0.25, 1: 64-bit float
[0.0, 0.37, 0.74, 1.11] [0.0, 0.25, 0.5, 0.75] [0.0, 1.0, 2.0, 3.0]
END
)
seen=$(bin/python - <<'PY'
from pathlib import Path

import numpy as np
import SimpleITK as sitk
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, PositronEmissionTomographyImageStorage, generate_uid


def save(path, position, slope, series):
    scan = Dataset()
    scan.file_meta = FileMetaDataset()
    scan.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    scan.SOPClassUID = scan.file_meta.MediaStorageSOPClassUID = PositronEmissionTomographyImageStorage
    scan.SOPInstanceUID = scan.file_meta.MediaStorageSOPInstanceUID = generate_uid()
    scan.SeriesInstanceUID, scan.Modality, scan.InstanceNumber = series, "PT", position + 1
    scan.Rows, scan.Columns, scan.SamplesPerPixel, scan.PhotometricInterpretation = 2, 2, 1, "MONOCHROME2"
    scan.BitsAllocated, scan.BitsStored, scan.HighBit, scan.PixelRepresentation = 16, 16, 15, 0
    scan.PixelSpacing, scan.ImageOrientationPatient = [1, 1], [1, 0, 0, 0, 1, 0]
    scan.ImagePositionPatient, scan.SliceThickness = [0, 0, position], 1
    scan.RescaleSlope, scan.RescaleIntercept = slope, 0
    scan.PixelData = np.array([0, 1, 2, 3], np.uint16).tobytes()
    scan.save_as(path, enforce_file_format=True)


print("SimpleITK", sitk.Version.VersionString())
for name, slopes in (("one", (1, 0.25, 0.37)), ("other", (0.37, 0.25, 1))):
    Path(name).mkdir()
    series = generate_uid()
    for position, slope in enumerate(slopes):
        save(f"{name}/{position}.dcm", position, slope, series)
    volume = sitk.ReadImage(sitk.ImageSeriesReader.GetGDCMSeriesFileNames(name))
    print(f"slopes {', '.join(map(str, slopes))}: {volume.GetPixelIDTypeAsString()}")
    print(*(values.ravel().round(3).tolist() for values in sitk.GetArrayFromImage(volume)))
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
