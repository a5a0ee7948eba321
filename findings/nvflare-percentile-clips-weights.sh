#!/usr/bin/env bash
# Guess: the filter PercentilePrivacy truncates what a site has changed, to 0.01 by default, and leaves a whole
# model alone or refuses it; the same update is truncated alike at all sites.
# What happens: a whole model, which clients send by default, is itself truncated: weights of 0.5 and running
# variances of 12 arrive as 0.01. And the limit is one for each step, so that a site that reports 100 steps sends
# what a site with one step may not.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile nvflare==2.9.0 numpy==2.4.6
cd "$place"

expected=$(cat <<'END'
nvflare 2.9.0
DataKind.WEIGHTS steps 1: {'weight': [0.01, -0.01, 0.0], 'running_var': [0.01, 0.01]}
DataKind.WEIGHT_DIFF steps 1: {'weight': [0.01, -0.01, 0.0], 'running_var': [0.01, 0.01]}
DataKind.WEIGHT_DIFF steps 100: {'weight': [0.5, -0.3, 0.0], 'running_var': [1.0, 1.0]}
END
)
seen=$(bin/python - <<'PY'
import logging

import numpy as np
import nvflare
from nvflare.apis.dxo import DXO, DataKind, MetaKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy

logging.disable(logging.CRITICAL)
print("nvflare", nvflare.__version__)
for kind, steps in ((DataKind.WEIGHTS, 1), (DataKind.WEIGHT_DIFF, 1), (DataKind.WEIGHT_DIFF, 100)):
    arrays = {"weight": np.array([0.5, -0.3, 0.02]), "running_var": np.array([12.0, 3.0])}
    message = DXO(kind, data=arrays, meta={MetaKey.NUM_STEPS_CURRENT_ROUND: steps})
    sent = PercentilePrivacy().process_dxo(message, Shareable(), FLContext()).data
    print(kind, f"steps {steps}:", {name: array.tolist() for name, array in sent.items()})
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
