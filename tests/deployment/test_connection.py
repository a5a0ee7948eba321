"""The `flwr` command's answers, from a script that takes its place."""

import json
import stat
import sys

import psutil
import pytest

from fda_flower.deployment import submission
from fda_flower.deployment.submission import Connection
from fda_flower.errors import RunError


@pytest.fixture
def flwr(tmp_path, monkeypatch):
    """Makes a `flwr` that runs a shell script; its arguments are in the file ``arguments``."""

    def write(name, script):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    # Its `flwr` is found beside the interpreter.
    monkeypatch.setattr(sys, "executable", write("python", f'exec {sys.executable} "$@"'))

    def make(script):
        write("flwr", f'echo "$@" >> {tmp_path}/arguments\n{script}')
        return Connection("prod", {"PATH": "/usr/bin:/bin", "WHERE": "here"})

    return make


def says(answer):
    return f"cat <<'END'\n{json.dumps(answer, indent=2)}\nEND"


def arguments(tmp_path):
    return (tmp_path / "arguments").read_text(encoding="utf-8").splitlines()


def test_a_run_is_submitted_asked_about_and_stopped(flwr, tmp_path):
    assert flwr(says({"success": True, "run-id": "17"})).submit(tmp_path / "app") == "17"
    run = {"run-id": "17", "status": "finished:failed", "status-details": "why"}
    assert flwr(says({"success": True, "runs": [run]})).status("17") == ("finished:failed", "why")
    flwr(says({"success": True, "run-id": "17"})).stop("17")
    assert arguments(tmp_path) == [
        f"run {tmp_path / 'app'} prod --format json",
        "list prod --run-id 17 --format json",
        "stop 17 prod --format json",
    ]


def test_answers_are_read_where_everything_is_coloured(flwr, monkeypatch, tmp_path):
    flwr('test -z "$FORCE_COLOR" || exit 1\n' + says({"success": True, "run-id": "17"}))
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert Connection("prod").submit(tmp_path / "app") == "17"


def test_a_failure_is_told_in_one_line_with_the_connection_though_the_exit_code_is_0(flwr, tmp_path):
    failing = flwr(says({"success": False, "error-message": "Using it\nno such\nconnection"}))
    with pytest.raises(RunError) as caught:
        failing.submit(tmp_path)
    assert str(caught.value) == "'flwr run' failed for the connection 'prod': Using it no such connection"


@pytest.mark.parametrize("script", ["echo what is this >&2; exit 2", "echo what is this; exit 1"])
def test_what_is_no_answer_is_an_error_that_shows_it(flwr, script):
    with pytest.raises(RunError, match="'prod': what is this"):
        flwr(script).status("17")


def test_a_log_that_says_nothing_yields_none_until_it_goes_on(flwr, tmp_path, monkeypatch):
    monkeypatch.setattr(submission, "TICK_SECONDS", 0.01)
    lines = flwr(
        f"printf 'half'; while ! test -e {tmp_path}/go; do sleep 0.1; done; printf ' a line\\rin one\\nend'"
    ).log("17")
    assert next(lines) is None
    assert next(lines) is None
    (tmp_path / "go").touch()
    assert [line for line in lines if line is not None] == ["half a line\rin one\n", "end"]


def test_the_log_comes_line_by_line_and_its_process_ends_with_it(flwr, tmp_path):
    endless = flwr(f'echo $$ > {tmp_path}/pid; echo "Round 1, $WHERE"; exec sleep 600')
    lines = endless.log("17")
    assert next(lines) == "Round 1, here\n"
    lines.close()
    assert arguments(tmp_path) == ["log 17 prod --stream"]
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text(encoding="utf-8")))
    assert list(flwr("printf 'a\\nb\\377\\n'; exit 1").log("17")) == ["a\n", "b\ufffd\n"]
