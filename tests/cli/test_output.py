"""What each command prints: for people, with `--quiet`, and with `--json`."""

import io
import json
import os
import re
import sys
from pathlib import Path

import click
import numpy as np
import pytest
import typer
from flwr.app import RecordDict
from rich.console import Console
from run_folders import make_run
from safetensors.numpy import save_file
from sites import write_sites, write_table

from fda_flower.cli import main
from fda_flower.cli.app import app
from fda_flower.cli.cells import CellBar, end_with
from fda_flower.cli.output import Output, out
from fda_flower.errors import RunError, print_anything
from fda_flower.reporting.tables import Cell, Table
from fda_flower.running.processes import Progress
from fda_flower.site.ledger import Entry, Ledger

SMALL = "--model mlp --rounds 1 --sources 2 --target-samples 20 --device cpu"
EXPERIMENT = """
title = "Small"
seeds = [0]
columns = [{ label = "20 labels" }]
rows = [{ label = "FedAvg", method = "fedavg" }, { label = "Nobody", method = "fedavg", sources = 400 }]
[run]
dataset = "digits"
sources = 2
target-samples = 20
model = "mlp"
rounds = 1
"""
SENT = {
    **{"time": "2026-11-22T10:00:00.000", "run": 7, "domain": "north", "round": 1, "message": "train"},
    **{"records": {"arrays": {"bytes": 1200}}, "bytes": 1200, "failed": "OSError('the disk is full')"},
}

SITE = "node.toml --dataset-option domains=north,south --dataset-option classes=0,1 --method fedavg"

CALLS = {
    "list": ("methods", {"methods", "centralised-references", "strategies-of-flower"}),
    "run": (f"{SMALL} --output r", {"folder", "method", "seed", "last5", "test-samples"}),
    "compare": (f"{SMALL} --methods fedavg --seeds 1", {"folder", "rows", "failures", "left-out"}),
    "experiment": ("small.toml --only FedAvg", {"files", "rows", "failures"}),
    "experiment --check": ("small.toml --only FedAvg", {"missing", "refused", "rows", "seconds"}),
    "tune": (f"{SMALL} --target-samples 60 --search epochs=1,2", {"searches", "failures"}),
    "report": ("first", {"files", "rows"}),
    "report --html": ("first", {"files", "rows"}),
    "report --card": ("first", {"files", "rows"}),
    "predict": ("RUN", {"file", "predictions", "round"}),
    "evaluate": ("RUN", {"samples", "round", "figures", "intervals"}),
    "export": ("RUN", {"file", "features"}),
    "verify": ("RUN", {"rounds", "last", "problems", "notes"}),
    "data check": ("data", {"dataset", "target", "domains", "inputs", "problems", "command", "warnings"}),
    "data compare": ("data", {"folder", "sites", "pairs"}),
    "weights": ("net.safetensors", {"digest", "bytes", "arrays", "numbers", "model", "file", "options"}),
    "deploy certificates": ("--host localhost --output keys", {"files"}),
    "deploy key": ("north --output keys", {"files", "signs"}),
    "deploy recount": ("spent", {"added"}),
    "deploy app-hash": ("", {"app"}),
    "deploy log": ("state", {"sent", "refused", "failed"}),
    "deploy check": (SITE, {"domain", "data", "answer", "epsilon", "choices"}),
    "deploy rehearse": ("--output o", {"folder", "rounds", "history"}),
}
"""By command, its arguments, and the keys of its JSON object."""

UNDONE = {
    "compare": f"{SMALL} --methods fedavg,fedgp --seeds 1 --output c --resume",
    "experiment": "small.toml",
    "verify": "RUN --expect 0",
    "data check": "data --target-samples 999",
    "weights": "net.safetensors --model resnet18",
}
"""Commands whose result says what has failed."""

WRONG = {
    "list": "metods",
    "compare": "--methods nope",
    "experiment": "nothing.toml",
    "tune": "",
    "report": "first --sent state",
    "deploy certificates": "--host é --output keys",
    "deploy key": "",
    "deploy recount": "",
    "deploy app-hash": "nowhere",
    "deploy check": "nowhere.toml",
    "deploy log": "data",
    **dict.fromkeys(("run", "deploy rehearse --output o"), "--method nope"),
    **dict.fromkeys(("predict", "evaluate", "export", "verify"), "nowhere"),
    **dict.fromkeys(("data check", "data compare", "weights"), "nowhere"),
}


