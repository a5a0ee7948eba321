"""Options given as text: converted, or refused with the valid ones."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naming import names

from fda_flower.errors import ConfigError
from fda_flower.names.options import (
    WithOptions,
    join_names,
    join_options,
    read_options,
    split_names,
    split_options,
    with_options,
)
from fda_flower.strategies import FedGP


def build(
    count: int = 1,
    rate: float = 0.5,
    switch: bool = False,
    name: str = "a",
    kind: Literal["one", "two"] = "one",
    size: Literal[8, 16] = 8,
    limit: int | None = None,
    names: str | Sequence[str] = "",
    many: float | Sequence[float] = 0.5,
    anything: Any = None,
    **common: Any,
) -> None:
    """Something with one argument of each type."""


@dataclass(frozen=True)
class Built:
    """Something made of options."""

    rate: float = 0.5
    kind: Literal["one", "two"] = "one"


@with_options(Built)
class Holder:
    """Something whose options another class lists."""

    def __init__(self, **options: Any) -> None:
        self.built = Built(**options)


def read(options: dict[str, Any], what: Callable[..., Any] = build, hidden: Sequence[str] = ()) -> Any:
    return read_options("thing 'x'", what, options, set(hidden))


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("count", "-3", -3),
        ("count", 12, 12),
        ("rate", "1e-3", 0.001),
        ("rate", 2, 2.0),
        ("name", "two words", "two words"),
        ("name", 3, "3"),
        ("names", "b,c", "b,c"),
        ("names", ["b", "c"], "b,c"),
        ("names", (1, 30), "1,30"),
        ("names", [], ""),
        ("names", ["b,c", "d"], '"b,c",d'),
        ("kind", "two", "two"),
        ("size", "16", 16),
        ("size", 16, 16),
        ("limit", "4", 4),
        ("many", "0.3", 0.3),
        ("anything", "as it is", "as it is"),
        *((("switch", word, True)) for word in ("true", "TRUE", "yes", "1", 1, True)),
        *((("switch", word, False)) for word in ("false", "NO", "0", 0, False)),
    ],
)
def test_an_option_is_converted_to_its_type(name: str, text: Any, value: Any) -> None:
    options = {name: text}
    found = read(options)
    assert found == {name: value}
    assert type(found[name]) is type(value)
    assert options == {name: text}


@pytest.mark.parametrize(
    ("name", "text", "remedy"),
    [
        *(("count", text, "whole number") for text in ("many", "1.5", "", None, 2.5, 0.999)),
        *(("count", text, "whole number") for text in ("1_0", "\u0661")),
        *(("count", each, "whole number") for each in (np.float32(2.5), Fraction(5, 2), np.float32("inf"))),
        *(("rate", text, "give a number") for text in ("fast", "1_0.5", "\u0661", np.True_, 10**400)),
        ("rate", [1], "give a number"),
        ("names", [["b"]], "list of numbers"),
        ("switch", "perhaps", "true or false"),
        ("switch", "2", "true or false"),
        ("kind", "three", "one, two"),
        ("kind", "One", "one, two"),
        ("size", "9", "8, 16"),
        ("size", True, "8, 16"),
        ("limit", "none", "whole number"),
    ],
)
def test_a_value_of_another_type_is_refused_with_the_remedy(name: str, text: Any, remedy: str) -> None:
    with pytest.raises(ConfigError, check=names("option", name, remedy)) as caught:
        read({name: text})
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("name", ["speed", "common", "hidden", "count"])
def test_an_unknown_hidden_or_collected_option_is_refused_with_the_valid_ones(name: str) -> None:
    with pytest.raises(ConfigError, check=names("option", name)) as caught:
        read({name: 1}, hidden=["count", "hidden"])
    valid = caught.value.remedy.removeprefix("choose one of ").split(", ")
    assert valid == ["rate", "switch", "name", "kind", "size", "limit", "names", "many", "anything"]


@pytest.mark.parametrize("what", [Built, partial(Built, rate=1.0), partial(partial(Built)), Holder])
def test_options_are_those_of_a_function_a_class_or_a_part_of_one(what: Callable[..., Any]) -> None:
    assert read({"rate": "2", "kind": "two"}, what) == {"rate": 2.0, "kind": "two"}
    with pytest.raises(ConfigError, check=names("option", "name", "rate, kind")):
        read({"name": "a"}, what)


def test_something_without_options_says_so() -> None:
    with pytest.raises(ConfigError, check=names("option", "rate", "it has no options")):
        read({"rate": 1}, object)


def test_a_name_may_have_dashes() -> None:
    def build_dashed(two_words: int = 1) -> None: ...

    assert read({"two-words": "3"}, build_dashed) == {"two_words": 3}


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("  ", {}),
        (" angle=90   invert=false\n", {"angle": "90", "invert": "false"}),
        ("expression=a=b", {"expression": "a=b"}),
        ("domains=Rome,New York size=8", {"domains": "Rome,New York", "size": "8"}),
        ('ignore="dose, x=2" size=8', {"ignore": '"dose, x=2"', "size": "8"}),
        ('size=8 "ignore=a,dose x=2"', {"size": "8", "ignore": "a,dose x=2"}),
        ('ignore=5" size=8', {"ignore": '5"', "size": "8"}),
    ],
)
def test_text_is_split_into_names_and_values(text: str, options: dict[str, str]) -> None:
    assert split_options(text) == options


@pytest.mark.parametrize(
    ("text", "part"), [("angle", "angle"), ("a=1 =90", "=90"), ("angle= a=1", "angle="), ("a=1 a=2", "a")]
)
def test_a_part_that_is_no_name_and_value_is_refused(text: str, part: str) -> None:
    with pytest.raises(ConfigError, check=names("option", part)):
        split_options(text)


@given(st.dictionaries(st.sampled_from("abc"), st.text(st.sampled_from('x ,="|:'), min_size=1)))
def test_joined_options_are_read_as_they_were(options: dict[str, str]) -> None:
    options = {name: value.strip() or "x" for name, value in options.items()}
    assert split_options(join_options(options.items())) == options


@given(st.sets(st.text(st.sampled_from('x ,"='), min_size=1).map(str.strip).filter(bool), min_size=1))
def test_joined_names_are_read_as_they_were(wanted: set[str]) -> None:
    assert {*split_names("names", join_names(wanted))} == wanted


@pytest.mark.parametrize("text", ["", "a,", "a,,b", "a, a", 'a,""', '"a",a'])
def test_names_are_separated_by_commas_and_refused_if_empty_or_there_twice(text: str) -> None:
    assert split_names("domains", "Rome, New York,x") == ("Rome", "New York", "x")
    with pytest.raises(ConfigError, check=names("domains", text)):
        split_names("domains", text)


def test_a_subclass_that_sets_an_option_without_a_type_is_refused() -> None:
    class Weighted(WithOptions):
        weights: str = "examples"

    with pytest.raises(ConfigError, check=names("Fixed.weights", "uniform", "weights: TYPE")):

        class Fixed(Weighted):
            weights = "uniform"

    class Typed(Weighted):
        weights: str = "uniform"

    assert Typed().weights == "uniform"


@pytest.mark.parametrize("number", [3, np.int64(3)])
def test_a_domain_may_be_given_as_its_number(number):
    assert FedGP(target=number).target == "3"


@pytest.mark.parametrize("value", [True, 3.0, ["3"]])
def test_a_domain_is_text_or_a_whole_number(value):
    with pytest.raises(ConfigError, check=names("target", value)):
        FedGP(target=value)
