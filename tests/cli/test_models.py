"""`fda predict`, `fda evaluate` and `fda export`, as a person calls them."""

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from fda_flower import load
from fda_flower.cli.app import app
from fda_flower.errors import FdaError
from fda_flower.metrics import interval
from fda_flower.prediction import Single, read_model, write_model


def fda(*arguments: object) -> str:
    done = CliRunner().invoke(app, list(map(str, arguments)))
    if isinstance(done.exception, FdaError):
        return str(done.exception)
    assert done.exit_code == 0, done.output
    return done.output


def rows_of(name: str = "predictions.csv") -> list[dict[str, str]]:
    with Path(name).open(newline="") as file:
        return list(csv.DictReader(file))


def test_rows_are_predicted_with_their_lines_and_what_is_kept(table_run):
    Path("new.csv").write_text("patient,height,age\np1,0.5,1\n\np2,-1,2\n")
    says = fda("predict", table_run, "--csv", "new.csv")
    assert "columns patient" in says
    assert "--keep (it needs age, height)" in says
    verdict, said = fda("predict", table_run, "--csv", "new.csv", "--keep", "patient").splitlines()
    assert (verdict.startswith("The run: "), said.startswith("2 predictions.")) == (True, True)
    assert "than naming the most frequent class" in verdict
    first, second = rows_of()
    assert list(first) == ["line", "patient", "prediction", "p(0)", "p(1)"]
    assert (first["line"], first["patient"], second["line"]) == ("2", "p1", "4")
    model, columns = load(table_run), {"age": [1.0, 2.0], "height": [0.5, -1.0]}
    assert [first["prediction"], second["prediction"]] == model.predict(columns).tolist()
    found = [[float(row["p(0)"]), float(row["p(1)"])] for row in rows_of()]
    np.testing.assert_allclose(found, model.predict_proba(columns), atol=1e-5)


def test_what_is_given_is_never_lost(table_run):
    Path("new.csv").write_text("height,age\n0.5,1\n")
    given = Path("new.csv").read_bytes()
    Path("link.csv").symlink_to("new.csv")
    for output in ("new.csv", "./new.csv", "link.csv"):
        assert "choose another --output" in fda("predict", table_run, "--csv", "new.csv", "--output", output)
    for column in ("prediction", "line"):
        Path("own.csv").write_text(f"{column},height,age\nill,0.5,1\n")
        says = fda("predict", table_run, "--csv", "own.csv", "--keep", column)
        assert f"column {column} to keep" in says
    assert Path("new.csv").read_bytes() == given
    assert not Path("predictions.csv").exists()


def test_every_page_of_a_run_of_patients_has_the_same_interval(run_in):
    """Two samples of each of 20 patients; the test set has four of them."""

    def write(path, i):
        rows = [f"P{j // 2},{(j // 2) % 2 + j % 5},{j % 3 + i},{(j // 2) % 2}" for j in range(40)]
        path.with_suffix(".csv").write_text("\n".join(["patient,age,height,label", *rows]))

    run = run_in(write, dataset="table", dataset_options={"group": "patient"}, method="ridge")
    (record,) = map(json.loads, (run / "rounds.jsonl").read_text().splitlines())
    assert (record["test-examples"], record["test-units"]) == (8, 4)
    ends = interval("accuracy", record["accuracy"], record["test-effective"])
    assert ends is not None
    summary = json.loads((run / "summary.json").read_text())
    assert summary["interval"] == list(ends)
    (line,) = (each for each in fda("evaluate", run, "--json").splitlines() if each.startswith("{"))
    own = json.loads(line)
    assert (own["intervals"]["accuracy"], own["units"]) == (list(ends), 4)
    between, of = " to ".join(f"{end:.1%}" for end in ends), "8 test samples of 4 patients"
    assert f"(95% interval: {between}), 8 samples of 4 patients\n" in fda("evaluate", run)
    assert fda("evaluate", run, "--csv", run.parent / "c.csv").endswith("40 samples of 20 patients\n")
    fda("report", run, "--html")
    fda("report", run, "--card")
    for text in ((run / "README.md").read_text(), (run / "report.html").read_text()):
        assert of in text
        assert f"95% interval {between}" in text
    assert of in fda("predict", run, "--csv", run.parent / "c.csv")


def test_a_files_own_labels_or_the_test_set_judge_the_model(table_run):
    recorded = json.loads((table_run / "rounds.jsonl").read_text().splitlines()[-1])
    own = fda("evaluate", table_run)
    assert f"accuracy: {100 * recorded['accuracy']:.1f}% (95% interval: " in own
    assert own.endswith("8 samples\n")
    assert "than naming the most frequent class" in own
    whole = fda("evaluate", table_run, "--csv", table_run.parent / "c.csv")
    assert whole.endswith("40 samples\n")
    fda("predict", table_run, "--csv", table_run.parent / "c.csv")
    labels = [row["label"] for row in rows_of(str(table_run.parent / "c.csv"))]
    right = np.mean([row["prediction"] == label for row, label in zip(rows_of(), labels, strict=True)])
    assert f"accuracy: {100 * right:.1f}%" in whole


