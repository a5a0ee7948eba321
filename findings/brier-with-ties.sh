#!/usr/bin/env bash
# Guess: the Brier score of a model that says 0.5 for everyone is 0.25 at any time, since each error is 0.5,
# whatever the censoring.
# What happens: it is larger where patients have equal times, as days or years always have: an event is weighed by
# the censoring at its time, not just before it, so that the weights do not sum to the patients.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile scikit-survival==0.28.0
cd "$place"

expected=$(cat <<'END'
scikit-survival 0.28.0
ties [0.2552, 0.2795, 0.3281]
no ties [0.25, 0.25, 0.25]
END
)
seen=$(bin/python - <<'PY'
import numpy as np
import sksurv
from sksurv.metrics import brier_score
from sksurv.util import Surv

event = np.array([1, 0, 1, 1, 0, 1, 0, 1], bool)
half = np.full((8, 1), 0.5)
print("scikit-survival", sksurv.__version__)
for name, years in (("ties", [1, 1, 2, 2, 2, 3, 3, 4]), ("no ties", [1, 1.1, 1.9, 2, 2.1, 3, 3.1, 4])):
    patients = Surv.from_arrays(event, np.array(years, float))
    scores = (brier_score(patients, patients, half, [at])[1][0] for at in (1.5, 2.5, 3.5))
    print(name, [round(float(score), 4) for score in scores])
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