@pytest.fixture
def call(fda, table_run, rehearsed, in_process, quick_export, tmp_path, monkeypatch):
    """Call a command in a mode, in a folder with what it needs; its exit code, and both outputs."""

    def call(command, arguments, *mode):
        folder = tmp_path / "-".join(["in", *mode])
        folder.mkdir()
        monkeypatch.chdir(folder)
        monkeypatch.setenv("FDA_CACHE_DIR", str(folder / "cache"))
        Path("small.toml").write_text(EXPERIMENT)
        make_run(Path("first"), method="fedavg")
        make_run(Path("c/fedgp-seed0"))
        write_sites(write_table, Path("data"), ("north", "south"))
        Path("node.toml").write_text(
            'role = "source"\ndomain = "north"\ndata-dir = "data"\nstate-dir = "kept"\n'
        )
        Path("state").mkdir()
        Path("state/sent.jsonl").write_text(json.dumps(SENT) + "\n")
        save_file({"w": np.zeros(2)}, "net.safetensors")
        Path("spent").mkdir()
        Ledger(Path("spent/north-privacy.json"), RecordDict()).spend(Entry(1, "asked", 1.0, 1), 1e-5, None)
        words = [str(table_run) if word == "RUN" else word for word in arguments.split()]
        code, shown, error = fda(*command.split(), *words, *mode)
        shown = re.sub(r"SHA256:[\w+/]+", "SHA256", shown)  # of a key, which is another one in each call
        return code, shown.replace(str(folder), ""), error.replace(str(folder), "")

    return call


def commands(group, *before):
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, *before, name)
        else:
            yield " ".join([*before, name])


def test_every_command_keeps_the_contract():
    names = set(commands(typer.main.get_command(app)))
    assert names == {command.partition(" --")[0] for command in CALLS}
    assert names == {command.partition(" --")[0] for command in WRONG}


@pytest.mark.parametrize("command", CALLS)
def test_a_command_prints_a_result_for_people_less_of_it_or_one_object(call, command):
    arguments, keys = CALLS[command]
    code, shown, error = call(command, arguments)
    assert (code, error) == (0, "")
    code, short, error = call(command, arguments, "--quiet")
    assert code == 0
    assert all(line in shown for line in short.splitlines())
    assert 0 < len(short) <= len(shown)
    assert not {"│", "\x1b", "━"} & set(short)
    code, printed, people = call(command, arguments, "--json")
    assert code == 0
    found = json.loads(printed)
    assert len(printed.splitlines()) == 1
    assert keys <= found.keys()
    assert "error" not in found
    assert len(people.splitlines()) == len(shown.splitlines())


def test_an_object_with_quiet_stands_alone(call):
    code, printed, people = call("data check", "data", "--json", "--quiet")
    assert (code, json.loads(printed)["problems"]) == (0, [])
    assert all(line.startswith("Warning: ") for line in people.splitlines())


@pytest.mark.parametrize("command", UNDONE)
def test_what_has_failed_is_in_the_result(call, command):
    code, shown, error = call(command, UNDONE[command])
    assert (code, error) == (1, "")
    code, short, _ = call(command, UNDONE[command], "--quiet")
    assert code == 1
    lines = [line for line in short.splitlines() if line.startswith(("Failed: ", "Not ok: ", "Refused: "))]
    assert lines
    assert all(line in shown.splitlines() for line in lines)
    code, printed, _ = call(command, UNDONE[command], "--json")
    found = json.loads(printed)
    assert (code, "error" in found) == (1, False)
    assert found.get("failures") or found["problems"]


@pytest.mark.parametrize("command", WRONG)
def test_an_error_is_a_line_and_an_object(call, command):
    code, shown, error = call(command, WRONG[command], "--quiet")
    assert (code, shown) == (2, "")
    code, printed, again = call(command, WRONG[command], "--json", "--quiet")
    assert (code, again) == (2, error)
    (kind, details), *others = json.loads(printed).items()
    assert (kind, others, details.keys()) == ("error", [], {"message", "thing", "value", "remedy"})
    assert details["message"]
    assert details["thing"]
    assert details["remedy"]


def test_an_unknown_command_is_an_object_too(fda):
    code, printed, error = fda("rum", "--json")
    assert (code, json.loads(printed)["error"]["remedy"]) == (2, "see fda --help")
    assert "Did you mean 'run'?" in error
    assert fda("list", "models")[1].startswith("Models"), "the next command prints for people"


def test_a_terminal_gets_a_bar_and_no_lines(fda, monkeypatch):
    terminal = Console(force_terminal=True, _environ={"TERM": "xterm"})
    monkeypatch.setattr("fda_flower.cli.output._console", lambda **_: terminal)
    _, shown, _ = fda("run", *SMALL.split())
    assert "━" in shown
    assert "round 1/1" not in shown


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
        end_with(failures, {})
    assert capsys.readouterr().out.splitlines() == ["Failed: a and 2 more: no data", "Failed: b: no luck"]


METHODS = ["FedDA_Joint", "Target Only", "most frequent class"]
SCORES = [
    "last5 (%)",
    "best (%)",
    "balanced accuracy (%)",
    "macro F1 (%)",
    "AUROC (%)",
    "points over Target Only",
]


