import sys

import pytest
from fda_flower.reporting.tensorboard import scalars, tensorboard_writer
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fda_flower.errors import ConfigError


@pytest.fixture
def full(record):
    """A maker of a record with everything that a round can know."""

    def make(number, accuracy):
        made = record(number, accuracy, betas={"mnist": 0.25, "usps": 0.5})
        made |= {"loss": 1.5, "accuracy-average": 0.625, "loss-average": 1.25}
        for entry in made["sources"].values():
            entry |= {"cosine": -0.125, "kept": 0.75}
        return made

    return make


def read(folder):
    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    return {
        tag: [(event.step, event.value) for event in accumulator.Scalars(tag)]
        for tag in accumulator.Tags()["scalars"]
    }


def test_the_events_hold_each_scalar_at_the_step_of_its_round(tmp_path, full):
    write = tensorboard_writer(tmp_path / "events")
    for number, accuracy in ((1, 0.25), (2, 0.5)):
        write(full(number, accuracy))
    found = read(tmp_path / "events")
    assert found.pop("target/accuracy") == [(1, 0.25), (2, 0.5)]
    constants = {
        "target/loss": 1.5,
        "target/accuracy-average": 0.625,
        "target/loss-average": 1.25,
        "beta/mnist": 0.25,
        "beta/usps": 0.5,
        **{f"cosine/{source}": -0.125 for source in ("mnist", "usps")},
        **{f"kept/{source}": 0.75 for source in ("mnist", "usps")},
        "seconds/train": 1.0,
        "seconds/aggregate": 0.25,
        "seconds/evaluate": 0.25,
    }
    assert found == {tag: [(1, value), (2, value)] for tag, value in constants.items()}


def test_a_round_can_be_read_as_soon_as_it_is_written(tmp_path, full):
    write = tensorboard_writer(tmp_path)
    for number in (1, 2, 3):
        write(full(number, 0.5))
        assert [step for step, _ in read(tmp_path)["target/accuracy"]] == list(range(1, number + 1))


def test_unknown_numbers_of_a_round_are_left_out(tmp_path, record):
    held = record(1, held="no usable reply of the target")
    unknown = record(2, 0.5, betas={"mnist": None})
    assert list(scalars(held)) == ["seconds/train", "seconds/aggregate", "seconds/evaluate"]
    assert list(scalars(unknown)) == ["target/accuracy", *scalars(held)]
    write = tensorboard_writer(tmp_path)
    write(held)
    write(unknown)
    assert read(tmp_path)["target/accuracy"] == [(2, 0.5)]


def test_a_resumed_run_continues_in_the_same_folder(tmp_path, full):
    for number in (1, 2):
        tensorboard_writer(tmp_path)(full(number, 0.5))
    assert read(tmp_path)["target/accuracy"] == [(1, 0.5), (2, 0.5)]


def test_without_tensorboard_the_error_says_how_to_install_it(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(ConfigError, match=r"not installed: pip install 'fda-flower\[tensorboard\]'"):
        tensorboard_writer(tmp_path)


def test_a_folder_that_cannot_be_written_is_an_error_before_the_run(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write TensorBoard events to"):
        tensorboard_writer(tmp_path / "file")
