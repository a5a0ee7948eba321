#!/usr/bin/env bash
# Guess: an array that is saved is the array that is loaded.
# What happens: save_file of safetensors.numpy writes the memory and not the elements: a transposed array, or
# every second one of a vector, comes back as other numbers of the same shape, without a word. An image that
# nibabel has read is such an array, and a mask comes back transposed. np.ascontiguousarray before saving mends
# it; the version for PyTorch refuses such tensors.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile safetensors==0.8.0 nibabel==5.4.2 numpy==2.4.6
cd "$place"

expected=$(cat <<'END'
safetensors 0.8.0
transposed [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]] -> [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
every second [0.0, 2.0, 4.0] -> [0.0, 1.0, 2.0]
mask [[0.0, 1.0], [0.0, 0.0]] -> [[0.0, 0.0], [1.0, 0.0]]
END
)
seen=$(bin/python - <<'PY'
import nibabel as nib
import numpy as np
import safetensors
from safetensors.numpy import load_file, save_file

square = np.arange(6.0).reshape(2, 3)
nib.save(nib.Nifti1Image(np.array([[0.0, 1.0], [0.0, 0.0]]), np.eye(4)), "mask.nii")
mask = np.asarray(nib.load("mask.nii").dataobj)
print("safetensors", safetensors.__version__)
for name, array in (("transposed", square.T), ("every second", np.arange(6.0)[::2]), ("mask", mask)):
    save_file({"x": array}, "x.safetensors")
    print(name, array.tolist(), "->", load_file("x.safetensors")["x"].tolist())
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
