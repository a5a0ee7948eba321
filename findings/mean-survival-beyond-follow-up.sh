#!/usr/bin/env bash
# Guess: the mean survival time up to a time that the study does not reach is no number, or refused, and so is the
# probability to survive it.
# What happens: the curve is drawn on for ever at its last height, without a word: of 10 patients, followed for 5
# years at most, 60% survive 100 years, and the mean is 61 of these. scikit-survival refuses times beyond its curve.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile lifelines==0.30.3 scikit-survival==0.28.0
cd "$place"

expected=$(cat <<'END'
lifelines 0.30.3 scikit-survival 0.28.0
up to 5 years: mean 4.0, probability 0.6
up to 20 years: mean 13.0, probability 0.6
up to 100 years: mean 61.0, probability 0.6
warnings: 0
scikit-survival: x must be within [0.000000; 5.000000]
END
)
seen=$(bin/python - <<'PY'
import warnings

import lifelines
import numpy as np
import sksurv
from lifelines.utils import restricted_mean_survival_time
from sksurv.functions import StepFunction
from sksurv.nonparametric import kaplan_meier_estimator

years, died = np.array([1.0, 2, 3, 4, 5, 5, 5, 5, 5, 5]), np.arange(10) < 4
print("lifelines", lifelines.__version__, "scikit-survival", sksurv.__version__)
curve = lifelines.KaplanMeierFitter().fit(years, died)
with warnings.catch_warnings(record=True) as messages:
    warnings.simplefilter("always")
    for end in (5, 20, 100):
        mean, probability = restricted_mean_survival_time(curve, t=end), curve.predict(end)
        print(f"up to {end} years: mean {mean:.1f}, probability {probability:.1f}")
print("warnings:", len(messages))
try:
    StepFunction(*kaplan_meier_estimator(died, years))(100)
except ValueError as error:
    print("scikit-survival:", error)
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
