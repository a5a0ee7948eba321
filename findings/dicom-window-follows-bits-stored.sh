#!/usr/bin/env bash
# Guess: the same stored numbers with the same window have the same grey values, whatever the header says of
# unused bits; or grey values have one range, such as 0 to 1.
# What happens: the range of the result is that of BitsStored. A scanner that writes 16 bits gives 16 times the
# grey values of one that writes 12, for the same image and window.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile pydicom==3.0.2 numpy==2.4.6
cd "$place"

expected=$(cat <<'END'
pydicom 3.0.2
12 bits: [0.0, 1023.75, 3071.25, 4095.0]
16 bits: [0.0, 16383.75, 49151.25, 65535.0]
END
)
seen=$(bin/python - <<'PY'
import numpy as np
import pydicom
from pydicom.dataset import Dataset
from pydicom.pixels import apply_windowing

stored = np.array([1000, 1024, 1034, 1100], np.uint16)
print("pydicom", pydicom.__version__)
for bits in (12, 16):
    scan = Dataset()
    scan.BitsStored, scan.PixelRepresentation = bits, 0
    scan.PhotometricInterpretation = "MONOCHROME2"
    scan.WindowCenter, scan.WindowWidth = 1029.5, 21
    print(bits, "bits:", apply_windowing(stored, scan).tolist())
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
