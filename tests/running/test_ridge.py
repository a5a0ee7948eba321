"""Whole runs of Ridge: on any data, in one round, as a model like any other."""

from typing import Any

import numpy as np
import pytest
from naming import names
from sites import write_sites, write_table
from whole_runs import check_same

from fda_flower import RunConfig, run
from fda_flower.aggregation import Kind, Sums, fit_logistic, fit_ridge, to_rows, to_targets
from fda_flower.datasets import load_federation
from fda_flower.errors import ConfigError
from fda_flower.prediction.model import load
from fda_flower.runs.network import all_data

DIGITS: dict[str, Any] = {"shift": "rotate", "device": "cpu", "seed": 1, "target_samples": 30}

PIXELS: dict[str, Any] = {**DIGITS, "model": "logistic"}

FIRST = {"unlabelled": False}
"""Options of a fit without the target's samples without labels."""


def inputs(samples):
    return samples.x.reshape(len(samples), -1), samples.y


def in_one_place(settings, power=1.0):
    """The target's rows and labels, and the sources' sums, from the data in one place."""
    data = all_data(RunConfig(method="ridge", **settings))
    made = {
        name: (to_rows(inputs(domain.train)[0], power), to_targets(inputs(domain.train)[1], data.classes))
        for name, domain in sorted(data.domains.items())
    }
    rows, _ = made.pop(data.target)
    total = Sums.total((Sums.of(*each) for each in made.values()), rows.shape[1], data.classes)
    return rows, inputs(data.domains[data.target].train)[1], total


def by_hand(settings, power=1.0, **options):
    """The fraction of the test set that is right, computed from the data in one place."""
    data, (rows, labels, total) = (
        all_data(RunConfig(method="ridge", **settings)),
        in_one_place(settings, power),
    )
    targets = to_targets(labels, data.classes)
    fit = fit_ridge(rows, targets, total.solution(), total.whole, **options)
    x, y = inputs(data.domains[data.target].test)
    return fit, ((to_rows(x, power) @ fit.head).argmax(axis=1) == y).mean()


PATHS = ("shrunk", "pooled", "target")


@pytest.mark.parametrize("options", [{}, *({"paths": each} for each in PATHS)], ids=str)
def test_a_run_has_the_head_of_the_same_data_in_one_place(options):
    result = run(**PIXELS, method="ridge", method_options={**FIRST, **options})
    fit, accuracy = by_hand(PIXELS, **options)
    (record,) = result.history
    assert result.accuracies == [pytest.approx(100 * accuracy, abs=0.3)]
    entry = record["ridge"]
    np.testing.assert_allclose(list(entry["weights"].values()), fit.weights, atol=1e-3)
    weight, bias = (result.model[f"head.{name}"] for name in ("weight", "bias"))
    head = np.vstack([weight.T, bias]) / entry["temperature"]
    np.testing.assert_allclose(head, fit.head, atol=1e-3)
    assert (record["held"], record["dropped"]) == (None, [])


def test_a_run_has_the_logistic_heads_of_the_same_data_in_one_place(tmp_path):
    settings = {**PIXELS, "method": "ridge", "method_options": {"paths": "logistic"}}
    result = run(**settings, output=tmp_path / "run")
    rows, labels, total = in_one_place(PIXELS)
    fit = fit_logistic([Kind(rows, total.solution())], labels)
    head = np.vstack([result.model["head.weight"].T, result.model["head.bias"]])
    np.testing.assert_allclose(head, fit.heads[0], atol=1e-3)
    (record,) = result.history
    assert record["ridge"]["weights"] == pytest.approx(fit.weights, abs=1e-3)
    assert (record["held"], "unlabelled" in record["ridge"]) == (None, False)
    test, model = all_data(result.config).domains["target"].test, load(tmp_path / "run")
    sets = model.predict_set(test.x, coverage=0.9)
    assert sets[np.arange(len(test)), test.y].mean() > 0.8


