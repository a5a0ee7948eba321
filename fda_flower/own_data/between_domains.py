"""Columns and labels compared between domains: in another unit, or written in another way, at one of them."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from fda_flower.datasets.numbers import Array
from fda_flower.errors import ConfigError, some
from fda_flower.names.options import join_names
from fda_flower.names.words import listed
from fda_flower.own_data.column import ENOUGH, Column
from fda_flower.own_data.table_options import as_option

APART = 1.5
"""How far apart the medians of domains in different units are, in widths of the widest domain."""

LEAST = 1.5
"""The least ratio of the medians: miles have 1.6 kilometres, and 37 °C are 98.6 °F."""

FEW = 10
"""Up to this many different numbers are codes or ranks, which have no unit."""

MOST_VALUES = 2000
"""The most numbers of a domain that give its quartiles."""

Words = Mapping[str, Iterable[str]]
"""Words, such as classes, by domain."""


def sizes_of(values: Array) -> Array | None:
    """Return the quartiles of the logarithms of a column's sizes, without zeros; None for too few numbers."""
    known = values[:: len(values) // MOST_VALUES + 1]
    sizes = np.abs(known[np.isfinite(known) & (known != 0)])
    if len(sizes) < ENOUGH or len(np.unique(sizes)) <= FEW:
        return None
    return np.asarray(np.quantile(np.log(sizes), (0.25, 0.5, 0.75)))


def in_units(values: Mapping[str, Array]) -> list[tuple[float, list[str]]]:
    """Return the domains in groups of one unit, each with its median; a single group if there is one unit.

    A unit multiplies numbers and moves their logarithms. Domains are in different groups if no domain's
    middle half, `APART` times as wide, would reach from one to the next.

    Examples
    --------
    >>> mmol = np.linspace(3, 8, 50)
    >>> in_units({"east": mmol, "north": 38.67 * mmol, "west": mmol + 1})
    [(5.979, ['east', 'west']), (212.7, ['north'])]
    """
    sizes = {domain: known for domain, each in values.items() if (known := sizes_of(each)) is not None}
    widest = max((upper - lower for lower, _, upper in sizes.values()), default=0.0)
    order = sorted(sizes, key=lambda domain: float(sizes[domain][1]))
    groups: list[list[str]] = []
    for domain in order:
        gap = sizes[domain][1] - sizes[groups[-1][-1]][1] if groups else np.inf
        if gap > max(np.log(LEAST), APART * widest):
            groups.append([])
        groups[-1].append(domain)
    medians = (float(np.exp(np.median([sizes[domain][1] for domain in group]))) for group in groups)
    return [(float(f"{median:.4g}"), sorted(group)) for median, group in zip(medians, groups, strict=True)]


def another_unit(columns: Mapping[str, Mapping[str, Array]]) -> list[str]:
    """Return a note on columns whose numbers by domain are in several units, if there are any."""
    said = []
    for name, values in columns.items():
        if len(groups := in_units(values)) > 1:
            each = "; ".join(f"about {median:g} at {listed(domains)}" for median, domains in groups)
            said.append(f"{name} ({each})")
    if not said:
        return []
    return [
        f"columns with numbers of another size at some domains than at others: {some(said)}; another unit? "
        "write them in one unit at all domains"
    ]


def codes_differ(codes: Mapping[str, Collection[float]]) -> bool:
    """Return whether some domains count codes from 0 and others, as many codes, from 1.

    Examples
    --------
    >>> codes_differ({"east": [0, 1], "west": [1, 2]}), codes_differ({"east": [0, 1], "west": [0, 2]})
    (True, False)
    """
    sets = {frozenset(each) for each in codes.values()}
    number = max(map(len, sets), default=0)
    counts = [frozenset(map(float, range(first, first + number))) for first in (0, 1)]
    return number > 1 and {*counts} <= sets and all(any(each <= count for count in counts) for each in sets)


def coded_apart(columns: Mapping[str, Mapping[str, Array]]) -> list[str]:
    """Return a note on columns of codes that count from 0 at some domains and from 1 at others."""
    said = []
    for name, values in columns.items():
        codes = {domain: _codes(each) for domain, each in values.items()}
        if codes_differ({domain: each for domain, each in codes.items() if each}):
            written = {domain: [f"{code:g}" for code in sorted(each)] for domain, each in codes.items()}
            said.append(f"{name} ({only_at(written)})")
    if not said:
        return []
    return [
        f"columns with codes from 0 at some domains and from 1 at others: {some(said)}; if they mean the "
        "same, write them alike"
    ]


def _codes(values: Array) -> list[float]:
    """Return the different numbers of a column, if they are few and whole."""
    if not np.isin(values[:ENOUGH][~np.isnan(values[:ENOUGH])], np.arange(FEW + 1)).all():
        return []
    different = np.unique(values[~np.isnan(values)])
    return different.tolist() if np.isin(different, np.arange(FEW + 1)).all() else []


def only_at(words: Words) -> str:
    """Return the words that are not at all domains, with the domains that have them; empty for none.

    Examples
    --------
    >>> only_at({"east": ["0", "1"], "north": ["0", "1"], "west": ["1", "2"]})
    '0 only at east, north; 2 only at west'
    """
    places: dict[str, list[str]] = {}
    for domain, each in words.items():
        for word in sorted({*each}):
            places.setdefault(word, []).append(domain)
    groups: dict[tuple[str, ...], list[str]] = {}
    for word, domains in places.items():
        if len(domains) < len(words):
            groups.setdefault(tuple(domains), []).append(word)
    said = (f"{some(each, first=5, last=0)} only at {listed(domains)}" for domains, each in groups.items())
    return some(said, "; ", first=5, last=0)


def categories_apart(columns: Mapping[str, Mapping[str, Array]]) -> list[str]:
    """Return a note on columns of words that are not at all domains, if there are any; empty is no word."""
    written = {
        name: only_at({domain: {*each.tolist()} - {""} for domain, each in values.items()})
        for name, values in columns.items()
    }
    if not (said := [f"{name} ({lacking})" for name, lacking in written.items() if lacking]):
        return []
    return [
        f"categories that are not at all domains: {some(said)}; if some mean the same, write them in one way"
    ]


ALIKE = "write each class in one way at all domains"


def check_classes(words: Words, named: bool) -> list[str]:
    """Return a note on classes that are not at all domains, whose classes are given, if there are any.

    Raise a `ConfigError`, unless the classes are `named` by an option, if the domains code them differently.
    """
    if not (lacking := only_at(words)):
        return []
    every = {word for each in words.values() for word in each}
    coded = not named and all(word.isascii() and word.isdecimal() for word in every)
    if coded and codes_differ({domain: [*map(float, each)] for domain, each in words.items()}):
        what = f"the labels are codes that differ, from 0 at some domains and from 1 at others ({lacking})"
        option = f"--dataset-option classes={join_names(sorted(every, key=int))}"
        other = f"or, if these are {len(every)} classes, say so by {option}"
        raise ConfigError(what, thing="classes", value=lacking, remedy=f"{ALIKE}, {other}")
    return [f"classes that are not at all domains: {lacking}; if some mean the same, {ALIKE}"]


def check_shared(target: str, sources: Iterable[str], words: Words) -> None:
    """Raise a `ConfigError` if no class of a target is at any of the sources whose classes are given."""
    classes = {domain: {*each} for domain, each in words.items()}
    there = [domain for domain in sources if classes.get(domain)]
    elsewhere = {word for domain in there for word in classes[domain]}
    if there and (own := classes.get(target)) and not own & elsewhere:
        what = (
            f"no class of the target '{target}' ({some(sorted(own))}) is at any source ({listed(there)}: "
            f"{some(sorted(elsewhere))}), as if they were named differently"
        )
        raise ConfigError(what, thing="classes", value=target, remedy=ALIKE)


def check_disjoint(columns: Sequence[Column]) -> None:
    """Raise a `ConfigError` if a column's words at one domain are at no other; it names no word.

    Domains with one word each, such as their country, may differ.
    """
    words = [(cells, cells.words) for cells in columns if len(cells) > FEW and cells.words]
    if all(len(each) == 1 for _, each in words):
        return
    for cells, each in words:
        others = [(other, more) for other, more in words if other.path.name != cells.path.name]
        if others and not any(each & more for _, more in others):
            name = cells.name
            what = f"column '{name}' of the data file '{cells.path}' has none of the others' words, such as "
            remedy = (
                "write the same in the same words at all domains; or leave the column out by "
                f"{as_option('ignore', [name])}, or list its words in the option 'categories'"
            )
            raise ConfigError(f"{what}'{others[0][0].path}'", thing="column", value=name, remedy=remedy)
