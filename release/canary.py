"""Test the package with another version of Flower, before its users have it; ``make canary`` runs this.

The environment ``build/canary-VERSION`` has that version above the packages of the environment that runs the
script, and next to it what it needs in another version than they are. The package's list of private names and
its tests say whether it works; the last lines say what to do next.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("flwr", "flwr-nightly")
"""Names on an index: of releases, and of what will be the next one."""

DEPLOYMENT = "test_a_site_starts_approved_apps_alone_and_a_key_stands_for_one_domain"
TESTS = {
    "contract": ("strategies/test_contract.py", "clients/test_client.py", "clients/test_serving.py"),
    "plug-in": ("test_plug_in.py", "test_examples.py", "legacy"),
    "gate": ("wire/test_private.py", "wire/test_internals.py", "wire/test_border.py", "supernode"),
    "deployment": (f"deployment/test_gates.py::{DEPLOYMENT}",),
}
"""By column of the table, tests in ``tests/``; the last one has real processes."""

REMEDIES = {
    "names": "Flower's new names belong in fda_flower/wire/private.py, and where they are used",
    "contract": "messages are in fda_flower/wire/internals.py, rounds in fda_flower/strategies/base.py",
    "plug-in": "fda_flower/wire/older.py has the older API, fda_flower/strategies/flowers_options.py options",
    "gate": "a SuperNode's functions are in fda_flower/wire/border.py",
    "deployment": "commands are in fda_flower/deployment, the grid in fda_flower/wire/internals.py",
}
"""By column, what to edit if it failed."""

ASK = """
import json
from fda_flower.wire import private
print(json.dumps([[part, part != private.SPEED, private.missing(part)] for part in private.NAMES]))
"""
"""Prints the parts of `NAMES`, whether they fail without a name, and the names that are missing."""


def versions(package: str) -> list[Version]:
    """Return the versions of a package that the index has, pre-releases too."""
    command = [sys.executable, "-m", "pip", "index", "versions", package, "--pre"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    line = re.search("^Available versions: (.*)$", done.stdout, re.MULTILINE)
    if line is None:
        raise SystemExit(f"The index lists no version of {package}: {done.stderr.strip()}")
    return [Version(text) for text in line[1].split(", ")]


def choose(wanted: str) -> tuple[str, Version]:
    """Return package and version: the newest of all, or of those that begin with `wanted`, releases first."""
    exact = SpecifierSet(f"=={wanted}" if wanted.count(".") > 1 else f"=={wanted}.*" if wanted else "")
    every = {version: package for package in reversed(PACKAGES) for version in versions(package)}
    fitting = [version for version in every if exact.contains(version, prereleases=True)]
    if not fitting:
        raise SystemExit(f"The index has no Flower {wanted}; its newest is {max(every)}")
    version = max(fitting, key=lambda version: (bool(wanted) and not version.is_prerelease, version))
    return every[version], version


def install(package: str, version: Version, place: Path) -> Path:
    """Make the environment, and return its Python."""
    shutil.rmtree(place, ignore_errors=True)
    venv.create(place, symlinks=True)
    python = place / "bin" / "python"
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(place), "platbase": str(place)}))
    beneath = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    (packages / "beneath.pth").write_text(beneath, encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--disable-pip-version-check"]
    pip += ["--no-compile", "--quiet"]
    itself = ["--no-deps", "--ignore-installed"]  # its commands, too, where the same version is below
    subprocess.run([*pip, *itself, f"{package}=={version}"], check=True)
    subprocess.run([*pip, f"{package}[simulation]=={version}"], check=True)
    for folder in packages.glob(
        "flwr_nightly-*.dist-info"
    ):  # else both packages would have Flower's commands
        about = folder / "METADATA"
        about.write_text(re.sub("(?m)^Name: .*", "Name: flwr", about.read_text("utf-8")), encoding="utf-8")
        folder.rename(packages / folder.name.replace("flwr_nightly", "flwr"))
    return python


def run(python: Path, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run Python of the environment on this checkout."""
    changed = {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "FLWR_TELEMETRY_ENABLED": "0",
    }
    command, environment = [str(python), *arguments], {**os.environ, **changed}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def has_names(python: Path) -> bool:
    """Print the private names that this version lacks; return whether every part works without them."""
    done = run(python, ["-c", ASK])
    if done.returncode:
        print(done.stderr)
        return False
    parts = json.loads(done.stdout.splitlines()[-1])
    for part, fails, lost in parts:
        for name in lost:
            print(f"names: no {name}, without which {part} {'fails' if fails else 'become long ones'}")
    print(f"names: {sum(len(lost) for *_, lost in parts)} missing", flush=True)
    return not any(fails and lost for _, fails, lost in parts)


def passes(column: str, python: Path) -> bool:
    """Run the tests of a column, and print those that failed."""
    marks = "slow" if column == "deployment" else "not slow"
    options = ["-q", "-p", "no:cacheprovider", "-m", marks]
    done = run(python, ["-m", "pytest", *options, *(f"tests/{path}" for path in TESTS[column])])
    log = python.parents[1] / f"{column}.log"
    log.write_text(done.stdout + done.stderr, encoding="utf-8")
    lines = done.stdout.splitlines() or ["no output"]
    for line in [line for line in lines if line.startswith(("FAILED", "ERROR"))] + lines[-1:]:
        print(f"{column}: {line}", flush=True)
    print(f"{column}: see {log.relative_to(ROOT)}")
    return done.returncode == 0


def bound() -> Requirement:
    """Return what the package requires of Flower."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (flwr,) = [one for one in map(Requirement, project["dependencies"]) if one.name == "flwr"]
    return flwr


def advice(version: Version, failed: Sequence[str]) -> list[str]:
    """Return what to do next, one line for each."""
    inside = bound().specifier.contains(version, prereleases=True)
    if not failed:
        lines = ["Add the row to docs/install.md, and the version to TESTED in fda_flower/wire/private.py"]
        return (
            lines if inside else [*lines, f"Widen {bound()} in pyproject.toml and examples/*/pyproject.toml"]
        )
    lines = [f"{column}: {REMEDIES[column]}" for column in failed]
    if inside:
        lines.append(f"Until then: narrow {bound()} in pyproject.toml and examples/*/pyproject.toml")
    return lines


def main() -> None:
    """Test with a version, print its row of the table, and exit with 1 if something failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("version", nargs="?", default="", help="such as 1.42.0 or 1.42; default: the newest")
    package, version = choose(parser.parse_args().version)
    print(f"{package} {version}", flush=True)
    python = install(package, version, ROOT / "build" / f"canary-{version}")
    results = {"names": has_names(python)} | {column: passes(column, python) for column in TESTS}
    cells = ["passed" if passed else "failed" for passed in results.values()]
    print("", f"| flwr | date | {' | '.join(results)} |", sep="\n")
    print(f"| {version} | {date.today()} | {' | '.join(cells)} |", end="\n\n")
    failed = [column for column, passed in results.items() if not passed]
    print(*advice(version, failed), sep="\n")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
