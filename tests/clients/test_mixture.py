"""Mixture's target: against the definition written out once more, and what it keeps and sends."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from digit_clients import evaluated, mixture_of, mlp, normalised, same, state_of, trained
from flwr.app import ArrayRecord, RecordDict
from safetensors.numpy import load_file
from tensors import tensors

from fda_flower.aggregation import (
    blend,
    fit_mixture,
    functional_distance,
    gradient_similarity,
    prior_outputs,
    stratified_folds,
)
from fda_flower.clients import LocalTraining, MixturePlan, TargetClient
from fda_flower.clients.mixture import Mixing
from fda_flower.clients.training import mean_gradient, repeatable
from fda_flower.datasets import DataSpec, load_federation
from fda_flower.files import derive_seed
from fda_flower.wire.asked.mixture import MixtureReport

SPEC = DataSpec("digits", "rotate", target_samples=30, source_samples=60, test_samples=80)
RBF = DataSpec("rbf", None, target_samples=24, test_samples=50)
TRAINING = LocalTraining(0.01, 7)
SHORT = MixturePlan(epochs=(1, 3))


def trained_on_a_source(data=SPEC):
    """A sources' model that knows something."""
    federation = load_federation(data)
    source = next(domain for name, domain in federation.domains.items() if name != federation.target)
    client = TargetClient(source, mlp(data), LocalTraining(0.01, 16, 4))
    trained(client)
    return client.layers()


def target_of(data=SPEC):
    federation = load_federation(data)
    return federation.domains[federation.target]


def make(domain=None, model=None, training=TRAINING, seed=3, folder=None, state=None):
    domain, model = domain or target_of(), model or mlp()
    return TargetClient(domain, model, training, seed, state=state, own_folder=folder)


def ask(client, now=2, plan=SHORT, sources=None, first=None, begun=1, report="full", **config):
    """The reply to an evaluate message of round `now`."""
    question = mixture_of(plan, first or FIRST, begun, report)
    return evaluated(client, now, sources or SOURCES, question, **config)


FIRST = state_of(mlp())
SOURCES = trained_on_a_source()


class Definition:
    """What the members S, T, F1, F3 and P predict, with loops; how they are weighed is proven elsewhere."""

    def __init__(self, data, sources, first, folds=4, rounds=2, snapshots=(1, 3)):
        self.domain, self.model = target_of(data), mlp(data)
        x, y = self.domain.train.x, self.domain.train.y
        self.regression = y.dtype.kind == "f"
        fold_of = stratified_folds(y, folds, derive_seed(3, "folds"))
        views = [np.flatnonzero(fold_of != v - 1) for v in range(folds + 1)]
        members = {"sources": [sources], "target": [], **{f"tuned-{epochs}": [] for epochs in snapshots}}
        for v, view in enumerate(views):
            own = first
            for number in range(1, rounds + 1):
                own = self.epoch(own, view, "train" if v == 0 else f"target-{v}", number)
            members["target"].append(own)
            tuned = sources
            for number in range(1, snapshots[-1] + 1):
                tuned = self.epoch(tuned, view, f"tuned-{v}", number)
                if number in snapshots:
                    members[f"tuned-{number}"].append(tuned)
        self.held_out = {
            name: np.concatenate(
                [
                    self.outputs(models[fold + 1 if len(models) > 1 else 0], x[i : i + 1])
                    for i, fold in enumerate(fold_of)
                ]
            )
            for name, models in members.items()
        }
        self.mixture, self.fold_of = fit_mixture(self.held_out, y, fold_of), fold_of
        priors = [prior_outputs(y[view], 10) for view in views]
        self.held_out["prior"] = np.concatenate([priors[fold + 1] for fold in fold_of])
        test = self.domain.test
        self.views = {name: [self.outputs(one, test.x) for one in each] for name, each in members.items()}
        self.views["prior"] = [np.repeat(prior, len(test), axis=0) for prior in priors]

    def epoch(self, arrays, view, phase, number):
        self.model.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
        optimizer = torch.optim.Adam(self.model.parameters(), lr=TRAINING.learning_rate)
        seed = derive_seed(3, phase, number, "target")
        order = torch.randperm(len(view), generator=torch.Generator().manual_seed(seed)).tolist()
        loss_of = torch.nn.functional.mse_loss if self.regression else torch.nn.functional.cross_entropy
        for batch in np.array_split(order, math.ceil(len(order) / TRAINING.batch_size)):
            x, y = tensors(self.domain.train.take(view[batch]))
            optimizer.zero_grad()
            loss_of(self.model(x), y).backward()
            optimizer.step()
        return state_of(self.model)

    @torch.no_grad()
    def outputs(self, arrays, x):
        self.model.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
        return self.model(torch.from_numpy(x)).double().numpy()

    def score(self, outputs, y):
        if self.regression:
            return 1 - ((outputs - y) ** 2).sum() / ((y - y.mean(axis=0)) ** 2).sum()
        return (outputs.argmax(axis=1) == y).mean()


