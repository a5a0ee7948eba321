#!/usr/bin/env bash
# Guess: a concordance index depends on the order of the risks alone: a risk for each day has the index of one for
# each decade, in any library.
# What happens: scikit-survival takes risks that differ by less than 1e-8 as ties. Small risks, as of a rare event
# in a day, then have an index near 0.5; lifelines follows the order.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile scikit-survival==0.28.0 lifelines==0.30.3
cd "$place"

expected=$(cat <<'END'
scikit-survival 0.28.0 lifelines 0.30.3
risks times 1: scikit-survival 0.609 lifelines 0.609
risks times 1e-06: scikit-survival 0.608 lifelines 0.609
risks times 1e-08: scikit-survival 0.500 lifelines 0.609
risks times 1e-09: scikit-survival 0.500 lifelines 0.609
END
)
seen=$(bin/python - <<'PY'
import lifelines
import numpy as np
import sksurv
from lifelines.utils import concordance_index
from sksurv.metrics import concordance_index_censored

generator = np.random.default_rng(0)
risk = generator.random(100)
years = generator.exponential(1 / (0.1 + risk))
event = generator.random(100) < 0.7
print("scikit-survival", sksurv.__version__, "lifelines", lifelines.__version__)
for scale in (1, 1e-6, 1e-8, 1e-9):
    one = concordance_index_censored(event, years, risk * scale)[0]
    other = concordance_index(years, -risk * scale, event)
    print(f"risks times {scale:g}: scikit-survival {one:.3f} lifelines {other:.3f}")
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
