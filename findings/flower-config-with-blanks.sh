#!/usr/bin/env bash
# Guess: in --run-config and --node-config 'lr = 0.1 epochs=3', as TOML writes it, lr is 0.1, or the text is
# refused.
# What happens: the entry with blanks around = is not there, without a word: the app trains with its default, and
# a node is without its setting. A file of TOML is read with blanks.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile flwr==1.42.0
cd "$place"

expected=$(cat <<'END'
flwr 1.42.0
'lr=0.1 epochs=3' {'lr': 0.1, 'epochs': 3}
'lr = 0.1 epochs=3' {'epochs': 3}
'run.toml' {'lr': 0.1, 'epochs': 3}
END
)
seen=$(bin/python - <<'PY'
from importlib.metadata import version
from pathlib import Path

from flwr.common.config import parse_config_args

Path("run.toml").write_text("lr = 0.1\nepochs=3\n")
print("flwr", version("flwr"))
for given in ("lr=0.1 epochs=3", "lr = 0.1 epochs=3", "run.toml"):
    print(repr(given), parse_config_args([given]))
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