def test_noise_is_drawn_as_in_the_run(digits_run):
    recorded = json.loads((digits_run / "rounds.jsonl").read_text().splitlines()[-1])
    assert f"accuracy: {100 * recorded['accuracy']:.1f}%" in fda("evaluate", digits_run)
    assert "450 predictions" in fda("predict", digits_run, "--data-dir", ".", "--output", "a/b.csv")
    assert rows_of("a/b.csv")[0]["sample"] == "0"
    assert "no named columns" in fda("predict", digits_run, "--csv", "new.csv")
    assert "no named images" in fda("predict", digits_run, "--images", ".")


def test_images_are_predicted_by_file_and_judged_by_folder(image_run):
    folder = shutil.copytree(image_run.parent / "c", "images")
    Path("images/ant/notes.txt").touch()
    said = fda("predict", image_run, "--images", folder)
    assert "1 .txt, such as 'ant/notes.txt'" in said
    assert rows_of()[0]["file"] == "ant/0.png"
    fda("predict", image_run)
    assert {Path(row["file"]).parent for row in rows_of()} == {
        image_run.parent / "c" / name for name in ("ant", "bee")
    }
    assert fda("evaluate", image_run, "--images", folder).endswith("20 samples\n")
    Path("images/bee").rename("images/wasp")
    assert "ant, bee" in fda("evaluate", image_run, "--images", folder)
    Path("empty").mkdir()
    assert "'empty'" in fda("predict", image_run, "--images", "empty")
    assert "'nowhere'" in fda("predict", image_run, "--images", "nowhere")


def test_what_cannot_work_is_said(table_run, tmp_path):
    Path("new.csv").write_text("age,height\n1,2\n")
    Path("labelled.csv").write_text("age,height,label\n1,2,9\n")
    assert "nowhere.csv" in fda("predict", table_run, "--csv", "nowhere.csv")
    assert "--csv and --images are given" in fda("predict", table_run, "--csv", "a", "--images", "b")
    assert "keep is 'a'" in fda("predict", table_run, "--keep", "a")
    assert "has no column label" in fda("evaluate", table_run, "--csv", "new.csv")
    assert "0, 1" in fda("evaluate", table_run, "--csv", "labelled.csv")
    copied = shutil.copytree(table_run, "copy")
    Path("copy/config.json").unlink()
    assert "config.json' cannot be read" in fda("evaluate", copied)


def test_data_of_another_form_are_refused(table_run):
    copy = shutil.copytree(table_run, "copy")
    about, predictor, _ = read_model(table_run)
    arrays = predictor.parts.networks["network"]
    layers = {name: np.resize(array, (3, *array.shape[1:])) for name, array in arrays.items()}
    write_model(Path(copy), replace(about, classes=3, class_names=()), Single(layers))
    said = fda("evaluate", copy)
    assert "the run's data have 2 classes and samples of shape (2,), its model has 3" in said


def test_a_run_that_is_not_finished_or_a_model_of_the_server_is_said(table_run, quick_export):
    about, predictor, _ = read_model(table_run)
    write_model(Path("server"), replace(about, holder="server", preparation=None, round=1), predictor)
    said = fda("export", "server")
    assert "The run is not finished: the model is from round 1 of 2." in said
    Path("new.csv").write_text("age,height\n1,2\n")
    assert "stays at the target: predict there" in fda("predict", "server", "--csv", "new.csv")
    said = fda("export", table_run)
    assert "Input: rows of 2 features as float32, in a table's units; a category is 1 or 0." in said
    assert "Written to model.onnx" in said
    assert Path("model.onnx").exists()


def test_a_regression_has_a_column_for_each_number_in_the_unit_of_the_label(regression_run, patients_run):
    fda("predict", regression_run)
    assert list(rows_of()[0])[:3] == ["sample", "prediction-1", "prediction-2"]
    assert "R²: " in fda("evaluate", regression_run)
    recorded = json.loads((patients_run / "rounds.jsonl").read_text().splitlines()[-1])
    assert f"RMSE: {recorded['rmse']:.3f}" in fda("evaluate", patients_run)


def test_a_chosen_or_stopped_model_is_said_and_finds_its_runs_data(quick_export):
    small = (
        "--device cpu --model mlp --sources 2 --target-samples 60 --rounds 9 --validation 0.2 --patience 1"
    )
    said = fda("run", *small.split(), "--learning-rate", "1e-6", "--method", "fedavg", "--output", "run")
    assert "chosen by held-out labels); stopped after" in " ".join(said.split())
    chosen = json.loads(Path("run/rounds.jsonl").read_text().splitlines()[-1])["selected"]
    said = fda("evaluate", "run/selected")
    assert f"The model is from round {chosen}, chosen by held-out labels." in said
    assert said.endswith("450 samples\n")
    stopped = f"The run stopped early, after round {chosen + 1} of 9."
    assert stopped in fda("predict", "run")
    Path("run/config.json").unlink()
    assert "The run is not finished" in fda("export", "run")
