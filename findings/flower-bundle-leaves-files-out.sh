#!/usr/bin/env bash
# Guess: an app's bundle has the files of its folder, apart from what .gitignore names, or says what it leaves
# out.
# What happens: it has only some kinds of files, no folder lib/ at the top, and no test_*.py, in whatever folder: no
# table, no weights, no text. A module or a file that is there where the app was written is missing at the
# SuperNode, and flwr build says nothing.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place"
"$place/bin/pip" install --quiet --disable-pip-version-check --no-compile flwr==1.42.0
cd "$place"

expected=$(cat <<'END'
flwr 1.42.0
left out: ['lib/scanner.py', 'study/columns.csv', 'study/notes.txt', 'study/start.safetensors', 'study/test_sites.py']
told: []
END
)
seen=$(bin/python - <<'PY'
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

about = '''[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "study"
version = "1.0.0"
description = "A study"
license = "Apache-2.0"
dependencies = ["flwr>=1.42.0"]
[tool.flwr.app]
publisher = "hospital"
[tool.flwr.app.components]
serverapp = "study.server:app"
clientapp = "study.client:app"
'''
app = Path("app")
files = {
    "pyproject.toml": about, "LICENSE": "Apache-2.0", "README.md": "A study", "study/__init__.py": "",
    "study/server.py": "from flwr.serverapp import ServerApp\napp = ServerApp()\n",
    "study/client.py": "from flwr.clientapp import ClientApp\napp = ClientApp()\n",
    "study/test_sites.py": "SITES = 4\n", "study/lib/network.py": "WIDTH = 8\n", "lib/scanner.py": "",
    "study/columns.csv": "age,bmi\n", "study/start.safetensors": "", "study/notes.txt": "",
}
for name, text in files.items():
    path = app / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
done = subprocess.run([Path(sys.executable).with_name("flwr"), "build", "--app", "app"], capture_output=True, text=True)
[bundle] = [*Path().rglob("*.fab")] or [None]
names = set(zipfile.ZipFile(bundle).namelist())
print("flwr", version("flwr"))
print("left out:", sorted(name for name in files if name not in names))
print("told:", [name for name in files if name not in names and Path(name).name in done.stdout + done.stderr])
PY
)
echo "$seen"
if [ "$seen" != "$expected" ]; then
    printf 'This has changed; it was:\n%s\n' "$expected" >&2
    exit 1
fi
