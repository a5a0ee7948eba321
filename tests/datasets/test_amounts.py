"""How many samples: numbers and shares, read and counted."""

from typing import Any

import pytest

from fda_flower.datasets.amounts import count, read_amount
from fda_flower.errors import ConfigError


@pytest.mark.parametrize("everything", [None, "all"])
def test_none_and_all_are_everything(everything: object) -> None:
    assert read_amount("target-samples", everything) is None
    assert count("target-samples", None, 7) == 7


@pytest.mark.parametrize(
    ("value", "amount"), [(1, 1), (50, 50), ("50", 50), (" 50 ", 50), (50.0, 50), ("50.0", 50), ("1e3", 1000)]
)
def test_a_number_of_samples_is_read_from_numbers_and_text(value: object, amount: int) -> None:
    read = read_amount("target-samples", value)
    assert read == amount
    assert type(read) is int


@pytest.mark.parametrize(("value", "amount"), [("15%", "15%"), (" 0.1% ", "0.1%"), ("100%", "100%")])
def test_a_share_stays_text(value: str, amount: str) -> None:
    assert read_amount("target-samples", value) == amount


@pytest.mark.parametrize("value", [50, "15%", None])
def test_an_amount_that_was_read_reads_as_itself(value: Any) -> None:
    assert read_amount("target-samples", read_amount("target-samples", value)) == value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("many", "source-samples is 'many': give a number, or a share such as 15%"),
        ("", "source-samples is '': give a number"),
        ("%", "source-samples is '%': give a number"),
        ("15%%", "source-samples is '15%%': give a number"),
        (True, "source-samples is True: give a number"),
        ([5], "source-samples is [5]: give a number"),
        ("0%", "source-samples is 0%, a share must be above 0% and at most 100%"),
        ("-5%", "source-samples is -5%, a share must be above 0%"),
        ("100.5%", "source-samples is 100.5%, a share must be above 0% and at most 100%"),
        ("nan%", "source-samples is nan%, a share must be"),
        (2.5, "source-samples is 2.5: give a whole number, or a share such as 15%"),
        ("2.5", "source-samples is 2.5: give a whole number"),
        ("nan", "source-samples is nan: give a whole number"),
        ("inf", "source-samples is inf: give a whole number"),
        (0, "source-samples is 0, at least 1 is needed"),
        (-3, "source-samples is -3, at least 1 is needed"),
    ],
    ids=str,
)
def test_what_is_no_amount_is_refused_by_name_value_and_remedy(value: object, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_amount("source-samples", value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("amount", "total", "expected"),
    [
        (3, 7, 3),
        (7, 7, 7),
        ("100%", 7, 7),
        ("50%", 8, 4),
        ("15%", 1000, 150),
        ("0.1%", 20000, 20),
        ("33%", 10, 3),
        ("37%", 10, 4),
        ("99.9%", 10, 10),
    ],
)
def test_an_amount_counts_samples_and_a_share_is_rounded(
    amount: int | str, total: int, expected: int
) -> None:
    assert count("target-samples", amount, total) == expected


@pytest.mark.parametrize(
    ("amount", "total", "message"),
    [
        (8, 7, "target-samples is 8, but there are only 7: ask for fewer"),
        (1, 0, "target-samples is 1, but there are only 0: ask for fewer"),
        ("1%", 49, "target-samples is 1%, which leaves none of 49 samples: ask for more"),
        ("100%", 0, "target-samples is 100%, which leaves none of 0 samples"),
    ],
)
def test_more_than_there_are_and_a_share_that_leaves_none_are_refused(
    amount: int | str, total: int, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        count("target-samples", amount, total)
    assert message in str(caught.value)
