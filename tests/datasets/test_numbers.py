"""The one grammar of numbers: what is read, what is missing, and what is refused."""

import math

import numpy as np
import pytest

from fda_flower.datasets.numbers import to_numbers


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("12", 12),
        ("+1.5", 1.5),
        ("-.5", -0.5),
        ("\u22125.", -5),
        ("1e3", 1000),
        ("2.5E\u22121", 0.25),
        ("007", 7),
    ],
)
def test_a_number_has_a_sign_digits_one_decimal_mark_and_an_exponent(text, number):
    assert to_numbers([text]).tolist() == [number]
    assert to_numbers([text.replace(".", ",")], decimal_comma=True).tolist() == [number]


@pytest.mark.parametrize("comma", [False, True])
@pytest.mark.parametrize("text", ["", "?", "NA", "n/a", "NaN", "None", "null"])
def test_a_mark_of_a_missing_value_is_none(text, comma):
    assert np.isnan(to_numbers([text], comma)).all()


REFUSED = ["120_80", "1_000", "0x1A", "inf", "-Infinity", "-nan", "1e999", "-1e39", "1 234", "1\u00a0234"]
REFUSED += ["1'234", "1\u2019234", "\uff11\uff12", "\u0661\u0662", "1.2.3", "1,2,3", "--1", "- 1", "e5", "."]
REFUSED += ["1e", "12%", "\u20135", "5\u200b", "1e1.5"]


@pytest.mark.parametrize("comma", [False, True])
@pytest.mark.parametrize("text", REFUSED)
def test_what_python_or_a_person_may_read_otherwise_is_no_number(text, comma):
    assert to_numbers([text], comma).tolist() == [math.inf]


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [
        (["998", "1.020", "?", "-12.345.678"], [998, 1020, math.nan, -12345678]),
        (["998,50", "1.020,25"], [998.5, 1020.25]),
        (["1.234", "1,234"], [math.inf, 1.234]),
        (["1.020", "1.5"], [math.inf, math.inf]),
        (["0.123", "1.234"], [math.inf, math.inf]),
        (["1.020", "1020"], [math.inf, 1020]),
        (["1.020", "1e3"], [math.inf, 1000]),
        (["1.020", "much"], [math.inf, math.inf]),
    ],
)
def test_points_are_thousands_marks_of_a_whole_column_or_refused(texts, numbers):
    np.testing.assert_array_equal(to_numbers(texts, decimal_comma=True), numbers)


def test_commas_have_no_meaning_without_the_option():
    assert np.isinf(to_numbers(["1,234", "1,5", "1,234.5", "1,234,567"])).all()
