"""The leaderboard: its page follows from its rows' files, which leave the task alone, and run again alike."""

import importlib
import sys
from pathlib import Path

import pytest

import fda_flower
from fda_flower.errors import ConfigError
from fda_flower.runs.methods import METHODS

ROOT = Path(__file__).resolve().parent.parent
ROWS = ROOT / "experiments" / "leaderboard"
HALFWAY = (ROWS / "halfway.py").read_text(encoding="utf-8")


@pytest.fixture
def load(monkeypatch):
    """Import the script, or what makes its page, and forget them and all rows afterwards."""
    for folder in ("examples", "experiments/tools"):
        monkeypatch.syspath_prepend(str(ROOT / folder))
    yield importlib.import_module
    METHODS.pop("halfway", None)
    for name in ("leaderboard", "leaderboard_page", "mine", *(path.stem for path in ROWS.glob("*.py"))):
        sys.modules.pop(name, None)


@pytest.fixture
def script(load, monkeypatch, tmp_path):
    """The script, whose rows are in a folder of the test, and whose task is of a few digits."""
    script = load("leaderboard")
    monkeypatch.setattr(script, "FOLDER", tmp_path)
    task = {
        "dataset": "digits",
        "model": "logistic",
        "sources": 1,
        "target_samples": 20,
        "source_samples": 40,
    }
    monkeypatch.setattr(script, "TASK", task)
    monkeypatch.setattr(script, "TARGETS", ("target",))
    monkeypatch.setattr(script, "SEEDS", script.SEEDS[:2])
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return script


def test_the_page_follows_from_its_rows(load, capsys):
    assert load("leaderboard_page").main("--check") == 0, capsys.readouterr().out


def test_the_rows_of_this_release_have_its_seeds_and_the_script_60_lines(load):
    page, script = load("leaderboard_page"), load("leaderboard")
    figures = [row["figures"] for row in page.rows() if row["figures"]]
    ours = [each for each in figures if each["release"] == fda_flower.__version__]
    assert {tuple(each[target]) for each in ours for target in script.TARGETS} <= {tuple(script.SEEDS)}
    assert len(Path(script.__file__).read_text(encoding="utf-8").splitlines()) <= 60


@pytest.mark.parametrize(
    ("entries", "name"),
    [
        ({"colour": "red"}, "'mine': 'colour'"),
        ({"run": {"method": "ridge", "target_samples": 70}}, "'mine': 'target_samples'"),
        ({"run": {"method": "ridge", "seed": 3}}, "'mine': 'seed'"),
        ({"run": {"method": "ridge", "data_dir": "mine"}}, "'mine': 'data_dir'"),
        ({"run": {"method": "ridge", "only_sources": ["photo"]}}, "'mine': 'only_sources'"),
        ({"run": {"methods": "ridge"}}, "unknown setting 'methods'"),
        ({"run": {"method": "rigde"}}, "unknown method 'rigde'"),
    ],
)
def test_a_row_that_changes_the_task_or_has_an_unknown_key_is_refused_by_name(
    script, tmp_path, entries, name
):
    row = {"label": "Mine", "by": "Ada", "run": {}, **entries}
    (tmp_path / "mine.py").write_text(f"ROW = {row}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=name):
        script.read("mine")


def test_the_number_to_beat_is_of_the_releases_seeds_and_images(load, monkeypatch):
    page = load("leaderboard_page")
    fedavg = page.read("fedavg")
    targets = {target: dict.fromkeys(page.SEEDS, 99.0) for target in page.TARGETS}
    figures = {**targets, **{key: fedavg["figures"][key] for key in page.ABOUT}, "images": "deadbeef"}
    read, row = page.read, {**fedavg, "label": "Strange", "figures": figures}
    monkeypatch.setattr(page, "read", lambda name: row if name == "fedavg" else read(name))
    number, table = page.content().split("\n\n", 1)
    assert "Strange" not in number
    assert "| Strange |" in table
    row["figures"] = {**figures, page.TARGETS[0]: {7: 99.0}}
    with pytest.raises(ConfigError, match="row 'fedavg' lacks figures of its release's seeds"):
        page.rows()


@pytest.mark.parametrize(
    ("text", "key"), [("ROW = {'label': 'Mine', 'by': 'Ada'}\n", "run"), ("label = 'Mine'\n", "ROW")]
)
def test_a_row_without_a_run_or_none_at_all_is_refused_by_name(script, tmp_path, text, key):
    (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=f"'mine': '{key}' is missing"):
        script.read("mine")


def test_a_row_with_its_own_method_has_the_same_figures_again_interrupted_and_with_workers(
    script, monkeypatch, tmp_path
):
    row = HALFWAY.partition(script.MARK)[0].replace('"method": "halfway"', '"method": "halfway", "rounds": 2')
    file = tmp_path / "halfway.py"
    file.write_text(row, encoding="utf-8")
    script.main(["halfway"], None)
    text, run = file.read_text(encoding="utf-8"), script.run
    assert [*importlib.reload(sys.modules["halfway"]).ROW["figures"]["target"]] == script.SEEDS
    seeds = []

    def interrupted(**settings):
        seeds.append(settings["seed"])
        if len(seeds) == 2:
            raise KeyboardInterrupt
        return run(**settings)

    monkeypatch.setattr(script, "run", interrupted)
    (tmp_path / "again").mkdir()
    monkeypatch.chdir(tmp_path / "again")
    file.write_text(row, encoding="utf-8")
    with pytest.raises(KeyboardInterrupt):
        script.main(["halfway"], None, 2)
    assert file.read_text(encoding="utf-8") == row
    script.main(["halfway"], None, 2)
    assert file.read_text(encoding="utf-8") == text


def test_without_data_it_says_how_to_get_them(load, monkeypatch, tmp_path):
    script = load("leaderboard")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="Error: PACS cannot be downloaded: get it from DomainBed"):
        script.main(["ridge"], None)
