"""Mixture's target: against the definition written out once more, and what it keeps and sends."""

import logging
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from digit_clients import mlp, normalised, same, state_of, trained
from flwr.app import RecordDict
from safetensors.numpy import load_file

from fda_flower import run
from fda_flower.aggregation import blend, functional_distance, gradient_similarity, stratified_folds
from fda_flower.clients import LocalTraining, MixturePlan, MixtureTarget, TargetClient
from fda_flower.clients.training import mean_gradient, repeatable
from fda_flower.datasets import DataSpec, Domain, Samples, load_federation
from fda_flower.files import derive_seed
from fda_flower.wire.protocol import EvaluateRequest, to_record

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
    return MixtureTarget(domain, model, training, seed, state=state, own_folder=folder)


def ask(client, now=2, plan=SHORT, sources=None, first=None, begun=1, **config):
    """The reply to an evaluate message of round `now`."""
    settings = {"server-round": now, "mixture": plan.to_text(), "first-round": begun, "report": "full"}
    records = {"first": to_record(first or FIRST)}
    return client.local_evaluate(
        EvaluateRequest(to_record(sources or SOURCES), {**settings, **config}, records)
    )


FIRST = state_of(mlp())
SOURCES = trained_on_a_source()


# The definition


class Definition:
    """Section by section what a mixture is, for the members S, T, F1, F30 and P, with loops."""

    def __init__(self, data, training, seed, rounds, sources, first, snapshots, folds=4):
        self.domain, self.model, self.training, self.seed = target_of(data), mlp(data), training, seed
        x, y = self.domain.train.x, self.domain.train.y
        n, self.regression = len(y), y.is_floating_point()
        order = np.random.Generator(np.random.PCG64(derive_seed(seed, "folds"))).permutation(n).tolist()
        if not self.regression:
            order = sorted(order, key=lambda i: int(y[i]))
        fold_of = {i: place % folds for place, i in enumerate(order)}
        views = [[i for i in range(n) if v == 0 or fold_of[i] != v - 1] for v in range(folds + 1)]
        members = {"sources": [sources], "target": []}
        members |= {f"tuned-{epochs}": [] for epochs in snapshots}
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
            name: np.stack(
                [
                    self.outputs(models[fold_of[i] + 1 if len(models) > 1 else 0], x[i : i + 1])[0]
                    for i in range(n)
                ]
            )
            for name, models in members.items()
        }
        self.priors = [self.prior(y[view]) for view in views]
        self.held_out["prior"] = np.stack([self.priors[fold_of[i] + 1] for i in range(n)])
        self.views = {
            name: [self.outputs(model, self.domain.test.x) for model in models]
            for name, models in members.items()
        }
        rows = len(self.domain.test)
        self.views["prior"] = [np.tile(prior, (rows, 1)) for prior in self.priors]
        self.fit(y.numpy())

    def prior(self, y):
        if self.regression:
            return y.double().mean(dim=0).numpy()
        counts = np.bincount(y.numpy(), minlength=10)
        return np.log((counts + 1) / (len(y) + 10))

    def epoch(self, arrays, view, phase, number):
        self.model.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
        optimizer = torch.optim.Adam(self.model.parameters(), lr=self.training.learning_rate)
        seed = derive_seed(self.seed, phase, number, "target")
        order = torch.randperm(len(view), generator=torch.Generator().manual_seed(seed)).tolist()
        x, y = self.domain.train.x, self.domain.train.y
        loss_of = torch.nn.functional.mse_loss if self.regression else torch.nn.functional.cross_entropy
        batches = np.array_split(order, math.ceil(len(order) / self.training.batch_size))
        for batch in batches:
            positions = [view[i] for i in batch]
            optimizer.zero_grad()
            loss_of(self.model(x[positions]), y[positions]).backward()
            optimizer.step()
        return state_of(self.model)

    @torch.no_grad()
    def outputs(self, arrays, x):
        self.model.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
        return self.model(x).double().numpy()

    def fit(self, y):
        """Temperatures, then the mean of the weights' posterior over draws."""
        names, n = list(self.held_out), len(y)
        self.temperatures = {}
        if not self.regression:
            for name in names[:-1]:

                def cost(T, z=self.held_out[name]):
                    return -sum(self.log_softmax(z / T)[i, y[i]] for i in range(n)) + math.log(T) ** 2 / 2

                grid = np.exp(np.linspace(math.log(0.3), math.log(30), 40))
                self.temperatures[name] = min(grid.tolist(), key=cost)
        generator = np.random.Generator(np.random.PCG64(len(names)))
        draws = [w for a in (1.0, 0.3) for w in generator.dirichlet([a] * len(names), 4000)]
        z = np.stack([self.held_out[name] for name in names])
        if self.regression:
            logs = [-n / 2 * math.log(((np.tensordot(w, z, 1) - y) ** 2).mean()) for w in draws]
        else:
            q = np.stack([np.exp(self.scaled(name, self.held_out[name]))[range(n), y] for name in names])
            logs = [np.log(w @ q).sum() for w in draws]
        likelihoods = np.exp(np.array(logs) - max(logs))
        mean = sum(p * w for p, w in zip(likelihoods / likelihoods.sum(), draws, strict=True))
        self.weights = dict(zip(names, mean.tolist(), strict=True))

    def log_softmax(self, z):
        return torch.log_softmax(torch.from_numpy(z), dim=1).numpy()

    def scaled(self, name, z):
        return z if self.regression else self.log_softmax(z / self.temperatures.get(name, 1.0))

    def predicted(self, full=False):
        total = 0
        for name, weight in self.weights.items():
            F = [self.scaled(name, z) for z in self.views[name]]
            whole, others = F[0], F[:1] if full or len(F) == 1 else F[1:]
            mean = (whole + sum(others) / len(others)) / 2
            total = total + weight * (mean if self.regression else np.exp(mean))
        return total

    def score(self, outputs, y):
        y = y.numpy()
        if self.regression:
            return 1 - ((outputs - y) ** 2).sum() / ((y - y.mean(axis=0)) ** 2).sum()
        return (outputs.argmax(axis=1) == y).mean()