def test_random_filters_and_samples_without_labels_are_recorded_and_help(tmp_path):
    first = run(**PIXELS, method="ridge", method_options=FIRST)
    second = run(**DIGITS, method="ridge", output=tmp_path / "run")
    assert second.config.model == "logistic+conv3x64"
    entry, rest = second.history[0]["ridge"], all_data(second.config).domains["target"].unlabelled
    assert rest is not None
    assert (sum(entry["kinds"]), entry["unlabelled"]) == (pytest.approx(1), len(rest))
    assert 0 <= entry["unlabelled-share"] <= 1
    assert not {"kinds", "unlabelled", "unlabelled-share"} & first.history[0]["ridge"].keys()
    assert second.accuracies[0] > first.accuracies[0]
    test, model = load_federation(second.config.data).domains["target"].test, load(tmp_path / "run")
    right = model.predict(test.x) == test.y
    assert 100 * right.mean() == pytest.approx(second.accuracies[0])
    certain = model.predict_proba(test.x).max(axis=1).mean()
    assert certain == pytest.approx(right.mean(), abs=0.1), "they are calibrated"


def test_every_site_takes_kinds_and_samples_without_labels():
    settings: dict[str, Any] = {**DIGITS, "method": "ridge", "target": "all", "target_samples": 20}
    result, plain = run(**settings), run(**settings, method_options=FIRST)
    (record,) = result.history
    assert (record["held"], record["dropped"]) == (None, [])
    assert result.accuracies[0] >= plain.accuracies[0] - 2


def test_noise_for_each_patient_is_on_the_first_kind_alone():
    private: dict[str, Any] = {
        "dp_unit": "patient",
        "dp_group": "row",
        "dp_noise": 1.0,
        "dp_open_target": True,
    }
    result = run(**DIGITS, method="ridge", **private)
    weight = result.model["head.weight"]
    assert weight[:, :64].any()
    assert not weight[:, 64:].any()


def test_several_networks_are_for_one_linear_layer():
    with pytest.raises(ConfigError, check=names("train", "head")):
        run(**DIGITS, method="fedavg", model="conv3x64+logistic")


def test_features_of_a_frozen_body_may_be_random():
    settings = {**DIGITS, "model": "cnn", "train": "head"}
    _, accuracy = by_hand(settings, power=0.5)
    result = run(**settings, method="ridge", method_options=FIRST)
    assert result.accuracies == [pytest.approx(100 * accuracy, abs=0.3)]
    assert result.model["rows.power"] == 0.5


def test_more_rounds_are_not_run_and_a_run_is_resumed(tmp_path):
    whole = run(**DIGITS, method="ridge", rounds=30, output=tmp_path / "run")
    assert len(whole.history) == 1
    again = run(**DIGITS, method="ridge", rounds=40, output=tmp_path / "run", resume=True)
    check_same(whole, again)
    with_warmup = run(**DIGITS, method="ridge", warmup_rounds=1).model  # whose network PyTorch trains
    for name, array in whole.model.items():
        np.testing.assert_allclose(np.float64(with_warmup[name]), np.float64(array), rtol=0, atol=1e-5)


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_masked_sums_give_the_same_head_up_to_fixed_point(workers):
    plain = run(**DIGITS, method="ridge")
    masked = run(**DIGITS, method="ridge", method_options={"secure": True}, workers=workers)
    (record,) = masked.history
    assert (record["held"], record["dropped"], record["ridge"]["secure"]) == (None, [], True)
    for name, array in plain.model.items():
        np.testing.assert_allclose(np.float64(masked.model[name]), np.float64(array), atol=1e-5)
    assert masked.accuracies == plain.accuracies


def test_numbers_and_tables(tmp_path):
    numbers = run(dataset="rbf", method="ridge", device="cpu", target_samples=16)
    assert np.isfinite(numbers.scores()).all()
    assert {"held-out", "held-out-target", "held-out-sources"} <= numbers.history[0]["ridge"].keys()
    assert numbers.history[0]["ridge"]["temperature"] == 1
    write_sites(write_table, tmp_path, "abc")
    options = {"domains": "a,b,c", "classes": "0,1"}
    settings: dict[str, Any] = {"dataset": "table", "dataset_options": options, "target": "c"}
    settings |= {"data_dir": str(tmp_path), "method": "ridge", "device": "cpu"}
    assert np.isfinite(run(**settings).scores()).all()
    with pytest.raises(ConfigError, match="the mean of each column", check=names("dp-unit", "patient")):
        run(**settings, dp_unit="patient", dp_group="row", dp_noise=1.0, dp_open_target=True)
