import doctest

from fda_flower.files import json_safe
from fda_flower.records import record


def test_the_examples_of_records():
    assert doctest.testmod(record) == (0, 13)


def test_values_that_are_not_finite_become_null():
    assert json_safe({"a": (1.0, float("nan")), "b": float("inf")}) == {"a": [1.0, None], "b": None}
