#!/usr/bin/env bash
# Guess: a package for UCUM, the units of laboratory reports and FHIR, has each unit as UCUM defines it: [Cal], the
# calorie of food labels, is a kilocalorie.
# What happens: it is a calorie: a patient's 1,900 Cal a day are 1.9 kcal, without a word, although the package
# brings UCUM's table, where [Cal] is 1 kcal_th. Likewise [LPF], a field of the microscope, is 1 in place of 100.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile ucumvert==0.3.2 pint==0.25.3
cd "$place"

expected=$(cat <<'END'
ucumvert 0.3.2
UCUM: [Cal] = 1 kcal_th
1900 [Cal] = 1.9 kilocalorie
UCUM: [LPF] = 100 1
1 [LPF] = 1.0 dimensionless
END
)
seen=$(bin/python - <<'PY'
import xml.etree.ElementTree as ElementTree
from importlib.metadata import version
from pathlib import Path

import ucumvert

registry = ucumvert.PintUcumRegistry()
table = ElementTree.parse(next(Path(ucumvert.__file__).parent.rglob("ucum-essence.xml")))
print("ucumvert", version("ucumvert"))
for amount, code, other in ((1900, "[Cal]", "kilocalorie"), (1, "[LPF]", "dimensionless")):
    value = next(unit for unit in table.iter() if unit.get("Code") == code).find("{*}value")
    print(f"UCUM: {code} =", value.get("value"), value.get("Unit"))
    converted = (amount * registry.from_ucum(code)).to(other)
    print(amount, code, "=", round(float(converted.magnitude), 6), other)
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
