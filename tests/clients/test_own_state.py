"""What a client keeps for itself: files, or records of the context; damaged files are like none."""

import logging
import os

import numpy as np
import pytest
from flwr.app import RecordDict
from naming import names

from fda_flower.clients.own_state import OwnState
from fda_flower.errors import RunError

ARRAYS = {
    "b/weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "a/count": np.array(7, np.int64),
    "a/turned": np.arange(6.0).reshape(2, 3).T,
    "a/empty": np.zeros((0, 2), np.float32),
}
NOTES = {"round": 3, "models": {"target": 5}, "weights": [0.25, 0.75]}


@pytest.fixture(params=["records", "files"])
def make(request, tmp_path):
    """Makes a store that sees what another one has saved."""
    records = RecordDict()
    folder = tmp_path / "not" / "yet" if request.param == "files" else None
    return lambda: OwnState(records, folder)


def test_what_is_saved_is_loaded_by_another_client_of_the_same_state(make):
    assert make().load("mixture") is None
    make().save("mixture", ARRAYS, NOTES)
    arrays, notes = make().load("mixture")
    assert notes.items() >= NOTES.items()
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert (arrays[name].dtype, arrays[name].shape) == (array.dtype, array.shape)  # type: ignore[attr-defined]
        np.testing.assert_array_equal(arrays[name], array)
    assert make().load("other") is None


def test_what_is_saved_again_takes_the_place_of_the_first(make):
    make().save("mixture", ARRAYS, NOTES)
    make().save("mixture", {"a/count": np.array(8)}, {"round": 4})
    arrays, notes = make().load("mixture")
    assert {name: array.tolist() for name, array in arrays.items()} == {"a/count": 8}
    assert notes["round"] == 4
    assert "models" not in notes


def test_files_leave_the_context_empty(tmp_path):
    records = RecordDict()
    OwnState(records, tmp_path).save("mixture", ARRAYS, NOTES)  # type: ignore[arg-type]
    assert not records
    assert [path.name for path in tmp_path.iterdir()] == ["mixture.safetensors"]


def cut_off(data):
    return data[: len(data) // 2]


def changed_by_a_bit(data):
    return data[:-1] + bytes([data[-1] ^ 1])


def foreign(data):
    return b"{}"


def empty(data):
    return b""


@pytest.mark.parametrize("damage", [cut_off, changed_by_a_bit, foreign, empty])
def test_a_damaged_file_is_like_none_with_a_warning(tmp_path, damage, monkeypatch, caplog):
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    state = OwnState(RecordDict(), tmp_path)
    state.save("mixture", ARRAYS, NOTES)  # type: ignore[arg-type]
    path = tmp_path / "mixture.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    logging.getLogger("flwr").setLevel(logging.WARNING)
    with caplog.at_level(logging.WARNING, logger="flwr"):
        assert state.load("mixture") is None
    assert f"The client's state '{path}' is damaged" in caplog.text
    assert "it is made again" in caplog.text
    state.save("mixture", ARRAYS, NOTES)  # type: ignore[arg-type]
    assert state.load("mixture") is not None


def test_a_file_without_notes_is_damaged(tmp_path):
    from safetensors.numpy import save_file

    save_file({"a": np.zeros(2)}, tmp_path / "mixture.safetensors")
    assert OwnState(RecordDict(), tmp_path).load("mixture") is None


def test_a_folder_that_cannot_be_written_is_an_error_that_names_it(tmp_path):
    (tmp_path / "file").write_text("in the way")
    state = OwnState(RecordDict(), tmp_path / "file" / "state")
    assert state.load("mixture") is None
    with pytest.raises(RunError, check=names("client's state")):
        state.save("mixture", ARRAYS, NOTES)  # type: ignore[arg-type]


def test_a_write_that_fails_leaves_what_was_kept(tmp_path, monkeypatch):
    state = OwnState(RecordDict(), tmp_path)
    state.save("mixture", ARRAYS, NOTES)  # type: ignore[arg-type]

    def full(number):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, check=names("client's state")):
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
