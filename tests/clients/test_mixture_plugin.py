import copy
import io
from collections import UserDict
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from naming import names
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler, SubsetRandomSampler, TensorDataset

from fda_flower.clients import MixturePlan, mix_on_target
from fda_flower.errors import ConfigError

PLAN = MixturePlan(folds=2, epochs=(1, 3))


def two_classes(n=40, seed=0):
    """Two clouds of points, one for each class."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 2
    x = torch.randn(n, 2, generator=generator) + 3 * y[:, None].float() - 1.5
    return x, y


def loader_of(*tensors, **options):
    return DataLoader(TensorDataset(*tensors), **{"batch_size": 8, "shuffle": True, **options})


def linear(weight=0.0, outputs=2):
    """A linear model; with a `weight` above 0 it is right about `two_classes`, below 0 always wrong."""
    model = nn.Linear(2, outputs)
    with torch.no_grad():
        model.bias.zero_()
        model.weight.copy_(weight * torch.tensor([[-1.0, -1.0], [1.0, 1.0]])[:outputs])
    return model


def train(model, loader, epochs, loss=nn.functional.cross_entropy):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()


def mix(loader=None, sources=None, train=train, first=None, *more, epochs=2, plan=PLAN, **options):
    """A mixture of linear models for two classes, unless others are given."""
    loader = loader_of(*two_classes()) if loader is None else loader
    models = (sources or linear(1.0), first or linear())
    return mix_on_target(*models, loader, train, *more, epochs=epochs, plan=plan, **options)


def same(a, b):
    return all(torch.equal(t, b.state_dict()[name]) for name, t in a.state_dict().items())


def accuracy(model, x, y):
    return float((model(x).argmax(dim=1) == y).float().mean())


@pytest.mark.parametrize(("weight", "heavy"), [(2.0, True), (-2.0, False)], ids=["right", "wrong"])
def test_sources_weigh_as_much_as_they_know(weight, heavy):
    mixture = mix(sources=linear(weight), epochs=5)
    weights = mixture.trained.mixture.weights
    assert list(weights) == ["sources", "target", "tuned-1", "tuned-3", "prior"]
    assert (weights["sources"] > 0.1) == heavy
    assert accuracy(mixture, *two_classes(200, seed=1)) > 0.9


def test_the_projects_functions_get_loaders_of_views_shuffled_to_train_and_in_order_to_predict():
    """Each sample's features are its number."""
    x, calls = torch.arange(24).float()[:, None].repeat(1, 2), []

    def numbers(loader):
        assert loader.batch_size == 5
        return [int(row[0]) for batch, _ in loader for row in batch]

    def remember(model, loader, epochs):
        seen = numbers(loader)
        assert seen != sorted(seen)
        model.seen = {*getattr(model, "seen", ()), *seen}
        calls.append((len(seen), epochs))

    def predict(model, loader):
        asked = numbers(loader)
        assert asked == sorted(asked)
        return torch.tensor([[float(number in getattr(model, "seen", ()))] * 3 for number in asked])

    loader = loader_of(x, torch.arange(24) % 3, batch_size=5)
    trained = mix(loader, nn.Linear(2, 3), remember, nn.Linear(2, 3), predict, epochs=7, plan=None).trained
    sizes = [24, *(24 - np.bincount(trained.folds))]
    assert calls == [(size, epochs) for epochs in (7, 1, 29) for size in sizes]
    assert not any(trained.held_out[name].any() for name in trained.models), (
        "nobody has seen what it predicts"
    )


def test_the_same_seed_gives_the_same_bits_whatever_was_drawn_before():
    sources, first, loader = linear(1.0), linear(0.1), loader_of(*two_classes())
    state = torch.get_rng_state()
    mixture = mix(loader, sources, first=first)
    assert torch.equal(torch.get_rng_state(), state), "the project's own random numbers stay as they are"
    torch.manual_seed(2)
    assert same(mixture, mix(loader, sources, first=first))
    assert not same(mixture, mix(loader, sources, first=first, seed=1))


