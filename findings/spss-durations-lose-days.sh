#!/usr/bin/env bash
# Guess: a duration in an SPSS file, such as a length of stay of 30 hours 15 minutes, is 30 hours 15 minutes when it
# is read, or its seconds.
# What happens: it is the time of day 06:15: whole days are dropped without a word, in DTIME, a format for days and
# hours, as in TIME, and in SAS's TIME. With disable_datetime_conversion the seconds come back.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile pyreadstat==1.3.7 pandas==2.3.3
cd "$place"

expected=$(cat <<'END'
pyreadstat 1.3.7
written as hours: 1.0, 30.25, 100.0
TIME of SPSS: 01:00:00, 06:15:00, 04:00:00
DTIME of SPSS: 01:00:00, 06:15:00, 04:00:00
TIME of SAS: 01:00:00, 06:15:00, 04:00:00
unconverted, in hours: 1.0, 30.25, 100.0
END
)
seen=$(bin/python - <<'PY'
import pandas as pd
import pyreadstat

hours = [1.0, 30.25, 100.0]
stays = pd.DataFrame({"stay": [hour * 3600 for hour in hours]})


def printed(values):
    return ", ".join(map(str, values))


print("pyreadstat", pyreadstat.__version__)
print("written as hours:", printed(hours))
for form in ("TIME10", "DTIME12"):
    pyreadstat.write_sav(stays, "stays.sav", variable_format={"stay": form})
    print(form[:-2], "of SPSS:", printed(pyreadstat.read_sav("stays.sav")[0]["stay"]))
pyreadstat.write_xport(stays, "stays.xpt", variable_format={"stay": "TIME10"})
print("TIME of SAS:", printed(pyreadstat.read_xport("stays.xpt")[0]["stay"]))
seconds = pyreadstat.read_sav("stays.sav", disable_datetime_conversion=True)[0]["stay"]
print("unconverted, in hours:", printed(seconds / 3600))
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
