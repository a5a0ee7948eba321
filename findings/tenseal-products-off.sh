#!/usr/bin/env bash
# Guess: a product in CKKS is exact to about as many digits as the scale has, as a sum is.
# What happens: each product is off by the ratio of the scale to a prime of about its size. With 40 bits there is one
# near enough; with 20 or 21 bits, as small parameters for speed have, a weighted mean of 1000 is 1016 or 1174, and
# the next product 1354 or 1392. Sums are right, and nothing is said.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile tenseal==0.3.18
cd "$place"

expected=$(cat <<'END'
tenseal 0.3.18
[60, 40, 40, 60] sum 2000 mean 1000 its product with 1 1000
[50, 30, 30, 50] sum 2000 mean 1000 its product with 1 1000
[40, 21, 21, 40] sum 2000 mean 1174 its product with 1 1392
[40, 20, 20, 40] sum 2000 mean 1016 its product with 1 1354
END
)
seen=$(bin/python - <<'PY'
from importlib.metadata import version

import tenseal

print("tenseal", version("tenseal"))
for bits in ([60, 40, 40, 60], [50, 30, 30, 50], [40, 21, 21, 40], [40, 20, 20, 40]):
    context = tenseal.context(tenseal.SCHEME_TYPE.CKKS, poly_modulus_degree=8192, coeff_mod_bit_sizes=bits)
    context.global_scale = 2 ** bits[1]
    north, south = (tenseal.ckks_vector(context, [weight]) for weight in (900.0, 1100.0))
    print(
        bits,
        f"sum {(north + south).decrypt()[0]:.0f}",
        f"mean {(north * 0.5 + south * 0.5).decrypt()[0]:.0f}",
        f"its product with 1 {((north * 0.5 + south * 0.5) * 1.0).decrypt()[0]:.0f}",
    )
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
