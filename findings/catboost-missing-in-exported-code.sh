#!/usr/bin/env bash
# Guess: a model exported as code answers as the model does, for missing values, too.
# What happens: the code has no rule for them: a missing value is below each border. With nan_mode="Max", for a value
# that is missing where it is high, the model has it above them: all patients without the value are in the other class,
# and nothing is said. The exports to JSON and ONNX are right.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile catboost==1.2.10 onnxruntime==1.31.1 numpy==2.4.6
cd "$place"

expected=$(cat <<'END'
catboost 1.2.10
Min, the model: right with the value 100%, without 100%
Min, Python: right with the value 100%, without 100%
Min, JSON: right with the value 100%, without 100%
Min, ONNX: right with the value 100%, without 100%
Max, the model: right with the value 100%, without 100%
Max, Python: right with the value 100%, without 0%
Max, JSON: right with the value 100%, without 100%
Max, ONNX: right with the value 100%, without 100%
END
)
seen=$(bin/python - <<'PY'
import catboost
import numpy as np
import onnxruntime

random = np.random.default_rng(0)
table = random.normal(size=(1000, 3)).astype(np.float32)
missing = random.random(1000) < 0.2
ill = ((table[:, 0] > 0) | missing).astype(int)
table[missing, 0] = np.nan

print("catboost", catboost.__version__)
for rule in ("Min", "Max"):
    model = catboost.CatBoostClassifier(
        iterations=30, nan_mode=rule, random_seed=0, thread_count=1, verbose=False, allow_writing_files=False
    ).fit(table, ill)
    for form in ("python", "json", "onnx"):
        model.save_model(f"model.{form}", format=form)
    code = {}
    exec(open("model.python").read(), code)
    loaded = catboost.CatBoostClassifier().load_model("model.json", format="json")
    session = onnxruntime.InferenceSession("model.onnx")
    classes = {
        "the model": model.predict(table),
        "Python": np.array([code["apply_catboost_model"](row.tolist()) > 0 for row in table]),
        "JSON": loaded.predict(table, prediction_type="RawFormulaVal") > 0,
        "ONNX": session.run(None, {session.get_inputs()[0].name: table})[0],
    }
    for name, found in classes.items():
        right = found == ill
        print(f"{rule}, {name}: right with the value {right[~missing].mean():.0%}, without {right[missing].mean():.0%}")
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
