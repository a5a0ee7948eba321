"""The columns of new rows in Python, as a table's preparation takes them: names, numbers and categories."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fda_flower.datasets.preparation import Column, TablePreparation
from fda_flower.datasets.table_reading import (
    COMMA,
    NO_VALUE,
    UNKNOWN,
    Columns,
    Meaning,
    Problem,
    Problems,
    RawTable,
    clean,
    is_missing,
)
from fda_flower.errors import ConfigError


def check_columns(
    who: str,
    names: Sequence[str],
    preparation: TablePreparation,
    allowed: Sequence[str] = (),
    remedy: str = "leave them out",
) -> None:
    """Raise a `ConfigError` unless names are those of a table's columns, and no others but the allowed."""
    wanted = preparation.columns
    if missing := [name for name in wanted if name not in names]:
        raise ConfigError(f"{who} no column {', '.join(missing)}: the model needs {', '.join(wanted)}")
    if others := sorted({*map(str, names)} - {*wanted, *allowed}):
        raise ConfigError(
            f"{who} the columns {', '.join(others)}, which the model does not know: {remedy} (it "
            f"needs {', '.join(wanted)})"
        )


def read_column(name: str, given: Any, preparation: TablePreparation) -> Column:
    """Return a column of samples: numbers, NaN where one is missing, or categories as text.

    Raises
    ------
    ConfigError
        If it holds neither, a category is unknown, or a value is missing that the preparation does not fill
        in.
    """
    known = preparation.known.get(name)
    values = given.numpy() if isinstance(given, Tensor) else given
    if known is None:
        return _numbers(name, values, bool(preparation.fill))
    words = [_word(value) for value in values]
    if unknown := sorted({*words} - {*known, ""}):
        raise ConfigError(
            f"column '{name}' of the samples holds {', '.join(unknown)}, which is none of the categories "
            f"that the model knows, {', '.join(known)}: fix it"
        )
    if "" in words and not preparation.fill:
        raise _lacking(name)
    return words


def _numbers(name: str, values: Any, may_lack: bool) -> Tensor:
    try:
        numbers = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"column '{name}' of the samples holds no numbers ({error}): fix it") from error
    if np.isinf(numbers).any() or (np.isnan(numbers).any() and not may_lack):
        raise _lacking(name)
    return torch.from_numpy(numbers)


def _lacking(name: str) -> ConfigError:
    return ConfigError(
        f"column '{name}' of the samples lacks values: fill them in, or train with missing=mean"
    )


def _word(value: Any) -> str:
    if value is None or value != value:
        return ""
    # A column of whole numbers with gaps holds floats.
    text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value).strip()
    return "" if is_missing(text, words=True) else text


def columns_for(table: RawTable, preparation: TablePreparation, decimal_comma: bool = False) -> Columns:
    """Return the columns of new rows as a preparation takes them, for a model that was trained with it.

    Raises
    ------
    ConfigError
        If a cell cannot be used; the message names file, line and column.
    """
    problems = Problems()
    meaning = Meaning(missing=bool(preparation.fill), categorical=True, decimal_comma=decimal_comma)
    known = preparation.known
    columns = clean(table, preparation.columns, known, meaning, problems)
    for problem in problems.found.values():
        problem.remedy = _remedy_for_new(problem, known.get(problem.column, ()), meaning.missing)
    problems.raise_first()
    return columns


def _remedy_for_new(problem: Problem, known: Sequence[str], may_lack: bool) -> str:
    """Return what to do about a cell of new rows, for which a run's options come too late."""
    return {
        NO_VALUE[0]: "the model has learnt no value for it: fill it in, or train with missing=mean",
        UNKNOWN: f"the model knows {', '.join(known)}: fix it" + (", or leave it empty" if may_lack else ""),
        COMMA: "write a point, as in the tables that the model was trained on",
    }.get(problem.what, problem.remedy)
