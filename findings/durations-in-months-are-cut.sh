#!/usr/bin/env bash
# Guess: times from two dates, asked for in months or years, are fractions of them, or rounded.
# What happens: they are cut to whole ones, without a word: 29 days are 0 months, and 364 days 0 years. Of these
# patients 59% die at time 0 in years, and the median is 0 in place of 0.82. In days it is right.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile lifelines==0.30.3
cd "$place"

expected=$(cat <<'END'
lifelines 0.30.3
29, 180, 364 days: 0, 5, 11 months; 0, 0, 0 years
D: median 298 of 365.25 days a year, 0% at time 0
M: median 9 of 12, 6% at time 0
Y: median 0, 59% at time 0
END
)
seen=$(bin/python - <<'PY'
import lifelines
import numpy as np
import pandas as pd
from lifelines.utils import datetimes_to_durations

first = pd.Timestamp("2025-01-01")


def durations(days, unit):
    return datetimes_to_durations([first] * len(days), [first + pd.Timedelta(days=day) for day in days], freq=unit)[0]


def printed(values):
    return ", ".join(f"{value:.0f}" for value in values)


print("lifelines", lifelines.__version__)
few = [29, 180, 364]
print(f"{printed(few)} days: {printed(durations(few, 'M'))} months; {printed(durations(few, 'Y'))} years")
days = np.random.default_rng(0).exponential(400, 1000).astype(int) + 1
for unit, scale in (("D", " of 365.25 days a year"), ("M", " of 12"), ("Y", "")):
    times = durations(days.tolist(), unit)
    median = lifelines.KaplanMeierFitter().fit(times).median_survival_time_
    print(f"{unit}: median {median:.0f}{scale}, {(times == 0).mean():.0%} at time 0")
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
