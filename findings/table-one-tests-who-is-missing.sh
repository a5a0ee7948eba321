#!/usr/bin/env bash
# Guess: the p-value and the standardised difference of a patients' table (Table 1) compare the known values of two
# hospitals, as its percentages do, and the missing ones are counted in the column Missing.
# What happens: a missing value of a category is a category of its own, in the percentages, in the test and in the
# difference, and the column Missing is empty. Two hospitals with 40% smokers each differ with p < 0.001 and by 1.7
# standard deviations, as one of them often does not ask. Of a number, missing ones are left out. include_null=False
# compares the known ones.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile \
    tableone==0.9.6 pandas==2.3.3 numpy==2.3.5 scipy==1.16.3 statsmodels==0.14.6
cd "$place"

expected=$(cat <<'END'
tableone 0.9.6
by default
  n | A 100, B 100
  smoker, n (%): None | A 0 (0.0), B 60 (60.0), SMD (A,B) 1.732, P-Value <0.001
  smoker, n (%): no | A 60 (60.0), B 24 (24.0)
  smoker, n (%): yes | A 40 (40.0), B 16 (16.0)
  age, mean (SD) | Missing 60, A 59.5 (5.8), B 59.5 (5.8), SMD (A,B) <0.001, P-Value 1.000
include_null=False
  n | A 100, B 100
  smoker, n (%): no | Missing 60, A 60 (60.0), B 24 (60.0), SMD (A,B) <0.001, P-Value 1.000
  smoker, n (%): yes | A 40 (40.0), B 16 (40.0)
  age, mean (SD) | Missing 60, A 59.5 (5.8), B 59.5 (5.8), SMD (A,B) <0.001, P-Value 1.000
END
)
seen=$(bin/python -W ignore - <<'PY'
from importlib.metadata import version

import pandas as pd
from tableone import TableOne

# Of 100 patients each, A knows all, B asked 40. Of those who were asked, 40% smoke in either; ages are the same, too.
asked = {"A": 100, "B": 40}
rows = []
for site, known in asked.items():
    for patient in range(100):
        smoker = None if patient >= known else "yes" if patient % 5 < 2 else "no"
        rows.append({"site": site, "smoker": smoker, "age": None if patient >= known else 50 + patient % 20})
patients = pd.DataFrame(rows)
print("tableone", version("tableone"))
for include in (True, False):
    options = {"groupby": "site", "categorical": ["smoker"], "pval": True, "smd": True}
    if not include:
        options["include_null"] = False
    table = TableOne(patients, columns=["smoker", "age"], **options).tableone
    table.columns = table.columns.get_level_values(-1)
    print("by default" if include else "include_null=False")
    for (name, level), row in table.iterrows():
        cells = [f"{column} {row[column]}" for column in table.columns if str(row[column]) and column != "Overall"]
        print("  " + ": ".join(part for part in (name, str(level)) if part) + " |", ", ".join(cells))
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
