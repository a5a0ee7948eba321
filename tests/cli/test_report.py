"""`fda report --html` as the shell calls it."""

import importlib
import sys
from pathlib import Path

import pytest
from run_folders import make_run
from typer.testing import CliRunner

from fda_flower import cli
from fda_flower.cli.app import app


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    """A wide terminal without colours, and a folder with a run that is done."""
    monkeypatch.setattr(importlib.import_module("fda_flower.cli.console").console, "width", 200)
    monkeypatch.chdir(tmp_path)
    make_run(Path("runs/first"), method="fedavg")


def fda(*arguments):
    done = CliRunner().invoke(app, ["report", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def test_a_page_is_written_beside_the_run_or_where_it_is_asked_for():
    code, out = fda("--html", "runs/first")
    assert code == 0
    assert "Written: runs/first/report.html" in out
    assert "<h1>first</h1>" in Path("runs/first/report.html").read_text(encoding="utf-8")
    assert fda("--html", "runs", "--output", "all.html")[0] == 0
    assert "<h1>runs</h1>" in Path("all.html").read_text(encoding="utf-8")


def test_without_html_a_run_or_the_runs_of_a_folder_are_drawn(pictures):
    code, out = fda("runs/first", "runs")
    assert code == 0
    for picture in ("runs/first/accuracy.png", "runs/comparison.png"):
        assert f"Written: {picture}" in out
        assert Path(picture).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--html", "nowhere"], "'nowhere' holds no run, comparison or experiment"),
        (["runs/first", "--output", "page.md"], "output is 'page.md', but the picture of 'runs/first'"),
    ],
)
def test_what_cannot_be_reported_is_said_in_a_line(arguments, says, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["fda", "report", *arguments])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 2
    assert says in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("package", ["plotly", "jinja2"])
def test_without_the_extra_the_command_says_what_to_install(package, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["fda", "report", "--html", "runs"])
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 2
    assert f"fda report needs {package}, which is not installed: pip install 'fda-flower[html]'" in (
        capsys.readouterr().err
    )
