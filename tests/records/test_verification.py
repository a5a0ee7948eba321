"""Runs whose files somebody changes afterwards, and what `fda verify` says of them."""

import json
import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from naming import names
from safetensors.numpy import load_file, save_file

from fda_flower import RunConfig, run
from fda_flower.errors import ConfigError, RunError
from fda_flower.files import write_atomically
from fda_flower.records.chain import CHAIN, hash_of, linked
from fda_flower.records.folder import RunFolder
from fda_flower.records.verification import verify
from fda_flower.runs.model_folder import write_global_model

SETTINGS: dict[str, Any] = {
    **{"model": "mlp", "sources": 1, "device": "cpu", "method": "fedavg", "validation": 0.4},
    **{"target_samples": 32, "source_samples": 20, "test_samples": 20},
}


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A run of three rounds, whose second one labels held out may have chosen."""
    folder = tmp_path_factory.mktemp("run") / "run"
    run(**SETTINGS, rounds=3, output=folder)
    return folder


@pytest.fixture
def folder(ended, tmp_path):
    """A copy of it."""
    return shutil.copytree(ended, tmp_path / "copy")


def edit(path, before, after, line=None):
    lines = path.read_text().split("\n")
    place = range(len(lines)) if line is None else [line]
    for number in place:
        lines[number] = lines[number].replace(before, after, 1)
    path.write_text("\n".join(lines))


def links_of(folder):
    return [json.loads(line)[CHAIN] for line in (folder / "rounds.jsonl").read_text().splitlines()]


def chain_anew(folder, leave_out=(), **changes):
    """Make the chain of a run again, as one who may write to the folder can: of other records or files."""
    last, lines = hash_of(json.loads((folder / "config.json").read_text())["run"]), []
    for record, link in zip(RunFolder(folder).read_rounds(), links_of(folder), strict=True):
        files = {name: value for name, value in link["files"].items() if name not in leave_out}
        line = linked({**record, **changes}, last, files)
        last = line[CHAIN]["hash"]
        lines.append(json.dumps(line) + "\n")
    (folder / "rounds.jsonl").write_text("".join(lines))


def last_line_gone(folder):
    lines = (folder / "rounds.jsonl").read_text().splitlines(keepends=True)
    (folder / "rounds.jsonl").write_text("".join(lines[:-1]))


def other_record(folder):
    edit(folder / "rounds.jsonl", '"accuracy": 0.', '"accuracy": 1.', 1)


def other_weights(folder, name="checkpoint", number=None):
    """A checkpoint with other numbers, perhaps of another round, that is whole otherwise."""
    other = RunFolder(folder, json.loads((folder / "config.json").read_text())["run"])
    found = other.load_checkpoint(name)
    model = {layer: array + 1 for layer, array in found.model.items()}
    changed = replace(found, round=number or found.round, model=model)
    (folder / name).write_bytes(other._pack(changed)[0])


def other_model(folder):
    arrays = load_file(folder / "model.safetensors")
    arrays[next(iter(arrays))].flat[0] += 1
    save_file(arrays, folder / "model.safetensors")


def other_holder(folder):
    other_model(folder)
    edit(folder / "model.json", '"holder": "target"', '"holder": "server"')


def test_a_run_that_nobody_has_touched_is_ok(ended):
    found = verify(ended)
    assert (found.rounds, found.problems, found.notes) == (3, (), ())
    third = links_of(ended)[2]
    assert set(third["files"]) == {"config.json", "checkpoint", "model.safetensors", "model.json"}
    assert third["hash"] == found.last
    assert verify(ended, found.last) == found


@pytest.mark.parametrize(
    ("tamper", "says"),
    [
        (other_record, "the record of round 2 has changed"),
        (last_line_gone, "is of round 3, the records end with round 2"),
        (lambda f: (f / "rounds.jsonl").unlink(), "is of round 3, the records end with round 0"),
        (lambda f: chain_anew(f, ["config.json"]), "config.json has changed"),
        (lambda f: chain_anew(f, ["checkpoint"]), "the model in 'checkpoint' is not that of round 3"),
        (lambda f: chain_anew(f, ["model.safetensors"]), "'model.safetensors' is not the model of round 3"),
        (other_weights, "the model in 'checkpoint' is not that of round 3"),
        (lambda f: other_weights(f, "checkpoint-selected"), "'checkpoint-selected' is not that of"),
        (lambda f: shutil.copy(f / "config.json", f / "checkpoint"), "is damaged"),
        (lambda f: (f / "checkpoint").unlink(), "there is no checkpoint"),
        (other_model, "'model.safetensors' is not that of round 3"),
        (lambda f: edit(f / "model.json", '"round": 3', '"round": 2'), "'model.json' is not that of round 3"),
        (other_holder, "'model.safetensors' is not that of round 3"),
        (lambda f: (f / "model.json").unlink(), "there is no model.json"),
        (lambda f: (f / "model.safetensors").unlink(), "there is no model.safetensors"),
        (lambda f: (f / "selected/model.safetensors").unlink(), "there is no selected/model.safetensors"),
        (lambda f: (f / "checkpoint-selected").unlink(), "there is no checkpoint-selected"),
        (lambda f: other_weights(f, "checkpoint-selected", 9), "is of round 9, which the records"),
        (lambda f: edit(f / "config.json", '"device": "cpu"', '"device": "cuda"'), "config.json has changed"),
        (lambda f: shutil.copy(f / "model.json", f / "checkpoint-selected"), "is damaged"),
        (lambda f: (f / "selected/model.json").write_text("{}"), "'selected/model.json' is not that of"),
    ],
)  # fmt: skip
def test_what_somebody_has_changed_is_found(tamper, says, folder):
    tamper(folder)
    found = verify(folder)
    assert any(says in problem for problem in found.problems), found.problems


def test_a_chain_that_was_made_anew_is_told_by_the_hash_that_was_noted(folder):
    noted = verify(folder).last
    chain_anew(folder, accuracy=1.0)
    assert verify(folder).problems == ()
    (problem,) = verify(folder, noted).problems
    assert problem == f"the chain does not hold the expected hash {noted}: it is another, or cut off"


def test_a_finished_run_that_goes_on_keeps_its_records(folder):
    """Also the confusion matrix of what was the last round; the hash that was noted stays in the chain."""
    noted, records = verify(folder).last, (folder / "rounds.jsonl").read_text()
    assert '"confusion"' in records
    run(**SETTINGS, rounds=4, output=folder, resume=True)
    assert (folder / "rounds.jsonl").read_text().startswith(records)
    found = verify(folder, noted)
    assert (found.rounds, found.problems) == (4, ())
    assert found.notes == ("the expected hash is of round 3, the run has gone on after it",)


def test_a_run_that_was_changed_does_not_go_on(folder):
    other_record(folder)
    with pytest.raises(RunError, check=names(str(folder), remedy="restore it")):
        run(**SETTINGS, rounds=4, output=folder, resume=True)


def test_a_run_whose_configuration_changes_as_it_goes_on_is_ok(folder):
    """The line of the next round vouches for it; where none is left to do, nothing is written."""
    first = verify(folder)
    run(**SETTINGS, rounds=3, round_timeout=60, output=folder, resume=True)
    assert verify(folder, first.last) == first
    run(**SETTINGS, rounds=4, round_timeout=60, output=folder, resume=True)
    assert verify(folder, first.last).problems == ()
    edit(folder / "config.json", '"round_timeout": 60', '"round_timeout": 90')
    assert verify(folder).problems == ("config.json has changed, or the run was stopped as it went on",)


def test_the_model_of_a_server_is_that_of_its_checkpoint(folder):
    """As `fda run --engine deploy` leaves it."""
    for name in ("model.safetensors", "model.json"):
        (folder / name).unlink()
        (folder / "selected" / name).unlink()
    chain_anew(folder, ["model.safetensors", "model.json"])
    assert verify(folder).problems == ()
    write_global_model(folder, RunConfig(**SETTINGS, rounds=3))
    assert json.loads((folder / "model.json").read_text())["holder"] == "server"
    assert verify(folder).problems == ()
    other_model(folder)
    (problem,) = verify(folder).problems
    assert problem.startswith("'model.safetensors' is not the model of round 3")
    edit(folder / "model.json", '"round": 3', '"round": 2')
    assert len(verify(folder).problems) == 1


def test_the_records_of_a_run_on_a_server_are_compared_and_its_models_named_as_elsewhere(folder):
    for name in ("checkpoint", "checkpoint-selected", "model.safetensors", "model.json"):
        (folder / name).unlink()
    (folder / "submitted.json").write_text("{}")
    found = verify(folder)
    assert (found.rounds, found.problems, len(found.notes)) == (3, (), 1)
    assert "submitted.json" in found.notes[0]
    other_record(folder)
    assert verify(folder).problems == ("the record of round 2 has changed",)


def test_a_run_before_its_first_round_is_ok_and_a_folder_without_a_run_is_none(tmp_path):
    with pytest.raises(ConfigError, check=names(str(tmp_path / "config.json"))):
        verify(tmp_path)
    folder = RunFolder(tmp_path, {"seed": 0})
    folder.open({"name": "FedGP"})
    folder.begin(0, {"w": np.zeros(2)})
    assert (verify(tmp_path).rounds, verify(tmp_path).problems) == (0, ())


def test_the_command_says_ok_or_what_is_wrong(folder, fda):
    code, out, _ = fda("verify", folder)
    last = verify(folder).last
    assert (code, out.strip()) == (0, f"ok: 3 rounds, last hash {last}")
    assert fda("verify", folder, "--expect", last)[0] == 0
    code, out, _ = fda("verify", folder, "--expect", "abc")
    assert (code, "Not ok: the chain does not hold the expected hash abc" in out) == (1, True)
    other_record(folder)
    code, out, _ = fda("verify", folder)
    assert (code, out.strip()) == (1, "Not ok: the record of round 2 has changed")
    assert fda("verify", folder / "clients")[0] == 2


FILES = ("config.json", "checkpoint", "checkpoint-selected", "model.safetensors", "model.json")
KEPT = (*FILES, "selected/model.safetensors", "selected/model.json")
DAMAGES: dict[str, Any] = {
    "another byte": lambda path, _: path.write_bytes(path.read_bytes().replace(b"0", b"1", 1)),
    "cut": lambda path, _: path.write_bytes(path.read_bytes()[:-3]),
    "gone": lambda path, _: path.unlink(),
    "of another run": lambda path, others: shutil.copy(others, path),
}


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    folder = tmp_path_factory.mktemp("other") / "run"
    run(**SETTINGS, rounds=3, seed=1, output=folder)
    return folder


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("damage", DAMAGES)
def test_what_verify_finds_keeps_a_run_from_going_on_and_both_name_the_file(name, damage, folder, other):
    DAMAGES[damage](folder / name, other / name)
    with pytest.raises((RunError, ConfigError)) as refused:
        run(**SETTINGS, rounds=5, output=folder, resume=True)
    says = str(refused.value)
    assert name in says or (name == "config.json" and "is of another run" in says)
    if name != "config.json":
        assert any(name in problem for problem in verify(folder).problems)


def test_a_note_in_the_configuration_that_has_changed_keeps_a_run_from_going_on(folder):
    edit(folder / "config.json", '"device": "cpu"', '"device": "cuda"')
    with pytest.raises(RunError, match="json has changed"):
        run(**SETTINGS, rounds=5, output=folder, resume=True)


def stopped_at(folder, step, monkeypatch):
    """A run goes on, and its process ends before it writes a file of the next round."""

    def write(path, data, mode=None):
        if path.name == step:
            raise KeyboardInterrupt
        write_atomically(path, data, mode)

    with monkeypatch.context() as patch:
        for module in ("records.folder", "prediction.files"):
            patch.setattr(f"fda_flower.{module}.write_atomically", write)
        with pytest.raises(KeyboardInterrupt):
            run(**SETTINGS, rounds=5, output=folder, resume=True)


@pytest.mark.parametrize("step", ["model.safetensors", "model.json", ".config.json.next", "checkpoint"])
def test_a_run_that_was_stopped_anywhere_goes_on(step, folder, monkeypatch):
    stopped_at(folder, step, monkeypatch)
    resumed = run(**SETTINGS, rounds=5, output=folder, resume=True)
    whole = run(**SETTINGS, rounds=5)
    assert [each["accuracy"] for each in resumed.history] == [each["accuracy"] for each in whole.history]
    assert verify(folder).problems == ()
