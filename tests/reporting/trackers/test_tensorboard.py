from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fda_flower.reporting.trackers import Tracking


def read(folder):
    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    return {
        tag: [(event.step, event.value) for event in accumulator.Scalars(tag)]
        for tag in accumulator.Tags()["scalars"]
    }


def test_the_events_hold_each_number_at_the_step_of_its_round(tracked, record):
    with Tracking(["tensorboard"], tracked) as shown:
        for number, accuracy in ((1, 0.25), (2, 0.5)):
            shown.record(record(number, accuracy))
    found = read(tracked.folder)
    assert found.pop("accuracy") == [(1, 0.25), (2, 0.5)]
    constants = {"target/examples": 50, "target/train-loss": 0.25, "seconds/train": 1.5}
    constants["beta/hôpital (1)"] = 0.25
    assert found == {tag: [(1, value), (2, value)] for tag, value in constants.items()}


def test_a_round_can_be_read_as_soon_as_it_is_written(tracked, record):
    with Tracking(["tensorboard"], tracked) as shown:
        for number in (1, 2, 3):
            shown.record(record(number))
            assert [step for step, _ in read(tracked.folder)["accuracy"]] == list(range(1, number + 1))


def test_a_resumed_run_continues_in_the_same_folder(tracked, record):
    for number in (1, 2):
        with Tracking(["tensorboard"], tracked) as shown:
            shown.record(record(number))
    assert read(tracked.folder)["accuracy"] == [(1, 0.5), (2, 0.5)]


def test_a_folder_that_cannot_be_written_turns_it_off(tracked, record):
    tracked.folder.rmdir()
    tracked.folder.write_text("")
    with Tracking(["tensorboard"], tracked) as shown:
        shown.record(record(1))
        assert shown._trackers == {}
