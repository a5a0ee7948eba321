#!/usr/bin/env bash
# Guess: a segmentation that misses the lesion has no surface distance: it is infinite, no number, or refused.
# What happens: its Hausdorff distance and that of the 95th percentile are 0 mm, as of a perfect one, so that a
# model that misses lesions has a better mean than one that finds them all. A warning is about precision and recall
# alone.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile seg-metrics==1.2.8 numpy==2.4.6 SimpleITK==2.5.7 pandas==3.1.1
cd "$place"

expected=$(cat <<'END'
seg-metrics 1.2.8
perfect hd 0.0 hd95 0.0 dice 1.0
2 mm off hd 2.0 hd95 2.0 dice 0.667
missed hd 0.0 hd95 0.0 dice 0.0
END
)
seen=$(bin/python - <<'PY'
import logging
from importlib.metadata import version

import numpy as np
from seg_metrics.seg_metrics import write_metrics

logging.disable()
lesion = np.zeros((20, 20, 20), np.uint8)
lesion[7:13, 7:13, 7:13] = 1
masks = {"perfect": lesion, "2 mm off": np.roll(lesion, 2, axis=0), "missed": np.zeros_like(lesion)}
print("seg-metrics", version("seg-metrics"))
for name, mask in masks.items():
    names = ["hd", "hd95", "dice"]
    scores = write_metrics([1], gdth_img=lesion, pred_img=mask, metrics=names, spacing=np.ones(3))[0]
    print(name, *(f"{metric} {round(float(scores[metric][0]), 3)}" for metric in names))
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
