#!/usr/bin/env bash
# Guess: a classifier whose threshold was tuned is exported with its threshold, or refused.
# What happens: the graph has the probabilities right, and the classes of the threshold 0.5: all that the tuning
# changed is gone, without a word.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile scikit-learn==1.9.1 skl2onnx==1.20.0 onnxruntime==1.31.1 numpy==2.4.6
cd "$place"

expected=$(cat <<'END'
skl2onnx 1.20.0
probabilities differ by up to 0.0
scikit-learn sensitivity 0.96
ONNX sensitivity 0.23
END
)
seen=$(bin/python - <<'PY'
import numpy as np
import onnxruntime
import skl2onnx
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import recall_score
from sklearn.model_selection import TunedThresholdClassifierCV

generator = np.random.default_rng(0)
patients = generator.normal(size=(400, 3)).astype(np.float32)
outcome = (patients[:, 0] + generator.normal(size=400) > 2).astype(int)
model = TunedThresholdClassifierCV(LogisticRegression()).fit(patients, outcome)
graph = skl2onnx.to_onnx(model, patients[:1], options={"zipmap": False}).SerializeToString()
session = onnxruntime.InferenceSession(graph)
classes, probabilities = session.run(None, {session.get_inputs()[0].name: patients})
print("skl2onnx", skl2onnx.__version__)
print("probabilities differ by up to", round(float(np.abs(probabilities - model.predict_proba(patients)).max()), 5))
for name, predicted in (("scikit-learn", model.predict(patients)), ("ONNX", classes)):
    print(name, f"sensitivity {recall_score(outcome, predicted):.2f}")
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
