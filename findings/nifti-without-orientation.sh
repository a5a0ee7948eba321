#!/usr/bin/env bash
# Guess: an image whose header tells no orientation (both codes 0) is left as it is by as_closest_canonical, or
# refused.
# What happens: it is taken as right-to-left along the first axis and mirrored. Images of one study with and
# without codes then have left and right exchanged.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile nibabel==5.4.2 numpy==2.4.6
cd "$place"

expected=$(cat <<'END'
nibabel 5.4.2
coded.nii codes (0, 2) voxels [1, 2, 3]
uncoded.nii codes (0, 0) voxels [3, 2, 1]
END
)
seen=$(bin/python - <<'PY'
import nibabel as nib
import numpy as np

voxels = np.array([1, 2, 3], np.int16).reshape(3, 1, 1)
print("nibabel", nib.__version__)
for name, affine in (("coded.nii", np.eye(4)), ("uncoded.nii", None)):
    nib.save(nib.Nifti1Image(voxels, affine), name)
    image = nib.load(name)
    codes = int(image.header["qform_code"]), int(image.header["sform_code"])
    turned = nib.as_closest_canonical(image)
    print(name, "codes", codes, "voxels", np.asarray(turned.dataobj).ravel().tolist())
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
