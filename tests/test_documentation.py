"""The documentation: its site, its notebooks, its figures."""

import ast
import doctest
import importlib
import os
import pkgutil
import re
import subprocess
import sys
import textwrap
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import jupytext
import pytest
from mkdocstrings import Inventory

import fda_flower
from fda_flower.datasets import DataSpec
from fda_flower.experiments.comparison import USUAL
from fda_flower.runs.completion import fitting_method
from fda_flower.runs.methods import METHODS

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
TUTORIALS = sorted(path for path in (DOCS / "tutorials").glob("*.md") if path.name != "index.md")
FOLDERS = [each.name for each in pkgutil.iter_modules(fda_flower.__path__) if each.ispkg]
PACKAGES = ["fda_flower", *(f"fda_flower.{name}" for name in FOLDERS if name != "cli")]

PATH = re.compile(
    r"(?<![\w/.*<>{}-])(?:benchmarks|deploy|docs|examples|experiments|fda_flower|findings|hub|release|tests)/[\w./-]*\w(?![\w*{<])"
)
NAME = re.compile(r"(?<![\w.:\"])fda_flower(?:\.[A-Za-z_]\w*)+(?![\w*{(]|\.py)")
LINK = re.compile(r"\]\((?![a-z]+:|#|/)([^)#\s]+)")
PLACEHOLDERS = {
    "docs/tutorials/NAME.md",
    "fda_flower.GROUP",
    "fda_flower.walk",
    "fda_flower/experiments/tables",
}
"""Names that stand for others, that must not exist, and that only the wheel has."""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built without a warning."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [Path(sys.executable).with_name("mkdocs"), "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_a_method_takes_ten_ideas_each_with_a_line_of_the_code_that_its_page_prints():
    page = (DOCS / "adding.md").read_text(encoding="utf-8").split("\n## A data set\n")[0]
    ideas = re.findall(r"^\| (\d+) \|.*\| `([^`]+)` \|$", page, re.MULTILINE)
    assert [int(number) for number, _ in ideas] == list(range(1, 11))
    code = "".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    assert [line for _, line in ideas if line not in code] == []
    assert len(page.splitlines()) <= 200


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_lists_what_it_exports_and_its_modules(package):
    own = importlib.import_module(package)
    modules = {each.name for each in pkgutil.iter_modules(own.__path__)}
    assert {name for name in dir(own) if not name.startswith("__")} <= {*own.__all__, *modules}


def test_what_documents_and_docstrings_name_exists():
    command = ["git", "ls-files", "--", "*.md", "*.py", "*.toml", "*.yml"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    missing = []
    for file in filter(Path.is_file, map(ROOT.joinpath, listed.stdout.splitlines())):
        text = file.read_text(encoding="utf-8")
        named = {path for path in PATH.findall(text) if not (ROOT / path).exists()}
        named |= {name for name in NAME.findall(text) if not can_be_imported(name)}
        if file.suffix == ".md":
            named |= {link for link in LINK.findall(text) if not (file.parent / link).exists()}
        missing += [f"{file.relative_to(ROOT)}: {name}" for name in sorted(named - PLACEHOLDERS)]
    assert missing == []


PHRASES = (
    r"beside",
    r"anew",
    r"so many",
    r"that of",
    r"what (?:it|they) (?:is|are)",
    r"ha(?:s|ve) to be",
    r"of (?:which|whom)",
    r"as one(?! (?:of|or)\b)",
    r"at once",
    r"whoever",
    r"(?:says?|tells?|told|knows?) (?:nothing |little |more )?of",
    r"as (?:it is|they are)",
    r"but for",
    r"(?:goes|going) on",
    r"oneself",
    r"in place of",
    r"of (?:no |little )?use",
    r"by which",
    r"(?:is|are) told",
    r"stays? as",
)
"""Say "next to", "again", "this many", "must be", "together", "immediately", "continues", "instead of"."""


PROSE = [
    *ROOT.glob("*.md"),
    *(path for path in DOCS.rglob("*.md") if "api" not in path.parts),
    *(
        path
        for folder in ("benchmarks", "deploy", "examples", "hub", "release")
        for path in (ROOT / folder).rglob("*.md")
    ),
    *(ROOT / "experiments").glob("*.md"),
    *(ROOT / "experiments" / "tables").glob("*.toml"),
    ROOT / "experiments" / "results" / "verdicts.toml",
]
"""The site's pages, and the notes of the experiments, from which the pages of results are made."""


@pytest.mark.parametrize("phrase", PHRASES)
def test_the_pages_do_without_phrases_that_a_reader_stumbles_over(phrase):
    found = []
    for page in PROSE:
        text = re.sub(r"`[^`]*`", "CODE", page.read_text(encoding="utf-8"))
        text = re.sub(r"\\?\s+", " ", text)
        hits = re.findall(rf".{{30}}\b{phrase}\b.{{20}}", text, re.IGNORECASE)
        found += [f"{page.relative_to(ROOT)}: {hit}" for hit in hits]
    assert found == []


BLOCKS = [
    pytest.param(block, id=f"{page.relative_to(ROOT)}-{i}")
    for page in PROSE
    for i, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))
]


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_of_python_is_python(block):
    """It may be a part of a program, or entries of a dictionary."""
    code = textwrap.dedent(block)
    ast.parse(f"{{{code}}}" if re.match(r'"\w+": ', code) else code)


