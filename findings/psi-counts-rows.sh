#!/usr/bin/env bash
# Guess: the size of a private set intersection is the set's: a patient counts once, on either side.
# What happens: the rows of the side that asks are counted: two shared patients are 2 for the side that lists
# patients, and 4 for the one that lists visits. Repeated rows of the server do not count.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile openmined-psi==2.0.6
cd "$place"

expected=$(cat <<'END'
openmined_psi 2.0.6
the side with patients counts 2
the side with visits counts 4
END
)
seen=$(bin/python - <<'PY'
from importlib.metadata import version

import private_set_intersection.python as psi


def shared(server_rows, client_rows):
    """Number of patients in both tables, as the client learns it."""
    server, client = psi.server.CreateWithNewKey(False), psi.client.CreateWithNewKey(False)
    setup = server.CreateSetupMessage(1e-9, len(client_rows), server_rows, psi.DataStructure.GCS)
    response = server.ProcessRequest(client.CreateRequest(client_rows))
    return client.GetIntersectionSize(setup, response)


print("openmined_psi", version("openmined_psi"))
patients, visits = ["Ann", "Bob", "Eve"], ["Ann", "Ann", "Ann", "Bob", "Joe"]
print("the side with patients counts", shared(visits, patients))
print("the side with visits counts", shared(patients, visits))
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
