"""Runs compared sample by sample."""

import numpy as np
import pytest

from fda_flower.reporting.results import mean_outcomes, paired_error


@pytest.fixture
def outcomes(record):
    """The mean outcomes of a history from the bits of each round; None where a round recorded none."""

    def make(*rounds, warmup=()):
        history = [record(number, 0.5) | {"warmup": number in warmup} for number in range(1, len(rounds) + 1)]
        for each, bits in zip(history, rounds, strict=True):
            if bits is not None:
                each |= {"outcomes": np.packbits(bits).tobytes().hex(), "test-examples": len(bits)}
        return mean_outcomes(history)

    return make


def test_outcomes_are_the_mean_of_the_last_five_rounds_that_have_them(outcomes):
    found = outcomes([1, 1, 1], [0, 0, 0], None, [1, 1, 0], None, [1, 0, 0])
    assert found.tolist() == pytest.approx([2 / 3, 1 / 3, 0]), "the first of six rounds does not count"
    assert outcomes([1, 1], [0, 1], warmup=(1,)).tolist() == [0, 1]
    assert outcomes([0, 1] * 9).tolist() == [0, 1] * 9, "more bits than a byte"
    assert outcomes(None, None) is outcomes() is None


def test_the_paired_error_is_of_the_differences(outcomes):
    ours, theirs = outcomes([1, 1, 1, 0], [1, 1, 0, 0]), outcomes([1, 0, 1, 0])
    expected = pytest.approx(100 * np.std([0, 1, -0.5, 0], ddof=1) / 2)
    assert paired_error(ours, theirs) == expected == paired_error(theirs, ours)
    assert paired_error(ours, ours) == 0
    hard = [0] * 40 + [1] * 58  # on which both fail: the error is far below √2 · √(0.59 · 0.41 / 100)
    assert paired_error(outcomes([*hard, 0, 1]), outcomes([*hard, 1, 1])) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("ours", "theirs"), [([1, 0, 1], None), ([1, 0, 1], [1, 0]), ([1, 0, 1], [1, 0, 1, 1]), ([1], [0])]
)
def test_without_two_samples_in_common_there_is_no_paired_error(outcomes, ours, theirs):
    assert paired_error(outcomes(ours), outcomes(theirs)) is None
