#!/usr/bin/env bash
# Guess: the mean of an image's channels in float32 is right to some digits, for any number of images.
# What happens: NumPy adds in pairs along the last axis, but one by one along the others, and channels often lie
# last. Over 1,000 images a mean of 0.5 is 0.33, since the sum no longer grows. dtype=np.float64 mends it.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile numpy==2.4.6
cd "$place"

expected=$(cat <<'END'
numpy 2.4.6
100 images, float32 mean of a channel 0.50
100 images, float64 mean of a channel 0.50
1000 images, float32 mean of a channel 0.33
1000 images, float64 mean of a channel 0.50
END
)
seen=$(bin/python - <<'PY'
import numpy as np

image = np.random.default_rng(0).random((224, 224, 3), dtype=np.float32)
print("numpy", np.__version__)
for count in (100, 1000):
    images = np.broadcast_to(image, (count, *image.shape))
    for kind in (np.float32, np.float64):
        means = images.mean(axis=(0, 1, 2), dtype=kind)
        print(count, "images,", kind.__name__, "mean of a channel", f"{means[0]:.2f}")
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
