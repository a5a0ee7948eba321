#!/usr/bin/env bash
# Guess: a forest that grows on at a second hospital (warm_start=True) keeps its classes, or refuses a hospital with
# other ones, as partial_fit does.
# What happens: the classes are those of the second hospital, and the first one's trees vote by position: where one has
# benign and malignant, the other malignant and suspicious, the first one's benign patients are malignant, and its
# malignant ones suspicious. Nothing is said, in four kinds of ensemble.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile scikit-learn==1.9.1 numpy==2.4.6
cd "$place"

expected=$(cat <<'END'
scikit-learn 1.9.1
RandomForestClassifier: right here 100%, after the second 0%; benign are malignant, malignant are suspicious
ExtraTreesClassifier: right here 100%, after the second 0%; benign are malignant, malignant are suspicious
BaggingClassifier: right here 100%, after the second 0%; benign are malignant, malignant are suspicious
HistGradientBoostingClassifier: right here 100%, after the second 0%; benign are malignant, malignant are suspicious
END
)
seen=$(bin/python - <<'PY'
import warnings

import numpy as np
import sklearn
from sklearn import ensemble

warnings.simplefilter("error")
random = np.random.default_rng(0)
centres = {"benign": 0.0, "malignant": 10.0, "suspicious": 20.0}


def hospital(*classes):
    labels = np.repeat(classes, 100)
    return random.normal(size=(200, 2)) + np.array([[centres[label]] * 2 for label in labels]), labels


here, there = hospital("benign", "malignant"), hospital("malignant", "suspicious")
print("scikit-learn", sklearn.__version__)
for name in (
    "RandomForestClassifier",
    "ExtraTreesClassifier",
    "BaggingClassifier",
    "HistGradientBoostingClassifier",
):
    grown = "max_iter" if name.startswith("Hist") else "n_estimators"
    model = getattr(ensemble, name)(warm_start=True, random_state=0, **{grown: 40}).fit(*here)
    before = model.score(*here)
    model.set_params(**{grown: 50}).fit(*there)
    found = model.predict(here[0])
    told = ", ".join(
        f"{label} are {'/'.join(sorted(set(found[here[1] == label])))}" for label in ("benign", "malignant")
    )
    print(f"{name}: right here {before:.0%}, after the second {np.mean(found == here[1]):.0%}; {told}")
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
