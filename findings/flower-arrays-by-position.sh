#!/usr/bin/env bash
# Guess: arrays of a model have names, so that a site may list them in any order, in every strategy.
# What happens: FedAvg and FedMedian go by the name; FedAvgM, QFedAvg, Bulyan and clipping at the server by the
# position. Where a site lists arrays of one shape in another order (sorted, say), these mix: QFedAvg returns body
# and head exchanged, and clipping moves a head of 10 to 0.55, without a word.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile flwr==1.42.0
cd "$place"

expected=$(cat <<'END'
flwr 1.42.0
arrays in the server's order:
    FedAvg {'body': 1.0, 'head': 11.0}
    FedMedian {'body': 1.0, 'head': 11.0}
    FedAvgM {'body': 0.5, 'head': 10.5}
    QFedAvg {'body': 1.0, 'head': 11.0}
    Bulyan {'body': 1.0, 'head': 11.0}
    DifferentialPrivacyServerSideFixedClipping {'body': 0.5, 'head': 10.5}
arrays in the other:
    FedAvg {'body': 1.0, 'head': 11.0}
    FedMedian {'body': 1.0, 'head': 11.0}
    FedAvgM {'body': 5.5, 'head': 5.5}
    QFedAvg {'body': 11.0, 'head': 1.0}
    Bulyan {'body': 1.0, 'head': 11.0}
    DifferentialPrivacyServerSideFixedClipping {'body': 9.55, 'head': 0.55}
arrays two in each:
    FedAvg {'body': 1.0, 'head': 11.0}
    FedMedian {'body': 1.0, 'head': 11.0}
    FedAvgM {'body': 0.5, 'head': 10.5}
    QFedAvg {'body': 6.0, 'head': 6.0}
    Bulyan {'body': 6.0, 'head': 6.0}
    DifferentialPrivacyServerSideFixedClipping {'body': 5.03, 'head': 5.52}
END
)
seen=$(bin/python - <<'PY'
import logging
from importlib.metadata import version

import numpy as np
from flwr.app import Array, ArrayRecord, Message, Metadata, MetricRecord, RecordDict
from flwr.serverapp.strategy import (
    Bulyan,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
    FedAvgM,
    FedMedian,
    QFedAvg,
)

logging.disable(logging.CRITICAL)
model = {"body": np.float32([0, 0]), "head": np.float32([10, 10])}
trained = {"body": np.float32([1, 1]), "head": np.float32([11, 11])}


def record(arrays, names):
    return ArrayRecord({name: Array(arrays[name]) for name in names})


def reply(node, names):
    metrics = MetricRecord({"num-examples": 10, "train_loss": 1.0})
    content = RecordDict({"arrays": record(trained, names), "metrics": metrics})
    return Message(content, metadata=Metadata(1, "", node, 0, "", "", 0.0, 1.0, "train"))


def averages(strategy, orders):
    strategy.current_arrays = record(model, ("body", "head"))  # as configure_train notes
    arrays, _ = strategy.aggregate_train(1, [reply(node, names) for node, names in enumerate(orders)])
    return {name: round(float(arrays[name].numpy()[0]), 2) for name in ("body", "head")}


print("flwr", version("flwr"))
one, other = ("body", "head"), ("head", "body")
for label, orders in (
    ("in the server's order", [one] * 4),
    ("in the other", [other] * 4),
    ("two in each", [one, one, other, other]),
):
    print(f"arrays {label}:")
    for strategy in (
        FedAvg(),
        FedMedian(),
        FedAvgM(server_learning_rate=0.5),
        QFedAvg(client_learning_rate=0.1, q=0.0),
        Bulyan(),
        DifferentialPrivacyServerSideFixedClipping(FedAvg(), 0.0, 1.0, 4),
    ):
        print("   ", type(strategy).__name__, averages(strategy, orders))
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