@pytest.mark.parametrize("width", [130, 80, 40])
def test_a_narrow_terminal_cuts_no_word_and_no_number(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    rows = [[name, *(f"{i}{n}.5 ({i}.3)" for n in range(len(SCORES)))] for i, name in enumerate(METHODS, 2)]
    table = Table(["Method", *SCORES], rows, "heart: target test accuracy")
    assert out.fits(table) is (width == 130)
    out.table(table)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    cells = [cell.strip() for line in lines for cell in re.split("[│┃]", line)]
    assert {word for name in (*METHODS, *SCORES) for word in name.split()} <= {
        word for cell in cells for word in cell.split()
    }
    assert {cell for row in rows for cell in row[1:]} <= {*cells}


def test_only_a_word_wider_than_the_terminal_is_cut_and_no_column_is_lost(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    out.table(Table(["name", "labels"], [["x" * 40, 12]]))
    printed = capsys.readouterr().out
    assert (printed.count("x"), "labels" in printed, " 12 " in printed) == (40, True, True)


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_terminal_gets_texts_in_whole_words_below_each_other(capsys, monkeypatch, width):
    terminal = Console(force_terminal=True, color_system=None, width=width, _environ={"TERM": "xterm"})
    monkeypatch.setattr(out, "_people", terminal)
    out.entries(
        {"conv4": "four convolutions of 3x3 with GroupNorm, and a linear layer " * 2, "mlp": "one layer"}
    )
    first, *rest, last = capsys.readouterr().out.splitlines()
    assert (first[:8], last) == ("  conv4 ", "  mlp   one layer")
    assert all(line.startswith(" " * 8) and len(line) <= width for line in rest)
    words = " ".join([first, *rest]).split()
    assert words[1:] == ("four convolutions of 3x3 with GroupNorm, and a linear layer " * 2).split()


NAMES = ["ward [north]", "[/]", "[bold]ward", "ward :hospital:", "C:\\[1]", "ward\\", "[link=x]y[/link]"]
"""Names from outside that a terminal's markup would change."""


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_printed_as_it_is(name, capsys, monkeypatch):
    out.text(name)
    out.warning(name)
    out.result({}, name)
    out.error(RunError(name))
    shown, error = capsys.readouterr()
    assert (shown.splitlines(), error.splitlines()) == ([name, f"Warning: {name}", name], [f"Error: {name}"])
    out.table(Table([name, f"β of {name}"], [[name, Cell(name, best=True)]], name))
    assert capsys.readouterr().out.count(name) == 5
    terminal = Console(force_terminal=True, color_system=None, _environ={"TERM": "xterm", "COLUMNS": "200"})
    monkeypatch.setattr(out, "_people", terminal)
    with out.progress() as progress:
        progress.add_task(name, total=2, shown=f"best {name}")
    assert f"best {name}" in capsys.readouterr().out


def test_codes_of_terminals_in_a_foreign_text_are_shown_not_sent(capsys):
    output = Output()
    output.text("first\n\x1b[2Jgone")
    output.table(Table(["\x1bhead"], [["\x1b[8mcell"]], "\x1btitle"))
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "first\n\\x1b[2Jgone" in printed


@pytest.mark.parametrize(
    ("encoding", "shown"), [("ascii", "Zurich +-2, epsilon"), ("latin-1", "Zürich ±2, epsilon")]
)
def test_a_terminal_without_a_letter_gets_its_likeness_in_ascii(monkeypatch, encoding, shown):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, stream)
    print_anything()
    output = Output()
    output.text("Zürich ±2, ε")
    output.table(Table(["Zürich", "β"], [["Zürich ±2, ε", 1]], "東"))
    output.warning("Zürich ±2, ε")
    output.error(RunError("Zürich ±2, ε"))
    stream.flush()
    written = stream.buffer.getvalue().decode(encoding)
    assert (written.count(shown), "\\u6771" in written) == (4, True)
    output.begin(as_json=True)
    output.result({"name": "東"})
    assert json.loads(stream.buffer.getvalue().decode(encoding).splitlines()[-1]) == {"name": "東"}


def test_a_name_of_a_file_that_is_no_text_is_refused(fda):
    write_sites(write_table, Path("data"), ("north", "south"))
    Path("data/south.csv").rename(os.fsdecode(b"data/s\xfcd.csv"))
    code, shown, error = fda("data", "check", "data")
    assert (code, shown) == (2, "")
    assert "'s\\udcfcd.csv' has a name that is not UTF-8" in error


def test_a_word_that_the_terminal_cannot_write_is_an_error_with_a_remedy(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["fda", "deploy", "key", "n\udcc3\udcb6rd", "--output", "keys"])
    with pytest.raises(SystemExit, check=lambda end: end.code == 2):
        main()
    assert "PYTHONUTF8=1" in capsys.readouterr().err
