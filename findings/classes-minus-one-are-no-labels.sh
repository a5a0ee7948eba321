#!/usr/bin/env bash
# Guess: classes of -1, 0 and 1, as of a disease that gets worse, stays or gets better, are three classes to a package
# for domain adaptation, or are refused.
# What happens: -1 stands for a label that is not known, in the sources, too: their patients of this class are left out,
# without a word, and no patient of the target is ever told to get worse. With 0, 1 and 2 all are right.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile skada==0.6.0 pot==0.9.7.post1 scikit-learn==1.9.1 numpy==2.4.6
cd "$place"

expected=$(cat <<'END'
skada 0.6.0
CORAL, classes [-1, 0, 1]: right 67%; 0 of -1, 120 of 0, 60 of 1
CORAL, classes [0, 1, 2]: right 100%; 60 of 0, 60 of 1, 60 of 2
SubspaceAlignment, classes [-1, 0, 1]: right 67%; 0 of -1, 120 of 0, 60 of 1
SubspaceAlignment, classes [0, 1, 2]: right 100%; 60 of 0, 60 of 1, 60 of 2
KMMReweight, classes [-1, 0, 1]: right 67%; 0 of -1, 120 of 0, 60 of 1
KMMReweight, classes [0, 1, 2]: right 100%; 60 of 0, 60 of 1, 60 of 2
OTMapping, classes [-1, 0, 1]: right 67%; 0 of -1, 120 of 0, 60 of 1
OTMapping, classes [0, 1, 2]: right 100%; 60 of 0, 60 of 1, 60 of 2
END
)
seen=$(bin/python - <<'PY'
import warnings

import numpy as np
import skada

warnings.simplefilter("error")
random = np.random.default_rng(0)
trend = np.repeat([-1, 0, 1], 60)
source = random.normal(size=(180, 2)) * 0.4 + np.column_stack([9 * trend, np.zeros(180)])
table = np.concatenate([source, source + [0.5, 0.3]])
domains = np.repeat([1, -2], 180)

print("skada", skada.__version__)
for name in ("CORAL", "SubspaceAlignment", "KMMReweight", "OTMapping"):
    for names in ([-1, 0, 1], [0, 1, 2]):
        classes = np.array(names)[trend + 1]
        model = getattr(skada, name)().fit(table, np.concatenate([classes, classes]), sample_domain=domains)
        found = model.predict(table[180:])
        told = ", ".join(f"{np.sum(found == one)} of {one}" for one in names)
        print(f"{name}, classes {names}: right {np.mean(found == classes):.0%}; {told}")
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
