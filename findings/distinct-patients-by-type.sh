#!/usr/bin/env bash
# Guess: sketches that count distinct patients across hospitals take patient 7 as one, whether a table has 7 or 7.0, as
# a set in Python does.
# What happens: both types have hashes of their own. A single row without a number makes pandas read all as floats: the
# union of two hospitals with the same 1,000 patients has 2,000, and they have none in common. Texts are further ones.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile datasketches==5.2.0 pandas==2.3.3 numpy==2.4.6
cd "$place"

expected=$(cat <<'END'
datasketches 5.2.0
both complete: set 1000, theta 1000, in common 1000, HLL 1000
one row without a number there: set 1000, theta 2000, in common 0, HLL 2005
END
)
seen=$(bin/python - <<'PY'
import io
from importlib.metadata import version

import datasketches
import pandas as pd

here = "patient\n" + "\n".join(map(str, range(1, 1001))) + "\n"
there = here + '""\n'


def sketches(text):
    numbers = pd.read_csv(io.StringIO(text))["patient"].dropna()
    theta, hll = datasketches.update_theta_sketch(14), datasketches.hll_sketch(14)
    for number in numbers:
        theta.update(number)
        hll.update(number)
    return numbers, theta, hll


def told(name, first, second):
    (ids, theta, hll), (others, other_theta, other_hll) = sketches(first), sketches(second)
    union, common, both = datasketches.theta_union(14), datasketches.theta_intersection(), datasketches.hll_union(14)
    for sketch in (theta, other_theta):
        union.update(sketch)
        common.update(sketch)
    for sketch in (hll, other_hll):
        both.update(sketch)
    print(
        f"{name}: set {len(set(ids) | set(others))}, theta {union.get_result().get_estimate():.0f},"
        f" in common {common.get_result().get_estimate():.0f}, HLL {both.get_result().get_estimate():.0f}"
    )


print("datasketches", version("datasketches"))
told("both complete", here, here)
told("one row without a number there", here, there)
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
