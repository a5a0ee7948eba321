"""Names of trackers; one made for the test: what it is told, and what becomes of one that fails."""

import json
import os
import warnings
from contextlib import suppress

import pytest
from naming import names

from fda_flower.errors import ConfigError
from fda_flower.names.packages import EXTRAS
from fda_flower.reporting import trackers
from fda_flower.reporting.trackers import TRACKERS, Tracking, check_trackers, numbers, read_names


def test_names_are_repeated_or_separated_by_commas():
    assert read_names([]) == ()
    assert read_names(["mlflow,wandb", "tensorboard"]) == ("mlflow", "wandb", "tensorboard")
    with pytest.raises(ConfigError, check=names("track", "mlflow,mlflow")):
        read_names(["mlflow", "mlflow"])
    with pytest.raises(ConfigError, check=names("tracker", "mlfow")):
        read_names(["mlfow"])


@pytest.mark.parametrize("name", TRACKERS)
def test_a_tracker_that_is_not_installed_is_an_error_that_says_what_to_install(name, monkeypatch):
    assert EXTRAS[name] == (TRACKERS[name].package,)
    check_trackers([name])
    monkeypatch.setattr(trackers, "find_spec", {}.get)
    with pytest.raises(ConfigError, check=names("track")):
        check_trackers([name])


def test_all_finite_numbers_are_taken_and_nothing_else(record):
    assert numbers(record(7)) == {
        **{"accuracy": 0.5, "target/examples": 50.0, "target/train-loss": 0.25, "seconds/train": 1.5},
        "beta/hôpital (1)": 0.25,
    }


class Fake:
    """Notes what it is told; fails where it is asked to."""

    told: list = []  # noqa: RUF012
    fails_at = ""

    def __init__(self, run):
        self.fail("begin")
        self.id = run.id or "new"
        self.told.append(("begin", run.id))

    def record(self, number, values):
        self.fail("record")
        warnings.warn("what nobody has to see", stacklevel=1)
        self.told.append((number, values["accuracy"]))

    def close(self, finished):
        self.fail("close")
        self.told.append(("close", finished))

    def fail(self, at):
        if self.fails_at == at:
            raise OSError(f"no server at {at}")


@pytest.fixture
def fake(monkeypatch):
    class Own(Fake):
        told: list = []  # noqa: RUF012

    monkeypatch.setattr(trackers, "Own", Own, raising=False)
    monkeypatch.setitem(TRACKERS, "fake", trackers.TrackerEntry("", "", f"{trackers.__name__}:Own"))
    return Own


def test_a_resumed_run_goes_on_in_its_tracked_run_and_shows_no_round_twice(fake, tracked, record):
    with suppress(KeyboardInterrupt), Tracking(["fake"], tracked) as shown:
        shown.record(record(1))
        shown.record(record(2))
        raise KeyboardInterrupt
    assert fake.told.pop() == ("close", False)
    with Tracking(["fake"], tracked) as shown:
        shown.record(record(2))
        shown.record(record(3))
    assert [what for what, _ in fake.told] == ["begin", 1, 2, "begin", 3, "close"]
    assert fake.told[3] == ("begin", "new")


def test_rounds_before_the_tracker_was_asked_for_are_taken_from_the_folder(fake, tracked, record):
    rounds = [record(number, number / 8) for number in (1, 2, 3)]
    (tracked.folder / "rounds.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rounds))
    with Tracking(["fake"], tracked) as shown:
        shown.record(rounds[-1])
    assert fake.told == [("begin", None), (1, 0.125), (2, 0.25), (3, 0.375), ("close", True)]


@pytest.mark.parametrize("at", ["begin", "record", "close"])
def test_a_tracker_that_fails_is_off_with_one_warning(fake, tracked, record, flower_log, at):
    fake.fails_at = at
    with Tracking(["fake", "tensorboard"], tracked) as shown:
        for number in (1, 2, 3):
            shown.record(record(number))
    (line,) = [entry.getMessage() for entry in flower_log.records]
    assert line == f"The tracker fake is off, the run goes on: OSError('no server at {at}')"
    assert list(tracked.folder.glob("*tfevents*")), "the other one works"


def test_without_trackers_nothing_is_written(tracked, record):
    with Tracking([], tracked) as shown:
        shown.record(record(1))
    assert list(tracked.folder.iterdir()) == []
    with Tracking(["tensorboard"], tracked):
        pass
    assert list(tracked.folder.iterdir()) == [], "a run without a round is not tracked"


def test_variables_are_set_only_while_a_tracker_is_called(fake, tracked, record, monkeypatch):
    monkeypatch.setenv("FDA_MINE", "mine")
    seen = []
    monkeypatch.setattr(
        fake, "record", lambda *_: seen.append((os.environ["FDA_MINE"], os.environ["FDA_NEW"]))
    )
    variables = {"FDA_MINE": "ours", "FDA_NEW": "ours"}
    object.__setattr__(TRACKERS["fake"], "variables", variables)
    with Tracking(["fake"], tracked) as shown:
        shown.record(record(1))
        assert (seen, os.environ.get("FDA_NEW")) == ([("mine", "ours")], None)
