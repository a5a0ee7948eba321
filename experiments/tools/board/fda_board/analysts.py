"""What an analyst would take instead of a federated method, on the splits of `board_tables.toml`.

    python -m fda_board.analysts DIR/tables runs/board_tables

adds a line for each reference, table and seed to `runs/board_tables/references.csv`; lines that are there are
kept, so that the command continues. Rows are read as a run reads them, with the same seed: the labels, the
test rows, the sources' rows and what is filled in for missing cells are a run's, and columns are in their own
units. Probabilities are at least 0.001, since a class may have no label.
"""

import argparse
import csv
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fda_flower.datasets import Domain, Samples, load_federation
from fda_flower.datasets.preparation import TablePreparation
from fda_flower.experiments import read_experiment
from fda_flower.metrics import measure

Array = NDArray[Any]
LEAST = 0.001
"""The least probability of a class, also of one without a label."""
STRENGTHS = np.logspace(-4, 2, 13)
"""Inverse strengths of the L2 penalty (scikit-learn's C); for a regression, the strengths themselves."""
FOLDS = 5
FIGURES = ("accuracy", "auroc", "loss", "ece", "r2")
HEADER = ("group", "row", "column", "seed", *FIGURES)


@dataclass(frozen=True)
class Rows:
    """Rows in their columns' units, ``(n, d)``, their labels ``(n,)``, and the number of each row's site."""

    x: Array
    y: Array
    site: Array

    def and_site(self, sites: int) -> "Rows":
        """Return the rows with a 0/1 column for each site."""
        return Rows(np.hstack([self.x, np.eye(sites)[self.site]]), self.y, self.site)


def joined(parts: list[Rows]) -> Rows:
    """Return the rows of several sites together."""
    return Rows(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("x", "y", "site")))


@dataclass(frozen=True)
class Table:
    """The rows of each source, and of the target: labelled and for testing."""

    sources: list[Rows]
    target: Rows
    test: Rows
    classes: int
    regression: bool


Model = Callable[[Array, Array], Callable[[Array], Array]]
"""Fits rows and labels; returns a function of rows: log-probabilities of all classes, or numbers."""


def _rows(domain: Domain, samples: Samples, site: int, regression: bool) -> Rows:
    """Return samples with the columns in their own units, as they were before they were standardised."""
    prepared = domain.preparation
    assert isinstance(prepared, TablePreparation), "a table has this preparation"
    x = samples.x.astype(np.float64) * np.array(prepared.deviation) + np.array(prepared.mean)
    y = samples.y
    return Rows(x, y[:, 0].astype(np.float64) if regression else y, np.full(len(y), site))


def read_table(data: Any) -> Table:
    """Return the rows of a federation, given by its `DataSpec`."""
    federation, names, regression = load_federation(data), data.source_names, data.task == "regression"
    target = federation.domains[data.target_name]
    sources = [federation.domains[name] for name in names]
    return Table(
        [_rows(source, source.train, i, regression) for i, source in enumerate(sources)],
        _rows(target, target.train, len(names), regression),
        _rows(target, target.test, len(names), regression),
        federation.classes,
        regression,
    )


def _of_classes(make: Callable[[], Any], classes: int) -> Model:
    """Return a classifier of scikit-learn as a `Model`."""

    def fit(x: Array, y: Array) -> Callable[[Array], Array]:
        known = np.unique(y)
        model = make().fit(x, y) if len(known) > 1 else None

        def predict(rows: Array) -> Array:
            p = np.full((len(rows), classes), LEAST)
            p[:, known] = 1.0 if model is None else np.maximum(model.predict_proba(rows), LEAST)
            return np.log(p / p.sum(axis=1, keepdims=True))

        return predict

    return fit


def _of_numbers(make: Callable[[], Any]) -> Model:
    """Return a regression of scikit-learn as a `Model`."""

    def fit(x: Array, y: Array) -> Callable[[Array], Array]:
        model = make().fit(x, y)
        return lambda rows: model.predict(rows)[:, None]

    return fit


def log_loss(log_p: Array, y: Array) -> float:
    """Return the mean of ``−log p`` of the classes `y`, for log-probabilities of shape ``(n, classes)``."""
    return float(-np.mean(log_p[np.arange(len(y)), y]))


