#!/usr/bin/env bash
# Guess: a model that hospital A stopped early, and hospital B trains on (xgb_model=), predicts with the trees of both.
# What happens: the number of A's best round goes on with the model, and predict stops there: B's 40 trees are in the
# file, and none of them is ever used, without a word. B's model is A's to the bit, with its error at B.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile xgboost-cpu==3.2.0 scikit-learn==1.9.1 numpy==2.4.6
cd "$place"

expected=$(cat <<'END'
xgboost 3.2.0
rounds that B added: 40
predictions of B's model are A's: True
saved and loaded, too: True
error at B of A's model: 5.0
error at B of B's model: 5.0
with all rounds: 0.1
END
)
seen=$(bin/python - <<'PY'
import warnings

import numpy as np
import xgboost as xgb

warnings.simplefilter("error")
random = np.random.default_rng(0)


def patients(count, shift):
    table = random.normal(size=(count, 4))
    return table, 2 * table[:, 0] + shift * table[:, 1] + 0.1 * random.normal(size=count)


print("xgboost", xgb.__version__)
train, check, other = patients(400, 0), patients(200, 0), patients(400, 5)
settings = {"learning_rate": 0.3, "n_jobs": 1, "random_state": 0}
first = xgb.XGBRegressor(n_estimators=200, early_stopping_rounds=5, **settings)
first.fit(*train, eval_set=[check], verbose=False)
second = xgb.XGBRegressor(n_estimators=40, **settings).fit(*other, xgb_model=first)
second.save_model("second.json")
loaded = xgb.XGBRegressor()
loaded.load_model("second.json")


def error(predicted):
    return f"{np.sqrt(np.mean((predicted - other[1]) ** 2)):.1f}"


rounds = second.get_booster().num_boosted_rounds()
print("rounds that B added:", rounds - first.get_booster().num_boosted_rounds())
print("predictions of B's model are A's:", np.array_equal(first.predict(other[0]), second.predict(other[0])))
print("saved and loaded, too:", np.array_equal(first.predict(other[0]), loaded.predict(other[0])))
print("error at B of A's model:", error(first.predict(other[0])))
print("error at B of B's model:", error(second.predict(other[0])))
print("with all rounds:", error(second.predict(other[0], iteration_range=(0, rounds))))
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
