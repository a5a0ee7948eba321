#!/usr/bin/env bash
# Guess: FedXgbBagging's model has all trees that the sites have grown in a round, for any number of steps and
# classes.
# What happens: of each reply but the very first it takes one tree. Of four sites with five steps a round, 28 of 40
# trees are gone after two rounds; with three classes, 14 of 24, and all further ones are of the first class. The log
# says nothing.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile flwr==1.42.0 xgboost-cpu==3.2.0 numpy==2.4.6
cd "$place"

expected=$(cat <<'END'
flwr 1.42.0 xgboost 3.2.0
2 classes, 1 steps a round: 8 trees grown, 8 in the model, by class: [8]
2 classes, 5 steps a round: 40 trees grown, 12 in the model, by class: [12]
3 classes, 1 steps a round: 24 trees grown, 10 in the model, by class: [8, 1, 1]
END
)
seen=$(bin/python - <<'PY'
import json
import logging
from importlib.metadata import version

import numpy as np
import xgboost
from flwr.app import ArrayRecord, Message, Metadata, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedXgbBagging

logging.disable(logging.CRITICAL)
inputs = np.random.default_rng(0).normal(size=(400, 3))
binary = {"objective": "binary:logistic", "max_depth": 2, "nthread": 1}
three = {"objective": "multi:softprob", "num_class": 3, "max_depth": 2, "nthread": 1}


def reply(node, settings, patients, rounds, model):
    """What a site answers: the trees that it grew in this round."""
    if model:
        booster = xgboost.Booster(settings)
        booster.load_model(bytearray(model))
        before = booster.num_boosted_rounds()
        for step in range(rounds):
            booster.update(patients, before + step)
        booster = booster[before : before + rounds]
    else:
        booster = xgboost.train(settings, patients, rounds)
    arrays = ArrayRecord([np.frombuffer(booster.save_raw("json"), dtype=np.uint8)])
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 400})})
    return Message(content, metadata=Metadata(1, "", node, 0, "", "", 0.0, 1.0, "train")), len(booster.get_dump())


print("flwr", version("flwr"), "xgboost", xgboost.__version__)
for settings, classes, rounds in ((binary, 2, 1), (binary, 2, 5), (three, 3, 1)):
    patients = xgboost.DMatrix(inputs, np.digitize(inputs[:, 0], (0,) if classes == 2 else (-0.5, 0.5)))
    strategy, model, grown = FedXgbBagging(), b"", 0
    for number in (1, 2):
        strategy.current_bst = model  # as configure_train notes
        replies, trees = zip(*(reply(node, settings, patients, rounds, model) for node in range(4)), strict=True)
        arrays, _ = strategy.aggregate_train(number, replies)
        model, grown = arrays["0"].numpy().tobytes(), grown + sum(trees)
    owners = json.loads(model)["learner"]["gradient_booster"]["model"]["tree_info"]
    print(f"{classes} classes, {rounds} steps a round: {grown} trees grown, {len(owners)} in the model,",
          "by class:", np.bincount(owners).tolist())
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
