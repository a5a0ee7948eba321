"""Packages of others and changed copies of this one, made of the blocks that pages print."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import fda_flower

DOCS = Path(__file__).parents[1] / "docs"


def printed(page, language, start):
    """The block of a page that starts so."""
    blocks = re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    (found,) = (block for block in blocks if block.startswith(start))
    return found


def python(folder, *arguments):
    """Run Python in a process of its own, in which a folder comes first on the path."""
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def copy_with(folder, files, table, before, line):
    """Copy this package, add files, and a line to one of its tables, before the line that begins so."""
    ignored = shutil.ignore_patterns("__pycache__")
    copy = shutil.copytree(Path(fda_flower.__file__).parent, folder / "fda_flower", ignore=ignored)
    for name, text in files.items():
        (copy / name).write_text(text, encoding="utf-8")
    above, below = re.split(rf'(?m)^(?= +"{before}": )', (copy / table).read_text(encoding="utf-8"))
    (copy / table).write_text(above + line + below, encoding="utf-8")


def install(folder, modules, entry_points, name="clinics"):
    """A package as pip installs it: its modules, and metadata with the entry points of its pyproject.toml."""
    (folder / name).mkdir(parents=True)
    for module, source in {"__init__": "", **modules}.items():
        (folder / name / f"{module}.py").write_text(source, encoding="utf-8")
    describe(folder, name, entry_points)
    return folder


def describe(folder, name, entry_points):
    """The metadata of an installed package, with the entry points of its pyproject.toml."""
    metadata = folder / f"{name}-0.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    groups = tomllib.loads(entry_points)["project"]["entry-points"]
    lines = [
        line
        for group, points in groups.items()
        for line in [f"[{group}]", *(f"{key} = {value}" for key, value in points.items())]
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
