#!/usr/bin/env bash
# Guess: the net benefit of a model without a risk for some patients is that of the others, or no number, or refused.
# What happens: a patient without a risk counts as one below each threshold: not treated, and ill as often as others. A
# model that is missing for half of the patients has half of its net benefit, without a word, and is worse than to treat
# all. The table says n = 1,000.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile dcurves==1.1.7 pandas==2.3.3 numpy==2.4.6
cd "$place"

expected=$(cat <<'END'
dcurves 1.1.7
complete, threshold 0.1: n 1000, net benefit 0.444, to treat all 0.444
complete, threshold 0.5: n 1000, net benefit 0.300, to treat all 0.000
missing at one hospital, threshold 0.1: n 1000, net benefit 0.222, to treat all 0.444
missing at one hospital, threshold 0.5: n 1000, net benefit 0.150, to treat all 0.000
without its rows, threshold 0.1: n 500, net benefit 0.444, to treat all 0.444
without its rows, threshold 0.5: n 500, net benefit 0.300, to treat all 0.000
END
)
seen=$(bin/python - <<'PY'
import warnings
from importlib.metadata import version

import numpy as np
import pandas as pd
from dcurves import dca

warnings.simplefilter("error")
# Of 1,000 patients half have a risk of 0.2 and half of 0.8, both exact; the first 500 are a hospital like the second.
risks = np.tile(np.repeat([0.2, 0.8], 250), 2)
ill = np.tile(np.repeat([1, 0, 1, 0], [50, 200, 200, 50]), 2)
complete = pd.DataFrame({"risk": risks, "ill": ill})
missing = complete.assign(risk=np.where(np.arange(1000) < 500, np.nan, risks))

print("dcurves", version("dcurves"))
tables = {"complete": complete, "missing at one hospital": missing, "without its rows": missing.dropna()}
for name, table in tables.items():
    found = dca(data=table, outcome="ill", modelnames=["risk"], thresholds=[0.1, 0.5]).set_index(["model", "threshold"])
    for threshold in (0.1, 0.5):
        row = found.loc[("risk", threshold)]
        print(
            f"{name}, threshold {threshold}: n {row['n']:.0f}, net benefit {row['net_benefit']:.3f},"
            f" to treat all {found.loc[('all', threshold), 'net_benefit']:.3f}"
        )
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
