"""Damaged and malicious files: a run goes on with the same bits or not at all, and the reason is in words."""

import shutil
from contextlib import suppress
from dataclasses import fields

import numpy as np
import pytest
from handmade import HandMade, initial, moves, weights
from whole_runs import untimed

from fda_flower import load
from fda_flower.datasets.numbers import to_numbers
from fda_flower.datasets.problems import Problems
from fda_flower.errors import FdaError
from fda_flower.files import DESCRIPTION, MODEL
from fda_flower.own_data.table_files import read_table
from fda_flower.prediction import About, Single, write_model
from fda_flower.records.verification import verify
from fda_flower.strategies import FedAvg, RunFolder
from fda_flower.wire.internals import task_identity

pytestmark = pytest.mark.usefixtures("in_a_run")

SEEDS = [range(12), pytest.param(range(12, 200), marks=pytest.mark.slow)]
FILES = ["config.json", "rounds.jsonl", "checkpoint"]
DAMAGE = {
    "bit": lambda data, rng, at: data[:at] + bytes([data[at] ^ 1 << int(rng.integers(8))]) + data[at + 1 :],
    "cut": lambda data, rng, at: data[:at],
    "gap": lambda data, rng, at: data[:at] + data[at + int(rng.integers(1, 40)) :],
    "more": lambda data, rng, at: data[:at] + rng.bytes(int(rng.integers(1, 40))) + data[at:],
    "twice": lambda data, rng, at: data[:at] + data,
    "noise": lambda data, rng, at: rng.bytes(at),
    "nested": lambda data, rng, at: b"[" * 100_000,
}


def fed_avg(folder, rounds, **options):
    """Run so many rounds by hand."""
    nodes = [("source", "a", moves(0.5, domain="a")), ("target", "t", moves(0.25, "target", "t"))]
    strategy = FedAvg(output=RunFolder(folder, {"seed": 0}, **options), average="ema:0.5")
    return weights(strategy.start(HandMade(nodes).grid(), initial(), rounds)), strategy.history


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of three rounds, and one of five."""
    place = tmp_path_factory.mktemp("runs")
    with task_identity():
        fed_avg(place / "three", 3)
        return place / "three", fed_avg(place / "five", 5)


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_folder_is_found_and_resumed_with_the_same_bits_or_refused(
    name, damage, seeds, whole, tmp_path
):
    three, (model, history) = whole
    good = (three / name).read_bytes()
    for seed in seeds:
        rng = np.random.default_rng([seed, len(good)])
        bad = DAMAGE[damage](good, rng, int(rng.integers(len(good))))
        if bad.rstrip() == good.rstrip():
            continue
        folder = shutil.copytree(three, tmp_path / str(seed))
        (folder / name).write_bytes(bad)
        with suppress(FdaError):
            assert verify(folder).problems, seed
        try:
            resumed, found = fed_avg(folder, 5, resume=True)
        except FdaError:
            assert (folder / name).read_bytes() == bad, "nothing is lost that somebody could mend"
        else:
            assert resumed.tobytes() == model.tobytes()
            assert untimed(found) == untimed(history)


ABOUT = About(method="fedavg", domain="t", network="logistic", shape=(3,), classes=2, round=1, rounds=2)
LAYERS = {"1.weight": np.ones((2, 3), np.float32), "1.bias": np.zeros(2, np.float32)}
JUNK: list = [None, True, -1, 0, 0.5, 1e308, 10**30, "", "x" * 1000, "../../x", "os:system", "a\nb"]
JUNK += [[], [[]], {}, {"a": 1}, ["x"], [-1], [10**9, 10**9], {"kind": "x"}, [None] * 3, {"network": [1]}]


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("name", [MODEL, DESCRIPTION])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_model_is_loaded_as_it_was_or_refused(name, damage, seeds, tmp_path):
    write_model(tmp_path, ABOUT, Single(LAYERS))
    good = (tmp_path / name).read_bytes()
    expected = load(tmp_path).predict(np.eye(3, dtype=np.float32))
    for seed in seeds:
        rng = np.random.default_rng([seed, len(good)])
        (tmp_path / name).write_bytes(DAMAGE[damage](good, rng, int(rng.integers(len(good)))))
        with suppress(FdaError):
            found = load(tmp_path).predict(np.eye(3, dtype=np.float32))
            np.testing.assert_array_equal(found, expected)


CSV = 'sep=;\r\n\r\nname;"age; years";label\r\n' + "".join(
    f'"P{i} ""ö""";{i}.5;{i % 2}\r\n' for i in range(9)
)


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("kind", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "xlsx"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_table_is_read_row_by_row_or_refused(kind, damage, seeds, tmp_path):
    path = tmp_path / f"a.{kind}"
    if kind == "xlsx":
        book = pytest.importorskip("openpyxl").Workbook()
        for i in range(9):
            book.active.append(["name", i, None, 0.5])
        book.save(path)
    else:
        path.write_text(CSV, encoding=kind)
    good = path.read_bytes()
    for seed in seeds:
        rng = np.random.default_rng([seed, len(good)])
        path.write_bytes(DAMAGE[damage](good, rng, int(rng.integers(len(good)))))
        problems = Problems()
        with suppress(FdaError):
            table = read_table(path, problems=problems)
            assert {len(cells) for cells in table.texts.values()} == {len(table.lines)}
            assert (np.diff(table.lines) > 0).all()
            to_numbers([text for cells in table.texts.values() for text in cells])


@pytest.mark.parametrize("field", [field.name for field in fields(About)])
def test_a_model_whose_description_is_anything_is_loaded_or_refused(field, tmp_path):
    for value in JUNK:
        write_model(tmp_path, About(**{**vars(ABOUT), field: value}), Single(LAYERS))
        with suppress(FdaError):
            load(tmp_path).predict(np.eye(3, dtype=np.float32))
