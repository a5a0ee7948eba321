"""The columns of new samples, from files and from Python, checked for a model's preparation."""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.datasets.numbers import OF_THOUSANDS, is_missing, to_numbers
from fda_flower.datasets.preparation import Column, TablePreparation
from fda_flower.datasets.problems import Problems
from fda_flower.errors import ConfigError, near, some
from fda_flower.own_data.table_columns import MARKS, NO_VALUE, UNKNOWN, Columns, clean
from fda_flower.own_data.table_files import RawTable
from fda_flower.own_data.table_options import Meaning

FAR = 5.0
"""Standard deviations beyond which the median of new values is far from the mean in training."""


def check_columns(
    who: str,
    names: Sequence[str],
    preparation: TablePreparation,
    allowed: Sequence[str] = (),
    remedy: str = "leave them out",
) -> None:
    """Raise a `ConfigError` unless `names` are the model's columns, plus allowed ones."""
    if "" in names:
        raise ConfigError(f"{who} a column without a name: name it, or remove it", thing="column", value="")
    if twice := [name for name, times in Counter(names).items() if times > 1]:
        raise ConfigError(
            f"{who} the column {twice[0]} twice: rename or remove one", thing="column", value=twice[0]
        )
    wanted = preparation.raw
    needed = some(wanted)
    if missing := [name for name in wanted if name not in names]:
        hint = near(missing[0], [str(name) for name in names if name not in wanted])
        listed, there = some(missing), some([*map(str, names)])
        message = f"{who} no column {listed}{hint}, only {there}: the model needs {needed}"
        raise ConfigError(message, thing="column", value=listed)
    if others := some(sorted({*map(str, names)} - {*wanted, *allowed})):
        message = f"{who} the columns {others}, which the model does not know: {remedy} (it needs {needed})"
        raise ConfigError(message, thing="columns", value=others)


def read_columns(given: Mapping[str, Any], preparation: TablePreparation) -> dict[str, Column]:
    """Return the columns of samples that a preparation takes: numbers, categories as text, or texts.

    A missing value is None, NaN, pandas' NA or NaT, or a mark of one, as text. Raise a `ConfigError` for
    other columns, columns of different lengths, values of another kind, an unknown category, or a missing
    value that the preparation does not fill in.
    """
    check_columns("the samples have", list(given.keys()), preparation)
    columns = {name: read_column(name, given[name], preparation) for name in preparation.raw}
    if len(counts := {name: len(cells) for name, cells in columns.items()}) and len({*counts.values()}) > 1:
        listed = some([f"{name} {count}" for name, count in counts.items()])
        message = f"the columns have different numbers of samples: {listed}"
        raise ConfigError(message, thing="columns", value=listed, remedy="give each sample a value in each")
    if not any(counts.values()):
        raise ConfigError("there are no samples: give at least one", thing="samples", value=0)
    return columns


def read_column(name: str, given: Any, preparation: TablePreparation) -> Column:
    """Return one of the columns of `read_columns`."""
    known = preparation.known.get(name)
    if isinstance(given, str) or not isinstance(given, Collection):
        raise _bad(name, f"is {type(given).__name__}: give a list of its values")
    values = plain(given)
    if name == preparation.text:
        texts = [_word(value) for value in values]
        if "" in texts:
            raise _bad(name, "lacks texts: write them, or leave these samples out")
        return texts
    if known is None:
        return _numbers(name, values, bool(preparation.fill))
    words = [_word(value) for value in values]
    if unknown := sorted({*words} - {*known, ""}):
        raise _bad(name, f"holds {', '.join(unknown)}, but the model knows only {', '.join(known)}: fix it")
    if "" in words and not preparation.fill:
        raise _bad(name, LACKS)
    return words


def plain(values: Any) -> Any:
    """Return a tensor's numbers as an array, on whatever device it is; other values stay."""
    if not hasattr(values, "detach"):
        return values
    numbers = values.detach().cpu()
    return (numbers.float() if numbers.is_floating_point() and numbers.itemsize == 2 else numbers).numpy()


LACKS = "lacks values: fill them in, or train with missing=mean"


