#!/usr/bin/env bash
# Guess: two readers of one PLINK file (.bed) count the same allele, so that a genetic score has one sign.
# What happens: bed-reader counts the first allele of the .bim file, pandas-plink the second: 2 in one is 0 in the
# other, and a risk becomes a protection. A column of counts does not say of what.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile bed-reader==1.1.0 pandas-plink==2.3.2 numpy==1.26.4
cd "$place"

expected=$(cat <<'END'
bed-reader 1.1.0 pandas-plink 2.3.2
patients AA AG GG -
bed-reader [2.0, 1.0, 0.0, nan]
pandas-plink [0.0, 1.0, 2.0, nan]
END
)
seen=$(bin/python - <<'PY'
from importlib.metadata import version
from pathlib import Path

import pandas_plink
from bed_reader import open_bed

# Two bits for each patient, from the lowest: AA, AG, GG and missing, after PLINK's three bytes.
Path("cohort.bed").write_bytes(bytes([0x6C, 0x1B, 0x01, 0b01_11_10_00]))
Path("cohort.bim").write_text("1\trs1\t0\t100\tA\tG\n")
Path("cohort.fam").write_text("".join(f"F{i} P{i} 0 0 1 -9\n" for i in range(4)))
print("bed-reader", version("bed-reader"), "pandas-plink", version("pandas-plink"))
print("patients AA AG GG -")
with open_bed("cohort.bed") as bed:
    print("bed-reader", bed.read()[:, 0].tolist())
print("pandas-plink", pandas_plink.read_plink("cohort", verbose=False)[2].compute()[0].tolist())
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