@pytest.mark.parametrize("data", [SPEC, RBF], ids=["classes", "regression"])
def test_by_the_definition(data):
    first, sources = state_of(mlp(data)), trained_on_a_source(data)
    with repeatable(0, 1):
        by_hand = Definition(data, sources, first)
    test, labels = by_hand.domain.test.y, by_hand.domain.train.y
    for views in ("all", "full"):
        plan = replace(SHORT, views=views)
        reply = ask(make(target_of(data), mlp(data)), plan=plan, sources=sources, first=first)
        metrics, told = reply.metrics, reply.answer
        assert told.weights == pytest.approx(by_hand.mixture.weights, abs=1e-5)
        assert list(told.weights) == ["sources", "target", "tuned-1", "tuned-3", "prior"]
        assert max(told.weights.values()) > 0.3, "the labels say something"
        assert told.temperatures == pytest.approx(by_hand.mixture.temperatures)
        held_out = {name: by_hand.score(outputs, labels) for name, outputs in by_hand.held_out.items()}
        assert told.held_out == pytest.approx(held_out, abs=1e-5)
        for known, members in ((told.held_out_mixture, by_hand.held_out), (told.held_out_target, ["target"])):
            outputs = {name: by_hand.held_out[name] for name in members if name != "prior"}
            mixture = fit_mixture(outputs, labels, by_hand.fold_of)
            both = mixture.predict({name: [by_hand.held_out[name]] for name in mixture.weights})
            assert known == pytest.approx(by_hand.score(both, labels), abs=1e-5)
        alone = {name: by_hand.score(outputs[0], test) for name, outputs in by_hand.views.items()}
        assert told.test == pytest.approx(alone, abs=1e-5)
        used = {name: outputs[:1] if views == "full" else outputs for name, outputs in by_hand.views.items()}
        predicted = by_hand.mixture.predict(used)
        if by_hand.regression:
            assert metrics["r2"] == pytest.approx(by_hand.score(predicted, test), abs=1e-5)
            assert metrics["loss"] == pytest.approx(((predicted - test) ** 2).mean(), rel=1e-5)
            assert told.alone is None
        else:
            assert metrics["accuracy"] == by_hand.score(predicted, test)
            loss = -np.log(predicted[range(len(test)), test]).mean()
            assert metrics["loss"] == pytest.approx(loss, rel=1e-5)
            assert told.folds == (8, 8, 7, 7)


def models_in(folder):
    """The arrays of each model that a client keeps, by member and view."""
    found = {}
    for key, array in load_file(folder / "mixture.safetensors").items():
        member, view, *name = key.split("/")
        found.setdefault((member, int(view)), {})["/".join(name)] = array
    return found


def test_the_head_is_fine_tuned_alone_and_the_blend_is_feddafs_of_each_view(tmp_path):
    client, labels = make(folder=tmp_path), target_of().train
    told = ask(client, plan=replace(SHORT, members=("head", "blend", "prior"))).answer
    assert list(told.weights) == ["head", "blend", "prior"]
    found, folds = models_in(tmp_path), stratified_folds(labels.y, 4, derive_seed(3, "folds"))
    last = list(SOURCES)[-1]
    for view in range(5):
        changed = {n for n, a in found["head", view].items() if a.tobytes() != SOURCES[n].tobytes()}
        assert changed == set(list(SOURCES)[-2:])
        own, gradients = found["target", view], []
        part = labels.take(torch.from_numpy(np.flatnonzero(folds != view - 1)))
        for arrays in (SOURCES, own):
            client.load(arrays)
            with repeatable(0, 1):
                gradients.append(mean_gradient(client.model, part, LocalTraining(0.1, 7), torch.Generator()))
        _, alpha = functional_distance(gradient_similarity(*gradients), 5.0)
        assert same(found["blend", view], blend(SOURCES, own, alpha, set()))
    assert len({found["head", view][last].tobytes() for view in range(5)}) == 5


