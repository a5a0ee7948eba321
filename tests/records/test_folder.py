"""A run's folder."""

import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from naming import names

from fda_flower import run
from fda_flower.errors import ConfigError, RunError
from fda_flower.files import json_safe, only_writer
from fda_flower.records.chain import without_link
from fda_flower.records.folder import Checkpoint, RunFolder
from fda_flower.records.verification import verify

MODEL = {"b": np.array([1.5, -2.0], np.float32), "a": np.array(3), "c": np.zeros((2, 0), np.float32)}


def opened(path, config=None, resume=False, **notes):
    folder = RunFolder(path, config or {"seed": 0}, notes, resume)
    checkpoint = folder.open({"name": "FedGP"})
    folder.begin(0 if checkpoint is None else checkpoint.round, MODEL)
    folder.close()
    return folder, checkpoint


def test_a_new_folder_has_its_configuration_and_no_checkpoint(tmp_path):
    _, checkpoint = opened(tmp_path / "deep" / "run", rounds=3)
    assert checkpoint is None
    config = json.loads((tmp_path / "deep" / "run" / "config.json").read_text())
    assert config == {"run": {"seed": 0, "strategy": {"name": "FedGP"}}, "rounds": 3}


def test_a_checkpoint_round_trip_keeps_order_types_and_shapes(tmp_path):
    state = {"sources": {"w": np.array([1.0])}, "client/t/personal": {"w": np.array([2.0]), "v": np.array(3)}}
    for name in "xy":
        folder, _ = opened(tmp_path / name)
        folder.save_round({"round": 1}, Checkpoint(1, MODEL, state, held_rounds=2))
    assert (tmp_path / "x/checkpoint").read_bytes() == (tmp_path / "y/checkpoint").read_bytes()
    _, checkpoint = opened(tmp_path / "x", resume=True)
    assert (checkpoint.round, checkpoint.held_rounds) == (1, 2)
    assert {key: list(layers) for key, layers in checkpoint.state.items()} == {
        "sources": ["w"],
        "client/t/personal": ["w", "v"],
    }
    assert checkpoint.state["client/t/personal"]["v"] == 3
    assert list(checkpoint.model) == ["b", "a", "c"]
    for name, array in MODEL.items():
        found = checkpoint.model[name]
        assert (found.tolist(), found.dtype, found.shape) == (array.tolist(), array.dtype, array.shape)


def test_a_checkpoint_keeps_models_of_any_name_and_those_of_an_average_apart(tmp_path):
    kinds = {"": "w", "average/0": "w", "a": "b|w", "a|b": "w", "0": "1|w", "state": ""}
    state = {name: {array: np.array(i)} for i, (name, array) in enumerate(kinds.items())}
    averaged = [{"w": np.array(i)} for i in (7, 8)]
    folder, _ = opened(tmp_path)
    folder.save_round({"round": 1}, Checkpoint(1, MODEL, state, averaged=averaged))
    found = folder.load_checkpoint()
    assert (list(found.model), dict(found.state), list(found.averaged)) == (list(MODEL), state, averaged)


def test_rounds_are_lines_of_strict_json(tmp_path):
    folder, _ = opened(tmp_path)
    assert json_safe({"a": (1, 2.0, "x", None, True)}) == {"a": [1, 2.0, "x", None, True]}
    folder.save_round({"round": 1, "d2": float("nan"), "x": [float("inf"), 1.0]}, Checkpoint(1, MODEL))
    folder.save_round({"round": 2}, Checkpoint(2, MODEL))
    assert {path.name for path in tmp_path.iterdir()} == {
        ".lock",
        "checkpoint",
        "config.json",
        "rounds.jsonl",
    }
    lines = (tmp_path / "rounds.jsonl").read_text().splitlines()
    found = [without_link(json.loads(line)) for line in lines]
    assert found == [{"round": 1, "d2": None, "x": [None, 1.0]}, {"round": 2}] == folder.read_rounds()


