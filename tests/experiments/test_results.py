"""The script that makes the pages of results, and the tables and pictures that only those have."""

import csv
import importlib
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "experiments" / "tools"


@pytest.fixture
def script(tmp_path, monkeypatch):
    """The script, which writes into a folder of this test."""
    monkeypatch.syspath_prepend(TOOLS)
    results = importlib.import_module("results")
    monkeypatch.setattr(results, "PAGES", tmp_path)
    return results


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("poisoned_adaptive", ["-lost.csv", "-lost.png", ".csv", ".md"]),
        ("synthetic_small", ["-best-rule.png", ".csv", ".md"]),
    ],
)
def test_a_page_with_tables_and_pictures_of_its_own(script, tmp_path, pictures, name, files):
    texts = script.experiment(name, {"verdict": "It works.", "why": "As said."}, pictures=True)
    assert sorted([*texts, *tmp_path.iterdir()]) == [tmp_path / f"{name}{file}" for file in files]
    page = texts[tmp_path / f"{name}.md"]
    assert "It works.\n\nAs said.\n" in page
    for picture in tmp_path.iterdir():
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert f"]({picture.name})" in page


def test_what_an_attack_costs_is_the_difference_to_no_attack(script, tmp_path):
    texts = script.experiment("poisoned_adaptive", {"verdict": ""}, pictures=False)
    lines = [*csv.DictReader(texts[tmp_path / "poisoned_adaptive-lost.csv"].splitlines())]
    scores = {(line["row"], line["column"]): float(line["score"]) for line in lines}
    assert len(scores) > 50
    for line in lines:
        place = line["row"], line["column"]
        assert float(line["lost"]) == pytest.approx(scores[line["row"], "none"] - scores[place], abs=0.1)
