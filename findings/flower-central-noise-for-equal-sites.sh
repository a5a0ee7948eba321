#!/usr/bin/env bash
# Guess: Flower's central differential privacy around FedAvg has its noise for the site that moves the mean most.
# What happens: FedAvg weighs sites by their samples, and the noise is for ten equal ones. With 91% of the samples a
# site moves the mean by nine times what the noise is made for: a stated noise multiplier of 1, an epsilon of 4.4, is
# 0.11 and 80. Nothing is said, unless an accountant is given, which refuses unequal sites.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile flwr==1.42.0
cd "$place"

expected=$(cat <<'END'
flwr 1.42.0
largest site 100 of 1,000 samples: moves the mean by 0.10, noise 0.10: multiplier 1.00, epsilon 4.4
largest site 910 of 1,000 samples: moves the mean by 0.91, noise 0.10: multiplier 0.11, epsilon 79.6
warnings: 0
END
)
seen=$(bin/python - <<'PY'
import logging
import math
from importlib.metadata import version

import numpy as np
from flwr.app import Array, ArrayRecord, Message, Metadata, MetricRecord, RecordDict
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

levels = []
logging.getLogger("flwr").addFilter(lambda record: levels.append(record.levelno))


def mean(sizes, update):
    """Of ten sites, the first of which sends this update, and the others next to none."""
    strategy = DifferentialPrivacyServerSideFixedClipping(
        FedAvg(), noise_multiplier=1.0, clipping_norm=1.0, num_sampled_clients=10
    )
    strategy.current_arrays = ArrayRecord({"weight": Array(np.zeros(200_000))})
    replies = []
    for site, size in enumerate(sizes, start=1):
        sent = np.zeros(200_000)
        sent[0] = update if site == 1 else 1e-9
        content = RecordDict(
            {"arrays": ArrayRecord({"weight": Array(sent)}), "metrics": MetricRecord({"num-examples": size})}
        )
        replies.append(Message(content, metadata=Metadata(1, "", site, 0, "", "", 0.0, 1.0, "train")))
    np.random.seed(0)
    return strategy.aggregate_train(1, replies)[0]["weight"].numpy()


def epsilon(noise, delta=1e-5):
    """Of Gaussian noise for a sensitivity of 1, exactly (Balle and Wang, 2018, Theorem 8)."""

    def tail(value):
        return math.erfc(-value / math.sqrt(2)) / 2

    low, high = 0.0, 300.0
    for _ in range(60):
        middle = (low + high) / 2
        more = tail(0.5 / noise - middle * noise) - math.exp(middle) * tail(-0.5 / noise - middle * noise)
        low, high = (middle, high) if more > delta else (low, middle)
    return high


print("flwr", version("flwr"))
for sizes in ([100] * 10, [910] + [10] * 9):
    without, moved = mean(sizes, 1e-9), mean(sizes, 1.0)
    noise, move = without[1:].std(), moved[0] - without[0]
    print(
        f"largest site {sizes[0]} of 1,000 samples: moves the mean by {move:.2f}, noise {noise:.2f}:"
        f" multiplier {noise / move:.2f}, epsilon {epsilon(noise / move):.1f}"
    )
print("warnings:", sum(level >= logging.WARNING for level in levels))
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
