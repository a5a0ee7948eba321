"""How many samples: numbers and shares, read and counted."""

from dataclasses import replace

import pytest
from naming import names
from sites import write_sites, write_table

from fda_flower.datasets import load_domain
from fda_flower.datasets.amounts import count, read_amount
from fda_flower.errors import ConfigError
from fda_flower.runs.config import RunConfig


@pytest.mark.parametrize(
    ("value", "amount"),
    [
        *((value, None) for value in (None, "all")),
        *((value, 50) for value in (50, " 50 ", 50.0, "50.0", "5e1")),
        *((value, value.strip()) for value in ("15%", " 0.1% ")),
        ("up to 9.0", "up to 9"),
    ],
)
def test_an_amount_is_read_from_numbers_and_text_and_reads_as_itself(value, amount):
    read = read_amount("target-samples", value)
    assert (read, type(read)) == (amount, type(amount))
    assert read_amount("target-samples", read) == amount


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        *((text, "a number, or a share such as 15%") for text in ("many", "1_0", "1_0%")),
        ("2.5", "a whole number, or a share such as 15%"),
        ("up to 5%", "after 'up to'"),
        *((value, "a number") for value in ("", "%", "15%%", True, [5], "up to all")),
        *((value, "at most 100%") for value in ("0%", "-5%", "100.5%", "nan%")),
        *((value, "a whole number") for value in ("nan", "inf")),
        *((value, "at least 1") for value in ("0", "-3", "up to 0")),
    ],
    ids=str,
)
def test_what_is_no_amount_is_refused_by_name_value_and_remedy(value, remedy):
    with pytest.raises(ConfigError, check=names("source-samples", value, remedy)):
        read_amount("source-samples", value)


@pytest.mark.parametrize(
    ("amount", "total", "expected"),
    [
        *((amount, 7, 7) for amount in (None, 7, "100%")),
        ("50%", 8, 4),
        ("0.1%", 20000, 20),
        *((amount, 10, expected) for amount, expected in ((3, 3), ("33%", 3), ("37%", 4))),
        *(("up to 50", total, min(total, 50)) for total in (49, 51)),
    ],
)
def test_an_amount_counts_samples_and_a_share_is_rounded(amount, total, expected):
    assert count("target-samples", amount, total) == expected


@pytest.mark.parametrize(
    ("amount", "total", "remedy"), [(8, 7, "fewer"), (1, 0, "fewer"), ("1%", 49, "more"), ("100%", 0, "more")]
)
def test_more_than_there_are_and_a_share_that_leaves_none_are_refused(amount, total, remedy):
    with pytest.raises(ConfigError, check=names("target-samples", amount, f"ask for {remedy}")):
        count("target-samples", amount, total)


def test_a_default_is_a_limit_and_a_number_that_is_given_is_not():
    config = RunConfig(dataset="digits", target_samples="up to 2000")
    given = replace(config, target_samples=2000)
    assert given.fingerprint() == config.fingerprint(), "a run of enough labels goes on with either"
    with pytest.raises(ConfigError, check=names("target-samples", 2000)):
        load_domain(given.data, "target")
    assert load_domain(config.data, "target").domains["target"].unlabelled is None


def test_all_labels_of_own_data_are_used_unless_a_number_is_given(tmp_path):
    write_sites(write_table, tmp_path, "ab", rows=100)
    for given, labels in (({}, 80), ({"target_samples": 30}, 30), ({"target_samples": "50"}, 50)):
        config = RunConfig(dataset="table", data_dir=str(tmp_path), **given)
        assert len(load_domain(config.data, "b").domains["b"].train) == labels
