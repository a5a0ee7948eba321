"""Version, tag, changelog and citation agree."""

import re
import subprocess
import tomllib
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml
from flwr.cli.build import build_fab_from_files

ROOT = Path(__file__).resolve().parent.parent
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]


def sections():
    return re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.M)


def tags():
    """The tags of what is checked out; none outside a repository."""
    try:
        done = subprocess.run(
            ["git", "tag", "--points-at", "HEAD"], cwd=ROOT, capture_output=True, text=True, timeout=60
        )
    except FileNotFoundError:
        return []
    return [tag for tag in done.stdout.split() if re.match(r"v\d", tag)]


def test_the_app_is_what_flowers_hub_takes():
    """Flower checks license, the range of its versions and the files itself."""
    names = ["pyproject.toml", "LICENSE", "README.md", "fda_flower/server_app.py", "tests/handmade.py"]
    bundle, about = build_fab_from_files({name: ROOT / name for name in names})
    assert about.fab_format_version == 1
    assert f"flwr=={about.flwr_version_target}\n" in (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert {*names[:4]} <= {*ZipFile(BytesIO(bundle)).namelist()}
    assert names[-1] not in ZipFile(BytesIO(bundle)).namelist()


def test_every_part_asks_for_the_same_flower():
    projects = [ROOT / "pyproject.toml", *ROOT.glob("examples/*/pyproject.toml")]
    ranges = {
        r for p in projects for r in re.findall(r'"flwr(?:\[\w+\])?([<>=][^"]+)"', p.read_text("utf-8"))
    }
    assert ranges == {">=1.40,<2"}


def test_the_citation_has_the_version_and_the_changelog_an_entry_for_it_or_for_what_is_next():
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"] == VERSION
    assert sections()[0] in ("Unreleased", VERSION)


@pytest.mark.skipif(not tags(), reason="this is no release: no tag vX.Y.Z points here")
def test_a_tag_is_the_version_and_the_changelog_has_it():
    assert tags() == [f"v{VERSION}"]
    assert VERSION in sections()
