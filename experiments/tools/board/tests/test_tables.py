"""The board's real tables: their files from rows by hand, and what is drawn from them."""

import csv
import random

import pandas as pd
import pytest
from fda_board import tables
from fda_board.real_tables import REAL_TABLES, RealTable
from fda_board.tables import DIGESTS, check, digest, file_of, files_of, split_of
from naming import names

from fda_flower.errors import ConfigError
from fda_flower.experiments import read_experiment


def rows_of(**sizes):
    """Rows of sites; every third has the label "ill", and every fourth no value."""
    rows = [(site, i) for site, size in sizes.items() for i in range(size)]
    return pd.DataFrame(
        {
            "site": [site for site, _ in rows],
            "age": [None if i % 4 == 3 else 40 + i / 8 for _, i in rows],
            "label": ["ill" if i % 3 == 0 else "well" for _, i in rows],
        }
    )


def files(target="t", sources=(), **sizes):
    made = files_of("hand", RealTable("", rows_of, target, sources), rows_of(**sizes))
    return {site: [*csv.DictReader(text.splitlines())] for site, text in made.items()}


def test_the_target_is_last_and_only_the_largest_other_sites_are_sources():
    sizes = dict.fromkeys("abcdef", 20) | {"c": 19, "t": 40}
    assert [*files(**sizes)] == ["a", "b", "d", "e", "f", "t"]
    assert [*files(sources=("f", "c"), **sizes)] == ["c", "f", "t"]


def test_files_are_cut_and_only_the_target_has_parts_with_their_share_of_classes():
    made = files(s=900, t=500)
    assert {site: len(rows) for site, rows in made.items()} == {"s": 750, "t": 450}
    assert [*made["s"][0]] == ["age", "label"]
    parts = {part: [row["label"] for row in made["t"] if row["split"] == part] for part in ("train", "test")}
    ill = sum(row["label"] == "ill" for row in made["t"])
    assert (len(parts["train"]), len(parts["test"])) == (150, 300)
    assert parts["train"].count("ill") == pytest.approx(ill / 3, abs=1)


def test_a_missing_cell_is_empty_and_rows_without_a_label_are_left_out():
    rows = rows_of(s=12, t=12)
    rows.loc[0, "label"] = None
    made = files_of("hand", RealTable("", rows_of, "t"), rows)["s"].splitlines()[1:]
    assert len(made) == 11
    assert sorted(line.split(",")[0] for line in made)[:3] == ["", "", ""]
    assert "40.125" in {line.split(",")[0] for line in made}


@pytest.mark.parametrize("labels", [[*"abc"] * 40, [i / 7 for i in range(101)]])
def test_a_split_takes_a_half_from_all_parts_of_the_order(labels):
    random.Random(0).shuffle(labels)
    parts = split_of(labels)
    trained = sorted(label for label, part in zip(labels, parts, strict=True) if part == "train")
    assert len(trained) == len(labels) // 2
    assert all(trained.count(label) in (labels.count(label) // 2, 1) for label in set(trained))


def test_the_same_rows_have_the_same_bytes_and_another_table_is_named(monkeypatch):
    table = RealTable("numpy", rows_of, "t")
    one, other = (files_of("hand", table, rows_of(s=size, t=40)) for size in (800, 801))
    assert one == files_of("hand", table, rows_of(s=800, t=40))
    monkeypatch.setitem(tables.DIGESTS, "hand", digest(one))
    check("hand", table, digest(one))
    for package, remedy in {
        "numpy": "numpy [0-9.]+ is not.*install",
        "": "these files is not.*again",
    }.items():
        with pytest.raises(ConfigError, check=names("table", "hand"), match=remedy):
            check("hand", RealTable(package, rows_of, "t"), digest(other))


def test_the_experiment_has_each_table_with_its_target():
    experiment = read_experiment("board_tables")
    columns = {column.label: column.settings for column in experiment.columns}
    assert [*columns] == [*REAL_TABLES] == [*DIGESTS]
    for name, table in REAL_TABLES.items():
        settings = columns[name]
        *sources, target = settings["dataset_options"]["domains"].split(",")
        assert settings["target"] == target == f"{name}/{file_of(table.target)}"
        assert (settings["dataset_options"].get("task") == "regression") == table.regression
        if table.sources:
            assert sources == sorted(f"{name}/{file_of(site)}" for site in table.sources)
