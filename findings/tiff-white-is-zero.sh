#!/usr/bin/env bash
# Guess: a grey TIFF in which 0 is white, as scanners of films write them, looks alike in all readers, and with 8
# bits as with 16.
# What happens: tifffile and SimpleITK give the stored numbers, a negative of the picture; pyvips turns them; Pillow
# turns 8 bits, and leaves 16 as they are. X-rays of one archive are negatives of each other by the reader, or by
# their bits.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile tifffile==2026.3.3 pillow==13.0.0 SimpleITK==2.5.7 pyvips-binary==8.18.7 pyvips==3.2.0 numpy==2.4.6
cd "$place"

expected=$(cat <<'END'
tifffile 2026.3.3 Pillow 13.0.0 SimpleITK 2.5.7 pyvips 3.2.0
white, of 8 bits: tifffile 0 SimpleITK 0 Pillow 255 pyvips 255
white, of 16 bits: tifffile 0 SimpleITK 0 Pillow 0 pyvips 65535
END
)
seen=$(bin/python - <<'PY'
import numpy as np
import PIL
import pyvips
import SimpleITK as sitk
import tifffile
from PIL import Image

versions = "tifffile", tifffile.__version__, "Pillow", PIL.__version__
print(*versions, "SimpleITK", sitk.Version.VersionString(), "pyvips", pyvips.__version__)
for bits, kind in ((8, np.uint8), (16, np.uint16)):
    file = f"film{bits}.tif"
    film = np.linspace(0, 2**bits - 1, 64).reshape(8, 8).astype(kind)
    tifffile.imwrite(file, film, photometric="miniswhite")
    pixels = {
        "tifffile": tifffile.imread(file),
        "SimpleITK": sitk.GetArrayFromImage(sitk.ReadImage(file)),
        "Pillow": np.asarray(Image.open(file)),
        "pyvips": pyvips.Image.new_from_file(file).numpy(),
    }
    print(f"white, of {bits} bits:", *(f"{reader} {image[0, 0]}" for reader, image in pixels.items()))
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
