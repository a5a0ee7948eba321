#!/usr/bin/env bash
# Guess: the pixels of a JPEG in a DICOM file do not depend on which decoder is installed.
# What happens: they do: with subsampled colours two decoders differ in some of the pixels, by up to 3 of 255.
# Features of the same file then differ between two sites, and so does a digest of the pixels.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile pydicom==3.0.2 numpy==2.4.6 pillow==13.0.0 pylibjpeg==2.1.0 pylibjpeg-libjpeg==2.5.0
cd "$place"

expected=$(cat <<'END'
pydicom 3.0.2
SC_rgb_dcmtk_+eb+cy+np.dcm differ: 8.5%, by up to 2
examples_ybr_color.dcm differ: 2.2%, by up to 3
END
)
seen=$(bin/python - <<'PY'
import numpy as np
import pydicom
from pydicom.data import get_testdata_file
from pydicom.pixels import pixel_array

print("pydicom", pydicom.__version__)
for name in ("SC_rgb_dcmtk_+eb+cy+np.dcm", "examples_ybr_color.dcm"):
    path = get_testdata_file(name)
    one, other = (pixel_array(path, decoding_plugin=each).astype(int) for each in ("pillow", "pylibjpeg"))
    print(name, "differ:", f"{np.mean(one != other):.1%}, by up to {np.abs(one - other).max()}")
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
