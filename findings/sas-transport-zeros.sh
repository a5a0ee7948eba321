#!/usr/bin/env bash
# Guess: a 0 in a SAS transport file, the format in which health surveys are published, is 0 when pandas has read
# it.
# What happens: it is 5.4e-79. A comparison with 0, a count of zeros or a logarithm goes wrong without a word; dates
# stay numbers of days since 1960. pyreadstat reads both right.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile pandas==3.1.1 pyreadstat==1.3.7
cd "$place"

expected=$(cat <<'END'
pandas 3.1.1 pyreadstat 1.3.7
pandas abstainers: 0 first: 5.397605346934028e-79 21915.0
pyreadstat abstainers: 2 first: 0.0 2020-01-01
END
)
seen=$(bin/python - <<'PY'
import datetime
import warnings

import pandas as pd
import pyreadstat

warnings.simplefilter("ignore")
survey = pd.DataFrame({"drinks": [0.0, 2.0, 0.0], "visit": [datetime.date(2020, 1, day) for day in (1, 2, 3)]})
pyreadstat.write_xport(survey, "survey.xpt", file_format_version=5)
print("pandas", pd.__version__, "pyreadstat", pyreadstat.__version__)
for name, table in (("pandas", pd.read_sas("survey.xpt")), ("pyreadstat", pyreadstat.read_xport("survey.xpt")[0])):
    print(name, "abstainers:", int((table["drinks"] == 0).sum()), "first:", table["drinks"][0], table["visit"][0])
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
