"""How many samples: numbers and shares, read and counted."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from naming import names
from sites import write_table

from fda_flower.datasets import load_domain
from fda_flower.datasets.amounts import count, read_amount
from fda_flower.errors import ConfigError
from fda_flower.runs.config import RunConfig


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


@pytest.mark.parametrize(("value", "amount"), [("15%", "15%"), (" 0.1% ", "0.1%"), ("up to 9.0", "up to 9")])
def test_a_share_and_a_limit_stay_text(value: str, amount: str) -> None:
    assert read_amount("target-samples", value) == amount


@pytest.mark.parametrize("value", [50, "15%", "up to 50", None])
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
        (2.5, "source-samples is '2.5': give a whole number, or a share such as 15%"),
        ("2.5", "source-samples is '2.5': give a whole number"),
        ("nan", "source-samples is 'nan': give a whole number"),
        ("inf", "source-samples is 'inf': give a whole number"),
        (0, "source-samples is '0': at least 1 is needed"),
        (-3, "source-samples is '-3': at least 1 is needed"),
        ("up to 0", "source-samples is 'up to 0': at least 1 is needed"),
        ("up to all", "source-samples is 'up to all': give a number"),
        ("up to 5%", "source-samples is 'up to 5%': give a number after 'up to'"),
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
        ("up to 50", 49, 49),
        ("up to 50", 51, 50),
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
        ("1%", 49, "target-samples is '1%', which leaves none of 49 samples: ask for more"),
        ("100%", 0, "target-samples is '100%', which leaves none of 0 samples"),
    ],
)
def test_more_than_there_are_and_a_share_that_leaves_none_are_refused(
    amount: int | str, total: int, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        count("target-samples", amount, total)
    assert message in str(caught.value)


def test_a_default_is_a_limit_and_a_number_that_is_given_is_not(tmp_path: Path) -> None:
    for i, name in enumerate("ab"):
        write_table(tmp_path / f"{name}.csv", i)
    config = RunConfig(dataset="table", data_dir=str(tmp_path))
    domain = load_domain(config.data, "b").domains["b"]
    assert (len(domain.train), len(domain.test), domain.unlabelled) == (32, 8, None)
    given = replace(config, target_samples=50)
    assert given.fingerprint() == config.fingerprint(), "a run of enough labels goes on with either"
    with pytest.raises(ConfigError, check=names("target-samples", 50)):
        load_domain(given.data, "b")