@pytest.fixture(scope="module")
def classes():
    with repeatable(0, 1):
        return Definition(SPEC, TRAINING, 3, 2, SOURCES, FIRST, (1, 3))


@pytest.mark.parametrize("views", ["all", "full"])
def test_classes_by_the_definition(classes, views):
    metrics = ask(make(), plan=replace(SHORT, views=views)).metrics
    of = {key: {k.removeprefix(f"{key}."): v for k, v in metrics.items() if k.startswith(f"{key}.")}
          for key in ("weight", "temperature", "held-out", "test", "fold")}  # fmt: skip
    assert of["weight"] == pytest.approx(classes.weights, abs=1e-6)
    assert list(of["weight"]) == ["sources", "target", "tuned-1", "tuned-3", "prior"]
    assert of["temperature"] == pytest.approx(classes.temperatures)
    y, labels = classes.domain.test.y, classes.domain.train.y
    names = list(classes.weights)
    assert of["held-out"] == {name: classes.score(classes.held_out[name], labels) for name in names}
    assert of["test"] == {name: classes.score(z[0], y) for name, z in classes.views.items()}
    predicted = classes.predicted(full=views == "full")
    assert metrics["accuracy"] == classes.score(predicted, y)
    p = predicted / predicted.sum(axis=1, keepdims=True)
    assert metrics["loss"] == pytest.approx(-np.log(p[range(len(y)), y.numpy()]).mean(), rel=1e-5)
    assert list(of["fold"].values()) == [8, 8, 7, 7]
    assert max(of["weight"].values()) > 0.3, "the labels say something"


def test_a_regression_with_ten_outputs_by_the_definition():
    first, sources = state_of(mlp(RBF)), trained_on_a_source(RBF)
    with repeatable(0, 1):
        by_hand = Definition(RBF, TRAINING, 3, 2, sources, first, (1, 3))
    metrics = ask(make(target_of(RBF), mlp(RBF)), sources=sources, first=first).metrics
    weights = {key.removeprefix("weight."): v for key, v in metrics.items() if key.startswith("weight.")}
    assert weights == pytest.approx(by_hand.weights, abs=1e-5)
    y = by_hand.domain.test.y
    assert metrics["r2"] == pytest.approx(by_hand.score(by_hand.predicted(), y), abs=1e-5)
    assert metrics["loss"] == pytest.approx(((by_hand.predicted() - y.numpy()) ** 2).mean(), rel=1e-5)
    for name, outputs in by_hand.views.items():
        assert metrics[f"test.{name}"] == pytest.approx(by_hand.score(outputs[0], y), abs=1e-5)
    assert not [key for key in metrics if key.startswith("temperature") or key == "alone"]


