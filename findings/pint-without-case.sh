#!/usr/bin/env bash
# Guess: with case_sensitive=False, for laboratories that write MG/DL and MMOL/L, a unit is that of its usual
# letters, or refused where it could be two.
# What happens: mg/dl, right as it stands, is milligrams or milligauss per decilitre, by chance, from one start of
# Python to the next. MMOL/L is megamoles, a thousand million times as much, and ML a million litres, at each start.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile pint==0.25.3
cd "$place"

expected=$(cat <<'END'
pint 0.25.3
mg/dl: milligauss / deciliter, milligram / deciliter
MMOL/L: megamole / liter
ML: megaliter
END
)
seen=$(bin/python - <<'PY'
import os
import subprocess
import sys
from importlib.metadata import version

UNITS = "mg/dl", "MMOL/L", "ML"
SCRIPT = '''
import sys
import pint
registry = pint.UnitRegistry(case_sensitive=False)
print(*map(registry.parse_units, sys.argv[1:]), sep="\\n")
'''
print("pint", version("pint"))
starts = []
for seed in range(10):  # Python draws one at each start
    call = [sys.executable, "-c", SCRIPT, *UNITS]
    environment = {**os.environ, "PYTHONHASHSEED": f"{seed}"}
    printed = subprocess.run(call, env=environment, capture_output=True, check=True, text=True).stdout
    starts.append(printed.splitlines())
for unit, meanings in zip(UNITS, zip(*starts)):
    print(f"{unit}:", ", ".join(sorted(set(meanings))))
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
