"""The documentation: its site has every public name and loads nothing from elsewhere, its notebooks are current."""

import importlib
import importlib.util
import os
import pkgutil
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import jupytext
import pytest

import fda_flower

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
TUTORIALS = sorted(path for path in (DOCS / "tutorials").glob("*.md") if path.name != "index.md")
PACKAGES = [
    "fda_flower",
    *(f"fda_flower.{each.name}" for each in pkgutil.iter_modules(fda_flower.__path__) if each.ispkg),
]


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


def in_reference(package, name, documented):
    """Whether a public name, or the object that it names, is in the reference."""
    value = getattr(importlib.import_module(package), name)
    aliases = {f"{package}.{name}", f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"}
    return bool(aliases & documented)


@pytest.mark.slow
def test_every_public_name_is_in_the_reference(site):
    from mkdocstrings import Inventory

    with (site / "objects.inv").open("rb") as file:
        documented = set(Inventory.parse_sphinx(file))
    public = [(p, name) for p in PACKAGES for name in getattr(importlib.import_module(p), "__all__", ())]
    assert len(public) > 150
    missing = [f"{p}.{name}" for p, name in public if not in_reference(p, name, documented)]
    assert not missing, "add their package to docs/api and to mkdocs.yml"
    assert "fda_flower.walk" not in documented


@pytest.mark.slow
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
def test_pages_from_outside_lie_at_their_paths_with_links_that_work(site):
    mixture = (site / "mixture" / "index.html").read_text(encoding="utf-8")
    assert 'href="../experiments/"' in mixture
    results = (site / "experiments" / "RESULTS" / "index.html").read_text(encoding="utf-8")
    pictures = re.findall(r'<img [^>]*src="([^"]+)"', results)
    assert len(pictures) > 20
    for picture in pictures:
        assert (site / "experiments" / "RESULTS" / picture).is_file(), picture
    assert not list(site.rglob("*.py"))


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


def cells(notebook):
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda path: path.stem)
def test_a_notebook_is_its_page(page):
    notebook = jupytext.read(page.with_suffix(".ipynb"))
    renew = f"jupytext --to ipynb {page.relative_to(ROOT)}"
    assert cells(notebook) == cells(jupytext.read(page)), f"renew it: {renew}"
    assert not any(cell.get("outputs") for cell in notebook.cells), f"it has outputs: {renew}"
    assert f"]({page.stem}.ipynb)" in page.read_text(encoding="utf-8")
