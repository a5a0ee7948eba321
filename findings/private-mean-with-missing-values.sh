#!/usr/bin/env bash
# Guess: a private mean that skips missing values has the noise that the values present need: the fewer they are, the
# more one patient weighs.
# What happens: the noise is for all rows, missing or not, and the accountant is told the epsilon that was asked for.
# Where 90 of 100 patients lack the value, one of the other ten moves the mean by ten times what the noise is made for:
# an epsilon of 1 is 10. The same for the private standard deviation.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile diffprivlib==0.6.6 scikit-learn==1.6.1 numpy==2.4.6
cd "$place"

expected=$(cat <<'END'
diffprivlib 0.6.6
values from 0 to 100, epsilon 1 asked for
0 of 100 missing: one patient moves the mean by 1.0, noise of scale 1.0, epsilon 1, counted 1
50 of 100 missing: one patient moves the mean by 2.0, noise of scale 1.0, epsilon 2, counted 1
90 of 100 missing: one patient moves the mean by 10.0, noise of scale 1.0, epsilon 10, counted 1
the ten values present, by mean: noise of scale 10
END
)
seen=$(bin/python - <<'PY'
import warnings
from importlib.metadata import version

import numpy as np
from diffprivlib import BudgetAccountant
from diffprivlib.tools import mean, nanmean

warnings.simplefilter("error")


def scale(function, values):
    """Of Laplace noise, by its median, which truncation at the bounds leaves alone here."""
    draws = np.array([function(values, epsilon=1, bounds=(0, 100), random_state=seed) for seed in range(4000)])
    return np.median(np.abs(draws - np.nanmean(values))) / np.log(2)


print("diffprivlib", version("diffprivlib"))
print("values from 0 to 100, epsilon 1 asked for")
for missing in (0, 50, 90):
    values = np.full(100, 50.0)
    values[:missing] = np.nan
    other = values.copy()
    values[-1], other[-1] = 0.0, 100.0
    moved = np.nanmean(other) - np.nanmean(values)
    spent = BudgetAccountant()
    nanmean(values, epsilon=1, bounds=(0, 100), random_state=0, accountant=spent)
    noise = scale(nanmean, values)
    print(
        f"{missing} of 100 missing: one patient moves the mean by {moved:.1f}, noise of scale {noise:.1f},"
        f" epsilon {moved / noise:.0f}, counted {spent.total()[0]:g}"
    )
print(f"the ten values present, by mean: noise of scale {scale(mean, values[90:]):.0f}")
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
