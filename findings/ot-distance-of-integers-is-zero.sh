#!/usr/bin/env bash
# Guess: the optimal transport distance between two hospitals' ages, in whole years, is the one of the same ages as
# floats.
# What happens: it is 0, without a word, as if there were no shift: the weights of 1/n are cast to the type of the
# samples. So is the distance of several columns by slices. Where one site alone has integers, 8.5 is 9.5 or 22.5. emd2
# and emd2_1d are right.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile pot==0.9.7.post1 numpy==2.4.6
cd "$place"

expected=$(cat <<'END'
POT 0.9.7.post1
ages here: [61, 64, 70, 75] there: [63, 70, 81, 90]
wasserstein_1d of floats and floats: 8.50
wasserstein_1d of floats and integers: 22.50
wasserstein_1d of integers and floats: 9.50
wasserstein_1d of integers and integers: 0.00
two columns shifted by 20, floats: distances by slices are 0: False False
emd2_1d of floats: 8.50
two columns shifted by 20, integers: distances by slices are 0: True True
emd2_1d of integers: 8.50
END
)
seen=$(bin/python - <<'PY'
import warnings

import numpy as np
import ot

warnings.simplefilter("error")
here = np.array([61, 64, 70, 75])
there = np.array([63, 70, 81, 90])
print("POT", ot.__version__)
print("ages here:", here.tolist(), "there:", there.tolist())
forms = {"floats": float, "integers": int}
for first, kind in forms.items():
    for second, other in forms.items():
        distance = ot.wasserstein_1d(here.astype(kind), there.astype(other), p=1)
        print(f"wasserstein_1d of {first} and {second}: {distance:.2f}")
columns = np.array([[61, 1], [64, 2], [70, 2], [75, 4]])
for name, kind in forms.items():
    tables = columns.astype(kind), (columns + 20).astype(kind)
    distances = ot.sliced_wasserstein_distance(*tables, seed=0), ot.max_sliced_wasserstein_distance(*tables, seed=0)
    print(f"two columns shifted by 20, {name}: distances by slices are 0:", *(distance == 0 for distance in distances))
    print(f"emd2_1d of {name}: {ot.emd2_1d(here.astype(kind), there.astype(kind), metric='euclidean'):.2f}")
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
