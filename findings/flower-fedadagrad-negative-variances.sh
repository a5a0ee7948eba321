#!/usr/bin/env bash
# Guess: FedAdagrad and FedAdam step with the weights, and average BatchNorm's running statistics, which nobody
# trains.
# What happens: they step with all arrays. Sites that report variances of 0.005 and 0.015, after 0.01 and 0.02, get
# negative ones back, whose square root is no number; a step counter of 120 becomes 100.1.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile flwr==1.42.0
cd "$place"

expected=$(cat <<'END'
flwr 1.42.0
FedAvg {'running_var': [0.004999999888241291, 0.014999999664723873], 'num_batches_tracked': 120.0}
FedAdagrad {'running_var': [-0.0729999989271164, -0.06300000101327896], 'num_batches_tracked': 100.1}
FedAdam {'running_var': [-0.015, -0.005], 'num_batches_tracked': 100.074}
END
)
seen=$(bin/python - <<'PY'
import warnings
from importlib.metadata import version

import numpy as np
from flwr.app import Array, ArrayRecord, Message, Metadata, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAdagrad, FedAdam, FedAvg

warnings.simplefilter("ignore")
model = {"running_var": np.float32([0.01, 0.02]), "num_batches_tracked": np.array(100)}
trained = {"running_var": np.float32([0.005, 0.015]), "num_batches_tracked": np.array(120)}


def reply(node):
    arrays = ArrayRecord({name: Array(array) for name, array in trained.items()})
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 10})})
    return Message(content, metadata=Metadata(1, "", node, 0, "", "", 0.0, 1.0, "train"))


print("flwr", version("flwr"))
for strategy in (FedAvg(), FedAdagrad(), FedAdam()):
    strategy.current_arrays = model  # as configure_train notes
    arrays, _ = strategy.aggregate_train(1, [reply(1), reply(2)])
    print(type(strategy).__name__, {name: array.numpy().round(3).tolist() for name, array in arrays.items()})
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
