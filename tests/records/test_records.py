import doctest

from fda_flower import files
from fda_flower.records import record


def test_the_examples_of_records():
    assert doctest.testmod(record) == (0, 13)


def test_values_that_are_not_finite_become_null():
    assert doctest.testmod(files) == (0, 2)
