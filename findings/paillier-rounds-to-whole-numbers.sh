#!/usr/bin/env bash
# Guess: an encrypted number that has decimals is decrypted with them, or refused where the scheme holds whole numbers
# alone.
# What happens: it is rounded before it is encrypted, without a word: a scheme that is made without a precision has
# none. Means of 0.4 at three hospitals sum to 0, and updates of a model are 0. With precision=2, 0.004 is 0.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile tno.mpc.encryption_schemes.paillier==4.1.0 typing-extensions==4.15.0
cd "$place"

expected=$(cat <<'END'
tno.mpc.encryption_schemes.paillier 4.1.0
no precision named: [0.4, 0.4, 0.4] sum to 0.0, [0.31, -0.02, 0.004] are [0.0, 0.0, 0.0]; warnings of rounding: 0
precision 2: [0.4, 0.4, 0.4] sum to 1.2, [0.31, -0.02, 0.004] are [0.31, -0.02, 0.0]; warnings of rounding: 0
precision 6: [0.4, 0.4, 0.4] sum to 1.2, [0.31, -0.02, 0.004] are [0.31, -0.02, 0.004]; warnings of rounding: 0
END
)
seen=$(bin/python - <<'PY'
import warnings
from importlib.metadata import version

warnings.simplefilter("ignore")  # On speed and on randomness.
from tno.mpc.encryption_schemes.paillier import Paillier  # noqa: E402

means = [0.4, 0.4, 0.4]
updates = [0.31, -0.02, 0.004]


def told(name, scheme):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        total = sum((scheme.encrypt(mean) for mean in means[1:]), scheme.encrypt(means[0]))
        sent = [float(scheme.decrypt(scheme.encrypt(update))) for update in updates]
        total = float(scheme.decrypt(total))
    of_rounding = sum("precision" in str(one.message) or "round" in str(one.message) for one in said)
    print(f"{name}: {means} sum to {total}, {updates} are {sent}; warnings of rounding: {of_rounding}")
    scheme.shut_down()


print("tno.mpc.encryption_schemes.paillier", version("tno.mpc.encryption_schemes.paillier"))
told("no precision named", Paillier.from_security_parameter(key_length=1024))
told("precision 2", Paillier.from_security_parameter(key_length=1024, precision=2))
told("precision 6", Paillier.from_security_parameter(key_length=1024, precision=6))
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
