#!/usr/bin/env bash
# Guess: a random forest with differential privacy learns classes that are named "benign" and "malignant", or 1 and 2,
# as it learns 0 and 1.
# What happens: each tree is given the numbers 0 and 1 and looks for the names among them: its leaves find no patient,
# and are drawn at random, without a word. Of the classes 1 and 2 all patients are 1. The budget is spent all the same.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile diffprivlib==0.6.6 scikit-learn==1.6.1 numpy==2.4.6
cd "$place"

expected=$(cat <<'END'
diffprivlib 0.6.6
2,000 patients, half of them ill, ten forests of 20 trees, epsilon 10
[0, 1]: mean accuracy 0.94, worst 0.92, share of 1: 0.48, epsilon spent: 100
[False, True]: mean accuracy 0.94, worst 0.92, share of True: 0.48, epsilon spent: 100
[1, 2]: mean accuracy 0.49, worst 0.48, share of 2: 0.00, epsilon spent: 100
['benign', 'malignant']: mean accuracy 0.47, worst 0.27, share of malignant: 0.45, epsilon spent: 100
END
)
seen=$(bin/python - <<'PY'
import warnings
from importlib.metadata import version

import numpy as np
from diffprivlib import BudgetAccountant
from diffprivlib.models import RandomForestClassifier

warnings.simplefilter("error")
random = np.random.default_rng(0)
table = random.uniform(-3, 3, size=(2000, 3))
ill = (table[:, 0] > 0).astype(int)
print("diffprivlib", version("diffprivlib"))
print("2,000 patients, half of them ill, ten forests of 20 trees, epsilon 10")
for classes in ([0, 1], [False, True], [1, 2], ["benign", "malignant"]):
    labels = np.array(classes)[ill]
    scores, shares, spent = [], [], BudgetAccountant()
    for seed in range(10):
        forest = RandomForestClassifier(
            20, epsilon=10, bounds=(-3, 3), classes=classes, random_state=seed, accountant=spent
        ).fit(table, labels)
        scores.append(forest.score(table, labels))
        shares.append(np.mean(forest.predict(table) == classes[1]))
    right = f"mean accuracy {np.mean(scores):.2f}, worst {min(scores):.2f}"
    print(f"{classes}: {right}, share of {classes[1]}: {np.mean(shares):.2f}, epsilon spent: {spent.total()[0]:g}")
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
