#!/usr/bin/env bash
# Guess: an AUC that is counted on the go is near the true one for calibrated risks, as its documentation says.
# What happens: the curve is drawn at ten thresholds from 0 to 1. For a disease with risks of 1 to 10%, all patients
# are below the first one above 0, 0.11, and the AUC is 0.5, whatever the model. With 1,000 thresholds it is right.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile river==0.26.1 scikit-learn==1.9.1 numpy==2.4.6
cd "$place"

expected=$(cat <<'END'
river 0.26.1
risks of 1, 4 and 10%, all observed as stated
true: 0.711 river: 0.500
with 1,000 thresholds: 0.711
the mean for everyone: 0.500
the same order, five times the risk: 0.711
END
)
seen=$(bin/python - <<'PY'
from importlib.metadata import version

from river import metrics
from sklearn.metrics import roc_auc_score

# Risk, patients, cases: calibrated exactly, and a model for the same patients that cannot tell them apart.
groups = [(0.01, 1000, 10), (0.04, 1000, 40), (0.10, 1000, 100)]
cases, risks = [], []
for risk, patients, ill in groups:
    cases += [True] * ill + [False] * (patients - ill)
    risks += [risk] * patients


def streamed(risks, **settings):
    metric = metrics.ROCAUC(**settings)
    for case, risk in zip(cases, risks):
        metric.update(case, risk)
    return f"{metric.get():.3f}"


print("river", version("river"))
print("risks of 1, 4 and 10%, all observed as stated")
print("true:", f"{roc_auc_score(cases, risks):.3f}", "river:", streamed(risks))
print("with 1,000 thresholds:", streamed(risks, n_thresholds=1000))
print("the mean for everyone:", streamed([0.05] * len(cases)))
doubled = [5 * risk for risk in risks]
print("the same order, five times the risk:", streamed(doubled))
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
