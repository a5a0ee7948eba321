#!/usr/bin/env bash
# Guess: a segmentation with the labels 0, 1, 2, 4 that was computed in floats and is saved as uint8 has these
# labels when it is read.
# What happens: the header is given a slope so that the range fills the type: the stored bytes are 0, 64, 127,
# 255, and the labels read are 1.0039, 1.9922 and 4.0000002. A comparison with == finds no voxel of a label.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile nibabel==5.4.2 numpy==2.4.6
cd "$place"

expected=$(cat <<'END'
nibabel 5.4.2
stored [0, 64, 127, 255]
read [0.0, 1.0039216, 1.992157, 4.0000002]
voxels of label 1: 0
END
)
seen=$(bin/python - <<'PY'
import nibabel as nib
import numpy as np

labels = np.array([0.0, 1.0, 2.0, 4.0]).reshape(4, 1, 1)
image = nib.Nifti1Image(labels, np.eye(4))
image.set_data_dtype(np.uint8)
nib.save(image, "mask.nii")
found = nib.load("mask.nii")
print("nibabel", nib.__version__)
print("stored", found.dataobj.get_unscaled().ravel().tolist())
print("read", [round(value, 7) for value in found.get_fdata().ravel().tolist()])
print("voxels of label 1:", int((found.get_fdata() == 1).sum()))
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
