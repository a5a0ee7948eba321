#!/usr/bin/env bash
# Guess: in a meta-analysis with random effects the variance between hospitals is not negative, so that its interval is
# never narrower than that without them; and the share of the variance that lies between them, I2, is 0 to 1.
# What happens: with DerSimonian and Laird's method, which cuts the variance at 0, statsmodels takes the negative one,
# without a word. Five hospitals that agree have a quarter of the interval: a gain is significant that is not without
# random effects, and one hospital has 82% of the weight. I2 is -3, with any method. 'iterated' has the variance 0.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile \
    statsmodels==0.15.0 PyMARE==0.0.13 numpy==2.4.6 pandas==2.3.3 scipy==1.17.1
cd "$place"

expected=$(cat <<'END'
statsmodels 0.15.0
dl: variance between hospitals -0.0029, I2 -3.0
  without random effects 0.052 (-0.003 to 0.107)
  with random effects 0.066 (0.052 to 0.080)
  weights [0.05, 0.03, 0.05, 0.82, 0.05]
iterated: variance between hospitals 0.0000, I2 -3.0
  without random effects 0.052 (-0.003 to 0.107)
  with random effects 0.052 (-0.003 to 0.107)
  weights [0.19, 0.16, 0.19, 0.26, 0.19]
PyMARE: variance 0.0000, 0.052 (-0.003 to 0.107)
END
)
seen=$(bin/python - <<'PY'
import warnings

import numpy as np
import statsmodels
from pymare import Dataset
from pymare.estimators import DerSimonianLaird
from statsmodels.stats.meta_analysis import combine_effects

warnings.simplefilter("error", RuntimeWarning)
gains = np.array([0.01, 0.03, 0.05, 0.07, 0.09])  # of a model over another, in five hospitals
variances = np.array([0.004, 0.005, 0.004, 0.003, 0.004])


def printed(row):
    return f"{row['eff']:.3f} ({row['ci_low']:.3f} to {row['ci_upp']:.3f})"


print("statsmodels", statsmodels.__version__)
for method in ("dl", "iterated"):
    result = combine_effects(gains, variances, method_re=method)
    table = result.summary_frame()
    print(f"{method}: variance between hospitals {result.tau2:.4f}, I2 {result.i2:.1f}")
    print("  without random effects", printed(table.loc["fixed effect"]))
    print("  with random effects", printed(table.loc["random effect"]))
    print("  weights", table["w_re"][:5].round(2).tolist())
other = DerSimonianLaird(small_sample_correction="wald").fit_dataset(Dataset(y=gains, v=variances)).summary()
stats = {name: float(np.ravel(value)[0]) for name, value in other.get_fe_stats().items()}
found = printed({"eff": stats["est"], "ci_low": stats["ci_l"], "ci_upp": stats["ci_u"]})
print(f"PyMARE: variance {float(np.ravel(other.tau2)[0]):.4f}, {found}")
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
