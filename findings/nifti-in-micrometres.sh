#!/usr/bin/env bash
# Guess: the volume of a segmentation does not depend on the unit that a NIfTI file states for its voxels: a scanner
# for small samples that writes micrometres has the lesion of one that writes millimetres.
# What happens: nibabel keeps the unit in the header and does not use it: mask_volume, in cubic millimetres by its
# documentation, is a billion times too large, and nilearn's smoothing by 4 mm does nothing. SimpleITK converts.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile \
    nibabel==5.4.2 nilearn==0.14.1 SimpleITK==2.5.7 numpy==2.4.6 pandas==2.3.3
cd "$place"

expected=$(cat <<'END'
nibabel 5.4.2, nilearn 0.14.1, SimpleITK 2.5.7
lesion in mm: nibabel 480, SimpleITK 480 mm3
smoothed by 4 mm: peak 0.91
lesion in micron: nibabel 480000000000, SimpleITK 480 mm3
smoothed by 4 mm: peak 1.00
END
)
seen=$(bin/python -W ignore - <<'PY'
import nibabel
import nilearn
import numpy as np
import SimpleITK as sitk
from nibabel.imagestats import mask_volume
from nilearn.image import smooth_img

lesion = np.zeros((21, 21, 21), np.uint8)
lesion[8:11, 8:12, 8:13] = 1
print(f"nibabel {nibabel.__version__}, nilearn {nilearn.__version__}, SimpleITK {sitk.Version.VersionString()}")
for unit, size in (("mm", 2), ("micron", 2000)):
    image = nibabel.Nifti1Image(lesion, np.diag([size, size, size, 1]))
    image.header.set_xyzt_units(unit)
    nibabel.save(image, "lesion.nii")
    read, other = nibabel.load("lesion.nii"), sitk.ReadImage("lesion.nii")
    volume = np.prod(other.GetSpacing()) * sitk.GetArrayFromImage(other).sum()
    print(f"lesion in {unit}: nibabel {mask_volume(read):.0f}, SimpleITK {volume:.0f} mm3")
    print(f"smoothed by 4 mm: peak {smooth_img(read, 4).get_fdata().max():.2f}")
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
