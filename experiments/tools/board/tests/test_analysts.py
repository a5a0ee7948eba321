"""The references of the board's tables: on a table by hand."""

import csv

import numpy as np
import pytest
from fda_board.analysts import LEAST, Rows, Table, figures, lines_of, outputs, read_table

from fda_flower.datasets import DataSpec

ONE = """
title = "By hand"
seeds = [0]
groups = [{ label = "6", target-samples = 6 }]
rows = [{ label = "Ridge", method = "ridge" }]
columns = [{ label = "hand", dataset-options = { domains = "north,south" }, target = "south" }]

[run]
dataset = "table"
"""


@pytest.fixture
def folder(tmp_path):
    """Two sites with ages far apart; who is older than 50 is ill."""
    rng = np.random.default_rng(0)
    for site, low in (("north", 20), ("south", 40)):
        with open(tmp_path / f"{site}.csv", "w", encoding="utf-8", newline="") as file:
            ages = low + 40 * rng.random(80)
            csv.writer(file).writerows([("age", "label"), *((a, "ill" if a > 50 else "well") for a in ages)])
    return tmp_path


def test_rows_are_a_runs_own_in_their_columns_units(folder):
    data = DataSpec(dataset="table", data_dir=str(folder), target="south", target_samples=6)
    table = read_table(data)
    assert (len(table.target.y), len(table.test.y), len(table.sources[0].y)) == (6, 16, 64)
    ages = np.concatenate([table.target.x, table.test.x])
    assert 40 < ages.min() < ages.max() < 80
    assert np.array_equal(ages[:, 0] > 50, np.concatenate([table.target.y, table.test.y]) == 0)


def test_every_reference_has_a_line_and_lines_that_are_done_are_left_out(folder):
    path = folder / "hand.toml"
    path.write_text(ONE, encoding="utf-8")
    lines = [*lines_of(str(path), folder, set())]
    assert len(lines) == len({line[1] for line in lines}) == 6
    by_name = {
        line[1]: dict(zip(("accuracy", "auroc", "loss", "ece"), map(float, line[4:8]), strict=True))
        for line in lines
    }
    assert by_name["Pooled logistic regression"]["accuracy"] > 0.8
    assert by_name["Sources' logistic regression"]["auroc"] == 1
    done = {tuple(map(str, line[:4])) for line in lines[1:]}
    assert [*lines_of(str(path), folder, done)] == lines[:1]


def test_a_class_without_a_label_has_the_least_probability_and_numbers_have_no_classes():
    rng = np.random.default_rng(1)
    rows = Rows(rng.normal(size=(12, 2)), np.array([0, 1] * 6), np.ones(12, int))
    source = Rows(rng.normal(size=(30, 2)), np.arange(30) % 3, np.zeros(30, int))
    made = dict(outputs(Table([source], rows, rows, 3, regression=False)))
    p = np.exp(made["Target alone: logistic regression"]())
    assert p.shape == (12, 3)
    assert p.sum(axis=1) == pytest.approx(1)
    assert p[:, 2] == pytest.approx(LEAST, rel=0.01)
    assert set(figures(np.log(p), rows.y, regression=False)) >= {"accuracy", "auroc", "loss", "ece"}
    numbers = Rows(rows.x, rows.x[:, 0] * 2, rows.site)
    regression = Table(
        [Rows(source.x, source.x[:, 0] * 2, source.site)], numbers, numbers, 1, regression=True
    )
    linear = dict(outputs(regression))["Pooled logistic regression"]()
    assert figures(linear, numbers.y, regression=True)["r2"] > 0.99
