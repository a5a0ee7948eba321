"""UCI Heart Disease: patients of four hospitals, prepared as in FLamby's Fed-Heart-Disease."""

import math
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fda_flower.datasets.domains import Split, Splits
from fda_flower.datasets.drawing import Generator
from fda_flower.datasets.folders import unusable
from fda_flower.datasets.numbers import to_numbers
from fda_flower.datasets.preparation import Column, TablePreparation
from fda_flower.datasets.samples import Samples
from fda_flower.datasets.splitting import balanced
from fda_flower.errors import ConfigError

FILES = {"cleveland": "cleveland", "hungary": "hungarian", "switzerland": "switzerland", "va": "va"}
"""Each domain's name in ``processed.NAME.data``."""

COLUMNS = 14
NUMBERS = {"age": 0, "sex": 1, "trestbps": 3, "chol": 4, "fbs": 5, "thalach": 7, "exang": 8, "oldpeak": 9}
"""Positions of the columns that are numbers."""

CATEGORIES = {"cp": 2, "restecg": 6}
LEVELS = {"cp": (1, 2, 3, 4), "restecg": (0, 1, 2)}
"""Positions of the columns that are categories, and their levels."""

LABEL = 13
TRAIN_SHARE = 0.66
FEWEST = 4
FLAMBY_STATE = 43


def load(data_dir: Path | None, seed: int, split: Literal["seed", "flamby"] = "seed") -> Splits:
    """Return the patients of each hospital, 66 % for training, labelled as ill (1) or healthy (0).

    As in Fed-Heart-Disease, the columns slope, ca and thal, which most hospitals lack, are dropped, and so
    are patients with a missing value in another column: 303, 261, 46 and 130 patients remain. The chest pain
    type (cp) and the electrocardiogram (restecg) become an indicator for each level but the first, after the
    8 other columns: `x` has shape ``(n, 13)``. Each hospital standardises its features with its own training
    samples, which it need not share; a constant feature is only centred.

    By default `seed` draws the split, balanced by label, and Switzerland's only healthy patient is always a
    training sample. With `split` ``"flamby"`` it is Fed-Heart-Disease's, the same for every seed: 104, 89, 16
    and 45 patients are for testing.

    `data_dir` holds ``heart_disease/`` with the files ``processed.*.data``; each is read when its hospital is
    accessed. A missing or damaged file or line raises a `ConfigError`.

    References
    ----------
    Janosi, Steinbrunn, Pfisterer, Detrano, "Heart Disease", UCI Machine Learning Repository, 1988.
    Ogier du Terrail et al., "FLamby: Datasets and Benchmarks for Cross-Silo Federated Learning in Realistic
    Healthcare Settings", NeurIPS 2022.
    """
    if data_dir is None:
        raise ConfigError(
            "data set 'heart' needs --data-dir (FDA_DATA_DIR): a folder DIR with the four files "
            "processed.*.data of the UCI Machine Learning Repository's 'Heart Disease' in DIR/heart_disease/",
            thing="data set",
            value="heart",
        )
    folder = data_dir.expanduser() / "heart_disease"
    drawn = None if split == "flamby" else seed
    return Splits(tuple(FILES), lambda name: _split(folder / f"processed.{FILES[name]}.data", drawn))


def _split(path: Path, seed: int | None) -> Split:
    rows = np.array(_read(path), np.float64).reshape(-1, COLUMNS)
    if len(rows) < FEWEST:
        what = f"has {len(rows)} patients without a missing value, at least {FEWEST} are needed"
        raise unusable("data file", path, what, "get it again")
    labels = (rows[:, LABEL] > 0).astype(np.int64)
    if seed is None:
        train, test = _flamby(labels)
    else:
        train, test = balanced(labels, int(TRAIN_SHARE * len(rows)), Generator(seed))
    columns: dict[str, Column] = {name: rows[:, column] for name, column in NUMBERS.items()}
    columns |= {name: [f"{level:g}" for level in rows[:, at]] for name, at in CATEGORIES.items()}
    words = {name: tuple(map(str, levels)) for name, levels in LEVELS.items()}
    first = {name: levels[0] for name, levels in words.items()}
    others = {name: levels[1:] for name, levels in words.items()}
    preparation = TablePreparation.fit(columns, train, others, baseline=first)
    samples = Samples(preparation.apply(columns), labels, values=preparation.values(columns))
    features = preparation.features
    return Split(samples.take(train), samples.take(test), 2, features=features, preparation=preparation)


def _flamby(labels: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the indices of FLamby's training and test patients, balanced if each class has more than two."""
    from sklearn.model_selection import train_test_split

    large = np.bincount(labels, minlength=2).min() > 2
    shares = {"train_size": TRAIN_SHARE, "test_size": 1 - TRAIN_SHARE}
    stratify = labels if large else None
    train, test = train_test_split(range(len(labels)), random_state=FLAMBY_STATE, stratify=stratify, **shares)
    return np.array(train), np.array(test)


def _read(path: Path) -> list[list[float]]:
    """Return the rows without a missing value, with 0 in the dropped columns."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        remedy = "put there the file from the UCI Machine Learning Repository's 'Heart Disease'"
        raise unusable("data file", path, f"cannot be read ({error.strerror})", remedy) from error
    rows = [_row(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    return [row for row in rows if not any(map(math.isnan, row))]


def _row(path: Path, number: int, line: str) -> list[float]:
    where = f"is damaged: line {number}"
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != COLUMNS:
        raise unusable("data file", path, f"{where} has {len(cells)} columns, not {COLUMNS}", "get it again")
    row = [0.0] * COLUMNS
    levels_of = {CATEGORIES[name]: levels for name, levels in LEVELS.items()}
    for column in (*NUMBERS.values(), *levels_of, LABEL):
        cell = cells[column]
        row[column] = float(to_numbers([cell])[0])
        levels = levels_of.get(column, (row[column],))
        if cell != "?" and not (math.isfinite(row[column]) and row[column] in levels):
            raise unusable("data file", path, f"{where} has {cell!r} in column {column + 1}", "get it again")
    return row
