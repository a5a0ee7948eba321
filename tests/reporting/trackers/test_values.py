from fda_flower.reporting.trackers import numbers


def test_all_finite_numbers_are_taken_and_nothing_else(record):
    assert numbers(record(7)) == {
        "accuracy": 0.5,
        "target/examples": 50.0,
        "target/train-loss": 0.25,
        "seconds/train": 1.5,
        "beta/hôpital (1)": 0.25,
    }
