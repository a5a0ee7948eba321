"""A run: its result, its files, its seeds, how it goes on, and what it refuses."""

import json
import random
import shutil
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from naming import names
from sites import write_images, write_sites, write_table
from whole_runs import check_same, same_bits, untimed

from fda_flower import ConfigError, RunConfig, RunError, run, server_app
from fda_flower.clients import client, fada, kd3a, mixture, personal, train, training
from fda_flower.experiments import Execution, run_config
from fda_flower.models import build_model
from fda_flower.records.folder import RunFolder
from fda_flower.records.verification import verify
from fda_flower.runs.methods import METHODS

FILES = [
    *(".lock", "checkpoint", "config.json", "model.json", "model.safetensors"),
    *("rounds.jsonl", "summary.json"),
]


def strict(text):
    """Parse JSON as the standard has it: without NaN and infinity."""

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def lines_of(folder):
    for line in (folder / "rounds.jsonl").read_text(encoding="utf-8").splitlines():
        strict(line)
    return RunFolder(folder).read_rounds()


@pytest.fixture(scope="module")
def three_rounds(small, tmp_path_factory):
    """A finished run of three rounds in a folder; tests that change it take a copy."""
    folder = tmp_path_factory.mktemp("three")
    return run(**small, rounds=3, output=folder)


@pytest.fixture(scope="module")
def six_rounds(small, tmp_path_factory):
    """The same run, of six rounds in one go."""
    return run(**small, rounds=6, output=tmp_path_factory.mktemp("six"))


@pytest.fixture
def copy(three_rounds, tmp_path):
    """A folder of one's own with the run of three rounds."""
    return shutil.copytree(three_rounds.path, tmp_path / "copy")


# The result of a run


def test_a_result_holds_the_configuration_the_history_the_summary_the_model_and_the_path(small, six_rounds):
    result = six_rounds
    assert result.config == RunConfig(**small, rounds=6)
    assert [record["round"] for record in result.history] == [1, 2, 3, 4, 5, 6]
    assert result.accuracies == [100 * record["accuracy"] for record in result.history]
    shares = [record["accuracy"] for record in result.history]
    assert result.summary["best"] == max(shares)
    assert result.summary["last5"] == pytest.approx(sum(shares[1:]) / 5)
    assert (result.summary["rounds"], result.summary["held-rounds"], result.summary["dropped"]) == (6, 0, 0)
    network = build_model("mlp", (1, 8, 8), 10, seed=0).state_dict()
    assert {name: array.shape for name, array in result.model.items()} == {
        name: tuple(tensor.shape) for name, tensor in network.items()
    }
    assert all(array.dtype == np.float32 and np.isfinite(array).all() for array in result.model.values())
    assert sorted(path.name for path in result.path.iterdir()) == FILES
    names = {"method": "fedgp-auto", "label": "FedGP_Auto", "dataset": "digits", "shift": "rotate", "seed": 0}
    written = strict((result.path / "summary.json").read_text(encoding="utf-8"))
    assert written == {**names, **result.summary}


