"""Ctrl-C and SIGTERM, in this process and to real ones."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from waiting import until

from fda_flower.cli import stopping
from fda_flower.cli.stopping import stop, stoppable, this_command, when_stopped
from fda_flower.errors import RunError
from fda_flower.records.folder import RunFolder
from fda_flower.reporting import summarise

FDA = str(Path(sys.executable).with_name("fda"))
SMALL = ["--model", "mlp", "--target-samples", "16", "--device", "cpu"]


@pytest.fixture(autouse=True)
def called(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["fda", "run", "--shift-option", "angle=45 invert=no"])


# In this process


def exit_code_of(block):
    """Call a block as the command is called; its exit code."""

    def within():
        with stoppable():
            block()

    with pytest.raises(SystemExit) as exit_:
        within()
    return exit_.value.code


def interrupt():
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_block_by_a_line_and_an_exit_code(number, capsys):
    before = signal.getsignal(number)
    assert exit_code_of(lambda: signal.raise_signal(number)) == 128 + number
    again = "fda run --shift-option 'angle=45 invert=no'"
    assert capsys.readouterr().err == f"Stopped. Start again with: {again}\n"
    assert signal.getsignal(number) is before

    def block():
        when_stopped(lambda: "Stopped after round 3 of 30.")
        signal.raise_signal(number)

    assert exit_code_of(block) == 128 + number
    assert capsys.readouterr().err == "Stopped after round 3 of 30.\n"


@pytest.mark.parametrize(
    ("error", "lines"), [(ImportError("half a module"), []), (RunError("it goes on"), ["Error: it goes on"])]
)
def test_what_an_interrupt_breaks_is_no_traceback_and_a_reason_for_persons_is_told(error, lines, capsys):
    def block():
        try:
            interrupt()
        except KeyboardInterrupt as cause:
            raise error from cause

    assert exit_code_of(block) == 130
    *before, last = capsys.readouterr().err.splitlines()
    assert before == lines
    assert last.startswith("Stopped.")


def test_a_second_signal_is_ignored_at_first(monkeypatch, capsys):
    def block():
        try:
            interrupt()
        finally:
            stop(signal.SIGTERM, None)
            monkeypatch.setattr(stopping, "PATIENCE", -1)
            with pytest.raises(KeyboardInterrupt):
                stop(signal.SIGINT, None)

    assert exit_code_of(block) == 130
    assert capsys.readouterr().err.startswith("Stopped.")


def test_without_a_signal_an_error_stays_what_it_is():
    with pytest.raises(ZeroDivisionError), stoppable():
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("fda run", "fda run --output 'a b' --resume"),
        ("fda run --resume --output c", "fda run --resume --output c"),
        ("fda run --output=c", "fda run --output=c --resume"),
        ("/opt/bin/fda run --output=c --resume", "fda run --output=c --resume"),
        ("/usr/bin/fda run --output=c --resume", "/usr/bin/fda run --output=c --resume"),
    ],
)
def test_the_command_to_go_on_with_can_be_pasted(monkeypatch, given, expected):
    monkeypatch.setattr(shutil, "which", lambda name: f"/opt/bin/{name}")
    monkeypatch.setattr(sys, "argv", given.split())
    assert this_command("--resume", output=Path("a b")) == expected


# Real processes


@pytest.fixture
def start():
    """Start the command in a session of its own, which is killed after the test if it still runs."""
    started = []

    def start(*arguments, python=()):
        command = [sys.executable, *python, FDA, *arguments]
        # Coverage would warn on standard error where a signal meets it before it has begun.
        env = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
        how: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(command, env=env, start_new_session=True, **how))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def read_until(stream, pattern):
    for line in stream:
        if re.search(pattern, line):
            return
    raise AssertionError(f"it ended without saying {pattern}")


def end(process, number=signal.SIGINT):
    """Signal all processes of a terminal, as Ctrl-C does; what standard error says then, but for warnings.

    No process of the session is left.
    """
    os.killpg(process.pid, number)
    _, err = process.communicate()
    assert process.returncode == 128 + number, err
    until(lambda: not any(belongs(each, process.pid) for each in psutil.process_iter()))
    return [line for line in err.splitlines() if not re.search("WARNING|^import time:", line)]


def the_only(lines):
    assert len(lines) == 1, "\n".join(lines)
    return lines[0]


def belongs(process, session):
    try:
        return os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.NoSuchProcess):
        return False


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["INT", "TERM"])
def test_a_run_is_summarised_and_goes_on_with_the_command_that_is_told(start, number):
    arguments = ["run", *SMALL, "--method", "fedavg", "--rounds", "300", "--output", "a b"]
    process = start(*arguments)
    read_until(process.stdout, r"^round 2/300: target accuracy [\d.]+%$")
    line = the_only(end(process, number))
    told = re.fullmatch(r"Stopped after round (\d+) of 300\. Continue with: (.*)", line)
    assert told
    done = int(told[1])
    records = RunFolder("a b").read_rounds()
    assert done <= len(records) <= done + 1
    assert f'"rounds": {summarise(records)["rounds"]}' in Path("a b/summary.json").read_text()
    assert shlex.split(told[2])[1:] == [*arguments, "--resume"]
    if number == signal.SIGINT:
        subprocess.run(told[2], shell=True, check=True, capture_output=True)
        assert [record["round"] for record in RunFolder("a b").read_rounds()] == list(range(1, 301))


@pytest.mark.slow
@pytest.mark.parametrize("module", ["typer", "torch", "matplotlib"])
def test_a_command_that_still_loads_is_ended_by_one_line(start, module):
    process = start("run", *SMALL, "--rounds", "60", python=["-X", "importtime"])
    read_until(process.stderr, rf"\| +{module}\.")
    assert the_only(end(process)).startswith("Stopped")


@pytest.mark.slow
def test_a_comparison_has_a_table_of_what_is_done_and_leaves_no_process(start):
    methods = ["--methods", "target-only,fedavg,fedda", "--seeds", "2", "--jobs", "2"]
    process = start("compare", *SMALL, "--rounds", "100", *methods, "--output", "c")
    read_until(process.stdout, "^cell 1/6: .* is done$")
    line = the_only(end(process))
    told = re.fullmatch(
        r"Stopped with (\d) of 6 cells done \(c/report.md has them\)\. Continue with: (.*)", line
    )
    assert told
    assert 1 <= int(told[1]) < 6
    assert told[2].endswith("--output c --resume")
    assert Path("c/report.md").exists()


@pytest.mark.slow
def test_a_comparison_whose_first_cells_start_is_ended_by_one_line(start):
    methods = ["--methods", "fedavg", "--seeds", "2", "--jobs", "2"]
    process = start("compare", *SMALL, "--rounds", "400", *methods)
    until(psutil.Process(process.pid).children)
    time.sleep(0.5)
    assert the_only(end(process)).startswith("Stopped with ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "number"),
    [("--workers 2", signal.SIGINT), ("--workers 2", signal.SIGTERM), ("--engine ray", signal.SIGINT)],
)
def test_a_run_in_other_processes_is_ended_by_one_line_with_all_of_them(start, how, number):
    process = start("run", *SMALL, "--rounds", "4000", *how.split(), "--output", "w")
    read_until(process.stdout, "^round 2/4000")
    line = the_only(end(process, number))
    assert re.match(rf"Stopped after round \d+ of 4000\. Continue with: .* {how} .* --resume$", line)
    assert Path("w/summary.json").exists()
