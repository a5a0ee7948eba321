#!/usr/bin/env bash
# Guess: a model that was trained with missing=-999 and saved takes -999 as missing when it is loaded.
# What happens: `missing` is not in the file: after load_model it is NaN, and -999 a very low value. One in six
# patients is then in another class, without a word.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile xgboost-cpu==3.2.0 scikit-learn==1.9.1 numpy==2.4.6
cd "$place"

expected=$(cat <<'END'
xgboost 3.2.0
missing: -999 -> nan
classes differ: 17%
END
)
seen=$(bin/python - <<'PY'
import numpy as np
import xgboost

generator = np.random.default_rng(0)
patients = generator.normal(size=(300, 3))
outcome = (patients[:, 0] > 0).astype(int)
patients[generator.random(patients.shape) < 0.3] = -999
trained = xgboost.XGBClassifier(n_estimators=10, missing=-999, n_jobs=1).fit(patients, outcome)
trained.save_model("model.json")
loaded = xgboost.XGBClassifier()
loaded.load_model("model.json")
print("xgboost", xgboost.__version__)
print("missing:", trained.missing, "->", loaded.missing)
print("classes differ:", f"{np.mean(trained.predict(patients) != loaded.predict(patients)):.0%}")
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
