#!/usr/bin/env bash
# Guess: an Enhanced MR file, one file with all slices, is a volume in the order of the slices' positions when it is
# read, with the distance between them, and with each slice's own slope, or is refused where that cannot be.
# What happens: SimpleITK takes the slices in the file's order, drops the slopes, and where the positions are not even
# in that order sets a distance of 1 mm, all without a word. Slices that were recorded in two interleaved passes, 4 mm
# apart, are mixed up, and a lesion has a quarter of its volume. highdicom has them right, and refuses a missing one.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile \
    SimpleITK==2.5.7 highdicom==0.28.2 pydicom==3.0.2 numpy==2.4.6
cd "$place"

expected=$(cat <<'END'
SimpleITK 2.5.7, highdicom 0.28.2
in order: SimpleITK [10, 20, 30, 40], 4 mm; highdicom [10, 20, 30, 40], 4 mm
interleaved: SimpleITK [10, 30, 20, 40], 1 mm; highdicom [10, 20, 30, 40], 4 mm
own slopes: SimpleITK [10, 20, 30, 40], 4 mm; highdicom [10, 40, 90, 160], 4 mm
one missing: SimpleITK [10, 20, 40], 1 mm; highdicom refuses
END
)
seen=$(bin/python -W ignore - <<'PY'
import highdicom
import numpy as np
import SimpleITK as sitk
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import EnhancedMRImageStorage, ExplicitVRLittleEndian, generate_uid


def group(**attributes):
    item = Dataset()
    item.update(attributes)
    return [item]


def save(path, slices, slopes):
    """Slice n lies at -4n mm (toward the feet, as highdicom sorts) and has the stored value 10 (n + 1)."""
    scan = Dataset()
    scan.file_meta = FileMetaDataset()
    scan.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    scan.SOPClassUID = scan.file_meta.MediaStorageSOPClassUID = EnhancedMRImageStorage
    scan.SOPInstanceUID = scan.file_meta.MediaStorageSOPInstanceUID = generate_uid()
    scan.SeriesInstanceUID, scan.StudyInstanceUID, scan.FrameOfReferenceUID = (generate_uid() for _ in range(3))
    scan.Modality, scan.NumberOfFrames = "MR", len(slices)
    scan.Rows, scan.Columns, scan.SamplesPerPixel, scan.PhotometricInterpretation = 2, 2, 1, "MONOCHROME2"
    scan.BitsAllocated, scan.BitsStored, scan.HighBit, scan.PixelRepresentation = 16, 16, 15, 0
    shared, frames = Dataset(), []
    shared.PlaneOrientationSequence = group(ImageOrientationPatient=[1, 0, 0, 0, 1, 0])
    shared.PixelMeasuresSequence = group(PixelSpacing=[1, 1], SliceThickness=4)
    scan.SharedFunctionalGroupsSequence = [shared]
    for number, slope in zip(slices, slopes):
        frame = Dataset()
        frame.PlanePositionSequence = group(ImagePositionPatient=[0, 0, -4 * number])
        values = {"RescaleSlope": slope, "RescaleIntercept": 0, "RescaleType": "US"}
        frame.PixelValueTransformationSequence = group(**values)
        frames.append(frame)
    scan.PerFrameFunctionalGroupsSequence = frames
    scan.PixelData = b"".join(np.full(4, 10 * (number + 1), np.uint16).tobytes() for number in slices)
    scan.save_as(path, enforce_file_format=True)


def printed(volume, spacing):
    return f"{[round(float(plane.mean())) for plane in volume]}, {spacing:g} mm"


print(f"SimpleITK {sitk.Version.VersionString()}, highdicom {highdicom.__version__}")
ones = (1, 1, 1, 1)
cases = {"in order": ((0, 1, 2, 3), ones), "interleaved": ((0, 2, 1, 3), ones)}
cases |= {"own slopes": ((0, 1, 2, 3), (1, 2, 3, 4)), "one missing": ((0, 1, 3), ones)}
for name, (slices, slopes) in cases.items():
    save("scan.dcm", slices, slopes)
    image = sitk.ReadImage("scan.dcm")
    try:
        volume = highdicom.imread("scan.dcm").get_volume()
        other = printed(volume.array, volume.spacing[0])
    except RuntimeError:
        other = "refuses"
    print(f"{name}: SimpleITK {printed(sitk.GetArrayFromImage(image), image.GetSpacing()[2])}; highdicom {other}")
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
