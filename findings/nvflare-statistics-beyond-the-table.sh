#!/usr/bin/env bash
# Guess: the bars of a federated histogram sum to the patients, whatever the unit, with precision=9 at least; and
# the largest age of a training set is one of its own.
# What happens: the bars' limits are rounded to four decimals, whatever the precision, and bars with the same limits
# are counted several times: 200 doses in g are 230, in kg 2,120. Minimum and maximum are taken over all data sets of a
# feature: the oldest in training is the oldest in the test.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile nvflare==2.9.0 pandas==3.1.1 numpy==2.4.6
cd "$place"

expected=$(cat <<'END'
nvflare 2.9.0
200 doses in mg, in the histogram: 200
200 doses in g, in the histogram: 230
200 doses in kg, in the histogram: 2120
oldest: {'train': {'age': 99.0}, 'test': {'age': 99.0}}
END
)
seen=$(bin/python - <<'PY'
import logging

import numpy as np
import nvflare
from nvflare.app_common.abstract.statistics_spec import BinRange, Histogram, HistogramType
from nvflare.app_common.app_constant import StatisticsConstants
from nvflare.app_common.statistics.numeric_stats import get_global_stats
from nvflare.app_common.statistics.numpy_utils import get_std_histogram_buckets

logging.disable(logging.CRITICAL)
print("nvflare", nvflare.__version__)
generator = np.random.default_rng(0)
for unit, largest in (("mg", 1.0), ("g", 1e-3), ("kg", 1e-6)):
    histograms = {}
    for site in ("north", "south"):
        bars = get_std_histogram_buckets(generator.uniform(0, largest, 100), 20, BinRange(0, largest))
        histograms[site] = {"train": {"dose": Histogram(HistogramType.STANDARD, bars)}}
    both = get_global_stats(
        {}, {"histogram": histograms}, StatisticsConstants.STATS_2nd_STATISTICS, {}, precision=9
    )["histogram"]["train"]["dose"]
    print(f"200 doses in {unit}, in the histogram:", sum(bar.sample_count for bar in both.bins))
ages = {
    "north": {"train": {"age": 60.0}, "test": {"age": 99.0}},
    "south": {"train": {"age": 70.0}, "test": {"age": 80.0}},
}
both = get_global_stats({}, {"max": ages}, StatisticsConstants.STATS_1st_STATISTICS, {})
print("oldest:", both["max"])
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
