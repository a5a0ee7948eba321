"""`--quiet`, `--json`, and what a log gets in place of a bar."""

import json
from pathlib import Path

import pytest
import typer
from rich.console import Console

from fda_flower.cli import console
from fda_flower.cli.console import (
    CellBar,
    conclude,
    end_with,
    marked,
    progress_bar,
    say,
    show_error,
    show_table,
)
from fda_flower.errors import RunError
from fda_flower.reporting.tables import Cell, Table
from fda_flower.running.processes import Progress

SMALL = ["--model", "mlp", "--rounds", "2", "--target-samples", "16", "--device", "cpu"]
pytestmark = pytest.mark.usefixtures("in_process")


def test_a_terminal_gets_a_bar_and_no_lines(fda, monkeypatch):
    monkeypatch.setattr(console, "console", Console(force_terminal=True, _environ={"TERM": "xterm"}))
    _, out, _ = fda("run", *SMALL, "--output", "a")
    assert "━" in out
    assert "round 1/2" not in out


def test_quiet_is_the_last_line_alone(fda):
    code, out, err = fda("run", *SMALL, "--output", "a", "--quiet")
    assert (code, err, len(out.splitlines())) == (0, "", 1)
    assert out.endswith("Written to a\n")
    assert fda("list")[1] != "", "the next command is not quiet"


def test_json_is_the_summary_of_a_run_and_the_rest_goes_to_standard_error(fda):
    code, out, err = fda("run", *SMALL, "--output", "a", "--json")
    summary, found = json.loads(Path("a/summary.json").read_text()), json.loads(out)
    assert (code, len(out.splitlines())) == (0, 1)
    assert (found["folder"], found["method"], found["seed"]) == ("a", "fedgp-auto", 0)
    assert all(summary[key] == value for key, value in found.items() if key != "folder")
    assert "\nround 1/2: " in err
    assert "Written to a\n" in err


def test_quiet_json_is_json_alone_and_an_error_is_told(fda):
    code, out, err = fda("run", *SMALL, "--output", "a", "--json", "--quiet")
    assert (code, err) == (0, "")
    assert json.loads(out)["rounds"] == 2
    code, out, err = fda("run", "--method", "nope", "--json", "--quiet")
    assert (code, out) == (2, "")
    assert err.startswith("Error: unknown method 'nope'")


def test_json_of_a_comparison_has_its_rows_and_failures(fda, monkeypatch):
    cell = Path("c/fedgp-seed0")
    cell.mkdir(parents=True)
    (cell / "config.json").write_text("{", encoding="utf-8")
    arguments = ["compare", *SMALL, "--methods", "fedavg,fedgp", "--seeds", "1", "--output", "c", "--resume"]
    code, out, err = fda(*arguments, "--json")
    found = json.loads(out)
    assert code == 1
    assert [(row["method"], row["rounds"], row["seeds"]) for row in found["rows"]] == [("FedAvg", 2, 1)]
    assert list(found["failures"]) == ["fedgp-seed0"]
    assert "cell 1/2: fedavg-seed0 is done" in err
    assert "cell fedgp-seed0 has failed: " in err
    assert "Failed: fedgp-seed0: " in err
    code, out, _ = fda(*arguments, "--quiet")
    assert code == 1
    assert [line.split(":")[0] for line in out.splitlines()] == ["Written to c", "Failed"]


def test_the_bar_of_cells_says_each_cell_once(capsys):
    failures = {"c": str(RunError("no luck")), "d": "no luck"}
    with CellBar() as bar:
        assert (bar.done, bar.where(Path("table.md"))) == ("no cell done", "")
        bar(Progress(5, 1, ["a"], [], {}, 8, 0))
        bar(Progress(5, 2, ["b", "c"], ["a"], {}, 8, 2))
        bar(Progress(5, 3, [], ["a", "b"], failures, 8, 4))
    assert capsys.readouterr().out.splitlines() == [
        "cell 2/5: a is done",
        "cell 3/5: b is done",
        "cell c has failed: no luck",
    ]
    assert (bar.done, bar.where(Path("table.md"))) == ("3 of 5 cells done", " (table.md has them)")


def test_cells_that_failed_for_one_reason_are_one_line(capsys):
    failures = {"a": "no data", "b": "no luck", "c": "no data", "d": "no data"}
    with pytest.raises(typer.Exit):
        end_with(failures)
    assert capsys.readouterr().out.splitlines() == ["Failed: a and 2 more: no data", "Failed: b: no luck"]


NAMES = ["ward [north]", "[/]", "[bold]ward", "ward :hospital:", "C:\\[1]", "ward\\", "[link=x]y[/link]"]
"""Names from outside that a terminal's markup would change."""


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_printed_as_it_is(name, capsys):
    say(name)
    say(marked("Warning:", name))
    conclude(name, result={})
    show_error(name)
    with pytest.raises(typer.Exit):
        end_with({name: name})
    out, err = capsys.readouterr()
    lines = [name, f"Warning: {name}", name, f"Failed: {name}: {name}"]
    assert (out.splitlines(), err.splitlines()) == (lines, [f"Error: {name}"])


@pytest.mark.parametrize("name", NAMES)
def test_a_table_and_a_bar_show_a_name_as_it_is(name, capsys, monkeypatch):
    show_table(Table([name, f"β of {name}"], [[name, Cell(name, best=True)]], name))
    assert capsys.readouterr().out.count(name) == 5
    terminal = Console(force_terminal=True, color_system=None, _environ={"TERM": "xterm", "COLUMNS": "200"})
    monkeypatch.setattr(console, "console", terminal)
    with progress_bar() as progress:
        progress.add_task(name, total=2, shown=f"best {name}")
    assert f"best {name}" in capsys.readouterr().out
