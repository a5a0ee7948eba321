#!/usr/bin/env bash
# Guess: FedTrimmedAvg weighs sites by weighted_by_key, which its documentation names for arrays and metrics, and
# trims somebody of four sites with the default of 0.2; q-FedAvg with q=0 is FedAvg.
# What happens: the models of all sites count alike, 10 patients as much as 970, and only the metrics are weighted,
# so that the loss in the log is of another average than the model. 0.2 of four sites is nobody. q=0 is the plain
# mean, too.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile flwr==1.42.0
cd "$place"

expected=$(cat <<'END'
flwr 1.42.0
FedAvg: model 15.66, metric 15.66
FedTrimmedAvg: model 7.50, metric 15.66
FedTrimmedAvg, beta 0.25: model 6.50, metric 15.66
FedMedian: model 6.50, metric 15.66
QFedAvg, q 0: model 7.50, metric 15.66
END
)
seen=$(bin/python - <<'PY'
import logging
from importlib.metadata import version

import numpy as np
from flwr.app import Array, ArrayRecord, Message, Metadata, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg, FedMedian, FedTrimmedAvg, QFedAvg

logging.disable(logging.CRITICAL)


def reply(node, weight, samples):
    arrays = ArrayRecord({"weight": Array(np.float32([weight]))})
    metrics = MetricRecord({"num-examples": samples, "train_loss": 1.0, "mean-weight": weight})
    content = RecordDict({"arrays": arrays, "metrics": metrics})
    return Message(content, metadata=Metadata(1, "", node, 0, "", "", 0.0, 1.0, "train"))


print("flwr", version("flwr"))
for name, strategy in (
    ("FedAvg", FedAvg()),
    ("FedTrimmedAvg", FedTrimmedAvg(beta=0.2)),
    ("FedTrimmedAvg, beta 0.25", FedTrimmedAvg(beta=0.25)),
    ("FedMedian", FedMedian()),
    ("QFedAvg, q 0", QFedAvg(client_learning_rate=0.1, q=0.0)),
):
    strategy.current_arrays = ArrayRecord({"weight": Array(np.float32([0]))})  # as configure_train notes
    replies = [reply(node, *site) for node, site in enumerate(((1.0, 10), (4.0, 10), (9.0, 10), (16.0, 970)))]
    arrays, metrics = strategy.aggregate_train(1, replies)
    print(f"{name}: model {arrays['weight'].numpy().item():.2f}, metric {metrics['mean-weight']:.2f}")
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
