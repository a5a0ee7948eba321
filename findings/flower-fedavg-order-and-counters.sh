#!/usr/bin/env bash
# Guess: FedAvg's average does not depend on the order in which replies arrive, and a counter such as BatchNorm's
# num_batches_tracked stays a whole number.
# What happens: weights are summed in float32 in the order of arrival: the 24 orders of four sites have 12
# different results in the last bits, so that two runs of one seed differ. Integers are averaged too, and come
# back as floats.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile flwr==1.42.0
cd "$place"

expected=$(cat <<'END'
flwr 1.42.0
results: 12
num_batches_tracked: 4.689 float64
END
)
seen=$(bin/python - <<'PY'
import itertools
from importlib.metadata import version

import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
from flwr.serverapp.strategy.strategy_utils import aggregate_arrayrecords

generator = np.random.default_rng(0)
sites = [
    RecordDict({
        "arrays": ArrayRecord({
            "weight": Array(generator.normal(size=100).astype(np.float32)),
            "num_batches_tracked": Array(np.array(3 + site)),
        }),
        "metrics": MetricRecord({"num-examples": samples}),
    })
    for site, samples in enumerate((50, 700, 90, 411))
]
averages = [aggregate_arrayrecords(list(order), "num-examples") for order in itertools.permutations(sites)]
counter = averages[0]["num_batches_tracked"].numpy()
print("flwr", version("flwr"))
print("results:", len({average["weight"].numpy().tobytes() for average in averages}))
print("num_batches_tracked:", round(float(counter), 3), counter.dtype)
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
