#!/usr/bin/env bash
# Guess: a table of the patients of one ward, selected from a hospital's and saved, has that ward's names alone.
# What happens: a column of categories keeps all of them, and Parquet, Feather and pickle write them: the file that
# leaves has the name of a patient who is in no row. A CSV file does not, nor does a column of texts;
# remove_unused_categories() before saving mends it.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile pandas==3.1.1 pyarrow==26.0.1
cd "$place"

expected=$(cat <<'END'
pandas 3.1.1
parquet names Anna Schmidt: True
parquet names Anna Schmidt: False
feather names Anna Schmidt: True
feather names Anna Schmidt: False
pickle names Anna Schmidt: True
pickle names Anna Schmidt: False
csv names Anna Schmidt: False
csv names Anna Schmidt: False
END
)
seen=$(bin/python - <<'PY'
from pathlib import Path

import pandas as pd

names = ["Anna Schmidt", "Bea Roth", "Carl Ude"]
hospital = pd.DataFrame({"patient": pd.Categorical(names), "ward": ["north", "south", "south"]})
south = hospital[hospital["ward"] == "south"].reset_index(drop=True)
print("pandas", pd.__version__)
for kind in ("parquet", "feather", "pickle", "csv"):
    for table in (south, south.assign(patient=south["patient"].cat.remove_unused_categories())):
        getattr(table, f"to_{kind}")("south")
        print(kind, "names Anna Schmidt:", b"Anna" in Path("south").read_bytes())
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