def test_a_mixture_is_a_module_of_copies_that_returns_logarithms_of_probabilities():
    sources, first, new = linear(1.0), linear(0.1), torch.randn(7, 2)
    before = copy.deepcopy(sources), copy.deepcopy(first)
    mixture = mix(sources=sources, first=first)
    assert same(sources, before[0])
    assert same(first, before[1])
    assert len(mixture.models) == 1 + 3 * 3
    assert not any(module.training for module in mixture.modules())
    outputs = mixture(new)
    with torch.no_grad():
        expected = mixture.trained.predict(lambda model: model(new).double().numpy())
    np.testing.assert_allclose(outputs.exp().numpy(), expected, rtol=1e-6)
    assert (outputs.dtype, outputs.requires_grad) == (torch.float32, False)
    train(sources, loader_of(*two_classes()), 3)
    assert torch.equal(mixture(new), outputs)
    mixture.double()
    assert mixture(new.double()).dtype == torch.float64


class Flat(nn.Linear):
    """A regression whose outputs have no second axis."""

    def forward(self, x):
        return super().forward(x)[:, 0]


@pytest.mark.parametrize(
    ("make", "truth"),
    [
        (linear, lambda x: torch.stack([x.sum(dim=1), x[:, 0]], dim=1)),
        (lambda: Flat(2, 1), lambda x: x.sum(dim=1)),
    ],
    ids=["two outputs", "flat"],
)
def test_a_regression_has_outputs_of_the_models_shape(make, truth):
    x, _ = two_classes()
    y = truth(x)

    def fit(model, loader, epochs):
        train(model, loader, epochs, nn.functional.mse_loss)

    mixture = mix(loader_of(x, y), make(), fit, make(), epochs=20)
    assert mixture.trained.mixture.regression
    assert mixture.trained.mixture.weights["target"] > 0.5
    assert mixture(x).shape == y.shape
    assert float((mixture(x) - y).square().mean()) < 0.1 * float(y.var())


@pytest.mark.parametrize(
    ("samples", "size", "folds", "drop_last", "expected"),
    [
        # 50 samples are 12 batches of 4 and one of 2; views of 37 have 9 of 4, and would have one of 1.
        (50, 4, 4, False, {36, 38, 50}),
        (50, 4, 4, True, {36, 48}),
        (33, 8, 4, True, {24, 32}),
        # 32 of 40 samples make a batch; a view of 20 is a batch that is the only one.
        (40, 32, 2, True, {20, 32}),
    ],
)
def test_a_view_has_no_batch_of_one_sample_if_all_labels_have_none(samples, size, folds, drop_last, expected):
    sizes = []

    def record(model, loader, epochs):
        sizes.append([len(y) for _, y in loader])
        train(model, loader, epochs)

    def network():
        return nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2))

    loader = loader_of(*two_classes(samples), batch_size=size, drop_last=drop_last)
    mixture = mix(loader, network(), record, network(), plan=MixturePlan(folds=folds, epochs=(1,)))
    assert {sum(batches) for batches in sizes} == expected
    assert all(min(batches) > 1 for batches in sizes)
    assert all(len(z) == samples for z in mixture.trained.held_out.values())
    assert mixture(torch.randn(1, 2)).shape == (1, 2)


never = Mock(side_effect=AssertionError("it trains"))


def batches_of_indices():
    sampler = BatchSampler(SequentialSampler(range(40)), 8, drop_last=False)
    return DataLoader(TensorDataset(*two_classes()), batch_sampler=sampler)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"plan": MixturePlan(members=("sources", "head"))}, ("members names", "head")),
        ({"loader": batches_of_indices()}, ("batch size",)),
        (
            {"loader": loader_of(*two_classes(), shuffle=False, sampler=SubsetRandomSampler(range(20)))},
            ("sampler", "SubsetRandomSampler", "torch.utils.data.Subset"),
        ),
        ({"labels": torch.arange(39) % 2}, ("labels", 39)),
        ({"groups": torch.arange(41) % 2}, ("groups", 41)),
        ({"epochs": -1}, ("epochs", -1)),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_trained(options, error):
    with pytest.raises(ConfigError, check=names(*error)):
        mix(train=never, **options)


