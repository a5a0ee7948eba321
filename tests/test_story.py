"""From nothing to predictions for new samples, in the commands of docs/own-data.md, by two persons."""

import csv
import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fda_flower.cli import main

pytestmark = pytest.mark.slow


@pytest.fixture
def fda(capsys, monkeypatch, tmp_path):
    """Call `fda` in an empty folder with what is printed in the documentation; nothing may go wrong."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("FDA_DATA_DIR", raising=False)

    def call(command):
        monkeypatch.setattr("sys.argv", shlex.split(command))
        with pytest.raises(SystemExit) as caught:
            main()
        said, errors = capsys.readouterr()
        assert (caught.value.code, errors) == (0, ""), said + errors
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


def test_four_hospitals(fda):
    sizes = {"cleveland": 240, "hungary": 240, "switzerland": 100, "va": 200}
    for i, (name, count) in enumerate(sizes.items()):
        write_rows(Path(f"hospitals/{name}.csv"), patients(i, count, 1000 * i), columns=6)
    fresh = list(patients(3, 80, 9000))
    write_rows(Path("new.csv"), fresh, columns=5)
    options = " ".join(
        f"--dataset-option {each}"
        for each in ("label=diagnosis", "group=patient", "missing=mean", "categorical=onehot")
    )
    checked = fda(f"fda data check hospitals {options}")
    command = checked.splitlines()[-1]
    assert command == f"fda run --dataset table {options} --data-dir hospitals"
    fda(f"{command} --validation 0.2 --output runs/hospitals")
    assert "80 predictions" in fda("fda predict runs/hospitals --csv new.csv --keep patient")
    fda("fda report runs/hospitals --html")
    assert "<html" in Path("runs/hospitals/report.html").read_text(encoding="utf-8")[:200]
    found = rows_of("predictions.csv")
    assert [row["patient"] for row in found] == [row[0] for row in fresh]
    assert np.mean([row["prediction"] == new[-1] for row, new in zip(found, fresh, strict=True)]) > 0.75
    chosen = json.loads(Path("runs/hospitals/selected/model.json").read_text())["round"]
    said = fda("fda predict runs/hospitals/selected --csv new.csv --output chosen.csv")
    assert f"The model is of round {chosen}" in said
    assert len(rows_of("chosen.csv")) == 80


def photograph(path, seed, light):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).normal(light, 30, (24, 32, 3)).clip(0, 255).astype(np.uint8)
    Image.fromarray(pixels).save(path)


def test_a_folder_of_images(fda):
    kinds = {"ant": 60, "bee": 160}
    for i, place in enumerate(("north", "south", "west")):
        for kind, light in kinds.items():
            for number in range(40):
                photograph(Path(f"photos/{place}/{kind}/{number}.png"), 100 * i + number, light + 15 * i)
    for number in range(10):
        photograph(Path(f"new-photos/{number}.png"), 1000 + number, [90, 190][number % 2])
    command = fda("fda data check photos").splitlines()[-1]
    assert command == "fda run --dataset images --data-dir photos"
    said = fda(f"{command} --rounds 8 --output runs/photos")
    assert "for images of 24x32 in 3 channels" in said
    assert "10 predictions" in fda("fda predict runs/photos --images new-photos")
    fda("fda report runs/photos --html")
    found = {row["file"]: row["prediction"] for row in rows_of("predictions.csv")}
    assert found == {f"{number}.png": ["ant", "bee"][number % 2] for number in range(10)}
