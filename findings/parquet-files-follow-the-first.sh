#!/usr/bin/env bash
# Guess: several Parquet files read as one table have all their columns, or are refused where they differ.
# What happens: the first file's schema decides. A column that only a later file has is dropped, and a later
# file's text becomes numbers, without a word. Two hospitals' exports of one study lose a column by the order of
# their names.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile pyarrow==26.0.1
cd "$place"

expected=$(cat <<'END'
pyarrow 26.0.1
{'age': [61, 58, 1, 77]}
END
)
seen=$(bin/python - <<'PY'
import pyarrow as pa
import pyarrow.parquet as pq

pq.write_table(pa.table({"age": [61, 58]}), "north.parquet")
pq.write_table(pa.table({"age": ["1", "77"], "bmi": [20.5, 31.0]}), "south.parquet")
print("pyarrow", pa.__version__)
print(pq.read_table(["north.parquet", "south.parquet"]).to_pydict())
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
