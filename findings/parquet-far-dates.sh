#!/usr/bin/env bash
# Guess: a date that stands for 'no end' in hospital records, 9999-12-31, is read as it was written, or refused.
# What happens: in the 96-bit times that Spark and Impala write, which pyarrow reads as nanoseconds, it overflows
# and is a day in 1816. With coerce_int96_timestamp_unit it is right.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile pyarrow==26.0.1
cd "$place"

expected=$(cat <<'END'
pyarrow 26.0.1
timestamp[ns] ['2026-03-01 00:00:00.000000000', '1816-03-29 05:56:08.066277376']
timestamp[us] ['2026-03-01 00:00:00.000000', '9999-12-31 00:00:00.000000']
END
)
seen=$(bin/python - <<'PY'
from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as pq

until = pa.array([datetime(2026, 3, 1), datetime(9999, 12, 31)], pa.timestamp("us"))
pq.write_table(pa.table({"until": until}), "stays.parquet", use_deprecated_int96_timestamps=True)
print("pyarrow", pa.__version__)
for options in ({}, {"coerce_int96_timestamp_unit": "us"}):
    column = pq.read_table("stays.parquet", **options)["until"]
    print(column.type, column.cast(pa.string()).to_pylist())
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