def _numbers(name: str, values: Any, may_lack: bool) -> NDArray[np.float64]:
    cells = values if isinstance(values, np.ndarray) else np.array([*values], dtype=object)
    try:
        numbers = cells if cells.dtype.kind in "biuf" else [_number(cell) for cell in cells]
        column = np.array(numbers, dtype=np.float64)
    except (OverflowError, TypeError, ValueError) as error:
        raise _bad(name, f"holds {error}, but takes numbers: fix it") from error
    if np.isinf(column).any():
        raise _bad(name, "holds an infinite number: fix it")
    if np.isnan(column).any() and not may_lack:
        raise _bad(name, LACKS)
    return column


def _number(value: Any) -> float:
    """Return a number, NaN if it is missing; raise a `TypeError` or `ValueError` that says what it is."""
    if isinstance(value, str):
        number = float(to_numbers([value.strip()])[0])
        if math.isinf(number):
            raise ValueError(f"the text {value!r}")
        return number
    if _is_missing(value):
        return math.nan
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, Real | Decimal):
        raise TypeError(f"values of the type {type(value).__name__}")
    return float(value)


def _word(value: Any) -> str:
    if _is_missing(value):
        return ""
    # A column of whole numbers with gaps holds floats.
    text = (
        str(int(value))
        if isinstance(value, float | np.floating) and float(value).is_integer()
        else str(value).strip()
    )
    return "" if is_missing(text, words=True) else text


def _is_missing(value: Any) -> bool:
    if value is None:
        return True
    try:
        return bool(value != value)
    except TypeError:  # pandas' NA has no truth value
        return True


def _bad(name: str, why: str) -> ConfigError:
    return ConfigError(f"column '{name}' of the samples {why}", thing="column", value=name)


def far_from_training(raw: Mapping[str, Column], preparation: TablePreparation) -> tuple[str, ...]:
    """Return a note on columns of numbers whose new values are far from those in training, if there are any.

    `raw` has the new values, which are not bounded here. Two kinds of columns are left out:
    constant ones in training, which have no scale, and those whose numbers seem to lie in [0, 1] there (their
    variance is at most mean (1 − mean)) and do so here, since 1 may be rare.

    Examples
    --------
    >>> years = TablePreparation.fit({"age": [50, 60, 70, 80]}, train=np.arange(4))
    >>> far_from_training({"age": [51, 95]}, years)
    ()
    >>> far_from_training({"age": [612, 684]}, years)
    ('columns far from their values in training, as in another unit: age (612, in training 65 ± 11.2)',)
    """
    far, features = [], replace(preparation, farthest=None).apply(raw)
    scales = zip(preparation.features, preparation.mean, preparation.deviation, strict=False)
    for i, (name, mean, deviation) in enumerate(scales):
        median = float(np.quantile(features[:, i], 0.5, method="lower"))
        value = (round(mean / deviation + median, 3) + 0.0) * deviation  # float32 has rounded it
        rare = deviation**2 < mean * (1 - mean) + 1e-9 and -0.001 < value < 1.001
        if name in preparation.columns and deviation != 1 and abs(median) > FAR and not rare:
            far.append(f"{name} ({value:.3g}, in training {mean:.3g} ± {deviation:.3g})")
    listed = some(far)
    return (f"columns far from their values in training, as in another unit: {listed}",) if far else ()


def columns_for(table: RawTable, preparation: TablePreparation, decimal_comma: bool = False) -> Columns:
    """Return a table's columns for a preparation; a `ConfigError` names file, line and column."""
    problems, may_lack = Problems(), bool(preparation.fill)
    meaning = Meaning(
        label="", missing=may_lack, categorical=True, decimal_comma=decimal_comma, text=preparation.text
    )
    columns = clean(table, preparation.raw, preparation.known, meaning, problems)
    for problem in problems.entries.values():  # A run's options are no remedy for new rows.
        known = ", ".join(preparation.known.get(problem.column, ()))
        problem.remedy = {
            NO_VALUE[0]: "the model has no value for it: fill it in, or train with missing=mean",
            UNKNOWN: f"the model knows {known}: fix it{', or leave it empty' if may_lack else ''}",
            OF_THOUSANDS[0]: "write 1234 for 1.234; if the point is decimal, write 5.000 for 5",
            MARKS: f"write a {'comma' if decimal_comma else 'point'} for decimals and no mark for thousands",
        }.get(problem.what, problem.remedy)
    problems.raise_first()
    return columns
