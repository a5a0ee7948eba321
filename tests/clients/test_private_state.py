"""What a client keeps for itself: files, or records of the context; damaged files are like none."""

import os
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from flwr.app import RecordDict
from naming import names
from safetensors.numpy import save

from fda_flower.clients.private_state import PrivateState
from fda_flower.errors import RunError

ARRAYS: dict[str, Any] = {
    "b/weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "a/count": np.array(7, np.int64),
    "a/turned": np.arange(6.0).reshape(2, 3).T,
    "a/empty": np.zeros((0, 2), np.float32),
}
NOTES: dict[str, Any] = {"round": 3, "models": {"target": 5}, "weights": [0.25, 0.75]}


@pytest.fixture(params=["records", "files"])
def make(request, tmp_path) -> Any:
    """Makes a store that sees what another one has saved."""
    records = RecordDict()
    folder = tmp_path / "not" / "yet" if request.param == "files" else None
    return lambda: PrivateState(records, folder)


def test_what_is_saved_last_is_loaded_by_another_client_of_the_same_state(make):
    assert make().load("mixture") is None
    make().save("mixture", {"a/count": np.array(8), "other": np.zeros(2)}, {"round": 2, "more": True})
    make().save("mixture", ARRAYS, NOTES)
    arrays, notes = make().load("mixture")
    assert {key: notes.get(key) for key in (*NOTES, "more")} == {**NOTES, "more": None}
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array, strict=True)
    assert make().load("other") is None


@pytest.fixture
def file(tmp_path):
    """A state in a file, which leaves the context empty."""
    records = RecordDict()
    PrivateState(records, tmp_path).save("mixture", ARRAYS, NOTES)
    assert not records
    assert [path.name for path in tmp_path.iterdir()] == ["mixture.safetensors"]
    return tmp_path / "mixture.safetensors"


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: b"{}",
        lambda data: b"",
        lambda data: save({"a": np.zeros(2)}),
    ],
    ids=["cut off", "a bit", "foreign", "empty", "without notes"],
)
def test_a_damaged_file_is_like_none_with_a_warning(file, damage, flower_log):
    state = PrivateState(RecordDict(), file.parent)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(RunError, check=names("client's state", file)):
        state.read("mixture")
    assert state.load("mixture") is None
    assert f"The client's state '{file}' is damaged" in flower_log.text
    state.save("mixture", ARRAYS, NOTES)
    assert state.load("mixture") is not None


def test_a_file_that_cannot_be_written_is_an_error_that_names_it_and_leaves_what_was_kept(file, monkeypatch):
    state = PrivateState(RecordDict(), file / "state")
    assert state.load("mixture") is None
    with pytest.raises(RunError, check=names("client's state")):
        state.save("mixture", ARRAYS, NOTES)
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError("No space left on device")))
    state = PrivateState(RecordDict(), file.parent)
    with pytest.raises(RunError, check=names("client's state", file)):
        state.save("mixture", {"a": np.ones(3)}, {"round": 9})
    assert state.load("mixture")[1]["round"] == 3  # type: ignore[index]


def saved(store, round):
    store.save_after("head", {"a": np.array(round)}, {"of": "round"}, round)


def found(store, round):
    kept = store.load_before("head", round)
    return None if kept is None else (int(kept[0]["a"]), kept[1]["round"])


def test_a_round_begins_from_what_was_kept_before_it_even_if_it_is_run_again(make):
    assert found(make(), 1) is None
    saved(make(), 1)
    assert found(make(), 2) == (1, 1)
    saved(make(), 2)
    assert found(make(), 3) == (2, 2)
    assert found(make(), 2) == (1, 1), "round 2 again"
    saved(make(), 2)
    assert found(make(), 2) == (1, 1), "round 2 once more"
    saved(make(), 5)
    assert found(make(), 5) == (2, 2)
    assert found(make(), 9) == (5, 5)


def test_a_new_run_does_not_begin_from_what_another_one_kept(make):
    saved(make(), 7)
    saved(make(), 8)
    assert found(make(), 1) is None
    saved(make(), 1)
    assert found(make(), 2) == (1, 1)
    saved(make(), 2)
    assert found(make(), 2) == (1, 1)
