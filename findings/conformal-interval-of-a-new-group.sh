#!/usr/bin/env bash
# Guess: intervals that are calibrated group by group are infinite for a group without a patient in the calibration, as
# they are, with a warning, for one with too few; or it is refused.
# What happens: the interval is from 0 to 0, without a word: a blood pressure at a new hospital is 0, for certain. The
# median is 0, too, and a pressure of 120 or less has a probability of 0.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile crepes==0.9.1 scikit-learn==1.9.1 numpy==2.4.6
cd "$place"

expected=$(cat <<'END'
crepes 0.9.1
intervals of 95%, 100 patients: covered 96%, mean width 32
intervals of 95%, 100 patients: covered 94%, mean width 26
intervals of 95%, 5 patients: covered 100%, mean width inf
intervals of 95%, no patients: covered 0%, mean width 0
the first at the new hospital: [0.0, 0.0]
median: [0.0]
probability of 120 or less: [0.0]
warnings: the no. of calibration examples is too small for the chosen confidence level in the following bins: 2.0
END
)
seen=$(bin/python - <<'PY'
import warnings
from importlib.metadata import version

import numpy as np
from crepes import WrapRegressor
from sklearn.linear_model import LinearRegression

random = np.random.default_rng(0)
hospitals = np.repeat([0, 1, 2, 3], [200, 200, 10, 200])
ages = random.uniform(20, 80, size=len(hospitals))
table = np.column_stack([ages, hospitals])
pressures = 100 + 0.5 * ages + random.normal(scale=8, size=len(ages))
known = hospitals < 3
model = WrapRegressor(LinearRegression())
model.fit(table[known][::2], pressures[known][::2])


def told(name, values):
    for hospital, patients in ((0, "100"), (1, "100"), (2, "5"), (3, "no")):
        row = values[hospitals == hospital]
        covered = (row[:, 0] <= pressures[hospitals == hospital]) & (pressures[hospitals == hospital] <= row[:, 1])
        widths = row[:, 1] - row[:, 0]
        print(f"{name}, {patients} patients: covered {covered.mean():.0%}, mean width {widths.mean():.0f}")


print("crepes", version("crepes"))
calibration = table[known][1::2], pressures[known][1::2]
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    model.calibrate(*calibration, mc=lambda rows: rows[:, 1])
    told("intervals of 95%", model.predict_int(table, confidence=0.95))
    new = table[hospitals == 3][:1]
    print("the first at the new hospital:", model.predict_int(new, confidence=0.95)[0].tolist())
    model.calibrate(*calibration, mc=lambda rows: rows[:, 1], cps=True)
    print("median:", model.predict_percentiles(new, higher_percentiles=[50]).tolist())
    print("probability of 120 or less:", model.predict_p(new, np.array([120.0])).tolist())
print("warnings:", *{str(warning.message).split(";")[0] for warning in said})
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
