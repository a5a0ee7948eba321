#!/usr/bin/env bash
# Guess: a sum too large for the parameters raises an error when it is decrypted, at the latest.
# What happens: a number without meaning comes back. In BFV, with the plain_modulus that examples have, two sites
# with 700,000 patients have -332,193, and with a third 67,807. In CKKS, with the usual parameters, a sum of 100 squares
# of a blood pressure of 120 is a random number.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile tenseal==0.3.18
cd "$place"

expected=$(cat <<'END'
tenseal 0.3.18
patients of 1 sites: 400000
patients of 2 sites: -332193
patients of 3 sites: 67807
sum of 10 squares of 120, within 1%: True
sum of 30 squares of 120, within 1%: True
sum of 100 squares of 120, within 1%: False
END
)
seen=$(bin/python - <<'PY'
from importlib.metadata import version

import tenseal

print("tenseal", version("tenseal"))
integers = tenseal.context(tenseal.SCHEME_TYPE.BFV, poly_modulus_degree=4096, plain_modulus=1032193)
sites = [tenseal.bfv_vector(integers, [patients]) for patients in (400_000, 300_000, 400_000)]
for number in (1, 2, 3):
    print(f"patients of {number} sites:", sum(sites[1:number], sites[0]).decrypt()[0])
reals = tenseal.context(tenseal.SCHEME_TYPE.CKKS, poly_modulus_degree=8192, coeff_mod_bit_sizes=[60, 40, 40, 60])
reals.global_scale = 2**40
for samples in (10, 30, 100):
    pressure, weight = (tenseal.ckks_vector(reals, [value]) for value in (120.0, float(samples)))
    squares = (pressure * pressure * weight).decrypt()[0]
    print(f"sum of {samples} squares of 120, within 1%:", abs(squares / (120**2 * samples) - 1) < 0.01)
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