def models_in(folder):
    """The arrays of each model that a client keeps, by member and view."""
    found = {}
    for key, array in load_file(folder / "mixture.safetensors").items():
        member, view, *name = key.split("/")
        found.setdefault((member, int(view)), {})["/".join(name)] = array
    return found


def test_the_head_is_fine_tuned_alone_and_the_blend_is_feddafs_of_each_view(tmp_path):
    client, labels = make(folder=tmp_path), target_of().train
    metrics = ask(client, plan=replace(SHORT, members=("head", "blend", "prior"))).metrics
    assert [key for key in metrics if key.startswith("weight")] == [
        "weight.head",
        "weight.blend",
        "weight.prior",
    ]
    found, folds = models_in(tmp_path), stratified_folds(labels.y.numpy(), 4, derive_seed(3, "folds"))
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
    train = MixtureTarget._train_on

    def spy(self, config, model, positions, numbers, stream, **more):
        seen.extend((stream, number) for number in numbers)
        return train(self, config, model, positions, numbers, stream, **more)

    monkeypatch.setattr(MixtureTarget, "_train_on", spy)
    return seen


OWN = replace(SHORT, members=("sources", "target", "prior"))


@pytest.mark.parametrize("where", ["folder", "context"])
def test_its_own_models_go_on_where_they_were_with_the_same_bits(where, tmp_path, epochs):
    kept = {"folder": tmp_path / "kept"} if where == "folder" else {"state": RecordDict()}
    for now in (1, 2, 4):
        later = ask(make(**kept), now, OWN)
    expected = [(f"target-{v}", n) for numbers in ([1], [2], [3, 4]) for v in range(5) for n in numbers]
    assert epochs == expected
    assert ask(make(**kept), 4, OWN) == later, "what is asked again"
    assert epochs == expected, "is answered without training"
    assert ask(make(folder=tmp_path / "new"), 4, OWN) == later
    if where == "folder":
        files = [tmp_path / name / "mixture.safetensors" for name in ("kept", "new")]
        assert same(*map(load_file, files))
        files[0].unlink()
        assert ask(make(**kept), 4, OWN) == later, "where it is lost, it is made again"
        assert same(*map(load_file, files))


def other_labels(domain):
    return replace(domain, train=replace(domain.train, y=(domain.train.y + 1) % 10))


def other_images(domain):
    return replace(domain, train=replace(domain.train, x=1 - domain.train.x))


def grouped(domain):
    groups = torch.arange(len(domain.train)) // 2
    return replace(domain, train=replace(domain.train, groups=groups))


def test_a_group_is_in_one_fold_and_the_server_is_told_how_many_there_are(tmp_path):
    domain = grouped(target_of())
    client = make(domain, folder=tmp_path)
    assert client.get_properties({})["groups"] == 15
    assert "groups" not in make().get_properties({})
    metrics = ask(client).metrics
    sizes = [metrics[f"fold.{k}"] for k in range(1, 5)]
    assert sum(sizes) == 30
    assert all(size % 2 == 0 for size in sizes)


