"""Version, tag, changelog and citation agree."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

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


def test_the_citation_has_the_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == VERSION


def test_the_changelog_has_an_entry_for_what_is_next_or_for_the_version():
    assert sections()[0] in ("Unreleased", VERSION)


@pytest.mark.skipif(not tags(), reason="this is no release: no tag vX.Y.Z points here")
def test_a_tag_is_the_version_and_the_changelog_has_it():
    assert tags() == [f"v{VERSION}"]
    assert VERSION in sections()
