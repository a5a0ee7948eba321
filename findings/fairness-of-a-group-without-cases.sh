#!/usr/bin/env bash
# Guess: where a group has no cases, its share of cases found is no number, and a comparison of groups leaves it out, or
# says so.
# What happens: it is 0, and so is the share of cases missed: a model that is right for everyone has the largest
# difference there is, 1, and a ratio of 0, without a word. One more patient who is a case makes them 0 and 1.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile fairlearn==0.15.0 scikit-learn==1.9.1 pandas==2.3.3 numpy==2.4.6
cd "$place"

expected=$(cat <<'END'
fairlearn 0.15.0
no case among the children: of the children's cases 0% found, 0% missed
  equalized_odds_difference: 1
  equalized_odds_ratio: 0
  equal_opportunity_difference: 1
one case: of the children's cases 100% found, 0% missed
  equalized_odds_difference: 0
  equalized_odds_ratio: 1
  equal_opportunity_difference: 0
END
)
seen=$(bin/python - <<'PY'
import warnings

import fairlearn
from fairlearn import metrics

warnings.simplefilter("error")
wards = ["surgery"] * 6 + ["children"] * 4
ill = [1, 1, 0, 0, 0, 0] + [0, 0, 0, 0]
print("fairlearn", fairlearn.__version__)


def told(name, wards, ill):
    """Of a model that is right for everyone."""
    settings = {"y_true": ill, "y_pred": ill, "sensitive_features": wards}
    rates = {"found": metrics.true_positive_rate, "missed": metrics.false_negative_rate}
    children = metrics.MetricFrame(metrics=rates, **settings).by_group.loc["children"]
    print(f"{name}: of the children's cases {children['found']:.0%} found, {children['missed']:.0%} missed")
    for compared in ("equalized_odds_difference", "equalized_odds_ratio", "equal_opportunity_difference"):
        print(f"  {compared}: {getattr(metrics, compared)(**settings):g}")


told("no case among the children", wards, ill)
told("one case", wards + ["children"], ill + [1])
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
