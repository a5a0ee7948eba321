"""New rows as the run's own were written: words, gaps, commas, an encoding, columns that are no features."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyreadstat
import pytest
from formats import WRITERS, write_as
from medical import dicom
from naming import names
from PIL import Image

from fda_flower import ConfigError, load, run
from fda_flower.client_app import forget
from fda_flower.datasets import heart
from fda_flower.errors import as_cell
from fda_flower.prediction.new_samples import from_csv, from_images, write_predictions
from fda_flower.runs.model_folder import own_test_set


def written(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="cp1252")
    return path


def test_a_file_like_the_runs_own_is_predicted_without_a_word(patients_run, tmp_path):
    model = load(patients_run)
    own = from_csv(model, patients_run.parent / "c.csv", keep=["patient"])
    assert own.names["patient"][:3] == ["P0", "P0", "P1"]
    columns = {
        "größe": [float("nan") if i % 7 == 3 else i + 0.5 for i in range(40)],
        "sex": ["fm"[i % 2] for i in range(40)],
    }
    np.testing.assert_array_equal(own.samples.x, model.samples(columns).x)
    array = np.array([columns[name] for name in model.feature_names_in_.tolist()], dtype=object).T
    np.testing.assert_array_equal(own.samples.x, model.samples(array).x)
    bare = from_csv(model, written(tmp_path / "new.csv", "sex;größe\nf;\n;2,5\n"))
    assert np.isfinite(bare.samples.x).all()
    assert (bare.notes, bare.samples.y.tolist()) == (
        ("missing values, filled in as in training: größe 1, sex 1",),
        [-1, -1],
    )
    lacking = model.samples({"größe": [None, 2.5], "sex": ["f", None]})
    np.testing.assert_array_equal(bare.samples.x, lacking.x)


def test_a_column_far_from_training_is_noted_in_a_file_and_in_python(patients_run, tmp_path, caplog):
    model, text = load(patients_run), "sex;größe\nf;1700\nm;1,5\nf;1650\nm;1810\n"
    (note,) = from_csv(model, written(tmp_path / "new.csv", text)).notes
    model.samples({"sex": [*"fmfm"], "größe": [1700, 1.5, 1650, 1810]})
    assert caplog.messages == [note]
    assert "größe (1.65e+03, in training" in note
    assert from_csv(model, written(tmp_path / "new.csv", text.replace("1810", "8,5"))).notes == ()


@pytest.mark.parametrize(
    ("text", "place", "remedy"),
    [
        ("größe;sex\n1,5;x\n", "line 2, column 'sex'", "the model knows f, m"),
        ("größe;sex\nmuch;f\n", "line 2, column 'größe'", "without a word or a unit"),
        ("größe;sex\n1,5;f\n1.5;f\n", "line 3, column 'größe'", "write a comma for decimals"),
        ("größe;sex\n1_5;f\n", "line 2, column 'größe'", "without a word or a unit"),
        ("größe;sex;risk\n1;f;high\n", "line 2, column 'risk'", ""),
        ('age,height\n1,"1,5"\n', "line 2, column 'height'", "write a point for decimals"),
        ("age,height\n1,?\n", "line 2, column 'height'", "train with missing=mean"),
    ],
)
def test_a_cell_that_cannot_be_used_is_named(text, place, remedy, patients_run, table_run, tmp_path):
    path = written(tmp_path / "new.csv", text)
    with pytest.raises(ConfigError, match=place, check=names("data file", path, remedy)):
        from_csv(load(patients_run if ";" in text else table_run), path, labelled="risk" in text)


def test_a_row_of_empty_cells_is_predicted_or_refused(patients_run, table_run, tmp_path):
    path = written(tmp_path / "new.csv", "größe;sex\n1,5;f\n;\n2,5;m\n")
    new = from_csv(load(patients_run), path)
    assert (len(new.samples), new.names) == (3, {"line": ["2", "3", "4"]})
    path = written(tmp_path / "new.csv", "age,height\n1,2\n,\n3,4\n")
    with pytest.raises(ConfigError, match="line 3", check=names("data file", path)):
        from_csv(load(table_run), path)


def test_an_excel_file_is_read_like_the_csv_file_of_it(patients_run, tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in [["sex", "größe"], ["f", 1.234], ["m", 2], [None, None], ["f", None]]:
        book.active.append(row)
    book.save(tmp_path / "new.xlsx")
    model = load(patients_run)
    expected = from_csv(model, written(tmp_path / "new.csv", "sex;größe\nf;1,234\nm;2\n;\nf;\n"))
    np.testing.assert_array_equal(from_csv(model, tmp_path / "new.xlsx").samples.x, expected.samples.x)


def test_a_column_that_the_model_does_not_know_is_named(patients_run, tmp_path):
    path = written(tmp_path / "new.csv", "größe;sex;weight\n1;f;2\n")
    with pytest.raises(ConfigError, check=names("columns", "weight")):
        from_csv(load(patients_run), path)
    path = written(tmp_path / "new.csv", "Größe;sex\n1;f\n")
    with pytest.raises(ConfigError, match="did you mean 'Größe'", check=names("column", "größe")):
        from_csv(load(patients_run), path)


def test_a_regression_is_in_the_unit_of_its_label(patients_run):
    model = load(patients_run)
    new = from_csv(model, patients_run.parent / "c.csv", labelled=True)
    labels = model.labels(new.samples.y)[:, 0]
    np.testing.assert_allclose(labels, [1000.5 + 10 * i for i in range(40)], rtol=1e-5)
    predicted = model.predictions(model.outputs(new.samples))
    assert np.abs(predicted - labels).mean() < 100, "the network itself predicts numbers about 0"
    last = json.loads((patients_run / "rounds.jsonl").read_text().splitlines()[-1])
    assert last["mae"] > 5, "in the unit of the label, whose deviation is 115"
    assert last["rmse"] == pytest.approx(115 * last["loss"] ** 0.5, rel=0.02)
    assert last["r2"] > 0.8


def test_predicted_numbers_that_begin_alike_are_written_with_the_digits_in_which_they_differ(
    patients_run, tmp_path
):
    model = load(patients_run)
    scale = {"label_mean": 1e9, "label_deviation": 2.0}
    model.about = replace(model.about, preparation={**(model.about.preparation or {}), **scale})
    new = from_csv(model, patients_run.parent / "c.csv")
    write_predictions(model, new, tmp_path / "out.csv")
    written = [float(line.rpartition(",")[2]) for line in (tmp_path / "out.csv").read_text().splitlines()[1:]]
    np.testing.assert_allclose(written, model.predictions(model.outputs(new.samples)), rtol=0, atol=1e-5)


def test_a_hospital_of_the_heart_data_gives_its_own_columns(tmp_path):
    """Pain and electrocardiogram as it has them, and not a column for each of their levels."""
    rows = [
        f"{40 + i},{i % 2},{1 + i % 4},{120 + i},200,0,{i % 3},150,0,1.5,1,0,3,{i % 2}" for i in range(40)
    ]
    for name in heart.FILES.values():
        written(tmp_path / "heart_disease" / f"processed.{name}.data", "\n".join(rows))
    folder = tmp_path / "run"
    run(dataset="heart", data_dir=str(tmp_path), method="target-only", rounds=1, device="cpu", output=folder)
    model = load(folder)
    lines = [row.split(",") for row in rows]
    header = ("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak")
    csv = "\n".join([",".join((*header, "label")), *(",".join((*line[:10], line[13])) for line in lines)])
    as_floats = csv.replace(",4,", ",4.0,").replace(",1\n", ",1.0\n")
    new = from_csv(model, written(tmp_path / "new.csv", as_floats), labelled=True)
    assert new.samples.x.shape == (40, 13)
    notes = json.loads((folder / "config.json").read_text())
    notes["settings"]["batches"] = "even"  # a setting that runs no longer have
    written(folder / "config.json", json.dumps(notes))
    own = own_test_set(model, folder).samples
    assert {*map(tuple, own.x.tolist())} < {*map(tuple, new.samples.x.tolist())}
    place = tmp_path / "heart_disease" / f"processed.{[*heart.FILES.values()][-1]}.data"
    written(place, "\n".join(f"1{row}" for row in rows))
    forget()
    with pytest.raises(ConfigError, match="changed since the run", check=names(str(folder))):
        own_test_set(model, folder)
    assert new.samples.y.tolist() == [i % 2 for i in range(40)]
    columns = {name: [float(line[i]) for line in lines] for i, name in enumerate(header)}
    np.testing.assert_array_equal(model.samples(columns).x, new.samples.x)
    other = written(tmp_path / "new.csv", f"{','.join(header)}\n{'9,' * 9}9\n")
    known = names("data file", other, "the model knows 1, 2, 3, 4")
    with pytest.raises(ConfigError, match="line 2, column 'cp'", check=known):
        from_csv(model, other)
    other = written(tmp_path / "new.csv", f"{','.join(header)}\n{'1,' * 9}1\n")
    with pytest.raises(ConfigError, check=names("column", "label", "it has age")):
        from_csv(model, other, labelled=True)


def test_images_of_16_bits_are_scaled_as_in_training_or_refused(image_run, tmp_path):
    model = load(image_run)
    preparation: Any = model.preparation
    path = tmp_path / "xray.png"
    Image.fromarray(np.full((8, 8), 4095, np.uint16)).save(path)
    assert preparation.depth == 8
    with pytest.raises(ConfigError, check=names("image", path, "8 bits")):
        _ = from_images(model, tmp_path).samples.x[:]
    for depth, white, told in ((12, 255, 0), (16, 15, 1)):
        model.preparation = replace(preparation, depth=depth)
        new = from_images(model, tmp_path)
        assert np.unique(new.samples.x[:]).tolist() == [white]
        assert len(new.notes) == told


@pytest.mark.parametrize("shape", [(8, 8), (2, 8, 8)])
def test_a_new_image_that_an_option_would_read_is_not_as_in_training(image_run, tmp_path, shape):
    """Commands for new samples have no such option."""
    pytest.importorskip("pydicom")
    path, model = tmp_path / "x.dcm", load(image_run)
    path.write_bytes(dicom(np.full(shape, 3000), NumberOfFrames=len(shape) - 1))
    with pytest.raises(ConfigError, check=names("image", path, "as the run's images")):
        model.outputs(from_images(model, tmp_path).samples)


@pytest.mark.parametrize(("group", "place"), [("folder", "{}/{}.png"), ("^([^_]+)_", "{}_{}.png")])
def test_new_images_are_of_patients_as_in_training_and_may_lie_anywhere_without_labels(
    image_run, tmp_path, group, place
):
    model = load(image_run)
    model.about = replace(model.about, dataset_options={**model.about.dataset_options, "group": group})
    for label, patient, view in (("ant", "p2", 0), ("ant", "p2", 1), ("ant", "p1", 0), ("bee", "p3", 0)):
        path = tmp_path / label / place.format(patient, view)
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (view, 0, 0)).save(path)
    new = from_images(model, tmp_path, labelled=True)
    assert sorted(zip(new.samples.y.tolist(), new.samples.groups.tolist(), strict=True)) == [
        *((0, 0), (0, 1), (0, 1), (1, 2))
    ]
    Image.new("RGB", (8, 8)).save(tmp_path / "bee" / "x.png")
    assert len(from_images(model, tmp_path).samples) == 5
    with pytest.raises(ConfigError, match=r"bee/x\.png", check=names("folder", tmp_path)):
        from_images(model, tmp_path, labelled=True)


def test_new_rows_are_of_patients_if_the_column_is_there_and_else_it_is_said(patients_run, tmp_path):
    model, own = load(patients_run), patients_run.parent / "c.csv"
    new = from_csv(model, own, labelled=True)
    assert new.samples.units == 20
    lines = own.read_text(encoding="cp1252").splitlines()
    cut = [line.split(";") for line in lines]
    where = cut[0].index("patient")
    bare = written(tmp_path / "bare.csv", "\n".join(";".join(row[:where] + row[where + 1 :]) for row in cut))
    told = from_csv(model, bare, labelled=True)
    assert told.samples.groups is None
    assert "'group'" in told.notes[-1]
    assert from_csv(model, bare).notes == told.notes[:-1]
    lacking = [*cut]
    lacking[3] = [*cut[3][:where], "", *cut[3][where + 1 :]]
    gap = written(tmp_path / "gap.csv", "\n".join(map(";".join, lacking)))
    with pytest.raises(ConfigError, match="no patient in line 4", check=names("data file", gap)):
        from_csv(model, gap, labelled=True)


def test_a_file_in_place_of_a_folder_of_images_is_named_so(image_run):
    path = image_run / "model.json"
    with pytest.raises(ConfigError, match="is a file", check=names("folder", path, "a folder with images")):
        from_images(load(image_run), path)


@pytest.mark.parametrize("text", ["=1+1", "+1+1", "-x", "@SUM(1)", "\t=1", "-1.5e"])
def test_a_text_that_a_spreadsheet_would_run_gets_an_apostrophe(text):
    assert as_cell(text) == f"'{text}"


@pytest.mark.parametrize("value", ["-1.5", "+2,5e-3", "-7", "+", "-", "healthy", "", 3, -0.5])
def test_numbers_and_other_texts_stay_what_they_are(value):
    assert as_cell(value) == value


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_new_table_of_any_format_is_predicted_alike(suffix, table_run, tmp_path):
    model, table = load(table_run), pd.DataFrame({"age": [1.5, -2.0], "height": [0.25, 3.0]})
    new = from_csv(model, write_as(tmp_path / f"new{suffix}", table))
    np.testing.assert_array_equal(new.samples.x, model.samples(dict(table)).x)


def test_a_column_that_cannot_be_read_is_named_with_a_remedy_for_new_rows(table_run, tmp_path):
    table, path = pd.DataFrame({"age": [1.5, 9.0], "height": [0.25, 3.0]}), tmp_path / "new.sav"
    pyreadstat.write_sav(table, str(path), missing_ranges={"age": [9]})
    with pytest.raises(ConfigError, match="declares as missing", check=names("data file", path, "as CSV")):
        from_csv(load(table_run), path)