@pytest.mark.parametrize(
    ("change", "request_"),
    [
        ({"seed": 4}, {}),
        ({"training": replace(TRAINING, learning_rate=0.02)}, {}),
        ({"domain": other_labels(target_of())}, {}),
        ({"domain": other_images(target_of())}, {}),
        ({"domain": grouped(target_of())}, {}),
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


def test_another_sources_model_does_not_change_the_targets_own(tmp_path, epochs):
    ask(make(folder=tmp_path), 2, OWN)
    before = models_in(tmp_path)
    ask(make(folder=tmp_path), 2, OWN, sources=state_of(mlp(seed=5)))
    assert len(epochs) == 10
    after = models_in(tmp_path)
    assert all(same(before["target", view], after["target", view]) for view in range(5))
    assert not same(before["sources", 0], after["sources", 0])


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


def test_the_model_of_all_labels_and_the_sources_are_those_of_the_single_methods(tmp_path):
    """Target Only's differs by rounding: its server adds the difference of two models to the first."""
    settings = {"model": "mlp", "sources": 2, "target_samples": 12, "source_samples": 30, "rounds": 3}
    settings |= {"device": "cpu", "warmup_rounds": 1, "learning_rate_factor": 0.5, "seed": 2}
    options = {"method": "mixture", "method_options": {"epochs": "1,2", "every": 2}}
    mixed = run(**settings, **options, output=tmp_path / "run")  # type: ignore[arg-type]
    sources, alone = (run(**settings, method=name) for name in ("source-only", "target-only"))  # type: ignore[arg-type]
    assert same(mixed.model, sources.model)
    found = models_in(tmp_path / "run" / "clients" / "target")
    assert same(found["sources", 0], sources.model)
    for name, array in alone.model.items():
        np.testing.assert_allclose(found["target", 0][name], array, atol=1e-6)  # type: ignore[arg-type]
    for number in (2, 3):
        members = mixed.history[number]["mixture"]["members"]
        assert members["target"]["test"] == alone.history[number]["accuracy"]
        assert members["sources"]["test"] == sources.history[number]["accuracy"]
    bytes_received = [[record["bytes-received"] for record in each.history] for each in (mixed, sources)]
    assert bytes_received[0] == bytes_received[1]
    assert [path.name for path in (tmp_path / "run" / "clients").iterdir()] == ["target"]


# What it sends


def test_nothing_but_numbers_leaves_and_if_asked_which_samples_are_right():
    reply = ask(make())
    assert reply.records == {}
    assert {type(value) for value in reply.metrics.values()} <= {int, float}
    assert len(reply.metrics) < 40
    right = np.unpackbits(ask(make(), outcomes=True).records["outcomes"]["right"], count=80)
    assert right.mean() == pytest.approx(reply.metrics["accuracy"])


def test_no_report_is_no_number_but_the_size_of_the_test_set(tmp_path):
    reply = ask(make(folder=tmp_path), report="none", outcomes=True)
    assert (reply.metrics, reply.records, reply.examples) == ({}, {}, 80)
    metrics = reply.content().metric_records["metrics"]
    assert dict(metrics) == {"num-examples": 80}
    assert (tmp_path / "mixture.safetensors").exists(), "but the target has its mixture"


# What may be wrong with the labels or the models


def labelled(labels, noise=0.0, dtype=torch.float32):
    """A target with these labels, on digits."""
    domain = target_of()
    x = domain.train.x[: len(labels)]
    if dtype == torch.uint8:
        x = (255 * x).to(torch.uint8)
    return Domain("target", Samples(x, torch.tensor(labels), noise), domain.test)


@pytest.mark.parametrize(("labels", "alone"), [([0] * 7 + [1], 1), ([0, 0, 1, 2, 3, 3, 4, 4, 4], 2)])
def test_classes_with_a_single_label_are_allowed_and_counted(labels, alone):
    metrics = ask(make(labelled(labels))).metrics
    assert metrics["alone"] == alone
    assert sum(v for key, v in metrics.items() if key.startswith("fold.")) == len(labels)
    assert math.isfinite(metrics["loss"])


def test_members_that_diverge_are_left_out_with_a_warning(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    caplog.set_level(logging.WARNING, logger="flwr")
    reply = ask(make(training=LocalTraining(1e30, 7, optimizer="sgd")))
    for name in ("target", "tuned-1", "tuned-3"):
        assert f"The mixture leaves out '{name}': not all of its outputs are finite" in caplog.text
        assert reply.metrics[f"left-out.{name}"] == 1
        assert f"weight.{name}" not in reply.metrics
    assert reply.metrics["weight.sources"] + reply.metrics["weight.prior"] == pytest.approx(1)
    assert all(math.isfinite(value) for value in reply.metrics.values())
    assert reply.metrics["accuracy"] == pytest.approx(reply.metrics["test.sources"], abs=0.1)


@pytest.mark.parametrize("model", [mlp, normalised])
@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_batchnorm_dropout_noise_and_images_of_bytes(model, noise, dtype, tmp_path):
    """The same bits whether its own models were kept or not; its buffers are kept too."""
    domain = labelled([0, 1, 2] * 5, noise, dtype)
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