@cache
def can_be_imported(name):
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


class Loaded(HTMLParser):
    """Collects the addresses of what a browser loads with a page."""

    def __init__(self, page):
        super().__init__()
        self.addresses = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.addresses.append(values.get("src"))
        if tag == "link" and values.get("rel") not in ("canonical", "next", "prev"):
            self.addresses.append(values.get("href"))


@pytest.mark.slow
@pytest.mark.smoke
def test_every_public_name_is_in_the_reference(site):
    with (site / "objects.inv").open("rb") as file:
        documented = set(Inventory.parse_sphinx(file))
    public = [(p, name) for p in PACKAGES for name in getattr(importlib.import_module(p), "__all__", ())]
    assert len(public) > 150

    def names_of(package, name):
        value = getattr(importlib.import_module(package), name)
        return {
            f"{package}.{name}",
            f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}",
        }

    missing = [each for each in public if not names_of(*each) & documented]
    assert missing == [], "they have no docstring, or their package has no page in docs/api"
    assert "fda_flower.walk" not in documented


@pytest.mark.slow
@pytest.mark.smoke
def test_the_site_loads_nothing_from_elsewhere(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        loaded = [address for address in Loaded(page.read_text(encoding="utf-8")).addresses if address]
        assert loaded, page
        assert [address for address in loaded if re.match("(https?:)?//", address)] == [], page
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(\W*(https?:)?//|@import", style.read_text(encoding="utf-8")), style


@pytest.mark.slow
@pytest.mark.smoke
def test_pages_from_outside_lie_at_their_paths_with_links_that_work(site):
    mixture = (site / "mixture" / "index.html").read_text(encoding="utf-8")
    assert 'href="../experiments/"' in mixture
    pages = [page.parent for page in (site / "experiments" / "results").glob("*/index.html")]
    assert len(pages) > 20
    pictures = [
        page / picture
        for page in pages
        for picture in re.findall(
            r'<img [^>]*src="([^"]+)"', (page / "index.html").read_text(encoding="utf-8")
        )
    ]
    assert len(pictures) > 20
    assert [picture for picture in pictures if not picture.is_file()] == []
    assert not list(site.rglob("*.py"))


def test_the_pictures_of_results_are_those_that_pages_show():
    folder = ROOT / "experiments" / "results"
    pages = "".join(page.read_text(encoding="utf-8") for page in folder.glob("*.md"))
    shown = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", pages)
    assert sorted(set(shown)) == sorted(path.name for path in folder.glob("*.png"))


@pytest.mark.slow
def test_the_figures_are_drawn_and_shown(tmp_path):
    done = subprocess.run(
        [sys.executable, DOCS / "figures.py", tmp_path], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn == {path.name for path in (DOCS / "images").glob("*.svg")}
    pages = "".join(path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md"))
    assert [name for name in sorted(drawn) if f"images/{name})" not in pages] == []


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda path: path.stem)
def test_a_notebook_is_its_page(page):
    notebook, source = jupytext.read(page.with_suffix(".ipynb")), jupytext.read(page)
    renew = f"renew it: jupytext --to ipynb {page.relative_to(ROOT)}"
    cells, expected = ([(cell.cell_type, cell.source) for cell in each.cells] for each in (notebook, source))
    assert cells == expected, renew
    assert not any(cell.get("outputs") for cell in notebook.cells), renew
    assert f"]({page.stem}.ipynb)" in page.read_text(encoding="utf-8")


def test_the_readme_is_a_page_with_the_methods_that_the_demo_compares_in_its_order():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 130
    assert [line for line in text.splitlines() if len(line) > 120] == []
    labels = re.findall(r"^\| (\w[\w ]+?) \| \*{0,2}\d", text.split("<!-- demo table")[1], flags=re.MULTILINE)
    assert labels == [METHODS[name].label for name in USUAL]


@pytest.mark.parametrize(
    ("samples", "data"),
    [
        ("images", DataSpec("pacs")),
        ("images", DataSpec("digits")),
        ("text", DataSpec("table", dataset_options=(("domains", "a,b"), ("text", "note")))),
        ("tables", DataSpec("heart")),
        ("--target all", DataSpec("heart", target="all")),
    ],
)
def test_the_page_recommends_what_auto_takes(samples, data):
    table = (ROOT / "docs/which-method.md").read_text(encoding="utf-8").split("\n\n")[2]
    rows = re.findall(r"^\| (.+) \| \[?`(\w+)`", table, re.MULTILINE)
    assert [method for about, method in rows if samples in about] == [fitting_method(data)[0]]


WITH_EXAMPLES = sorted(
    ".".join(("fda_flower", *path.relative_to(ROOT / "fda_flower").with_suffix("").parts))
    for path in (ROOT / "fda_flower").rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.usefixtures("by_the_rule")
@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_the_examples_of_a_module_run(module):
    failed, attempted = doctest.testmod(importlib.import_module(module.removesuffix(".__init__")))
    assert (failed, attempted > 0) == (0, True)
