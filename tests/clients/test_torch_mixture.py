import copy
import io
import logging

import numpy as np
import pytest
import torch
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


def accuracy(model, x, y):
    return float((model(x).argmax(dim=1) == y).float().mean())


def same(a, b):
    return all(torch.equal(t, b.state_dict()[name]) for name, t in a.state_dict().items())


@pytest.mark.parametrize(("weight", "heavy"), [(2.0, True), (-2.0, False)], ids=["right", "wrong"])
def test_sources_weigh_as_much_as_they_know(weight, heavy):
    mixture = mix_on_target(linear(weight), linear(), loader_of(*two_classes()), train, epochs=5, plan=PLAN)
    weights = mixture.trained.mixture.weights
    assert list(weights) == ["sources", "target", "tuned-1", "tuned-3", "prior"]
    assert (weights["sources"] > 0.1) == heavy
    assert accuracy(mixture, *two_classes(200, seed=1)) > 0.9


def test_a_mixture_returns_logarithms_of_the_probabilities_of_its_models():
    x, y = two_classes()
    mixture = mix_on_target(linear(1.0), linear(), loader_of(x, y), train, epochs=2, plan=PLAN)
    new = torch.randn(7, 2)
    outputs = mixture(new)
    with torch.no_grad():
        expected = mixture.trained.predict(lambda model: model(new).double().numpy())
    np.testing.assert_allclose(outputs.exp().numpy(), expected, rtol=1e-6)
    assert outputs.dtype == torch.float32
    assert not outputs.requires_grad


def test_the_modules_of_a_mixture_are_its_models_and_in_evaluation_mode():
    mixture = mix_on_target(linear(1.0), linear(), loader_of(*two_classes()), train, epochs=2, plan=PLAN)
    assert len(mixture.models) == 1 + 3 * 3
    assert not any(module.training for module in mixture.modules())
    mixture.double()
    assert mixture(torch.randn(3, 2, dtype=torch.float64)).dtype == torch.float64


def test_held_out_outputs_are_those_of_models_that_were_not_trained_on_the_sample():
    """Each sample's features are its number, and a model remembers the numbers it was trained on."""
    n = 24
    x, y = torch.arange(n).float()[:, None].repeat(1, 2), torch.arange(n) % 3

    class Memory(nn.Linear):
        def __init__(self):
            super().__init__(2, 3)
            self.seen, self.epochs = set(), []

    calls = []

    def remember(model, loader, epochs):
        assert loader.batch_size == 5
        numbers = [int(row[0]) for batch, _ in loader for row in batch]
        assert numbers != sorted(numbers)
        model.seen, model.epochs = model.seen | set(numbers), [*model.epochs, epochs]
        calls.append((len(numbers), epochs))

    def predict(model, loader):
        numbers = [int(row[0]) for batch, _ in loader for row in batch]
        assert numbers == sorted(numbers)
        return torch.tensor([[float(number in model.seen)] * 3 for number in numbers])

    loader = loader_of(x, y, batch_size=5)
    trained = mix_on_target(Memory(), Memory(), loader, remember, predict, epochs=7).trained
    sizes = [n, *(n - np.bincount(trained.folds))]
    assert calls == [(size, epochs) for epochs in (7, 1, 29) for size in sizes]
    assert {name: [m.epochs for m in models] for name, models in trained.models.items()} == {
        "sources": [[]],
        "target": [[7]] * 5,
        "tuned-1": [[1]] * 5,
        "tuned-30": [[1, 29]] * 5,
    }
    for models in list(trained.models.values())[1:]:
        assert models[0].seen == set(range(n))
    assert list(trained.held_out) == [*trained.models, "prior"]
    assert not any(trained.held_out[name].any() for name in trained.models)


def test_the_given_models_are_left_as_they_are_and_not_shared():
    sources, first = linear(1.0), linear(0.1)
    before = copy.deepcopy(sources), copy.deepcopy(first)
    mixture = mix_on_target(sources, first, loader_of(*two_classes()), train, epochs=2, plan=PLAN)
    assert same(sources, before[0])
    assert same(first, before[1])
    new = torch.randn(5, 2)
    outputs = mixture(new)
    train(sources, loader_of(*two_classes()), 3)
    assert torch.equal(mixture(new), outputs)


