#!/usr/bin/env bash
# Guess: quadratic kappa of grades 0 to 4, as of eyes or tumours, weighs a disagreement by the difference of the grades:
# 9 for 1 against 4, in any hospital.
# What happens: by the difference of their places among the grades that occur. Where nobody has the grades 2 and 3, 1
# against 4 weighs 1, as neighbours do, and the same readings have a kappa of 0.76 in place of 0.68; each further grade
# that a patient has changes the weights of all others. statsmodels does the same. labels=[0, 1, 2, 3, 4] mends it.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile \
    scikit-learn==1.9.1 statsmodels==0.15.0 numpy==2.4.6 pandas==2.3.3 scipy==1.17.1
cd "$place"

expected=$(cat <<'END'
scikit-learn 1.9.1, statsmodels 0.15.0
grades 0, 1, 4: scikit-learn 0.76, statsmodels 0.76, by the grades 0.68
with a patient of 2: scikit-learn 0.71, statsmodels 0.71, by the grades 0.68
with one of 2, one of 3: scikit-learn 0.69, statsmodels 0.69, by the grades 0.69
END
)
seen=$(bin/python - <<'PY'
import numpy as np
import sklearn
import statsmodels
from sklearn.metrics import cohen_kappa_score
from statsmodels.stats.inter_rater import cohens_kappa, to_table

doctor = [0, 0, 0, 1, 1, 1, 4, 4, 4, 4]
model = [0, 0, 1, 1, 1, 4, 4, 4, 1, 4]


def by_the_grades(one, other):
    """1 less the mean squared difference of the pairs, over that of all pairings."""
    one, other = np.asarray(one), np.asarray(other)
    return 1 - np.mean((one - other) ** 2) / np.mean((one[:, None] - other) ** 2)


print(f"scikit-learn {sklearn.__version__}, statsmodels {statsmodels.__version__}")
cases = {"grades 0, 1, 4": [], "with a patient of 2": [2], "with one of 2, one of 3": [2, 3]}
for name, more in cases.items():
    one, other = doctor + more, model + more
    kappa = cohen_kappa_score(one, other, weights="quadratic")
    table, _ = to_table(np.column_stack([one, other]))
    second = cohens_kappa(table, wt="quadratic").kappa
    true = by_the_grades(one, other)
    assert np.isclose(cohen_kappa_score(one, other, weights="quadratic", labels=range(5)), true)
    print(f"{name}: scikit-learn {kappa:.2f}, statsmodels {second:.2f}, by the grades {true:.2f}")
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