def _linear(classes: int) -> Model:
    """Return logistic regression on standardised columns; its L2 penalty has the least loss in 5 folds."""

    def of(strength: float) -> Model:
        def make() -> Any:
            return make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=2000))

        return _of_classes(make, classes)

    def fit(x: Array, y: Array) -> Callable[[Array], Array]:
        folds = min(FOLDS, int(np.bincount(y).max()))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of a class with fewer rows than folds
            parts = [*StratifiedKFold(folds, shuffle=True, random_state=0).split(x, y)]
        losses = [
            sum(len(held) * log_loss(of(each)(x[own], y[own])(x[held]), y[held]) for own, held in parts)
            for each in STRENGTHS
        ]
        return of(float(STRENGTHS[np.argmin(losses)]))(x, y)

    return fit


def models(table: Table) -> tuple[Model, Model, Model]:
    """Return a linear model, a random forest, and boosted trees, for a table's task."""
    forest: Mapping[str, Any] = {"n_estimators": 300, "min_samples_leaf": 3, "random_state": 0}
    boosted: Mapping[str, Any] = {"learning_rate": 0.05, "max_leaf_nodes": 15, "random_state": 0}
    if table.regression:
        return (
            _of_numbers(lambda: make_pipeline(StandardScaler(), RidgeCV(100 * STRENGTHS))),
            _of_numbers(lambda: RandomForestRegressor(**forest)),
            _of_numbers(lambda: HistGradientBoostingRegressor(**boosted)),
        )
    return (
        _linear(table.classes),
        _of_classes(lambda: RandomForestClassifier(**forest), table.classes),
        _of_classes(lambda: HistGradientBoostingClassifier(**boosted), table.classes),
    )


def outputs(table: Table) -> Iterator[tuple[str, Callable[[], Array]]]:
    """Yield the name of each reference, and what computes its outputs for the test rows."""
    linear, forest, boosted = models(table)
    target, test = table.target, table.test
    sources, pooled, count = joined(table.sources), joined([*table.sources, target]), len(table.sources) + 1
    own, tested = pooled.and_site(count), test.and_site(count)
    yield "Target alone: logistic regression", lambda: linear(target.x, target.y)(test.x)
    yield "Target alone: random forest", lambda: forest(target.x, target.y)(test.x)
    yield "Sources' logistic regression", lambda: linear(sources.x, sources.y)(test.x)
    yield "Pooled logistic regression", lambda: linear(pooled.x, pooled.y)(test.x)
    yield "Pooled logistic regression, and site", lambda: linear(own.x, own.y)(tested.x)
    yield "Pooled gradient boosting", lambda: boosted(pooled.x, pooled.y)(test.x)


def figures(made: Array, y: Array, regression: bool) -> dict[str, float]:
    """Return the figures of a reference's outputs for rows with the labels `y`."""
    metrics = measure(made, y, "regression" if regression else "classes")
    return metrics if regression else {**metrics, "loss": log_loss(made, y)}


def lines_of(experiment: str, folder: Path, done: set[tuple[str, ...]]) -> Iterator[tuple[Any, ...]]:
    """Yield the lines of the references that are not `done`, table by table."""
    design = read_experiment(experiment)
    for group in design.groups:
        for column in design.columns:
            for seed in design.seeds:
                place = (group.label, design.rows[0].label, column.label)
                table = read_table(design.config(place, seed, {"data_dir": str(folder)}).data)
                for row, compute in outputs(table):
                    if (group.label, row, column.label, str(seed)) not in done:
                        measured = figures(compute(), table.test.y, table.regression)
                        numbers = [f"{measured[name]:.4g}" if name in measured else "" for name in FIGURES]
                        yield group.label, row, column.label, seed, *numbers


def main() -> None:
    """Write the references of an experiment's tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="DIR/tables")
    parser.add_argument("output", type=Path, metavar="FOLDER")
    parser.add_argument("--experiment", default="board_tables")
    chosen = parser.parse_args()
    logging.getLogger("fda_flower").setLevel(logging.ERROR)  # what the runs say of the same data
    chosen.output.mkdir(parents=True, exist_ok=True)
    path, done = chosen.output / "references.csv", set()
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            done = {tuple(line[:4]) for line in csv.reader(file)}
    with path.open("a", encoding="utf-8", newline="", buffering=1) as file:
        writer = csv.writer(file, lineterminator="\n")
        if not done:
            writer.writerow(HEADER)
        for line in lines_of(chosen.experiment, chosen.folder, done):
            writer.writerow(line)


if __name__ == "__main__":
    main()
