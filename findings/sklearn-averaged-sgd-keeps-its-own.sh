#!/usr/bin/env bash
# Guess: a site that sets coef_ to the global model and calls partial_fit trains on from there, with average=True,
# too.
# What happens: with average=True the model that was set is ignored: from 0 or from 1000, the result is the same, and
# each site trains on its own in all rounds. Without average the model is taken.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile scikit-learn==1.9.1 numpy==2.4.6
cd "$place"

expected=$(cat <<'END'
scikit-learn 1.9.1
SGDClassifier, average=False: from 0 to 0.01, from 1000 to 1000.0
SGDClassifier, average=True: from 0 to 0.01, from 1000 to 0.01
SGDRegressor, average=False: from 0 to 0.0, from 1000 to 979.83
SGDRegressor, average=True: from 0 to 0.0, from 1000 to 0.0
END
)
seen=$(bin/python - <<'PY'
import numpy as np
import sklearn
from sklearn.linear_model import SGDClassifier, SGDRegressor

print("scikit-learn", sklearn.__version__)
generator = np.random.default_rng(0)
inputs = generator.normal(size=(200, 2))
labels = (inputs[:, 0] + generator.normal(size=200) > 0).astype(int)
for kind in (SGDClassifier, SGDRegressor):
    for average in (False, True):
        results = []
        for weight in (0.0, 1000.0):  # two global models of a round
            site = kind(average=average, learning_rate="constant", eta0=1e-4, random_state=0)
            site.partial_fit(inputs, labels, **({"classes": [0, 1]} if kind is SGDClassifier else {}))
            site.coef_ = np.full_like(site.coef_, weight)
            site.intercept_ = np.zeros_like(site.intercept_)
            site.partial_fit(inputs, labels)
            results.append(round(float(site.coef_.flat[0]), 2))
        print(f"{kind.__name__}, average={average}: from 0 to {results[0]}, from 1000 to {results[1]}")
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
