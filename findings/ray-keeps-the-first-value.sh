#!/usr/bin/env bash
# Guess: a remote function sees a variable outside of it as it is when the function is called, as in Python, or as
# it was when the function was defined.
# What happens: as it was when the function was first called. A loop that lowers a learning rate outside the
# function trains with its first value in all rounds; what is passed as an argument is the current one.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check ray==2.55.1
cd "$place"

expected=$(cat <<'END'
ray 2.55.1
rate 0.2 outside and as an argument: (0.2, 0.2)
rate 0.1 outside and as an argument: (0.2, 0.1)
rate 0.05 outside and as an argument: (0.2, 0.05)
END
)
seen=$(bin/python - <<'PY'
import logging

import ray

ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
settings = {"rate": 0.3}


@ray.remote
def train(argument):
    return settings["rate"], argument["rate"]


settings["rate"] = 0.2
print("ray", ray.__version__)
for rate in (0.2, 0.1, 0.05):
    settings["rate"] = rate
    print("rate", rate, "outside and as an argument:", ray.get(train.remote(settings)))
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
