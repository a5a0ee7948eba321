"""A run on a SuperLink: what is submitted, what comes back, and what goes wrong."""

import itertools
import json
import logging
import os
import signal
import stat
import sys
import tomllib
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import psutil
import pytest
from flwr.app import Context, RecordDict
from flwr.cli.build import build_fab_from_disk
from flwr.cli.config_utils import load_and_validate
from flwr.common.config import fuse_dicts
from naming import names
from whole_runs import same_bits, untimed

from fda_flower import RunConfig, load, run
from fda_flower.client_app import make_client_app
from fda_flower.deployment import Federation, run_deployed, submission
from fda_flower.deployment.submission import Connection, write_app
from fda_flower.engines import LocalGrid
from fda_flower.errors import ConfigError, RunError
from fda_flower.experiments import Execution, run_config
from fda_flower.records.folder import RunFolder
from fda_flower.records.verification import verify
from fda_flower.server_app import app
from fda_flower.wire.internals import task_identity

SETTINGS: dict[str, Any] = {"method": "fedgp-auto", "model": "mlp", "sources": 2, "target_samples": 16}
SETTINGS |= {"device": "cpu"}
CONFIG = RunConfig(**SETTINGS, rounds=2)


class CrashError(Exception):
    """A fault that nobody foresaw."""


fails = Mock(side_effect=CrashError("out of memory"))


class SuperLink:
    """Takes the place of `Connection`: runs the server app in this process when its log is read."""

    name = "prod"

    def __init__(self, folder):
        self.folder = folder
        self.submitted = []
        self.stopped = []
        self.asked = 0
        self.logs = {}
        self.states = {}
        self.cut_after = None
        self.on_round = None

    def submit(self, app_folder, settings):
        text = (app_folder / "pyproject.toml").read_text(encoding="utf-8")
        given = tomllib.loads(settings.read_text(encoding="utf-8"))
        self.submitted.append(fuse_dicts(tomllib.loads(text)["tool"]["flwr"]["app"]["config"], given))
        run_id = str(len(self.submitted))
        self.states[run_id] = ("pending", "")
        return run_id

    def status(self, run_id):
        self.asked += 1
        if run_id not in self.states:
            raise RunError("unknown run")
        return self.states[run_id]

    def log(self, run_id):
        if run_id not in self.logs:
            self.logs[run_id] = self._run(run_id)
        lines = self.logs[run_id].splitlines(keepends=True)
        end, self.cut_after = self.cut_after, None
        yield from lines[:end]

    def stop(self, run_id):
        self.stopped.append(run_id)

    def _run(self, run_id):
        config = RunConfig.from_flower(self.submitted[int(run_id) - 1])
        grid = LocalGrid(make_client_app(config), 3)
        chunks = []
        grid._runtime_client = grid  # type: ignore[attr-defined]
        grid.PushLogs = lambda request: chunks.extend(["INFO : a line\n", *request.logs])  # type: ignore[attr-defined]
        context = Context(1, 1, {}, RecordDict(), self.submitted[int(run_id) - 1])
        # Flower uploads what a server app writes.
        uploader = logging.StreamHandler(SimpleNamespace(write=chunks.append, flush=lambda: None))
        logging.getLogger("flwr").addHandler(uploader)
        before = os.getcwd()
        os.chdir(self.folder)
        try:
            with task_identity():
                app(grid, context)
            self.states[run_id] = ("finished:completed", "")
        except Exception as error:
            self.states[run_id] = ("finished:failed", f"ServerApp failed with exception: {error}")
        finally:
            os.chdir(before)
            logging.getLogger("flwr").removeHandler(uploader)
        return "".join(chunks)


@pytest.fixture
def superlink(tmp_path, monkeypatch):
    (tmp_path / "server").mkdir()
    superlink = SuperLink(tmp_path / "server")
    monkeypatch.setattr(submission, "Connection", lambda name, environment: superlink)
    monkeypatch.setattr(submission.time, "sleep", lambda seconds: None)  # type: ignore[attr-defined]
    monkeypatch.setattr(logging.getLogger("flwr"), "filters", [])
    return superlink