# What it keeps


@pytest.fixture
def epochs(monkeypatch):
    """The numbers of the streams and epochs that are trained."""
    seen = []
    train = Mixing._train_on

    def spy(self, model, positions, numbers, stream, **more):
        seen.extend((stream, number) for number in numbers)
        return train(self, model, positions, numbers, stream, **more)

    monkeypatch.setattr(Mixing, "_train_on", spy)
    return seen


OWN = replace(SHORT, members=("sources", "target", "prior"))


def target_with(**train):
    """The target, whose training samples differ."""
    return replace(target_of(), train=replace(target_of().train, **train))


LABELLED = target_of().train
GROUPED = target_with(groups=np.arange(30) // 2)


@pytest.mark.parametrize("where", ["folder", "context"])
def test_its_own_models_go_on_where_they_were_with_the_same_bits(where, tmp_path, epochs):
    kept = {"folder": tmp_path / "kept"} if where == "folder" else {"state": RecordDict()}
    for now in (1, 2, 4):
        later = ask(make(**kept), now, OWN)
    expected = [(f"target-{v}", n) for numbers in ([1], [2], [3, 4]) for v in range(5) for n in numbers]
    assert epochs == expected
    assert ask(make(**kept), 4, OWN, sources=state_of(mlp(seed=5))) != later
    assert ask(make(**kept), 4, OWN) == later, "what is asked again"
    assert epochs == expected, "is answered without training, also with another model of the sources"
    assert ask(make(folder=tmp_path / "new"), 4, OWN) == later
    if where == "folder":
        files = [tmp_path / name / "mixture.safetensors" for name in ("kept", "new")]
        assert same(*map(load_file, files))
        files[0].unlink()
        assert ask(make(**kept), 4, OWN) == later, "where it is lost, it is made again"
        assert same(*map(load_file, files))


def test_a_group_is_in_one_fold_and_the_server_is_told_how_many_there_are(tmp_path):
    client = make(GROUPED, folder=tmp_path)
    assert client.get_properties({})["groups"] == 15
    assert "groups" not in make().get_properties({})
    sizes = ask(client).answer.folds
    assert sum(sizes) == 30
    assert all(size % 2 == 0 for size in sizes)


@pytest.mark.parametrize(
    ("change", "request_"),
    [
        ({"seed": 4}, {}),
        ({"training": replace(TRAINING, learning_rate=0.02)}, {}),
        ({"domain": target_with(y=(LABELLED.y + 1) % 10)}, {}),
        ({"domain": target_with(x=1 - LABELLED.x)}, {}),
        ({"domain": GROUPED}, {}),
        ({}, {"first": state_of(mlp(seed=1))}),
        ({}, {"begun": 2}),
        ({}, {"rate-factor": 0.5}),
        ({}, {"plan": replace(OWN, folds=3)}),
        ({}, {"now": 1}),
    ],
    ids=["seed", "training", "labels", "images", "groups", "first", "begun", "factor", "folds", "earlier"],
)
def test_the_state_of_another_run_is_made_again(change, request_, tmp_path):
    ask(make(folder=tmp_path / "used"), 2, OWN)
    request = {"now": 3, "plan": OWN, **request_}
    found = ask(make(folder=tmp_path / "used", **change), **request)
    assert found == ask(make(folder=tmp_path / "new", **change), **request)
    assert found != ask(make(folder=tmp_path / "used"), 3, OWN)


@pytest.mark.parametrize("number", [1, 2])
def test_the_own_model_of_all_labels_trains_as_the_target_and_a_tuned_one_an_epoch_at_a_time(
    number, tmp_path
):
    training = replace(TRAINING, epochs=number)
    ask(make(folder=tmp_path / "a", training=training), 4, begun=2)
    ask(make(folder=tmp_path / "b"), 4, begun=2)
    alone = FIRST
    for now in (2, 3, 4):
        alone = trained(TargetClient(target_of(), mlp(), training, 3), now, alone).arrays
    found, once = models_in(tmp_path / "a"), models_in(tmp_path / "b")
    assert same(found["target", 0], alone)
    for view in range(5):
        assert same(found["tuned-3", view], once["tuned-3", view])


# What it sends


def test_nothing_but_numbers_leaves_and_if_asked_which_samples_are_right():
    reply = ask(make())
    assert reply.records == {}
    assert {type(value) for value in reply.metrics.values()} <= {int, float}
    assert not any(isinstance(record, ArrayRecord) for record in reply.answer.records().values())
    right = np.unpackbits(ask(make(), outcomes=True).records["outcomes"]["right"], count=80)
    assert right.mean() == pytest.approx(reply.metrics["accuracy"])


def test_no_report_is_no_number_but_the_size_of_the_test_set(tmp_path):
    reply = ask(make(folder=tmp_path), report="none", outcomes=True)
    assert (reply.metrics, reply.records, reply.examples) == ({}, {}, 80)
    assert reply.answer == MixtureReport()
    metrics = reply.content().metric_records["metrics"]
    assert dict(metrics) == {"num-examples": 80}
    assert (tmp_path / "mixture.safetensors").exists(), "but the target has its mixture"


# What may be wrong with the labels or the models


@pytest.mark.parametrize(("labels", "alone"), [([0] * 7 + [1], 1), ([0, 0, 1, 2, 3, 3, 4, 4, 4], 2)])
def test_classes_with_a_single_label_are_allowed_and_counted(labels, alone):
    reply = ask(make(target_with(x=LABELLED.x[: len(labels)], y=np.array(labels))))
    assert (reply.answer.alone, sum(reply.answer.folds)) == (alone, len(labels))
    assert math.isfinite(reply.metrics["loss"])


def test_members_that_diverge_are_left_out_with_a_warning(flower_log):
    reply = ask(make(training=LocalTraining(1e30, 7, optimizer="sgd")))
    for name in ("target", "tuned-1", "tuned-3"):
        assert f"The mixture leaves out '{name}': not all of its outputs are finite" in flower_log.text
        assert name in reply.answer.left_out
        assert name not in reply.answer.weights
    assert reply.answer.weights["sources"] + reply.answer.weights["prior"] == pytest.approx(1)
    assert all(math.isfinite(value) for value in reply.metrics.values())
    assert reply.metrics["accuracy"] == pytest.approx(reply.answer.test["sources"], abs=0.1)


@pytest.mark.parametrize("model", [mlp, normalised])
@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_batchnorm_dropout_noise_and_images_of_bytes(model, noise, dtype, tmp_path):
    """The same bits whether its own models were kept or not; its buffers are kept too."""
    x = LABELLED.x[:15] if dtype is np.float32 else (255 * LABELLED.x[:15]).astype(dtype)
    domain = target_with(x=x, y=np.array([0, 1, 2] * 5), noise=noise)
    first = state_of(model())
    sources = trained(TargetClient(domain, model(), TRAINING), 9, first).arrays
    replies = []
    for name, rounds in (("a", (1, 3)), ("b", (3,))):
        for now in rounds:
            reply = ask(make(domain, model(), folder=tmp_path / name), now, sources=sources, first=first)
        replies.append(reply)
    assert replies[0] == replies[1]
    assert same(*(load_file(tmp_path / name / "mixture.safetensors") for name in "ab"))
    found = models_in(tmp_path / "a")
    if model is normalised:
        steps = 3 * math.ceil(15 / TRAINING.batch_size)
        assert found["target", 0]["2.num_batches_tracked"] == steps
        assert found["target", 0]["2.num_batches_tracked"].shape == ()
    assert replies[0].metrics["accuracy"] > 0


def test_the_factor_of_the_learning_rate_multiplies_that_of_all_that_trains(tmp_path):
    ask(make(folder=tmp_path / "half"), **{"rate-factor": 0.5})
    ask(make(folder=tmp_path / "plain", training=replace(TRAINING, learning_rate=0.005)))
    assert same(*(load_file(tmp_path / name / "mixture.safetensors") for name in ("half", "plain")))