def test_without_an_output_folder_nothing_is_written_and_one_is_given_back_absolute(
    small, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert run(**small, rounds=1).path is None
    assert list(tmp_path.iterdir()) == []
    assert run(**small, rounds=1, output="a/b").path == tmp_path / "a" / "b"


def test_the_accuracy_rises_well_above_chance_without_a_shift(small):
    options = {"angle": 0, "invert": False}
    settings = {**small, "method": "fedavg", "learning_rate": 0.01}
    result = run(**settings, shift_options=options, rounds=15)
    assert result.summary["best"] > 0.8


@pytest.mark.parametrize("method", [m for m in METHODS if "batch-norm" not in METHODS[m].needs])
def test_every_method_runs_and_its_summary_has_the_epochs_that_the_clients_train(
    small, method, monkeypatch, tmp_path
):
    trained, labels = {"source": 0, "target": 0}, {"source": 1, "target": 1}

    def count(model, samples, how, *others, **more):
        role = "source" if len(samples) == 40 else "target"
        labels[role] = max(labels[role], len(samples))
        trained[role] += how.epochs * len(samples)
        return train(model, samples, how, *others, **more)

    step = personal.JointTraining._step

    def count_own(self, model, x, y):
        trained["target"] += len(y)
        step(self, model, x, y)

    monkeypatch.setattr(training, "train", count)
    monkeypatch.setattr(mixture, "train", count)
    monkeypatch.setattr(kd3a, "train", count)
    monkeypatch.setattr(fada, "train", count)
    monkeypatch.setattr(personal.JointTraining, "_step", count_own)
    settings = {**small, "method": method, "warmup_rounds": 1, "epochs": 2}
    settings |= {"model": "logistic"} if "frozen body" in METHODS[method].needs else {}
    if METHODS[method].takes("gate_start"):  # else there may be no vote to train on
        settings["method_options"] = {"gate_start": 0, "gate_end": 0}
    result = run(**settings, rounds=2, sources=2, source_samples=40, output=tmp_path)
    assert result.history == lines_of(tmp_path)
    for record in result.history:
        replies = [*record["sources"].values(), *filter(None, [record["target"]])]
        assert not any("metrics" in reply for reply in replies), "they are a project's own"
    assert len(result.accuracies) == result.config.all_rounds == 1 + (METHODS[method].rounds or 2)
    assert 0 <= result.accuracies[-1] <= 100
    assert all(record["held"] is None for record in result.history)
    trained["source"] //= 2
    assert result.summary["epochs"] == {role: trained[role] / labels[role] for role in trained}


# The files


def test_config_json_holds_the_settings_what_their_defaults_were_the_strategy_and_the_versions(
    small, tmp_path, monkeypatch
):
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
    monkeypatch.chdir(tmp_path)
    given = {**small, "rounds": 1, "device": "auto", "data_dir": "data"}
    result = run(**given, output=tmp_path / "run")
    config = strict((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))
    wanted = {"dataset": "digits", "shift": "rotate", "method": "fedgp-auto", "seed": 0, "target_samples": 16}
    assert wanted.items() <= config["run"].items()
    assert {"name": "FedGP", "auto": True}.items() <= config["run"]["strategy"].items()
    assert (config["rounds"], config["device"]) == (1, "cpu")
    assert config["versions"].keys() == {"python", "fda-flower", "flwr", "torch", "numpy"}
    assert all(config["versions"].values())
    settings = config["settings"]
    assert [*settings, "site", "patients"] == list(RunConfig.__dataclass_fields__)
    resolved = {"target": "target", "shift": "rotate", "device": "cpu", "data_dir": str(tmp_path / "data")}
    assert {**given, **resolved}.items() <= settings.items()
    assert RunConfig(**settings).fingerprint() == result.config.fingerprint()
    assert RunConfig(**settings).settings() == settings


# Seeds


def test_the_same_seed_gives_the_same_bits_whatever_the_global_random_state_which_it_leaves_alone(
    small, six_rounds
):
    torch.manual_seed(77)
    random.seed(77)
    np.random.seed(77)  # noqa: NPY002
    before, threads, seen = torch.get_rng_state(), torch.get_num_threads(), []
    result = run_config(RunConfig(**small, rounds=6), Execution(on_round=seen.append))
    check_same(result, six_rounds)
    assert seen == result.history
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads
    assert not same_bits(run(**small, rounds=6, seed=1).model, six_rounds.model)


# Resuming


def test_three_rounds_and_then_three_more_are_the_six_in_one_go(small, six_rounds, copy):
    resumed = run(**small, rounds=6, output=copy, resume=True)
    check_same(resumed, six_rounds)
    assert untimed(lines_of(copy)) == untimed(lines_of(six_rounds.path))
    assert (copy / "checkpoint").read_bytes() == (six_rounds.path / "checkpoint").read_bytes()
    assert resumed.summary["rounds"] == 6
    assert strict((copy / "config.json").read_text(encoding="utf-8"))["rounds"] == 6


def test_a_run_that_crashed_in_its_first_round_starts_again(small, six_rounds, tmp_path):
    (tmp_path / "rounds.jsonl").touch()
    shutil.copy(six_rounds.path / "config.json", tmp_path)
    resumed = run(**small, rounds=6, output=tmp_path, resume=True)
    assert same_bits(resumed.model, six_rounds.model)


@pytest.mark.parametrize(
    ("end", "tail"),
    [
        ("\n", '{"round": 4, "held": nu'),
        ("\n", '{"round": 4, "held": null}\n'),
        ("\n", '{"round": 4}\n{"round"'),
        ("\n", "\n"),
        ("", ""),
    ],
    ids=["half a line", "a round after the checkpoint", "both", "an empty line", "no end of the last line"],
)
def test_what_stands_after_the_checkpoint_is_dropped_and_run_again(small, six_rounds, copy, end, tail):
    lines = copy / "rounds.jsonl"
    lines.write_text(lines.read_text(encoding="utf-8").removesuffix("\n") + end + tail, encoding="utf-8")
    resumed = run(**small, rounds=6, output=copy, resume=True)
    assert same_bits(resumed.model, six_rounds.model)
    assert untimed(lines_of(copy)) == untimed(lines_of(six_rounds.path))


def test_a_finished_run_is_not_trained_again(small, three_rounds, copy, files_of, monkeypatch):
    before = {name: data for name, (data, _) in files_of(copy).items()}
    monkeypatch.setattr("fda_flower.clients.training.train", Mock(side_effect=AssertionError("it trains")))
    seen = []
    resumed = run(**small, rounds=3, output=copy, resume=True, on_round=seen.append)
    assert seen == []
    assert same_bits(resumed.model, three_rounds.model)
    assert resumed.history == three_rounds.history
    assert resumed.summary == three_rounds.summary
    assert {name: data for name, (data, _) in files_of(copy).items()} == before


def test_a_run_whose_only_evaluation_fails_is_an_error_and_one_more_round_repairs_it(
    small, tmp_path, monkeypatch
):
    with monkeypatch.context() as patched:
        patched.setattr(mixture, "evaluate_mixture", Mock(side_effect=MemoryError("out of memory")))
        with pytest.raises(RunError, check=names("evaluation", remedy="--rounds 2 --resume")):
            run(**small | {"method": "mixture", "rounds": 1}, output=tmp_path / "run")
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["last5"] is None
    repaired = run(**small | {"method": "mixture", "rounds": 2}, output=tmp_path / "run", resume=True)
    assert repaired.accuracies[1] > 0


@pytest.mark.parametrize("workers", [None, 2])
def test_a_run_without_any_new_model_is_an_error_that_says_what_the_replies_failed_by(
    small, tmp_path, monkeypatch, workers
):
    fit = client.DomainClient.train_from

    def fails(self, *args):
        if self.role == "target":
            raise OSError("no room on the device")
        return fit(self, *args)

    with monkeypatch.context() as patched:
        patched.setattr(client.DomainClient, "train_from", fails)
        with pytest.raises(RunError, match=r"target: .*OSError: no room", check=names("new model")):
            run(**small, rounds=2, output=tmp_path / "run", workers=workers)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["held-rounds"], "parameters" in summary) == (2, False)
    repaired = run(**small, rounds=3, output=tmp_path / "run", resume=True)
    assert [bool(record["held"]) for record in repaired.history] == [True, True, False]