@pytest.fixture
def output(tmp_path):
    return tmp_path / "caller" / "first"


@pytest.fixture(scope="module")
def local():
    return run(**SETTINGS, rounds=2)


def lines_of(folder):
    return RunFolder(folder).read_rounds()


def test_records_are_those_of_a_local_run_and_the_model_stays_on_the_server(superlink, output, local):
    seen = []
    history, there = run_deployed(CONFIG, "prod", output, on_round=seen.append)
    assert untimed(history) == untimed(local.history)
    assert seen == history == lines_of(output)
    assert sorted(path.name for path in output.iterdir()) == [
        *(".lock", "config.json", "rounds.jsonl", "submitted.json")
    ]
    for name in ("config.json", "rounds.jsonl"):
        assert (output / name).read_bytes() == (Path(there) / name).read_bytes()
    assert verify(output).problems == verify(Path(there)).problems == ()
    assert "submitted.json" in verify(output).notes[0]
    model = load(there)
    assert (model.about.holder, model.about.round) == ("server", 2)
    assert same_bits(model.predictor.parts.networks["network"], local.model)
    # The server's folder is one that only this run has.
    about = json.loads((output / "submitted.json").read_text(encoding="utf-8"))
    assert (about["run-id"], superlink.folder / about["server-folder"]) == ("1", Path(there))
    assert (Path(there).parent.name, Path(there).name[:6]) == ("fda-runs", "first-")
    assert not (Path(there) / "summary.json").exists()
    assert submission.server_folder(replace(CONFIG, seed=1), output) != about["server-folder"]
    assert submission.server_folder(replace(CONFIG, rounds=9), output) == about["server-folder"]


@pytest.mark.parametrize(
    ("told", "asked", "says"),
    [(["complete"], 0, None), (["error", "complete"], 1, None), ([], 1, "are incomplete")],
)
def test_flower_is_asked_how_a_run_ended_unless_all_results_came(
    told, asked, says, superlink, output, monkeypatch
):
    whole = superlink._run

    def tells(run_id):
        *lines, complete = whole(run_id).splitlines(keepends=True)
        error = complete.replace('{"complete": 2}', '{"error": "no target any more"}')
        return "".join([*lines, *({"complete": complete, "error": error}[each] for each in told)])

    monkeypatch.setattr(superlink, "_run", tells)
    with nullcontext() if says is None else pytest.raises(RunError, match=says):
        run_deployed(CONFIG, "prod", output)
    assert superlink.asked == asked


def test_run_has_an_engine_of_this_name(superlink, output, local):
    said = []
    result = run_config(
        CONFIG, Execution(engine="deploy", connection="prod", output=output, on_ready=said.extend)
    )
    about = json.loads((output / "submitted.json").read_text(encoding="utf-8"))
    assert said == [f"The model is on the server of 'prod', in {superlink.folder / about['server-folder']}"]
    assert result.model == {}
    # The model is on the server, so its size is not known here.
    same = local.summary.keys() - {"seconds", "parameters"}
    assert result.summary.keys() - {"seconds"} == same
    assert {key: result.summary[key] for key in same} == {key: local.summary[key] for key in same}
    assert (output / "summary.json").exists()


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"connection": None}, names("connection")),
        ({"output": None}, names("output folder")),
        ({"workers": 2}, names("workers", 2)),
        ({"gpus_per_client": 0.5}, names("gpus-per-client", 0.5)),
        ({"engine": "local"}, names("connection", "prod")),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_submitted(superlink, output, settings, error):
    with pytest.raises(ConfigError, check=error):
        run(**{**SETTINGS, "engine": "deploy", "connection": "prod", "output": output, **settings}, rounds=1)
    assert superlink.submitted == []
    assert not output.exists()


# A folder that is not free