def test_a_folder_of_another_run_is_refused_and_the_difference_named(tmp_path):
    folder = RunFolder(tmp_path, {"folds": 2}, {})
    folder.open({"plan": "2 folds"})
    folder.begin(0, MODEL)
    folder.close()
    # Not also what the strategy says of itself, which follows from it.
    plans = "strategy: {'plan': '2 folds'} there, {'plan': '4 folds'} asked for"
    for folds, differs in ((4, "folds: 2 there, 4 asked for"), (2, plans)):
        refused = RunFolder(tmp_path, {"folds": folds}, {}, resume=True)
        with pytest.raises(ConfigError, check=names(str(tmp_path), differs, "another --output")):
            refused.open({"plan": "4 folds"})
    RunFolder(tmp_path, {"folds": 2}, {}, resume=True).open({"plan": "2 folds"})  # others can open it still


def test_a_checkpoint_of_another_configuration_is_refused(tmp_path):
    folder, _ = opened(tmp_path / "one", {"seed": 1})
    folder.save_round({"round": 1}, Checkpoint(1, MODEL))
    opened(tmp_path / "two", {"seed": 2})
    checkpoint = tmp_path / "two/checkpoint"
    checkpoint.write_bytes((tmp_path / "one/checkpoint").read_bytes())
    with pytest.raises(ConfigError, check=names(str(checkpoint), "seed: 1 there, 2 asked for")):
        opened(tmp_path / "two", {"seed": 2}, resume=True)


def test_a_path_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, check=names("output folder")):
        opened(tmp_path / "file")


def keep(start=0, end=None):
    return lambda path: path.write_bytes(path.read_bytes()[start:end])


def another_byte(path):
    path.write_bytes(path.read_bytes().replace(b"\n", b"\n\xff", 1))


A_COPY, ANOTHER = "restore it", "another --output"


