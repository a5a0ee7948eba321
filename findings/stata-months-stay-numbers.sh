#!/usr/bin/env bash
# Guess: a reader that turns Stata's dates (%td) into dates does so for its months, quarters and weeks, too, or
# says that it does not.
# What happens: %td becomes a date; %tm, %tq, %tw and %ty stay numbers counted from 1960, in a column of floats
# that a model takes as a measurement. Only meta.original_variable_types tells.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile pyreadstat==1.3.7 pandas==2.3.3
cd "$place"

expected=$(cat <<'END'
pyreadstat 1.3.7
%td '1962-02-23'
%tm 784.0
%tq 784.0
%tw 784.0
END
)
seen=$(bin/python - <<'PY'
import pandas as pd
import pyreadstat

forms = {"day": "%td", "month": "%tm", "quarter": "%tq", "week": "%tw"}
table = pd.DataFrame({name: [784.0] for name in forms})
pyreadstat.write_dta(table, "visits.dta", variable_format=forms)
found, about = pyreadstat.read_dta("visits.dta")
print("pyreadstat", pyreadstat.__version__)
for name in forms:
    print(about.original_variable_types[name], repr(found[name].iloc[0].item() if hasattr(found[name].iloc[0], "item") else str(found[name].iloc[0])))
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
