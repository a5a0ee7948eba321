"""Whole runs with several labels of each sample: heads, masks, every site a target, predictions, refusals."""

import csv
from typing import Any

import numpy as np
import pytest
import torch
from sites import run_sites, write_table
from torch.nn.functional import binary_cross_entropy_with_logits

from fda_flower import ConfigError, RunConfig, load, run
from fda_flower.clients.training import LocalTraining, mean_loss, training_loss
from fda_flower.datasets import Samples
from fda_flower.datasets.folders import OPTIONS_FILE
from fda_flower.metrics import measure
from fda_flower.prediction.export import Probabilities
from fda_flower.prediction.new_samples import from_csv, write_predictions
from fda_flower.reporting.summary import summarise
from fda_flower.runs.model_folder import own_test_set

LABELS = ("effusion", "edema", "nodule")
COLUMNS = ("age", "crp", "bmi")


def write(folder, domains="abcd", rows=120):
    """Sites whose labels follow from two columns, and one from none."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate(domains):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(rows, 3))
        held = np.stack(
            [x[:, 0] + x[:, 1] > 0, x[:, 1] + 0.2 * rng.normal(size=rows) > 0.8, rng.random(rows) < 0.3],
            axis=1,
        ).astype(int)
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([[*COLUMNS, *LABELS], *np.hstack([x.round(4), held]).tolist()])
    return folder


def settings_of(folder, **more):
    options = {"domains": "a,b,c,d", "task": "multilabel", "label": ",".join(LABELS)}
    given = {"dataset": "table", "data_dir": str(folder), "dataset_options": options, "device": "cpu"}
    return given | {"target": "d", "target_samples": 40, "rounds": 1, "method": "ridge"} | more


@pytest.fixture(scope="module")
def of_table(tmp_path_factory):
    """A run of ridge, its folder and its result."""
    folder = tmp_path_factory.mktemp("several")
    return folder, run(**settings_of(write(folder / "data")), output=folder / "run")


def test_a_run_tells_each_label_and_its_mean_is_the_headline(of_table):
    _, result = of_table
    record = result.history[-1]
    table = record["labels"]["labels"]
    assert [*table] == [*LABELS]
    assert record["auroc"] == pytest.approx(np.mean([each["auroc"] for each in table.values()]))
    assert (table["effusion"]["auroc"] > 0.9, table["edema"]["auroc"] > 0.85) == (True, True)
    summary = summarise(result.history, "auroc")
    assert (summary["baseline"]["auroc"], summary["labels"]) == (0.5, table)
    assert summary["baseline"]["brier"] > record["brier"]
    assert record["judged-in"] == "auroc"
    assert record["ridge"]["held-out"] > record["ridge"]["held-out-target"] - 0.1


def test_its_model_predicts_a_probability_of_each_label_alone(of_table, tmp_path):
    folder, result = of_table
    model = load(folder / "run")
    assert model.classes_.tolist() == [*LABELS]
    new = from_csv(model, folder / "data/a.csv", labelled=True)
    assert (new.samples.task, new.samples.y.shape) == ("multilabel", (120, 3))
    write_predictions(model, new, tmp_path / "p.csv")
    header, first, *_ = csv.reader((tmp_path / "p.csv").read_text().splitlines())
    assert header == ["line", *(f"p({label})" for label in LABELS)]
    table = np.genfromtxt(folder / "data/a.csv", delimiter=",", names=True)
    columns = {name: table[name] for name in COLUMNS}
    shares = model.predict_proba(columns)
    np.testing.assert_allclose([float(cell) for cell in first[1:]], shares[0], rtol=1e-4)
    rows = torch.tensor(np.stack([columns[name] for name in sorted(COLUMNS)], axis=1))
    graph = Probabilities(model)
    assert graph.names == ["probabilities"]
    np.testing.assert_allclose(graph(rows.to(graph.dtype))[0].numpy(), shares, atol=1e-5)
    own = own_test_set(model, folder / "run", None)
    again = measure(model.outputs(own.samples), own.samples.y, "multilabel")
    assert again["auroc"] == pytest.approx(result.history[-1]["auroc"], abs=1e-6)


def test_a_label_becomes_a_prediction_only_by_its_users_threshold(of_table):
    model = load(of_table[0] / "run")
    columns = {name: [0.5] for name in COLUMNS}
    for call, thing in ((model.predict, "model"), (model.predict_set, "coverage")):
        with pytest.raises(ConfigError) as refused:
            call(columns)
        assert refused.value.thing == thing


def test_masked_sums_and_sites_of_their_own_give_the_same_head(of_table, tmp_path):
    folder, result = of_table
    expected = result.history[-1]["auroc"]
    masked = run(**settings_of(folder / "data", method_options={"secure": True}), output=tmp_path / "masked")
    assert masked.history[-1]["auroc"] == pytest.approx(expected, abs=0.01)
    nodes: Any = []
    for name in "abcd":
        place = tmp_path / name
        place.mkdir()
        (place / f"{name}.csv").write_bytes((folder / f"data/{name}.csv").read_bytes())
        (place / OPTIONS_FILE).write_text(f'task = "multilabel"\nlabel = "{",".join(LABELS)}"')
        role = "target" if name == "d" else "source"
        nodes.append({"domain": name, "role": role, "data-dir": str(place), "require-secure": False})
    settings = settings_of(folder / "data") | {"data_dir": None}
    _, history = run_sites(RunConfig(**settings), nodes)
    assert history[-1]["auroc"] == pytest.approx(expected, abs=1e-6)
    assert [*history[-1]["labels"]["labels"]] == ["0", "1", "2"]  # names of columns stay at the site


def test_every_site_can_be_a_target(of_table, tmp_path):
    result = run(**settings_of(of_table[0] / "data", target="all"), output=tmp_path / "run")
    sites = result.history[-1]["sites"]
    assert [*sites] == [*"abcd"]
    assert {"alone", "with-others", "gain"} <= sites["a"].keys()


def test_methods_that_train_take_the_cross_entropy_of_each_label(of_table, tmp_path):
    outputs, y = torch.randn(9, 3), (torch.rand(9, 3) > 0.5).float()
    samples = Samples(np.zeros((9, 1), np.float32), y.numpy(), what="multilabel")
    loss = training_loss(samples, LocalTraining(0.1, 4))(outputs, y)
    assert torch.equal(loss, binary_cross_entropy_with_logits(outputs, y))
    assert mean_loss(outputs, samples) == pytest.approx(float(loss), rel=1e-6)
    settings = settings_of(of_table[0] / "data", method="fedavg", rounds=3, learning_rate=0.05)
    assert run(**settings, output=tmp_path / "run").history[-1]["auroc"] > 0.6


@pytest.mark.parametrize(
    ("settings", "thing", "word"),
    [
        ({"method": "mixture"}, "method", "a single label of each sample"),
        ({"method": "knn-per"}, "method", "needs classes"),
        ({"method": "kd3a"}, "method", "needs classes"),
        ({"method": "pfedfda"}, "method", "needs classes"),
        ({"method": "fedavg", "class_weights": "balanced"}, "class-weights", "has no classes"),
        ({"method_options": {"paths": "logistic"}}, "paths", "no classes"),
        ({"metric": "accuracy"}, "metric", "for several labels"),
        (
            {"dp_unit": "patient", "dp_group": "row", "dp_noise": 1.0},
            "dp-unit",
            "no noise of each patient yet",
        ),
    ],
)
def test_what_needs_classes_is_refused_in_words(settings, thing, word, of_table, tmp_path):
    with pytest.raises(ConfigError, match=word) as refused:
        run(**settings_of(of_table[0] / "data", **settings), output=tmp_path / "run")
    assert refused.value.thing == thing


def test_a_label_of_one_column_is_refused_with_the_option(tmp_path):
    write_table(tmp_path / "a.csv", 0)
    write_table(tmp_path / "b.csv", 1)
    with pytest.raises(ConfigError, match="label=effusion,edema"):
        run(dataset="table", data_dir=str(tmp_path), dataset_options={"task": "multilabel"}, output=tmp_path)