def test_the_same_seed_gives_the_same_bits_whatever_was_drawn_before():
    sources, new, loader = linear(1.0), linear(), loader_of(*two_classes())

    def mixed(seed):
        return mix_on_target(sources, new, loader, train, epochs=2, plan=PLAN, seed=seed)

    state = torch.get_rng_state()
    first = mixed(0)
    assert torch.equal(torch.get_rng_state(), state), "the project's own random numbers stay as they are"
    torch.manual_seed(2)
    assert same(first, mixed(0))
    assert not same(first, mixed(1))


def test_a_regression_with_two_outputs():
    x, _ = two_classes()
    y = torch.stack([x.sum(dim=1), x[:, 0]], dim=1)
    mixture = mix_on_target(
        linear(),
        linear(),
        loader_of(x, y),
        lambda model, loader, epochs: train(model, loader, epochs, nn.functional.mse_loss),
        epochs=20,
        plan=PLAN,
    )
    assert mixture.trained.mixture.regression
    assert mixture.trained.mixture.weights["target"] > 0.5
    assert float((mixture(x) - y).square().mean()) < 0.1 * float(y.var())


def test_batchnorm_with_a_last_batch_of_one_sample_can_drop_it():
    x, y = two_classes(33)

    def network():
        return nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2))

    loader = loader_of(x, y, drop_last=True)
    plan = MixturePlan(folds=4, epochs=(1,))
    mixture = mix_on_target(network(), network(), loader, train, epochs=2, plan=plan)
    assert all(len(z) == 33 for z in mixture.trained.held_out.values())
    assert mixture(x[:1]).shape == (1, 2)


@pytest.mark.parametrize("options", [{}, {"drop_last": True}], ids=["all batches", "whole batches"])
def test_a_view_has_no_batch_of_one_sample_if_all_labels_have_none(options):
    sizes = []

    def record(model, loader, epochs):
        batches = [len(y) for _, y in loader]
        sizes.append(batches)
        train(model, loader, epochs)

    def network():
        return nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2))

    # 50 samples are 12 batches of 4 and one of 2; views of 37 have 9 of 4, and would have one of 1.
    loader = loader_of(*two_classes(50), batch_size=4, **options)
    mix_on_target(network(), network(), loader, record, epochs=1, plan=MixturePlan(epochs=(1,)))
    assert {sum(batches) for batches in sizes} == ({36, 48} if options else {36, 38, 50})
    assert all(min(batches) > 1 for batches in sizes)


def collated(batch):
    return {"img": torch.stack([x for x, _ in batch]), "label": torch.tensor([int(y) for _, y in batch])}


def test_batches_that_are_dictionaries_need_labels_and_a_function():
    x, y = two_classes()
    loader = loader_of(x, y, collate_fn=collated)

    def train_on(model, loader, epochs):
        train(model, [(batch["img"], batch["label"]) for batch in loader], epochs)

    def predict(model, loader):
        return torch.cat([model(batch["img"]) for batch in loader])

    message = "are no pairs x, y but of the type dict: give labels and predict"
    with pytest.raises(ConfigError, match=message):
        mix_on_target(linear(), linear(), loader, train_on, predict, plan=PLAN)
    with pytest.raises(ConfigError, match=message):
        mix_on_target(linear(), linear(), loader, train_on, labels=y, plan=PLAN)
    mixture = mix_on_target(linear(), linear(), loader, train_on, predict, labels=y, epochs=3, plan=PLAN)
    assert accuracy(mixture, x, y) > 0.9
    held_out = predict(mixture, loader)
    assert held_out.shape == (40, 2), "the project's functions take a mixture as they take a model"


@pytest.mark.parametrize(
    ("loader", "plan", "message"),
    [
        (loader_of(*two_classes(7)), None, "the target has 7 labelled samples"),
        (loader_of(*two_classes()), MixturePlan(members=("sources", "head")), "members names 'head'"),
        (loader_of(*two_classes(9), batch_size=4), MixturePlan(members=("blend",)), "members names 'blend'"),
        (
            DataLoader(
                TensorDataset(*two_classes()),
                batch_sampler=BatchSampler(SequentialSampler(range(40)), 8, drop_last=False),
            ),
            None,
            "the loader has no batch size",
        ),
        (
            loader_of(*two_classes(), shuffle=False, sampler=SubsetRandomSampler(range(20))),
            None,
            "the loader has the sampler SubsetRandomSampler, .* one of torch.utils.data.Subset",
        ),
    ],
    ids=["labels", "member", "other member", "batches", "sampler"],
)
def test_what_cannot_work_is_an_error(loader, plan, message):
    with pytest.raises(ConfigError, match=message):
        mix_on_target(linear(), linear(), loader, train, epochs=1, plan=plan)


