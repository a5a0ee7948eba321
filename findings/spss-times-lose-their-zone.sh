#!/usr/bin/env bash
# Guess: a time with a zone is written to an SPSS file as its clock shows it, since SPSS knows no zones, or is
# refused.
# What happens: it is written in UTC, and the zone is gone: 12:00 in Berlin comes back as 11:00 in winter and
# 10:00 in summer, and some admissions of the late evening or early morning change their day.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile pyreadstat==1.3.7 pandas==2.3.3
cd "$place"

expected=$(cat <<'END'
pyreadstat 1.3.7
2026-01-15 12:00 -> 2026-01-15 11:00:00
2026-07-15 12:00 -> 2026-07-15 10:00:00
2026-07-15 00:30 -> 2026-07-14 22:30:00
END
)
seen=$(bin/python - <<'PY'
import pandas as pd
import pyreadstat

clock = ["2026-01-15 12:00", "2026-07-15 12:00", "2026-07-15 00:30"]
table = pd.DataFrame({"admitted": pd.to_datetime(clock).tz_localize("Europe/Berlin")})
pyreadstat.write_sav(table, "stays.sav")
print("pyreadstat", pyreadstat.__version__)
for before, after in zip(clock, pyreadstat.read_sav("stays.sav")[0]["admitted"]):
    print(before, "->", after)
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