def test_groups_stay_together():
    folds = mix(groups=torch.arange(40) // 4).trained.folds.reshape(10, 4)
    assert (folds == folds[:, :1]).all()


def batched(form, *tensors):
    """A loader whose batches have another form than x, y."""
    return loader_of(*tensors, collate_fn=lambda batch: form(*map(torch.stack, zip(*batch, strict=True))))


@pytest.mark.parametrize(
    "form",
    [
        lambda x, y: (x, y),
        lambda x, y: [x, y],
        lambda x, y: {"img": x, "label": y},
        lambda x, y: {"scan": x, "target": y},
        lambda x, y: {"age": y, "labels": y, "pixel_values": x},
        lambda x, y: UserDict(y=y, x=x),
    ],
    ids=["tuple", "list", "usual names", "only other entry", "more entries", "mapping"],
)
def test_batches_are_pairs_or_dictionaries_with_usual_names(form):
    x, y = two_classes()

    def train_on_all(model, loader, epochs):
        train(model, [(x, y)], epochs)

    pairs, mixture = (mix(loader, train=train_on_all) for loader in (loader_of(x, y), batched(form, x, y)))
    assert mixture.trained.mixture.weights == pairs.trained.mixture.weights
    assert same(mixture, pairs)


@pytest.mark.parametrize(
    ("form", "given", "value"),
    [
        (lambda x, y: {"scan": x, "age": y, "label": y}, (), ["age", "label", "scan"]),
        (lambda x, y: {"img": x, "x": x, "label": y}, (), ["img", "label", "x"]),
        (lambda x, y: {"img": x, "truth": y}, (), ["img", "truth"]),
        (lambda x, y: {"img": x, "label": y, "y": y}, (), ["img", "label", "y"]),
        (lambda x, y: {"img": x, "label": list(y)}, (), ["img", "label"]),
        (lambda x, y: (x, y, y), (), "tuple"),
        (lambda x, y: x, (), "Tensor"),
        (lambda x, y: ([x], y), (), "tuple"),
        (lambda x, y: {"img": x, "truth": y}, ("predict",), ["img", "truth"]),
        (lambda x, y: {"scan": x, "age": y, "label": y}, ("labels",), ["age", "label", "scan"]),
    ],
)
def test_batches_of_another_form_are_refused_before_anything_is_trained(form, given, value):
    x, y = two_classes()
    options = {"labels": y, "predict": never}
    with pytest.raises(ConfigError, check=names("batches", value)):
        mix(batched(form, x, y), train=never, **{name: options[name] for name in given})


def test_a_function_or_labels_replace_what_batches_do_not_tell():
    x, y = two_classes()

    def predict(model, loader):
        return torch.cat([model(batch["a"]) for batch in loader])

    def train_on(model, loader, epochs):
        train(model, [(batch["a"], batch["y"]) for batch in loader], epochs)

    mixture = mix(batched(lambda x, y: {"a": x, "b": x, "y": y}, x, y), train=train_on, predict=predict)
    assert accuracy(mixture, x, y) > 0.9
    held_out = predict(mixture, [{"a": x}])
    assert held_out.shape == (40, 2), "the project's functions take a mixture as they take a model"
    loader = batched(lambda x, y: {"a": x, "label": [*y]}, x, y)
    assert accuracy(mix(loader, train=lambda *_: None, labels=y), x, y) > 0.9


def test_a_mixture_can_be_saved_and_loaded():
    mixture = mix()
    file = io.BytesIO()
    torch.save(mixture, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    new = torch.randn(5, 2)
    assert torch.equal(loaded(new), mixture(new))
    assert loaded.models[0] is loaded.trained.models["sources"][0]


def test_classes_with_a_single_label_are_said(flower_log):
    x, _ = two_classes()
    mix(loader_of(x, torch.tensor([0, 1] * 19 + [0, 2])), nn.Linear(2, 3), first=nn.Linear(2, 3))
    assert "Classes with a single label, which a model without it does not know: [2]" in flower_log.text
