#!/usr/bin/env bash
# Guess: a table that R has saved has its patients' numbers when it is read, large ones (integer64, as data.table reads
# them) too, and its lengths of stay (difftime) are durations, or have their unit.
# What happens: pyreadr takes both for plain numbers, without a word. A large number's 64 bits are read as a float: the
# numbers of all patients are about 1e-314, 0 as integers, so that three patients are one. A stay loses its unit, which
# R chooses by the shortest one: 30 hours are 30 at one hospital and 1.25 at another.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile pyreadr==0.5.8 pandas==2.3.3 numpy==2.3.5
cd "$place"

expected=$(cat <<'END'
pyreadr 0.5.8
A: stay in hours [6.0, 30.0, 100.0], read as [6.0, 30.0, 100.0] (float64)
B: stay in days [1.25, 2.0, 4.0], read as [1.25, 2.0, 4.0] (float64)
patients [4711000001, 4711000002, 4711000003]
read as ['2.328e-314', '2.328e-314', '2.328e-314'] (float64)
as integers [0, 0, 0], patients 1
END
)
seen=$(bin/python - <<'PY'
import struct
import warnings
from importlib.metadata import version

import pyreadr

warnings.simplefilter("error")


def number(value):
    return struct.pack(">i", value)


def vector(kind, values, form, **attributes):
    """A vector of R as saveRDS(compress = FALSE) writes it, with its attributes as a pairlist."""
    flags = kind | 0x200 * bool(attributes) | 0x100 * ("class" in attributes)
    parts = [number(flags), number(len(values))]
    parts += [value if isinstance(value, bytes) else struct.pack(form, value) for value in values]
    for name, value in attributes.items():
        parts += [number(0x402), number(1), chars(name), value]
    return b"".join(parts + [number(0xFE)] * bool(attributes))


def chars(text):
    return number(0x40009) + number(len(text)) + text.encode()


def texts(*values):
    return vector(16, [chars(value) for value in values], "")


def save(path, rows, **columns):
    names, kind = texts(*columns), texts("data.frame")
    attributes = {"names": names, "class": kind, "row.names": vector(13, [-(2**31), -rows], ">i")}
    table = vector(19, list(columns.values()), "", **attributes)
    with open(path, "wb") as file:
        file.write(b"X\n" + number(2) + number(0x30602) + number(0x20300) + table)


print("pyreadr", version("pyreadr"))
numbers = [4711000001, 4711000002, 4711000003]
for site, unit, stays in (("A", "hours", [6.0, 30.0, 100.0]), ("B", "days", [1.25, 2.0, 4.0])):
    stay = vector(14, stays, ">d", units=texts(unit), **{"class": texts("difftime")})
    patient = vector(14, [struct.pack(">q", value) for value in numbers], "", **{"class": texts("integer64")})
    save("stays.rds", 3, patient=patient, stay=stay)
    table = pyreadr.read_r("stays.rds")[None]
    print(f"{site}: stay in {unit} {stays}, read as {table['stay'].tolist()} ({table['stay'].dtype})")
print("patients", numbers)
print("read as", [f"{value:.3e}" for value in table["patient"]], f"({table['patient'].dtype})")
whole = table["patient"].astype("int64")
print(f"as integers {whole.tolist()}, patients {whole.nunique()}")
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