def test_a_folder_that_the_caller_or_the_server_has_is_refused_but_to_resume(
    superlink, output, tmp_path, local
):
    run_deployed(CONFIG, "prod", output)
    with pytest.raises(ConfigError, check=names("output folder")):
        run_deployed(CONFIG, "prod", output)
    with pytest.raises(ConfigError, check=names(str(output))):
        run_deployed(replace(CONFIG, seed=1), "prod", output, resume=True)
    assert len(superlink.submitted) == 1
    with pytest.raises(RunError, match="--resume"):
        run_deployed(CONFIG, "prod", tmp_path / "again" / "first")
    assert lines_of(tmp_path / "again" / "first") == []
    history, _ = run_deployed(CONFIG, "prod", tmp_path / "other" / "first", resume=True)
    assert untimed(history) == untimed(local.history)


# Continuing


def test_a_resumed_run_is_that_of_an_uninterrupted_one(superlink, output, local):
    run_deployed(replace(CONFIG, rounds=1), "prod", output)
    seen = []
    history, there = run_deployed(CONFIG, "prod", output, resume=True, on_round=seen.append)
    assert [record["round"] for record in seen] == [2]
    assert untimed(history)[1:] == untimed(local.history)[1:]
    assert (output / "rounds.jsonl").read_bytes() == (Path(there) / "rounds.jsonl").read_bytes()
    assert same_bits(load(there).predictor.parts.networks["network"], local.model)


