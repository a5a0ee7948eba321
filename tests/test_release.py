"""A release: files agree on versions, an index gets a page of its own, and each extra is tried."""

import ast
import re
import shutil
import subprocess
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest
from flwr.cli.build import build_fab_from_files

from release.check import from_wheel, interpreter, same_rows
from release.plan import RESOLVED, environments, write_project
from release.readme import LINK, Block, blocks, commands, for_an_index
from release.versions import ROOT, differences, project

README, MAKEFILE = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "Makefile"))
PAGE = for_an_index(README, MAKEFILE, "", "1.2.3")
VERSION = project()["project"]["version"]


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
    assert {*names[:4]} <= {*ZipFile(BytesIO(bundle)).namelist()}
    assert names[-1] not in ZipFile(BytesIO(bundle)).namelist()


@pytest.mark.skipif(not tags(), reason="this is no release: no tag vX.Y.Z points here")
def test_a_tag_is_the_version_and_the_changelog_has_it():
    assert tags() == [f"v{VERSION}"]
    assert f"\n## [{VERSION}]\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_files_agree_on_versions_and_the_address():
    assert differences() == []


@pytest.mark.parametrize(
    ("name", "line", "changed", "difference"),
    [
        (
            "CITATION.cff",
            f"version: {VERSION}",
            "version: 9.9",
            f"version: {VERSION} in pyproject.toml, 9.9 in",
        ),
        ("CHANGELOG.md", r"## \[.+?\]", "## [9.9]", "9.9 in CHANGELOG.md"),
        ("constraints.txt", r"flwr==.*", "flwr==1.41.0", "Flower: "),
        ("constraints.txt", r"numpy==.*", "numpy==1.26.4", "numpy: 1.26.4 in constraints.txt, <3,>=2 in"),
        (
            "pyproject.toml",
            r'"flwr>=1\.\d+,<2"',
            '"flwr>=1.39,<2"',
            "range of Flower: >=1.39,<2 in pyproject.toml",
        ),
        ("pyproject.toml", "<3.14", "<3.15", "last Python: 3.13 in the classifiers, 3.14 in requires-python"),
        ("README.md", "Python 3.11 to", "Python 3.12 to", "first Python: "),
        (".github/workflows/ci.yml", r', "3.13"\]', "]", "Pythons: "),
        (
            "pyproject.toml",
            'repository = ""',
            'repository = "https://example.org"',
            "address: https://example.org in",
        ),
    ],
)
def test_a_difference_is_named_with_both_places(tmp_path, name, line, changed, difference):
    names = [
        "CITATION.cff",
        "CHANGELOG.md",
        "README.md",
        "constraints.txt",
        "pyproject.toml",
        "docs/install.md",
    ]
    for path in (*names, ".github/workflows/ci.yml"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    text, count = re.subn(line, changed, (tmp_path / name).read_text(encoding="utf-8"), count=1)
    (tmp_path / name).write_text(text, encoding="utf-8")
    (text,) = differences(tmp_path)
    assert count == 1
    assert difference in text


def test_the_page_of_an_index_needs_no_checkout_and_links_by_the_address_if_there_is_one():
    links = re.findall(rf"(?<!!){LINK}", README)
    assert links
    assert not re.search(LINK, PAGE)
    assert [text for text, _ in links if text not in PAGE] == [], "a link's text stays"
    assert not re.search(r"pip install '?\.|checkout|\bmake (demo|test)  |\.venv", PAGE)
    with_address = for_an_index(README, MAKEFILE, "https://example.org/us", "1.2.3")
    assert not re.search(LINK, with_address)
    assert f"](https://example.org/us/blob/v1.2.3/{links[0][1]})" in with_address
    assert "](https://example.org/us/raw/v1.2.3/docs/images/demo.png)" in with_address
    assert "](https://flower.ai)" in PAGE


def test_blocks_have_the_heading_above_them_and_commands_go_on_after_a_backslash():
    page = "# T\n## One\n```text\nx\n```\n## Two\n```bash\n# why\na \\\n  b\n\nc  # d\n```\n"
    assert blocks(page) == [Block("One", "text", "x\n"), Block("Two", "bash", "# why\na \\\n  b\n\nc  # d\n")]
    assert commands(blocks(page)[1].code) == ["a    b", "c  # d"]


def test_a_release_types_each_block_of_the_readme_and_tries_each_extra():
    lines = [line for stages in environments(PAGE) for stage in stages for line in stage.commands]
    for block in blocks(PAGE):
        if block.language == "bash":
            assert {*commands(block.code)} <= {*lines}
    extras = {
        extra for line in lines for names in re.findall(r"\[([\w,]+)\]'", line) for extra in names.split(",")
    }
    assert extras | {"docs"} == {*project()["project"]["optional-dependencies"]}
    assert RESOLVED == ("dev",)
    with pytest.raises(ValueError, match="the README's blocks are"):
        environments(f"{PAGE}\n```bash\nfda list\n```\n")


def test_the_project_for_the_plug_in_has_the_lines_of_the_readme(tmp_path):
    (block,) = (b.code for b in blocks(PAGE) if b.language == "python" and "strategies" in b.code)
    write_project(tmp_path, block)
    files = [
        (tmp_path / "project" / f"{side}_app.py").read_text(encoding="utf-8") for side in ("server", "client")
    ]
    assert all(ast.parse(text) for text in files)
    assert [line for line in block.splitlines() if line not in "".join(files)] == []
    assert "FedGP(" in files[0]
    assert "\nanswer_role_query(app)" in files[1]


@pytest.mark.parametrize(
    ("command", "typed"),
    [
        ("pip install fda-flower", "pip install 'fda-flower @ file:///x.whl'"),
        (
            "pip install 'fda-flower[cli,images]'  # why",
            "pip install 'fda-flower[cli,images] @ file:///x.whl'  # why",
        ),
        ("fda list | grep 'fda-flower[cli]'", "fda list | grep 'fda-flower[cli]'"),
    ],
)
def test_the_wheel_takes_the_place_of_the_name_on_an_index(command, typed):
    assert from_wheel(command, Path("/x.whl")) == typed


def test_a_python_that_is_missing_has_no_path():
    assert interpreter("3.99") == ("", "")


def test_rows_are_compared_by_the_names_of_their_columns():
    printed = "| M | a |\n| --- | ---: |\n| Ridge | **1 (2)** |\n| FedGP | 3 |\n"
    report = "# demo\n\n| M | more | a |\n| --- | --- | --- |\n| FedGP | 9 | 4 |\n| Ridge | 9 | 1 (2) |\n"
    assert same_rows(printed, report).startswith("1 of 2 rows")
