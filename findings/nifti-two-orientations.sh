#!/usr/bin/env bash
# Guess: two readers of one file agree on where its voxels lie in the patient.
# What happens: a file may have two orientations, qform and sform, and after a registration they differ. nibabel
# takes sform, SimpleITK qform, unless sform is the scanner's, too: here the same voxel lies 27 mm apart, and the
# first axis runs to the front in one and to the right in the other.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile nibabel==5.4.2 SimpleITK==2.5.7 numpy==2.4.6
cd "$place"

expected=$(cat <<'END'
nibabel 5.4.2 SimpleITK 2.5.7
nibabel first voxel at [10.0, 20.0, 16.0] first axis [0.0, 1.0, 0.0]
SimpleITK first voxel at [0.0, 0.0, 0.0] first axis [1.0, 0.0, 0.0]
apart: 27 mm
END
)
seen=$(bin/python - <<'PY'
import nibabel as nib
import numpy as np
import SimpleITK as sitk

scanner = np.diag([2.0, 2.0, 2.0, 1.0])
registered = np.array([[0, -2.0, 0, 10], [2, 0, 0, 20], [0, 0, 2, 16], [0, 0, 0, 1]])
image = nib.Nifti1Image(np.zeros((4, 4, 4), np.int16), registered)
image.set_qform(scanner, code=1)  # of the scanner
image.set_sform(registered, code=4)  # of the atlas
nib.save(image, "scan.nii")
one, other = nib.load("scan.nii").affine, sitk.ReadImage("scan.nii")
turn = np.diag([-1, -1, 1])  # SimpleITK's axes run to the left and back, nibabel's to the right and front
places = [one[:3, 3], turn @ other.GetOrigin()]
axes = [one[:3, 0] / 2, turn @ np.reshape(other.GetDirection(), (3, 3))[:, 0]]
print("nibabel", nib.__version__, "SimpleITK", sitk.Version_VersionString())
for name, place, axis in zip(("nibabel", "SimpleITK"), places, axes):
    print(name, "first voxel at", (place + 0.0).tolist(), "first axis", (axis + 0.0).tolist())
print("apart:", round(float(np.linalg.norm(places[0] - places[1]))), "mm")
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