# Folders that are refused


@pytest.mark.parametrize(
    ("settings", "resume"), [({}, False), ({"learning_rate": 0.1}, False), ({"learning_rate": 0.1}, True)]
)
def test_a_folder_with_a_run_is_refused_and_stays_as_it_is(small, three_rounds, files_of, settings, resume):
    folder = three_rounds.path
    before, named = files_of(folder), (str(folder),) if settings else ("output folder", folder)
    with pytest.raises(ConfigError, check=names(*named)):
        run(**{**small, **settings}, rounds=6, output=folder, resume=resume)
    assert files_of(folder) == before


def test_a_result_is_shown_in_one_line_without_its_arrays(six_rounds):
    shown = repr(six_rounds)
    assert shown.startswith(f"RunResult(method={six_rounds.config.method!r}, rounds=6, last5=")
    assert f"best={round(six_rounds.best, 2)!r}" in shown
    assert six_rounds.best == pytest.approx(max(six_rounds.accuracies))
    assert f"last5={round(six_rounds.last5, 2)!r}" in shown
    assert "array" not in shown
    assert "\n" not in shown


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"engine": "spark"}, ("engine", "spark")),
        ({"gpus_per_client": 0.5}, ("gpus-per-client", 0.5)),
        ({"gpus_for_target": 0.5}, ("gpus-for-target", 0.5)),
        ({"workers": 0}, ("workers", 0)),
        ({"engine": "ray", "gpus_per_client": -1}, ("gpus-per-client", -1)),
        ({"connection": "prod"}, ("connection", "prod")),
        ({"engine": "deploy"}, ("connection",)),
        ({"target_samples": 100_000}, ("target-samples", 100_000)),
    ],
    ids=str,
)
def test_an_invalid_setting_is_refused_before_anything_is_written(small, settings, error, tmp_path):
    with pytest.raises(ConfigError, check=names(*error)):
        run(**{**small, "rounds": 1, **settings}, output=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("method", ["fedavg", "ridge"])
def test_own_data_that_changed_since_the_last_run_are_read_again(method, tmp_path):
    settings = {"method": method, "dataset": "table", "data_dir": str(tmp_path), "device": "cpu"}
    write_sites(write_table, tmp_path, "abc")
    before = run(**settings, rounds=1, model="logistic")
    write_table(tmp_path / "c.csv", 7)
    assert not same_bits(run(**settings, rounds=1, model="logistic").model, before.model)


@pytest.mark.parametrize("kind", ["table", "images"])
def test_a_run_on_own_data_goes_on_with_the_same_data_alone(kind, tmp_path, monkeypatch):
    write_sites(write_table if kind == "table" else write_images, tmp_path / "data", "abc")
    settings = {"method": "fedavg", "dataset": kind, "data_dir": str(tmp_path / "data"), "device": "cpu"}
    settings |= {"model": "logistic", "target_samples": 4, "output": tmp_path / "run"}
    run(**settings, rounds=1)
    assert len(run(**settings, rounds=2, resume=True).history) == 2
    if kind == "table":
        write_table(tmp_path / "data" / "b.csv", 7)
    else:
        (tmp_path / "data" / "b" / "ant" / "0.png").unlink()
    with pytest.raises(ConfigError, check=names("data", "b")):
        run(**settings, rounds=3, resume=True)
    settings["output"] = tmp_path / "earlier"
    with monkeypatch.context() as earlier:
        earlier.setattr("fda_flower.running.run.data_digests", lambda data: {})
        run(**settings, rounds=1)
    assert len(run(**settings, rounds=2, resume=True).history) == 2, "a version without digests has begun it"


def test_a_resumed_run_keeps_what_its_parts_were_made_with_and_says_what_differs(
    small, tmp_path, monkeypatch, caplog
):
    first: dict[str, Any] = {"versions": {"python": "3.10.0", "torch": "2.6.0"}, "cpu": "Xeon"}
    monkeypatch.setattr(server_app, "made_with", lambda _: first)
    run(**small, method="fedavg", rounds=1, output=tmp_path)
    for rounds, again in ((2, {**first, "cpu": "EPYC"}), (3, {**first, "cpu": "EPYC"}), (4, first)):
        monkeypatch.setattr(server_app, "made_with", lambda _, again=again: again)
        run(**small, method="fedavg", rounds=rounds, output=tmp_path, resume=True)
    config = json.loads((tmp_path / "config.json").read_text())
    parts = {"until round 1": "Xeon", "until round 3": "EPYC"}
    assert config["earlier"] == {when: {**first["versions"], "cpu": cpu} for when, cpu in parts.items()}
    assert (config["versions"], config["cpu"]) == (first["versions"], "Xeon")
    said = [message for message in caplog.messages if "its numbers may differ" in message]
    for message, (when, cpu) in zip(said, parts.items(), strict=True):
        assert message.startswith(f"{when} the run had cpu {cpu} (here ")
    assert not verify(tmp_path).problems
