import doctest

from fda_flower import files, records


def test_the_headline_of_a_round():
    assert doctest.testmod(records) == (0, 2)


def test_values_that_are_not_finite_become_null():
    assert doctest.testmod(files) == (0, 1)
