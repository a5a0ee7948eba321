"""Records: the round that validation chooses."""

import pytest

from fda_flower.records.record import choose, chosen_round, has_stopped


def history(*values, **how):
    """A record of each round; None for a round without a figure."""
    records: list[dict] = []
    for number, value in enumerate(values, 1):
        records.append({} if value is None else choose(records, number, value, by="target", **how))
    return records


@pytest.mark.parametrize(
    ("values", "chosen"),
    [
        ((0.1, 0.3, 0.2), 2),
        ((0.3, 0.3), 1),  # of equal figures the earlier
        ((None, 0.2, None, 0.4, None), 4),
        ((), None),
        ((None, None), None),
    ],
)
def test_the_best_round_is_chosen_and_of_equal_ones_the_earliest(values, chosen):
    assert chosen_round(history(*values)) == chosen


def test_of_an_error_the_smallest_is_best_and_a_reference_leaves_nothing_to_choose():
    assert chosen_round(history(0.3, 0.1, 0.2, higher_is_better=False)) == 2
    assert chosen_round([{"validation": 0.5, "selected": 1}]) is None, "it reports the model it has chosen"


@pytest.mark.parametrize(
    ("values", "patience", "stops"),
    [
        ((0.3, 0.2, 0.1), 2, True),
        ((0.3, 0.2, 0.1), 3, False),
        ((0.3, 0.3), 1, True),
        ((0.1, 0.2, 0.3), 1, False),
        ((0.3, None, None, 0.2), 2, False),  # rounds without a figure do not count
        ((None, None), 1, False),
        ((0.3, 0.2), None, False),
    ],
)
def test_patience_counts_the_rounds_that_were_no_better(values, patience, stops):
    assert has_stopped(history(*values), patience) is stops