def test_labels_of_another_kind_and_negative_epochs_are_refused_before_anything_is_trained():
    def fails(model, loader, epochs):
        raise AssertionError("it trains")

    x, y = two_classes()
    with pytest.raises(ConfigError, match=r"cannot be fitted: the classes have shape \(40, 2\)"):
        mix_on_target(
            linear(), linear(), loader_of(x, y), fails, epochs=1, labels=nn.functional.one_hot(y), plan=PLAN
        )
    with pytest.raises(ConfigError, match="epochs is -1: it must not be negative"):
        mix_on_target(linear(), linear(), loader_of(x, y), fails, epochs=-1, plan=PLAN)


def test_a_mixture_can_be_saved_and_loaded():
    mixture = mix_on_target(linear(1.0), linear(), loader_of(*two_classes()), train, epochs=2, plan=PLAN)
    file = io.BytesIO()
    torch.save(mixture, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    new = torch.randn(5, 2)
    assert torch.equal(loaded(new), mixture(new))
    assert loaded.models[0] is loaded.trained.models["sources"][0]


@pytest.mark.parametrize("size", [39, 41])
def test_labels_and_groups_are_as_many_as_the_samples(size):
    loader, given = loader_of(*two_classes()), torch.arange(size) % 2
    with pytest.raises(ConfigError, match=f"there are {size} labels for a data set of 40 samples"):
        mix_on_target(linear(), linear(), loader, train, labels=given)
    with pytest.raises(ConfigError, match=f"there are {size} groups for a data set of 40 samples"):
        mix_on_target(linear(), linear(), loader, train, groups=given)


def test_a_model_of_fewer_samples_than_a_batch_is_trained_also_if_last_batches_are_dropped():
    """32 of 40 samples make a batch, each view without a fold has 20."""
    loader, trained = loader_of(*two_classes(), batch_size=32, drop_last=True), []

    def counted(model, loader, epochs):
        trained.append(sum(len(y) for _, y in loader))
        train(model, loader, epochs)

    mixture = mix_on_target(linear(), linear(), loader, counted, epochs=5, plan=PLAN)
    assert set(trained) == {20, 32}
    assert not any(same(model, linear()) for model in mixture.trained.models["target"])


def test_groups_stay_together():
    groups = torch.arange(40) // 4
    mixture = mix_on_target(
        linear(), linear(), loader_of(*two_classes()), train, groups=groups, epochs=1, plan=PLAN
    )
    folds = mixture.trained.folds.reshape(10, 4)
    assert (folds == folds[:, :1]).all()


def test_classes_with_a_single_label_and_members_that_diverge_are_said(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    x, _ = two_classes()
    y = torch.tensor([0, 1] * 19 + [0, 2])

    def spoils(model, loader, epochs):
        torch.nn.init.constant_(model.weight, torch.inf)

    def network():
        return nn.Linear(2, 3)

    with caplog.at_level(logging.WARNING, logger="flwr"):
        mix_on_target(network(), network(), loader_of(x, y), spoils, epochs=1, plan=PLAN)
    assert "Classes with a single label, which a model without it does not know: [2]" in caplog.text
    assert "The mixture leaves out 'target'" in caplog.text


def test_numbers_have_the_shape_that_the_models_give_them():
    x, _ = two_classes()
    y = x.sum(dim=1)

    class Flat(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 1)

        def forward(self, x):
            return self.layer(x)[:, 0]

    def fit(model, loader, epochs):
        train(model, loader, epochs, nn.functional.mse_loss)

    mixture = mix_on_target(Flat(), Flat(), loader_of(x, y), fit, epochs=20, plan=PLAN)
    assert mixture(x).shape == y.shape
    assert float((mixture(x) - y).square().mean()) < 0.1 * float(y.var())
