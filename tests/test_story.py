"""From nothing to predictions for new samples, in the commands of docs/own-data.md, by a hospital."""

import csv
import shlex
from pathlib import Path

import numpy as np
import pytest
import tomli_w


@pytest.fixture
def call(fda, monkeypatch, tmp_path):
    """Call `fda` in an empty folder with what is printed in the documentation; nothing may go wrong."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("FDA_DATA_DIR", raising=False)

    def call(command):
        code, said, errors = fda(*shlex.split(command)[1:])
        assert (code, errors) == (0, ""), said + errors
        return said

    return call


def patients(seed, count, first):
    """Rows of two visits of each patient, with words and gaps; who is older or has pressure is ill."""
    random = np.random.default_rng(seed)
    for i in range(count):
        age, pressure = random.normal(60, 10), random.normal(130 + seed, 15)
        kind = ("typical", "atypical", "none")[random.integers(3)]
        ill = (age - 60) / 10 + (pressure - 130 - seed) / 15 + (kind == "typical") > 0.3
        yield [
            f"P{first + i // 2:04d}",
            str(round(age)),
            "fm"[random.integers(2)],
            "" if random.random() < 0.05 else kind,
            "" if random.random() < 0.1 else f"{pressure:.0f}",
            "ill" if ill else "healthy",
        ]


def write_rows(path, rows, columns):
    path.parent.mkdir(exist_ok=True)
    header = ["patient", "age", "sex", "cp", "trestbps", "diagnosis"][:columns]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *(row[:columns] for row in rows)])


def rows_of(path):
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_four_hospitals(call, by_the_rule):
    sizes = {"cleveland": 240, "hungary": 240, "switzerland": 100, "va": 200}
    for i, (name, count) in enumerate(sizes.items()):
        write_rows(Path(f"hospitals/{name}.csv"), patients(i, count, 1000 * i), columns=6)
    fresh = list(patients(3, 80, 9000))
    write_rows(Path("new.csv"), fresh, columns=5)
    options = {"label": "diagnosis", "group": "patient", "missing": "mean", "categorical": "onehot"}
    Path("hospitals/fda.toml").write_text(tomli_w.dumps(options))
    command = call("fda data check hospitals").splitlines()[-1]
    assert command == "fda run --dataset table --data-dir hospitals --method ridge"
    call(f"{command} --output runs/hospitals")
    assert "80 predictions" in call("fda predict runs/hospitals --csv new.csv --keep patient")
    call("fda report runs/hospitals --html")
    assert "<html" in Path("runs/hospitals/report.html").read_text(encoding="utf-8")[:200]
    found = rows_of("predictions.csv")
    assert [row["patient"] for row in found] == [row[0] for row in fresh]
    assert np.mean([row["prediction"] == new[-1] for row, new in zip(found, fresh, strict=True)]) > 0.75
