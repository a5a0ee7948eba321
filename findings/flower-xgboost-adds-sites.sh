#!/usr/bin/env bash
# Guess: FedXgbBagging averages, as bagging does: sites with the same patients have the model of one, and the
# intercept of several is theirs together.
# What happens: the sites' trees are added, so that eight sites take eight steps at once: with a rate of 0.3 an error
# of 10 grows to 44, where one site gets it to 3. The intercept is the one of the site that answers first: the same
# four sites have a mean risk of 0.10 or of 0.91.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile flwr==1.42.0 xgboost-cpu==3.2.0 numpy==2.4.6
cd "$place"

expected=$(cat <<'END'
flwr 1.42.0 xgboost 3.2.0
1 sites with the same patients, error after 5 rounds: 3
2 sites with the same patients, error after 5 rounds: 1
4 sites with the same patients, error after 5 rounds: 2
8 sites with the same patients, error after 5 rounds: 44
the site where the outcome is rare answers first, mean risk: 0.1
the site where the outcome is common answers first, mean risk: 0.91
END
)
seen=$(bin/python - <<'PY'
import logging
from importlib.metadata import version

import numpy as np
import xgboost
from flwr.app import ArrayRecord, Message, Metadata, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedXgbBagging

logging.disable(logging.CRITICAL)
inputs = np.random.default_rng(0).normal(size=(400, 3))


def reply(settings, patients, model):
    """What a site answers: the tree that it grew in this round."""
    booster = xgboost.Booster(settings)
    if model:
        booster.load_model(bytearray(model))
        booster.update(patients, booster.num_boosted_rounds())
        booster = booster[booster.num_boosted_rounds() - 1 : booster.num_boosted_rounds()]
    else:
        booster = xgboost.train(settings, patients, 1)
    arrays = ArrayRecord([np.frombuffer(booster.save_raw("json"), dtype=np.uint8)])
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 400})})
    return Message(content, metadata=Metadata(1, "", 1, 0, "", "", 0.0, 1.0, "train"))


def federation(settings, sites, rounds):
    strategy, model = FedXgbBagging(), b""
    for number in range(1, rounds + 1):
        strategy.current_bst = model  # as configure_train notes
        arrays, _ = strategy.aggregate_train(number, [reply(settings, patients, model) for patients in sites])
        model = arrays["0"].numpy().tobytes()
    booster = xgboost.Booster(settings)
    booster.load_model(bytearray(model))
    return booster


print("flwr", version("flwr"), "xgboost", xgboost.__version__)
pressure = xgboost.DMatrix(inputs, 100 + 10 * inputs[:, 0])
settings = {"objective": "reg:squarederror", "max_depth": 2, "eta": 0.3, "nthread": 1}
for sites in (1, 2, 4, 8):
    errors = federation(settings, [pressure] * sites, 5).predict(pressure) - pressure.get_label()
    print(f"{sites} sites with the same patients, error after 5 rounds:", round(float(np.sqrt(np.mean(errors**2)))))
settings = {"objective": "binary:logistic", "max_depth": 2, "eta": 0.3, "nthread": 1}
rare, common = (xgboost.DMatrix(inputs, inputs[:, 0] > threshold) for threshold in (1.5, -1.5))
for name, sites in (("rare", (rare, common, common, common)), ("common", (common, common, common, rare))):
    risk = federation(settings, sites, 1).predict(common).mean()
    print(f"the site where the outcome is {name} answers first, mean risk:", round(float(risk), 2))
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
