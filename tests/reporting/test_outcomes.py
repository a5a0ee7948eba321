"""Runs compared sample by sample."""

import math

import numpy as np
import pytest

from fda_flower.reporting.results import mean_outcomes, paired_error, unpack


@pytest.fixture
def recorded(record):
    """A maker of a history from the outcomes of each round; None where a round recorded none."""

    def make(*rounds):
        history = [record(number, 0.5) for number in range(1, len(rounds) + 1)]
        for each, bits in zip(history, rounds, strict=True):
            if bits is not None:
                each |= {"outcomes": np.packbits(bits).tobytes().hex(), "test-examples": len(bits)}
        return history

    return make


@pytest.mark.parametrize("count", [1, 7, 8, 9, 250])
def test_bits_are_unpacked_as_they_were_packed(count):
    bits = np.random.default_rng(count).random(count) < 0.5
    assert unpack(np.packbits(bits).tobytes().hex(), count).tolist() == bits.tolist()


def test_outcomes_are_the_mean_of_the_last_five_rounds_that_have_them(recorded):
    zeros = [0, 0, 0]
    history = recorded([1, 1, 1], zeros, None, [1, 1, 0], None, [1, 0, 0])
    outcomes = mean_outcomes(history)
    assert outcomes is not None
    assert outcomes.tolist() == pytest.approx([2 / 3, 1 / 3, 0]), "the first of six rounds does not count"


def test_warmup_rounds_do_not_count(recorded):
    history = recorded([1, 1], [0, 1])
    history[0]["warmup"] = True
    outcomes = mean_outcomes(history)
    assert outcomes is not None
    assert outcomes.tolist() == [0, 1]


def test_without_outcomes_there_are_none(recorded):
    assert mean_outcomes(recorded(None, None)) is None
    assert mean_outcomes([]) is None


def test_the_paired_error_is_of_the_differences(recorded):
    ours, theirs = recorded([1, 1, 1, 0], [1, 1, 0, 0]), recorded([1, 0, 1, 0])
    differences = np.array([0, 1, -0.5, 0])
    expected = 100 * np.std(differences, ddof=1) / 2
    assert (
        paired_error(mean_outcomes(ours), mean_outcomes(theirs))
        == pytest.approx(expected)
        == paired_error(mean_outcomes(theirs), mean_outcomes(ours))
    )
    assert paired_error(mean_outcomes(ours), mean_outcomes(ours)) == 0


def test_the_paired_error_is_smaller_than_that_of_independent_runs_if_both_fail_on_the_same_samples(recorded):
    hard = [0] * 40 + [1] * 58
    ours, theirs = recorded([*hard, 0, 1]), recorded([*hard, 1, 1])
    error = paired_error(mean_outcomes(ours), mean_outcomes(theirs))
    assert error == pytest.approx(1.0)
    assert error is not None
    assert error < 100 * math.sqrt(2 * 0.59 * 0.41 / 100) / 5


@pytest.mark.parametrize("theirs", [None, [1, 0], [1, 0, 1, 1]])
def test_without_the_same_samples_there_is_no_paired_error(recorded, theirs):
    assert paired_error(mean_outcomes(recorded([1, 0, 1])), mean_outcomes(recorded(theirs))) is None


def test_one_sample_has_no_paired_error(recorded):
    assert paired_error(mean_outcomes(recorded([1])), mean_outcomes(recorded([0]))) is None
