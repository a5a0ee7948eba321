"""Ridge's clients: a source's sums and the target's head, in numbers of their own."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Message, RecordDict
from naming import names
from tensors import tensors

from fda_flower.aggregation import (
    Kind,
    Sums,
    fit_logistic,
    fit_ridge,
    fit_temperature,
    to_rows,
    to_targets,
    with_kinds,
)
from fda_flower.aggregation.halves import random_halves
from fda_flower.aggregation.mixture import log_softmax
from fda_flower.aggregation.sums import pack
from fda_flower.aggregation.units import Units
from fda_flower.clients import (
    LocalTraining,
    SourceClient,
    TargetClient,
    ridge_reply,
)
from fda_flower.clients.private_state import PrivateState
from fda_flower.clients.ridge_numpy import Labelled, fit_target
from fda_flower.clients.ridge_sites import fit_site
from fda_flower.clients.secure_sums import masked_sums
from fda_flower.datasets import DataSpec, load_federation
from fda_flower.datasets.preparation import TablePreparation
from fda_flower.errors import ConfigError, RunError
from fda_flower.metrics import measure
from fda_flower.models import Train, build_model
from fda_flower.models.split import split
from fda_flower.wire.asked.ridge import FitHead, FitSiteHead, SumRows
from fda_flower.wire.asked.secure_sums import MaskSums
from fda_flower.wire.protocol import Keys, TrainRequest, to_record

CLASSES, REGRESSION = DataSpec("digits", "rotate", target_samples=30), DataSpec("rbf", target_samples=20)


def network(data):
    torch.manual_seed(0)
    return split(build_model("logistic", data.shape, data.classes, 0), Train("linear"), data.shape).trainable


def client(kind, spec, name):
    data = load_federation(spec)
    return kind(data.domains[name], network(data), LocalTraining(0.01, 8))


def rows_and_targets(domain, classes):
    x, y = domain.train.x, domain.train.y
    plain = np.hstack([x / x.shape[1] ** 0.5, np.ones((len(x), 1))]) if x.ndim == 2 else None
    rows = to_rows(x.reshape(len(x), -1)) if plain is None else plain
    return rows, (to_targets(y, classes) if y.dtype.kind == "i" else y.astype(np.float64))


def ask(found, question, config=None, records=None):
    config = {"server-round": 1, **(config or {})}
    return found.train_reply(TrainRequest(to_record(found.layers()), config, records or {}, question))


def message_with(question):
    model = to_record({"weight": np.zeros((2, 3)), "bias": np.zeros(2)})
    request = TrainRequest(model, {"server-round": 1}, question=question)
    return Message(request.content(Keys()), 2, question.message_type())


def sources_of(spec):
    data = load_federation(spec)
    return data, [name for name in sorted(data.domains) if name != data.target]


@pytest.mark.parametrize("spec", [CLASSES, REGRESSION])
def test_a_source_sends_its_sums_and_the_model_as_it_came(spec):
    data, (name, *_) = sources_of(spec)
    source = client(SourceClient, spec, name)
    before = source.layers()
    reply = ask(source, SumRows(noise=True))
    rows, targets = rows_and_targets(data.domains[name], data.classes)
    assert reply.examples == len(rows)
    for key, array in Sums.of(rows, targets).to_arrays().items():
        np.testing.assert_allclose(reply.answer.sums[key], array, rtol=1e-4, atol=1e-4)
    assert reply.arrays.keys() == before.keys()
    assert all(np.array_equal(reply.arrays[key], array) for key, array in before.items())
    assert dict(reply.metrics) == {}


@pytest.mark.parametrize("paths", ["both", "shrunk", "sources"])
@pytest.mark.parametrize("spec", [CLASSES, REGRESSION])
def test_the_target_fits_its_head_and_tells_how_good_it_is(spec, paths):
    data, others = sources_of(spec)
    sites = [Sums.of(*rows_and_targets(data.domains[name], data.classes)) for name in others]
    total = Sums.total(sites, sites[0].products.shape[0], data.classes)
    scale = total.scale if spec is REGRESSION else (np.zeros(1), np.ones(1))
    solution = total.scaled(*scale).solution()
    start = {"gram": total.gram, "solution": solution}
    start |= dict(zip(("mean", "deviation"), scale, strict=True)) if spec is REGRESSION else {}
    target = client(TargetClient, spec, data.target)
    reply = ask(target, FitHead(paths=paths, start=start))
    rows, y = rows_and_targets(data.domains[data.target], data.classes)
    scaled = (y - scale[0]) / scale[1]
    fit = fit_ridge(rows, scaled, solution, total.whole, paths)
    labels = data.domains[data.target].train.y
    sigma = 1.0 if spec is REGRESSION else fit_temperature(fit.held_out, labels)
    told: Any = reply.answer
    assert told.temperature == pytest.approx(sigma)
    outputs = sigma * (rows @ fit.head * scale[1] + scale[0])
    target.load(reply.arrays)
    with torch.no_grad():
        found = target.model.eval()(tensors(data.domains[data.target].train)[0])
    np.testing.assert_allclose(found.numpy(), outputs, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(list(told.weights.values()), fit.weights, atol=1e-4)
    held_out = fit.held_out * scale[1] + scale[0]
    if spec is CLASSES:
        figure = (held_out.argmax(axis=1) == labels).mean()
    else:
        figure = 1 - np.square(held_out - labels).sum() / np.square(labels - labels.mean(axis=0)).sum()
    assert told.held_out == pytest.approx(figure, abs=1e-3)
    assert (told.fewest_labels is not None) == (spec is CLASSES)
    assert reply.arrays.get("rows.power", 1) == 1


@pytest.mark.parametrize(("paths", "classes"), [("both", 3), ("logistic", 3), ("shrunk", None)], ids=str)
def test_a_target_tells_what_halves_of_its_labels_predict_for_the_others(paths, classes):
    rng = np.random.default_rng(0)
    x, y = np.hstack([rng.normal(size=(40, 4)), np.ones((40, 1))]), rng.integers(3, size=40)
    x[np.arange(40), y] += 1
    labels = y if classes else 5 + 2.0 * rng.normal(size=(40, 2)) + x[:, :2]
    scale = {} if classes else {"mean": np.full(2, 4.0), "deviation": np.full(2, 3.0)}
    solution = rng.normal(size=(5, 3 if classes else 2))
    start = {"solution": solution, **scale} | ({"gram": pack(x.T @ x)} if paths == "both" else {})
    patients = np.arange(40) // 2
    own = Labelled(x, labels, classes, [4], patients, seed=7)
    fitted = fit_target(own, FitHead(paths=paths, start=start))
    halves, outputs = random_halves(own.units, paths, 7), []
    for half in halves:
        part = Labelled(x[half], labels[half], classes, [4], patients[half])
        outputs.append(x[~half] @ fit_target(part, FitHead(paths=paths, start=start)).head)
    figure = measure(np.concatenate(outputs), np.concatenate([labels[~half] for half in halves]), own.task)[
        "accuracy" if classes else "r2"
    ]
    assert len(halves) == (5 if paths == "logistic" else 10)
    assert fitted.answer().held_out_half == pytest.approx(figure, abs=1e-9)
    also = replace(own, unlabelled=rng.normal(size=(9, 5)), unlabelled_groups=np.arange(9))
    again = fit_target(also, FitHead(paths=paths, start=start, unlabelled=paths != "logistic"))
    assert again.answer().held_out_half == fitted.answer().held_out_half
    few = replace(own, rows=x[:30], labels=labels[:30], groups=patients[:30])
    assert fit_target(few, FitHead(paths=paths, start=start)).answer().held_out_half is None


@pytest.mark.parametrize("kinds", [1, 2])
def test_a_target_averages_logistic_heads_that_need_no_temperature(kinds):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 4)), rng.integers(3, size=40)
    x[np.arange(40), y] += 2
    own = Labelled(np.hstack([x, np.ones((40, 1))]), y, 3, [4 // kinds] * kinds, np.arange(40) // 2)
    parts = [Kind(rows, rng.normal(size=(rows.shape[1], 3))) for rows in own.kinds]
    start = with_kinds([{"solution": kind.solution} for kind in parts])
    fitted, fit = fit_target(own, FitHead(paths="logistic", start=start)), fit_logistic(parts, y, own.groups)
    outputs = np.sum([kind.rows @ head for kind, head in zip(parts, fit.heads, strict=True)], axis=0)
    np.testing.assert_allclose(own.rows @ fitted.head, outputs, atol=1e-12)
    told, sources = fitted.answer(), np.sum([kind.rows @ kind.solution for kind in parts], axis=0)
    figures = [each.argmax(axis=1) == y for each in (fit.held_out, fit.held_out_alone, sources)]
    assert (told.held_out, told.held_out_target, told.held_out_sources) == tuple(np.mean(figures, axis=1))
    assert (told.temperature, told.share, told.weights) == (1, fit.share, fit.weights)
    assert len(told.kinds) == (0 if kinds == 1 else 2)
    assert told.fewest_labels == Units.of(40, own.groups).of_class(y).min()
    scores = np.sort(1 - np.exp(fit.held_out[np.arange(40), y]))
    calibration = fitted.calibration(own)
    assert calibration is not None
    np.testing.assert_allclose(np.sort(calibration.scores.ravel()), scores)


@pytest.mark.parametrize("paths", ["both", "logistic"])
def test_held_out_labels_are_judged_in_the_runs_metric(paths):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(200, 3)), np.arange(200) % 20 == 0
    x[y] += 1
    own = Labelled(np.hstack([x, np.ones((200, 1))]), y.astype(np.int64), 2, [3])
    start = Sums.of(own.rows, own.targets).start(gram=True, scaled=False)
    told = {}
    for metric in (None, "accuracy", "ece", "auroc"):
        fitted = fit_target(own, FitHead(paths=paths, start=start, metric=metric))
        answer = told[metric] = fitted.answer()
        outputs = fitted.held_out["together"] * (1 if paths == "logistic" else answer.temperature)
        figure = measure(outputs, own.labels)[metric or "accuracy"]
        if metric == "auroc":  # as leaving out a label moves the level of a head
            assert answer.held_out == pytest.approx(figure, abs=0.01)
        else:
            assert answer.held_out == pytest.approx(figure)
    assert told[None] == told["accuracy"] != told["auroc"]
    regression = Labelled(own.rows, own.targets, None, [3])
    answer = fit_target(regression, FitHead(paths="target", start=start, metric="rmse")).answer()
    assert answer.held_out == answer.held_out_target
    assert (answer.held_out or 0) > 0


@pytest.mark.parametrize(("paths", "factor"), [("logistic", 3), ("both", 8)])
def test_a_site_with_too_few_labels_has_the_others_head_at_its_usual_scale(paths, factor):
    (x, y, _), (rest, labels, _) = with_coins(1), with_coins(2)
    own, others = (Sums.of(rows, to_targets(of, 2)) for rows, of in ((x[:4], y[:4]), (rest, labels)))
    site = Labelled(x[:4], y[:4], 2, [20], np.zeros(4))
    fitted = fit_site(site, [own + others], [own], paths)
    np.testing.assert_allclose(fitted.head, factor * others.solution(), atol=1e-9)
    assert (fitted.numbers, fitted.alone) == ({"share": 1.0}, None)


@pytest.mark.usefixtures("in_a_run")
def test_logistic_heads_have_classes():
    message = message_with(FitHead(paths="logistic", start={"solution": np.zeros((4, 2))}))
    with pytest.raises(ConfigError, check=names("paths", "logistic", "leave it out")):
        ridge_reply(message, to_rows(np.eye(3)), np.array([[0.5, 1.0], [1.5, 2.0], [1.0, 0.0]]))


def with_coins(seed, patients=30, rows=4, columns=20):
    """Nearly equal rows of patients, whose labels are drawn by a coin."""
    rng = np.random.default_rng(seed)
    centres, coins = rng.normal(size=(patients, columns)), rng.integers(2, size=patients)
    of = np.repeat(np.arange(patients), rows)
    x = centres[of] + 0.01 * rng.normal(size=(len(of), columns))
    return np.hstack([x / np.sqrt(columns), np.ones((len(of), 1))]), coins[of], of


@pytest.mark.parametrize("paths", ["both", "logistic"])
def test_of_coins_neither_the_held_out_figure_nor_sets_know_anything(paths):
    """By rows the figure would be 100%, with those of a patient on both sides, and sets hold in a sixth."""
    found = []
    for seed in range(24):
        (other, y, _), (rows, labels, of) = (with_coins(100 * k + seed) for k in (1, 2))
        start = Sums.of(other, to_targets(y, 2)).start(gram=True, scaled=False)
        known, new = of < 24, of >= 24
        own = Labelled(rows[known], labels[known], 2, [20], of[known])
        fitted = fit_target(own, FitHead(paths=paths, start=start))
        calibration = fitted.calibration(own)
        assert calibration is not None
        assert calibration.units == 24
        scores = 1 - np.exp(log_softmax(rows[new] @ fitted.head))[np.arange(new.sum()), labels[new]]
        covered = scores <= calibration.thresholds(0.9, 2)[labels[new]]
        found.append((fitted.numbers["held_out"], covered.mean()))
    held_out, coverage = np.mean(found, axis=0)
    assert 0.4 <= held_out <= 0.6
    assert coverage >= 0.85


@pytest.mark.usefixtures("in_a_run")
def test_a_project_of_its_own_names_a_patient_for_each_row_and_numbers_its_classes():
    rows, y, of = with_coins(0, patients=4)
    start = Sums.of(rows, to_targets(y, 2)).start(gram=True, scaled=False)
    model = to_record({"weight": np.zeros((2, 20)), "bias": np.zeros(2)})
    request = TrainRequest(
        model, {"server-round": 1}, question=FitHead(paths="both", start=start, unlabelled=True)
    )
    message = Message(request.content(Keys()), 2, FitHead.message_type())
    more: dict[str, Any] = {"groups": of, "unlabelled": rows[:5], "unlabelled_groups": of[:5]}
    assert ridge_reply(message, rows, y, 2, **more).has_content()
    for name, given in (("groups", of[:3]), ("unlabelled_groups", of[:3]), ("unlabelled_groups", None)):
        with pytest.raises(ConfigError, check=names(name, None if given is None else 3, "one for each row")):
            ridge_reply(message, rows, y, 2, **{**more, name: given})
    nameless = np.where(of == of[0], np.nan, of)
    with pytest.raises(ConfigError, check=names("groups", int((of == of[0]).sum()), "name each")):
        ridge_reply(message, rows, y, 2, **{**more, "groups": nameless})
    for labels in (y + 1, y * 0.5, np.where(y, np.nan, 0), y.astype(str)):
        with pytest.raises(ConfigError, match="labels are not all whole numbers from 0 to 1: number the"):
            ridge_reply(message, rows, labels, 2, **more)
    with pytest.raises(ConfigError, check=names("classes", [0, 1], "the number of classes")):
        ridge_reply(message, rows, y, [0, 1], **more)  # type: ignore[arg-type]


def test_a_source_masks_its_sums_as_the_server_asks():
    data, (name, *_) = sources_of(CLASSES)
    source = client(SourceClient, CLASSES, name)
    reply = ask(source, MaskSums(stage="keys"))
    before = source.layers()
    assert all(np.array_equal(reply.arrays[key], array) for key, array in before.items())
    shapes = {key: array.shape for key, array in reply.answer.entries.items()}
    assert shapes == {"sharing": (65,), "masking": (65,)}
    assert reply.examples == len(data.domains[name].train)
    with pytest.raises(RunError, check=names("masked sums", "masked")):
        ask(source, MaskSums(stage="masked"))


@pytest.mark.usefixtures("in_a_run")
def test_a_project_of_its_own_masks_with_the_state_of_the_context():
    rows, labels = to_rows(np.eye(3)), np.array([0, 1, 1])
    message, state = message_with(MaskSums(stage="keys")), RecordDict()
    with pytest.raises(ConfigError, check=names("state")):
        ridge_reply(message, rows, labels, 2)
    reply = ridge_reply(message, rows, labels, 2, state).content
    assert set(reply["answer/entries"]) == {"sharing", "masking"}
    assert "answer/sums" not in reply


@pytest.mark.usefixtures("in_a_run")
@pytest.mark.parametrize(
    ("asked", "thing", "value"),
    [
        (FitSiteHead(paths="both", report="full", total={}), "message", "train.fit_site_head"),
        (MaskSums(stage="keys", over="columns"), "over", "columns"),
    ],
)
def test_a_project_of_its_own_keeps_no_layer_and_standardises_no_columns(asked, thing, value):
    with pytest.raises(ConfigError, check=names(thing, value)):
        ridge_reply(message_with(asked), to_rows(np.eye(3)), np.array([0, 1, 1]), 2)


def test_labels_that_fixed_point_cannot_tell_from_zero_are_not_masked():
    request, labels = TrainRequest(to_record({}), {"server-round": 1}), np.array([[1e-4, 1.0], [1e-4, 0.0]])
    own = PrivateState(RecordDict())
    own.save("secure-sums", {}, {"round": 1, "stage": "shares"})
    with pytest.raises(ConfigError, check=names("labels")):
        masked_sums(request, MaskSums(stage="masked"), own, lambda: [Sums.of(to_rows(np.eye(2)), labels)])


def test_a_table_has_no_limit_for_what_a_patient_changes():
    data, (name, *_) = sources_of(CLASSES)
    table = TablePreparation.fit({"age": [50.0, 70.0]}, train=np.array([0, 1]))
    for preparation, limited in ((None, True), (table, False)):
        domain = replace(data.domains[name], preparation=preparation)
        source = SourceClient(domain, network(data), LocalTraining(0.01, 8))
        noise = {"mean-noise": to_record({"noise": np.zeros(domain.train.x[0].size + 1)})}
        sums = ask(source, SumRows(noise=True), {"of-patients": True}, noise).answer.sums
        assert ("change" in sums) is limited


def test_a_site_does_not_send_sums_that_protect_patients_where_they_are_of_no_use():
    with pytest.raises(ConfigError, check=names("dp-unit", "patient")):
        ask(client(SourceClient, CLASSES, "target"), SumRows(noise=False), {"of-patients": True})
