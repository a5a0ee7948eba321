#!/usr/bin/env bash
# Guess: Flower's local differential privacy clips what a network learns to the norm that is asked for, and adds
# noise to all that leaves.
# What happens: BatchNorm's step counter counts in the norm: 20 more steps have a norm of 20, beside which the
# weights' update of 0.5 is scaled down to 0.025, far below the noise. The counter itself leaves as it is, and
# running variances of 0.01 turn negative under the noise.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile flwr==1.42.0
cd "$place"

expected=$(cat <<'END'
flwr 1.42.0
norm of the weights' update, 0.5, after clipping to 1: 0.025
num_batches_tracked: 120 | negative variances: 1 of 4
END
)
seen=$(bin/python - <<'PY'
from importlib.metadata import version

import numpy as np
from flwr.supercore.differential_privacy import add_gaussian_noise_inplace, compute_clip_model_update

# As in LocalDpMod: a layer's weights, and BatchNorm's running_var and num_batches_tracked.
received = [np.zeros(2, np.float32), np.full(4, 0.01, np.float32), np.array(100)]
trained = [np.array([0.3, -0.4], np.float32), np.full(4, 0.02, np.float32), np.array(120)]
compute_clip_model_update(trained, received, 1.0)
print("flwr", version("flwr"))
print("norm of the weights' update, 0.5, after clipping to 1:", round(float(np.linalg.norm(trained[0])), 3))
np.random.seed(0)
add_gaussian_noise_inplace(trained, 0.1)
print("num_batches_tracked:", int(trained[2]), "| negative variances:", int((trained[1] < 0).sum()), "of 4")
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