@pytest.mark.parametrize(
    ("file", "damage", "thing", "remedy"),
    [
        ("config.json", Path.unlink, "", ANOTHER),
        *(
            ("config.json", lambda path, text=text: path.write_text(text), "config.json", ANOTHER)
            for text in ("", "{", "[]", "{}", '{"run"')
        ),
        *(("checkpoint", keep(end=end), "checkpoint", A_COPY) for end in (0, 7, 100, -1)),
        ("checkpoint", lambda path: path.write_bytes(b"a text " * 40), "checkpoint", A_COPY),
        ("checkpoint", Path.unlink, "", "restore the file 'checkpoint'"),
        ("rounds.jsonl", Path.unlink, "rounds.jsonl", A_COPY),
        ("rounds.jsonl", another_byte, "rounds.jsonl", A_COPY),
        ("rounds.jsonl", keep(start=2), "rounds.jsonl", A_COPY),
        ("rounds.jsonl", keep(end=0), "rounds.jsonl", A_COPY),
    ],
)
def test_a_damaged_folder_is_refused_and_stays_as_it_is(tmp_path, file, damage, thing, remedy):
    folder, _ = opened(tmp_path)
    for number in (1, 2):
        folder.save_round({"round": number}, Checkpoint(number, MODEL))
    damage(tmp_path / file)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    kind = ConfigError if remedy == ANOTHER else RunError
    named = ("checkpoint",) if thing == "checkpoint" else (str(tmp_path / thing),)
    with pytest.raises(kind, check=names(*named, remedy=remedy)):
        opened(tmp_path, resume=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_mirror_of_a_run_on_a_server_may_have_rounds_alone_and_no_checkpoint(tmp_path):
    opened(tmp_path)
    folder = RunFolder(tmp_path, {"seed": 0}, resume=True, mirror=True)
    with pytest.raises(ConfigError, check=names(str(tmp_path), remedy="another --output")):
        folder.open({"name": "FedGP"})
    (tmp_path / "checkpoint").unlink()
    (tmp_path / "rounds.jsonl").write_text('{"round": 1}\n')
    assert folder.open({"name": "FedGP"}) is None
    folder.begin(1)
    assert folder.read_rounds() == [{"round": 1}]


def test_what_is_written_of_a_run_is_never_written_again(tmp_path):
    """The configuration of a run that goes on comes with the next round, whose line vouches for it."""
    folder, _ = opened(tmp_path, rounds=1)
    folder.save_round({"round": 1, "confusion": {"counts": [[1]]}}, Checkpoint(1, MODEL))
    lines, config = ((tmp_path / name).read_bytes() for name in ("rounds.jsonl", "config.json"))
    place = (tmp_path / "rounds.jsonl").stat().st_ino
    folder, _ = opened(tmp_path, resume=True, rounds=2)
    assert (tmp_path / "config.json").read_bytes() == config
    folder.save_round({"round": 2}, Checkpoint(2, MODEL))
    assert json.loads((tmp_path / "config.json").read_text())["rounds"] == 2
    assert (tmp_path / "rounds.jsonl").read_bytes().startswith(lines)
    assert (tmp_path / "rounds.jsonl").stat().st_ino == place
    assert verify(tmp_path).problems == ()


def test_the_rounds_line_is_written_before_the_checkpoint(tmp_path, monkeypatch):
    folder, _ = opened(tmp_path)
    folder.save_round({"round": 1}, Checkpoint(1, MODEL))

    opens = type(tmp_path).open

    def full(path, *args, **kwargs):
        if path.name == "rounds.jsonl":
            raise OSError("disk full")
        return opens(path, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(type(tmp_path), "open", full)
        with pytest.raises(RunError, check=names("output folder", tmp_path, "make room, and resume")):
            folder.save_round({"round": 2}, Checkpoint(2, MODEL))
    assert folder.load_checkpoint().round == 1


def test_while_a_folder_is_open_nobody_else_can_open_it(tmp_path):
    folder = RunFolder(tmp_path, {"seed": 0})
    folder.open({"name": "FedGP"})
    other = RunFolder(tmp_path, {"seed": 0}, resume=True)
    with pytest.raises(ConfigError, check=names("output folder", tmp_path, "wait until it has ended")):
        other.open({"name": "FedGP"})
    folder.close()
    assert other.open({"name": "FedGP"}) is None


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("resume", [True, False])
def test_a_folder_can_be_checked_before_the_strategy_is_known(tmp_path, seed, resume):
    RunFolder(tmp_path / "new", {"seed": seed}, resume=resume).check()
    assert not (tmp_path / "new").exists()
    opened(tmp_path)
    folder = RunFolder(tmp_path, {"seed": seed}, resume=resume)
    there = names("output folder", tmp_path, "--resume")
    other = names(str(tmp_path), "seed: 0 there, 1 asked for")
    goes_on = resume and not seed
    with nullcontext() if goes_on else pytest.raises(ConfigError, check=other if seed else there):
        folder.check()
    in_use = names("output folder", tmp_path, "wait until it has ended")
    with only_writer(tmp_path), pytest.raises(ConfigError, check=in_use):
        folder.check()


# --- Two processes -----------------------------------------------------------------------------------


def fda(*arguments):
    """Start the command in a process of its own."""
    command = [sys.executable, str(Path(sys.executable).with_name("fda")), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.smoke
def test_of_two_processes_in_one_folder_the_second_is_refused_and_the_first_loses_nothing(tmp_path):
    command = ["run", "--model", "mlp", "--target-samples", "16", "--device", "cpu", "--workers", "2"]
    command += ["--method", "fedgp-auto", "--rounds", "100000", "--output", str(tmp_path), "--resume"]
    first = fda(*command)
    next(line for line in first.stdout if line.startswith("round 2/"))
    second = fda(*command)
    _, error = second.communicate()
    assert (second.returncode, first.poll()) == (2, None)
    assert f"another run writes to the output folder '{tmp_path}'" in error
    next(line for line in first.stdout if line.startswith("round "))
    first.kill()
    first.communicate()
    done = RunFolder(tmp_path).load_checkpoint().round
    settings: dict[str, Any] = {"model": "mlp", "target_samples": 16, "device": "cpu", "rounds": done + 1}
    run(**settings, output=tmp_path, resume=True)
    found = verify(tmp_path)
    assert (found.rounds, found.problems) == (done + 1, ())


def test_light_records_read_their_sources_when_asked_for(tmp_path):
    lines = [{"round": i, "sources": {"a": {"beta": i}, "b": {}}, "chain": {}} for i in (1, 2)]
    rounds = tmp_path / "rounds.jsonl"
    rounds.write_text("".join(f"{json.dumps(line)}\n" for line in lines) + '{"round": 3, "sou')
    folder = RunFolder(tmp_path)
    light = folder.read_rounds(light=True)
    assert light == folder.read_rounds() == [without_link(line) for line in lines]
    sources = light[1]["sources"]
    assert (len(sources), sources["a"], [*sources], dict(sources.items())) == (
        *(2, {"beta": 2}, ["a", "b"]),
        lines[1]["sources"],
    )
    rounds.write_text("")
    with pytest.raises(RunError, check=names(str(rounds))):
        sources.items()
