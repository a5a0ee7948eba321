"""`fda data check`, `fda run`, `fda predict` and `fda evaluate` say the same of the same file."""

import shutil
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from datasets.arrow_dataset import Dataset
from datasets.features import ClassLabel
from PIL import Image

ROW = 5
"""The line that holds the fault."""


def line(number, old, new):
    """A change of one line of a table's bytes."""

    def changed(text):
        lines = text.split(b"\n")
        lines[number - 1] = lines[number - 1].replace(old, new, 1)
        return b"\n".join(lines)

    return changed


TABLES = {
    "an underscore": (line(ROW, b".", b"_"), f"line {ROW}", "age"),
    "a hexadecimal": (line(ROW, b".", b"x"), f"line {ROW}", "age"),
    "a number too large": (line(ROW, b",", b"e999,"), f"line {ROW}", "age"),
    "an infinity": (line(ROW, b",", b",inf,"), f"line {ROW}", ""),
    "a unit": (line(ROW, b",", b" mmHg,"), f"line {ROW}", "age"),
    "no value": (line(ROW, b".", b",."), f"line {ROW}", ""),
    "a stray quote": (lambda text: text.replace(b"\n", b'\n"', 1), "line 2", ""),
    "another encoding": (line(ROW, b",", b"\xe4,"), "utf-8", ""),
    "a column without a name": (
        lambda text: text.replace(b"\n", b",1\n").replace(b",1\n", b",\n", 1) + b",1",
        "without a name",
        "",
    ),
    "a column twice": (line(1, b"height", b"age"), "age, age", ""),
    "another case": (line(1, b"age", b"Age"), "Age", ""),
}


def four(fda, dataset, folder, bad, run, option, *given):
    """What the four commands say of a file or folder that a run uses, too; all of them must refuse it."""
    own = ("--dataset", dataset, *given)
    calls = {
        "check": ("data", "check", folder, *own),
        "run": ("run", *own, "--data-dir", folder, "--rounds", "1", "--output", "refused"),
        "predict": ("predict", run, option, bad),
        "evaluate": ("evaluate", run, option, bad),
    }
    said = {}
    for name, call in calls.items():
        code, out, error = fda(*call)
        assert code, (name, out, error)
        said[name] = out + error
        assert "Traceback" not in said[name], name
    assert not Path("refused").exists()
    return said


@pytest.mark.parametrize("fault", TABLES)
def test_of_a_table(fda, table_run, fault):
    change, place, column = TABLES[fault]
    folder = Path("hospitals")
    folder.mkdir()
    for name in "abc":
        shutil.copy(table_run.parent / f"{name}.csv", folder)
    bad = folder / "b.csv"
    bad.write_bytes(change(bad.read_bytes()))
    for name, said in four(fda, "table", folder, bad, table_run, "--csv").items():
        assert all(each in said for each in (place, column)), (name, said)


def saved(image, kind="PNG", **options):
    """The bytes of an image file."""
    stream = BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


PICTURE = Image.effect_noise((8, 8), 99)
DECIMALS, NEGATIVE = (Image.fromarray(np.full((8, 8), -1, kind)) for kind in (np.float32, np.int32))

IMAGES = {
    "half a file": (saved(PICTURE)[:60], "get it again"),
    "an empty file": (b"", "is empty"),
    "a text": (b"no image", "get it again"),
    "several frames": (saved(PICTURE, save_all=True, append_images=[Image.new("L", (8, 8))]), "2 frames"),
    "several pages": (saved(PICTURE, "TIFF", save_all=True, append_images=[PICTURE]), "2 frames"),
    "decimals": (saved(DECIMALS, "TIFF"), "scale it"),
    "negative values": (saved(NEGATIVE, "TIFF"), "scale it"),
    "colours of another kind": (saved(Image.new("LAB", (8, 8)), "TIFF"), "LAB"),
}


def shown(text):
    """What is said, without the line breaks of a narrow terminal."""
    return " ".join(text.split())


@pytest.mark.parametrize("fault", IMAGES)
def test_of_an_image(fda, image_run, fault):
    content, word = IMAGES[fault]
    folder = Path("photos")
    for name in "abc":
        shutil.copytree(image_run.parent / name, folder / name)
    (folder / "b/bee/3.png").write_bytes(content)
    for name, said in four(fda, "images", folder, folder / "b", image_run, "--images").items():
        assert all(each in shown(said) for each in ("bee/3.png", word)), (name, said)


def test_of_a_data_set_of_hugging_face(fda):
    made = {"age": [float(i % 7) for i in range(60)], "site": ["abc"[i % 3] for i in range(60)]}
    labels = [i % 2 for i in range(60)]
    for name, changed in (("good", {}), ("bad", {ROW - 1: -1})):
        rows = {**made, "label": [changed.get(i, label) for i, label in enumerate(labels)]}
        Dataset.from_dict(rows).cast_column("label", ClassLabel(names=["dog", "cat"])).save_to_disk(name)
    given = ("--dataset-option", "domain=site")
    code, _, error = fda(
        "run", "--dataset", "hf", "--data-dir", "good", *given, "--rounds", "1", "--output", "r"
    )
    assert code == 0, error
    for name, said in four(fda, "hf", "bad", "bad", "r", "--data-dir", *given).items():
        assert all(each in said for each in ("no label", f"line {ROW}", "label")), (name, said)
