#!/usr/bin/env bash
# Guess: the noise that LocalDpMod adds for an epsilon gives this epsilon for one message, where the sensitivity is
# right.
# What happens: its formula is proven for an epsilon below 1 alone, and any is taken. From about 10 on the noise is
# too small: a stated 20 is 25, and a stated 50 is 96.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile flwr==1.42.0
cd "$place"

expected=$(cat <<'END'
flwr 1.42.0
stated 1: noise 4.84, epsilon 1
stated 10: noise 0.48, epsilon 10
stated 20: noise 0.24, epsilon 25
stated 50: noise 0.10, epsilon 97
END
)
seen=$(bin/python - <<'PY'
import logging
import math
from importlib.metadata import version

import numpy as np
from flwr.app import Array, ArrayRecord, Message, Metadata, MetricRecord, RecordDict
from flwr.clientapp.mod import LocalDpMod

logging.disable(logging.CRITICAL)
np.random.seed(0)


def message(array):
    arrays = ArrayRecord({"weight": Array(array)})
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})})
    return Message(content, metadata=Metadata(1, "", 1, 0, "", "", 0.0, 1.0, "train"))


def tail(value):
    return math.erfc(-value / math.sqrt(2)) / 2


def delta(epsilon, noise):
    """Of Gaussian noise for a sensitivity of 1, exactly (Balle and Wang, 2018, Theorem 8)."""
    return tail(0.5 / noise - epsilon * noise) - math.exp(epsilon) * tail(-0.5 / noise - epsilon * noise)


print("flwr", version("flwr"))
trained = np.zeros(1_000_000)
trained[0] = 1.0
for stated in (1, 10, 20, 50):
    mod = LocalDpMod(clipping_norm=1.0, sensitivity=1.0, epsilon=stated, delta=1e-5)
    sent = mod(message(np.zeros(1_000_000)), None, lambda *_: message(trained)).content["arrays"]["weight"].numpy()
    noise = float((sent - trained).std())
    low, high = 0.0, 200.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if delta(middle, noise) > 1e-5 else (low, middle)
    print(f"stated {stated}: noise {noise:.2f}, epsilon {high:.0f}")
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
