"""The canary: which Flower it takes, what it says to do, and the table of the versions that have passed."""

import re

import pytest
from packaging.version import Version

from fda_flower.wire.private import TESTED
from release import canary

PAGE = canary.ROOT / "docs" / "install.md"
INDEX = {"flwr": "1.43.0 1.41.1 1.41.0 1.9.0", "flwr-nightly": "1.44.0.dev20261101 1.43.0.dev20261026"}


@pytest.fixture
def index(monkeypatch):
    monkeypatch.setattr(canary, "versions", lambda package: [*map(Version, INDEX[package].split())])


@pytest.mark.parametrize(
    ("wanted", "package", "version"),
    [
        ("", "flwr-nightly", "1.44.0.dev20261101"),
        ("1.41", "flwr", "1.41.1"),
        ("1.41.0", "flwr", "1.41.0"),
        ("1.43", "flwr", "1.43.0"),
        ("1.44", "flwr-nightly", "1.44.0.dev20261101"),
        ("1.43.0.dev20261026", "flwr-nightly", "1.43.0.dev20261026"),
    ],
)
@pytest.mark.usefixtures("index")
def test_it_takes_the_newest_or_the_newest_release_of_a_number(wanted, package, version):
    assert canary.choose(wanted) == (package, Version(version))


@pytest.mark.usefixtures("index")
def test_a_version_that_the_index_lacks_is_named():
    with pytest.raises(SystemExit, match=r"no Flower 3\.1; its newest is 1\.44"):
        canary.choose("3.1")


def test_its_tests_and_the_files_to_edit_are_there():
    paths = [path.partition("::") for column in canary.TESTS.values() for path in column]
    assert [file for file, _, test in paths if not (canary.ROOT / "tests" / file).exists()] == []
    assert all(
        f"def {test}(" in (canary.ROOT / "tests" / file).read_text("utf-8") for file, _, test in paths if test
    )
    files = re.findall(r"fda_flower/[\w/.]+\w", " ".join(canary.REMEDIES.values()))
    assert [name for name in files if not (canary.ROOT / name).exists()] == []
    assert canary.REMEDIES.keys() == {"names", *canary.TESTS}


@pytest.mark.parametrize(
    ("version", "failed", "lines"),
    [
        ("1.43.0", [], ["Add the row to docs/install.md"]),
        ("2.0.0", [], ["Add the row", "Widen flwr"]),
        ("1.43.0.dev1", ["gate"], ["gate: .*border.py", "Until then: narrow flwr"]),
        ("2.0.0", ["names", "gate"], ["names: .*private.py", "gate: "]),
    ],
)
def test_it_says_what_to_do(version, failed, lines):
    advice = canary.advice(Version(version), failed)
    assert len(advice) == len(lines)
    assert all(re.match(line, text) for line, text in zip(lines, advice, strict=True))


def test_the_table_has_the_tested_versions_the_lowest_of_which_is_the_projects():
    section = PAGE.read_text(encoding="utf-8").partition("## Versions of Flower")[2]
    header, *rows = re.findall(r"^\| ([a-z\d.]+) \| ([\w-]+) \| (.*) \|$", section, re.MULTILINE)
    assert header == ("flwr", "date", " | ".join(canary.REMEDIES))
    assert {cell for *_, cells in rows for cell in cells.split(" | ")} == {"passed"}
    releases = [Version(version) for version, *_ in rows if not Version(version).is_prerelease]
    assert re.findall(r"\d+\.\d+", TESTED) == [f"{each.major}.{each.minor}" for each in releases]
    assert str(canary.bound().specifier) == f"<2,>={releases[0].major}.{releases[0].minor}"