def test_a_resume_follows_a_run_that_still_goes_on(superlink, output, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(submission, "_follow", fails)
        with pytest.raises(CrashError):
            run_deployed(CONFIG, "prod", output)
    assert superlink.states == {"1": ("pending", "")}
    history, _ = run_deployed(CONFIG, "prod", output, resume=True)
    assert len(superlink.submitted) == 1
    assert len(history) == 2


def test_a_resume_follows_no_run_of_another_connection(superlink, output, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(submission, "_follow", fails)
        with pytest.raises(CrashError):
            run_deployed(CONFIG, "prod", output)
    other = SuperLink(superlink.folder)
    other.name = "other"
    other.states["1"] = ("running", "")
    monkeypatch.setattr(submission, "Connection", lambda name, environment: other)
    history, _ = run_deployed(CONFIG, "other", output, resume=True)
    assert len(other.submitted) == 1
    assert len(history) == 2


# Faults


def test_an_error_of_the_server_comes_with_its_own_message_and_what_there_is(superlink, output, monkeypatch):
    from fda_flower.strategies import base

    aggregate = base.DomainAdaptationStrategy.aggregate_train

    def fails(self, server_round, replies):
        if server_round == 2:
            raise RunError("no target any more: mend it, then resume")
        return aggregate(self, server_round, replies)

    with monkeypatch.context() as patch:
        patch.setattr(base.DomainAdaptationStrategy, "aggregate_train", fails)
        with pytest.raises(RunError) as caught:
            run_deployed(CONFIG, "prod", output)
    assert str(caught.value) == "no target any more: mend it, then resume"
    assert [record["round"] for record in lines_of(output)] == [1]
    history, _ = run_deployed(CONFIG, "prod", output, resume=True)
    assert len(history) == 2


def test_an_unforeseen_error_of_the_server_is_told_with_how_to_look_into_it(superlink, output, monkeypatch):
    monkeypatch.setattr("fda_flower.server_app.run_server", fails)
    with pytest.raises(RunError, match=r"finished:failed .*out of memory.*flwr log 1 prod"):
        run_deployed(CONFIG, "prod", output)


def test_a_run_that_has_failed_before_its_first_round_leaves_its_folder_free_for_another(
    superlink, output, monkeypatch, local
):
    with monkeypatch.context() as patch:
        patch.setattr("fda_flower.server_app.run_server", fails)
        with pytest.raises(RunError, match="start again"):
            run_deployed(replace(CONFIG, seed=1), "prod", output)
    assert [path.name for path in output.iterdir()] == [".lock"]
    history, _ = run_deployed(CONFIG, "prod", output)
    assert untimed(history) == untimed(local.history)


@pytest.mark.parametrize("stuck", [False, True], ids=["it ends", "it says no more"])
def test_a_stream_that_misses_the_end_of_its_run_is_read_again(superlink, output, monkeypatch, stuck):
    monkeypatch.setattr(submission, "SILENCE", -1)
    log, seen = superlink.log, []
    superlink.cut_after = 5

    def stream(run_id):
        yield from log(run_id)
        monkeypatch.setattr(superlink, "log", log)
        while stuck:
            yield None

    monkeypatch.setattr(superlink, "log", stream)
    run_deployed(CONFIG, "prod", output, on_round=seen.append)
    assert [record["round"] for record in seen] == [1, 2]


class Lost(SuperLink):
    """A SuperLink that is gone after a run was submitted; each question takes 3 seconds of its clock."""

    def __init__(self, said):
        super().__init__(None)
        self.said = said
        self.clock = 0.0

    def submit(self, app_folder, settings):
        return "5"

    def status(self, run_id):
        self.sleep(3)
        raise RunError("Connection to the SuperLink is unavailable")

    def log(self, run_id):
        for line in self.said:
            self.sleep(1)
            yield line

    def sleep(self, seconds):
        assert self.clock < 3600, "it waits for ever"
        self.clock += seconds


@pytest.mark.parametrize(
    "said",
    [[], ["Using SuperLink: prod (127.0.0.1:9092)\n"], itertools.repeat(None)],
    ids=["a stream without a line", "a stream with the command's own line", "a stream that never ends"],
)
def test_a_superlink_that_stays_away_is_an_error_within_a_minute(output, monkeypatch, said):
    lost = Lost(said)
    clock = SimpleNamespace(monotonic=lambda: lost.clock, sleep=lost.sleep)
    monkeypatch.setattr(submission, "Connection", lambda name, environment: lost)
    monkeypatch.setattr(submission, "time", clock)
    with pytest.raises(RunError, check=names("SuperLink of", "prod")):
        run_deployed(CONFIG, "prod", output)
    assert 30 < lost.clock <= 60


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_real_superlink_that_is_frozen_is_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(submission, "PATIENCE", 1)
    monkeypatch.setattr(submission, "SILENCE", 1)
    with Federation(tmp_path / "federation", {}, secure=False) as federation:
        (link,) = federation._services["superlink"].process.children()
        # No node is there, so the run waits until the first look at other things than its log.
        with pytest.raises(RunError, check=names("SuperLink of", "rehearsal")):
            run_deployed(
                CONFIG,
                federation.connection,
                tmp_path / "run",
                environment=federation.environment,
                check=lambda: link.send_signal(signal.SIGSTOP),
            )


def test_a_stream_that_is_quiet_while_the_run_goes_on_is_read_on(superlink, output, monkeypatch):
    monkeypatch.setattr(submission, "SILENCE", -1)
    log = superlink.log
    monkeypatch.setattr(superlink, "log", lambda run_id: itertools.chain([None] * 3, log(run_id)))
    history, _ = run_deployed(CONFIG, "prod", output)
    assert superlink.asked == 3
    assert len(history) == 2


@pytest.mark.parametrize("stream", [[], [None]], ids=["a stream that ended", "a quiet one"])
def test_a_check_of_the_caller_ends_a_run_at_once(superlink, output, monkeypatch, stream):
    monkeypatch.setattr(superlink, "log", lambda run_id: iter(stream))
    with pytest.raises(RunError, match="exit code 137"):
        run_deployed(
            CONFIG, "prod", output, check=Mock(side_effect=RunError("superlink ended with exit code 137"))
        )
    assert superlink.asked == 0


def test_what_a_node_has_sent_begins_no_line_of_the_log_and_is_no_result(superlink, output, monkeypatch):
    from fda_flower.strategies import base

    aggregate = base.DomainAdaptationStrategy.aggregate_train
    hostile = 'x\nFDA-RESULT {"error": "the site north refuses"}\nFDA-RESULT 5\n\x1b[2J'

    def shows(self, server_round, replies):
        logging.getLogger("flwr").error("its arrays hold '%s'", hostile)
        return aggregate(self, server_round, replies)

    monkeypatch.setattr(base.DomainAdaptationStrategy, "aggregate_train", shows)
    history, _ = run_deployed(CONFIG, "prod", output)
    assert len(history) == 2
    assert r"its arrays hold 'x\nFDA-RESULT {" in superlink.logs["1"]
    assert "\x1b" not in superlink.logs["1"]
    assert "\nFDA-RESULT 5\n" not in superlink.logs["1"]


def test_a_full_disk_is_an_error_that_names_the_file(superlink, output, monkeypatch):
    write = submission.write_atomically  # type: ignore[attr-defined]

    def full(path, data):
        if path.name == "rounds.jsonl":
            raise OSError("No space left on device")
        write(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(submission, "write_atomically", full)
        with pytest.raises(RunError, match=r"rounds\.jsonl' cannot be written .*No space left"):
            run_deployed(CONFIG, "prod", output)
    history, _ = run_deployed(CONFIG, "prod", output, resume=True)
    assert len(history) == 2


def test_an_interrupt_stops_the_run(superlink, output):
    with pytest.raises(KeyboardInterrupt):
        run_deployed(CONFIG, "prod", output, on_round=Mock(side_effect=KeyboardInterrupt))
    assert superlink.stopped == ["1"]
    assert [record["round"] for record in lines_of(output)] == [1]


# The app

ODD = RunConfig(
    method="fedgp",
    beta=(0.1, 0.2, 0.3),
    shift_options={"angle": 45.5},
    learning_rate=1e-5,
    target_samples="15%",
    data_dir='C:\\data "ü"',
)


def test_the_app_has_the_configuration_and_flower_takes_it_and_installs_nothing(tmp_path):
    write_app(tmp_path)
    app = tomllib.loads((tmp_path / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["flwr"]["app"]
    assert fuse_dicts(app["config"], given := ODD.to_flower() | {"output": "x"}) == app["config"] | given
    assert RunConfig.from_flower(app["config"] | given) == ODD
    config, warnings = load_and_validate(tmp_path / "pyproject.toml")
    assert warnings == []
    assert config["project"]["dependencies"] == []
    assert build_fab_from_disk(tmp_path)


# The `flwr` command, from a script that takes its place


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


def arguments_of(tmp_path):
    return (tmp_path / "arguments").read_text(encoding="utf-8").splitlines()


def test_a_run_is_submitted_asked_about_and_stopped(flwr, tmp_path):
    assert (
        flwr(says({"success": True, "run-id": "17"})).submit(tmp_path / "app", tmp_path / "settings.toml")
        == "17"
    )
    run = {"run-id": "17", "status": "finished:failed", "status-details": "why"}
    assert flwr(says({"success": True, "runs": [run]})).status("17") == ("finished:failed", "why")
    flwr(says({"success": True, "run-id": "17"})).stop("17")
    assert arguments_of(tmp_path) == [
        f"run {tmp_path / 'app'} prod --run-config {tmp_path / 'settings.toml'} --format json",
        "list prod --run-id 17 --format json",
        "stop 17 prod --format json",
    ]


def test_answers_are_read_where_everything_is_coloured(flwr, monkeypatch, tmp_path):
    flwr('test -z "$FORCE_COLOR" || exit 1\n' + says({"success": True, "run-id": "17"}))
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert Connection("prod").submit(tmp_path / "app", tmp_path / "settings.toml") == "17"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (says({"success": False, "error-message": "Using it\nno such\nthing"}), "Using it no such thing"),
        ("echo what is this >&2; exit 2", "what is this"),
        ("echo what is this; exit 1", "what is this"),
    ],
)
def test_a_failure_is_told_in_one_line_with_the_connection(flwr, script, reason):
    with pytest.raises(RunError, match=rf"'flwr list' .*: {reason}$", check=names("connection", "prod")):
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
    assert arguments_of(tmp_path) == ["log 17 prod --stream"]
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text(encoding="utf-8")))
    assert list(flwr("printf 'a\\nb\\377\\n'; exit 1").log("17")) == ["a\n", "b\ufffd\n"]
