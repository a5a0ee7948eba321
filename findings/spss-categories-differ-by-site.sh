#!/usr/bin/env bash
# Guess: with value labels applied, a column of an SPSS file is a categorical with all labels that the file
# defines, in the order of their codes.
# What happens: its categories are only the labels that occur, in the order of the alphabet. Two hospitals with
# one codebook get other category codes for the same answer: "none" is 1 here and 2 there.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile pyreadstat==1.3.7 pandas==2.3.3
cd "$place"

expected=$(cat <<'END'
pyreadstat 1.3.7
north ['a lot', 'none'] code of 'none': 1
south ['a lot', 'mild', 'none'] code of 'none': 2
END
)
seen=$(bin/python - <<'PY'
import pandas as pd
import pyreadstat

codebook = {"pain": {1.0: "none", 2.0: "mild", 3.0: "a lot", 4.0: "agony"}}
print("pyreadstat", pyreadstat.__version__)
for site, answers in (("north", [1.0, 3.0]), ("south", [1.0, 2.0, 3.0])):
    pyreadstat.write_sav(pd.DataFrame({"pain": answers}), f"{site}.sav", variable_value_labels=codebook)
    pain = pyreadstat.read_sav(f"{site}.sav", apply_value_formats=True)[0]["pain"]
    print(site, list(pain.cat.categories), "code of 'none':", pain.cat.codes.iloc[0])
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
