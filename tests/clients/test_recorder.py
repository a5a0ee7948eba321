"""The recorder: what the target tells of its local steps."""

import copy
import io
from typing import Any

import numpy as np
import pytest
import torch
from naming import names
from numpy.typing import NDArray
from torch import Tensor, nn

from fda_flower.aggregation import BatchUpdates, CountSketch, Update
from fda_flower.clients import LocalTraining, TargetClient, make_recorder, train
from fda_flower.clients.recorder import RECORDERS
from fda_flower.datasets import DataSpec, Samples, load_federation
from fda_flower.errors import ConfigError

SIZE, SEED = 32, 11
CONFIGS: dict[str, dict[str, Any]] = {
    "norms": {"batch-updates": "norms"},
    "sketch": {"batch-updates": "sketch", "sketch-size": SIZE, "sketch-seed": SEED},
    "full": {"batch-updates": "full"},
}
Arrays = dict[str, NDArray[Any]]

every_form = pytest.mark.parametrize("form", list(RECORDERS))
every_optimizer = pytest.mark.parametrize(("optimizer", "rate"), [("adam", 0.01), ("sgd", 0.1)])


class Tied(nn.Module):
    """An encoder whose weights are its decoder's too: one tensor, two names."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(64, 10, bias=False)
        self.middle = nn.Linear(10, 64)
        self.again = nn.Linear(64, 10, bias=False)
        self.again.weight = self.encoder.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.again(self.middle(self.encoder(x.flatten(1))))


def network(name: str = "batchnorm") -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if name == "tied":
            return Tied()
        return nn.Sequential(
            nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 10), nn.BatchNorm1d(10)
        )


def state_of(model: nn.Module) -> Arrays:
    return {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}


def record(
    form: str, optimizer: str = "adam", rate: float = 0.01, model: str = "batchnorm"
) -> tuple[Update, Arrays, int]:
    """One round of the target: its update as the server sees it, what it recorded, and its steps."""
    data = load_federation(DataSpec("digits", "rotate", target_samples=50)).domains["target"]
    net = network(model)
    client = TargetClient(data, net, LocalTraining(rate, 4, 1, optimizer))
    before = state_of(net)
    buffers = before.keys() - dict(net.named_parameters(remove_duplicate=False)).keys()
    arrays, examples, metrics = client.fit(
        [array.copy() for array in before.values()], {"server-round": 1, **CONFIGS[form]}
    )
    after = {name: array.copy() for name, array in zip(before, arrays, strict=True)}
    recorded = {
        name.removeprefix("batch-updates."): np.load(io.BytesIO(value), allow_pickle=False)
        for name, value in metrics.items()
        if name.startswith("batch-updates.")
    }
    update = Update.between(before, after, examples, metrics["num-steps"], rate, buffers)
    return update, recorded, metrics["num-steps"]


def layers_of(row: NDArray[Any], update: Update) -> Arrays:
    """One recorded row, cut into the parameters of the update in their order."""
    sizes = [layer.size for layer in update.parameters.values()]
    parts = np.split(row, np.cumsum(sizes)[:-1])
    return {
        name: part.reshape(layer.shape)
        for (name, layer), part in zip(update.parameters.items(), parts, strict=True)
    }


@every_optimizer
@pytest.mark.parametrize("model", ["batchnorm", "tied"])
def test_full_rows_sum_to_the_update_layer_by_layer_without_buffers(
    optimizer: str, rate: float, model: str
) -> None:
    update, recorded, steps = record("full", optimizer, rate, model)
    rows = recorded["full"]
    assert rows.dtype == np.float32
    assert rows.shape == (steps, sum(layer.size for layer in update.parameters.values()))
    assert max(np.abs(layer).max() for layer in update.parameters.values()) > 1e-2
    total = layers_of(rows.astype(np.float64).sum(axis=0), update)
    for name, layer in update.parameters.items():
        np.testing.assert_allclose(total[name], layer, rtol=1e-5, atol=2e-6, err_msg=name)


@every_optimizer
@every_form
def test_norms_are_the_squared_norms_of_the_rows(form: str, optimizer: str, rate: float) -> None:
    _, full, steps = record("full", optimizer, rate)
    _, recorded, _ = record(form, optimizer, rate)
    assert recorded["norms"].dtype == np.float64
    assert recorded["norms"].shape == (steps,)
    np.testing.assert_allclose(
        recorded["norms"], np.square(full["full"].astype(np.float64)).sum(axis=1), rtol=1e-12
    )


@every_optimizer
@pytest.mark.parametrize("model", ["batchnorm", "tied"])
def test_a_sketch_is_the_servers_sketch_of_each_row(optimizer: str, rate: float, model: str) -> None:
    update, full, steps = record("full", optimizer, rate, model)
    _, recorded, _ = record("sketch", optimizer, rate, model)
    sketches = recorded["sketch"]
    assert sketches.dtype == np.float64
    assert sketches.shape == (steps, SIZE)
    sketch = CountSketch(SIZE, SEED)
    expected = np.stack([sketch(layers_of(row, update)) for row in full["full"]])
    np.testing.assert_allclose(sketches, expected, rtol=0, atol=1e-9)
    assert np.abs(expected).max() > 1e-3


def test_another_seed_of_the_sketch_gives_another_sketch(monkeypatch: pytest.MonkeyPatch) -> None:
    _, first, _ = record("sketch")
    monkeypatch.setitem(CONFIGS["sketch"], "sketch-seed", SEED + 1)
    _, second, _ = record("sketch")
    assert not np.allclose(first["sketch"], second["sketch"])
    np.testing.assert_array_equal(first["norms"], second["norms"])


@every_form
@pytest.mark.parametrize("model", ["batchnorm", "tied"])
def test_the_server_reads_what_is_recorded(form: str, model: str) -> None:
    update, recorded, steps = record(form, model=model)
    assert set(recorded) == {"norms", form}
    length = sum(layer.size for layer in update.parameters.values())
    sketch = CountSketch(SIZE, SEED) if form == "sketch" else None
    batches = BatchUpdates.from_arrays(recorded, form, steps, length, sketch)  # type: ignore[arg-type]
    assert batches.steps == steps
    products = batches.products(update.parameters)
    if form == "norms":
        assert products is None
    else:
        squared = sum(
            float(np.square(layer.astype(np.float64)).sum()) for layer in update.parameters.values()
        )
        assert products is not None
        tolerance = 1e-4 if form == "full" else 1.0
        assert float(products.sum()) == pytest.approx(squared, rel=tolerance)


@every_form
def test_recording_never_copies_the_model(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = record(form)[1]

    def refuse(*args: object) -> None:
        raise AssertionError("deepcopy was called")

    monkeypatch.setattr(copy, "deepcopy", refuse)
    recorded = record(form)[1]
    assert all(np.array_equal(recorded[name], expected[name]) for name in expected)


@every_form
def test_a_model_of_many_numbers_is_recorded_whole(form: str) -> None:
    draw = torch.Generator().manual_seed(0)
    parameters = [torch.randn(shape, generator=draw) for shape in ((700, 700), (5,), (300, 400), ())]
    steps = [[torch.randn(p.shape, generator=draw) for p in parameters] for _ in range(2)]
    before = [parameter.clone() for parameter in parameters]
    recorder = make_recorder(parameters, CONFIGS[form])
    assert recorder is not None
    expected = []
    for step in steps:
        for parameter, change in zip(parameters, step, strict=True):
            parameter += change
        recorder.step()
        after = [parameter.clone() for parameter in parameters]
        change = {str(i): (new - old).numpy() for i, (new, old) in enumerate(zip(after, before, strict=True))}  # type: ignore[assignment]
        expected.append(change)
        before = after
    recorded = recorder.arrays()
    rows = [np.concatenate([layer.reshape(-1) for layer in change.values()]) for change in expected]
    norms = [np.square(row.astype(np.float64)).sum() for row in rows]
    np.testing.assert_allclose(recorded["norms"], norms, rtol=1e-12)
    if form == "sketch":
        sketches = [CountSketch(SIZE, SEED)(change) for change in expected]  # type: ignore[arg-type]
        np.testing.assert_allclose(recorded["sketch"], sketches, rtol=0, atol=1e-6)
    if form == "full":
        np.testing.assert_array_equal(recorded["full"], rows)


@every_form
def test_recorded_arrays_do_not_follow_the_model_afterwards(form: str) -> None:
    model = network()
    recorder = make_recorder(list(model.parameters()), CONFIGS[form])
    assert recorder is not None
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 1  # type: ignore[misc]
        recorder.step()
        first = {name: array.copy() for name, array in recorder.arrays().items()}
        for parameter in model.parameters():
            parameter += 2  # type: ignore[misc]
        recorder.step()
    second = recorder.arrays()
    assert all(np.array_equal(second[name][:1], first[name]) for name in first)
    count = sum(parameter.numel() for parameter in model.parameters())
    np.testing.assert_allclose(second["norms"], [count, 4 * count], rtol=1e-5)


@pytest.mark.parametrize(("form", "shape"), [("norms", (0,)), ("sketch", (0, SIZE)), ("full", (0, 6))])
def test_no_steps_give_arrays_without_rows(form: str, shape: tuple[int, ...]) -> None:
    recorder = make_recorder([torch.zeros(2, 3)], CONFIGS[form])
    assert recorder is not None
    arrays = recorder.arrays()
    assert arrays[form].shape == shape
    assert arrays["norms"].shape == (0,)
    assert arrays["norms"].dtype == np.float64
    assert arrays[form].dtype == (np.float32 if form == "full" else np.float64)


@pytest.mark.parametrize("rate", [0.5, 0.01])
def test_rows_of_sgd_are_minus_the_rate_times_the_gradient_by_hand(rate: float) -> None:
    draw = torch.Generator().manual_seed(3)
    data = Samples(torch.rand(10, 1, 2, 2, generator=draw), torch.randint(3, (10,), generator=draw))
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    with torch.no_grad():
        model[1].weight.copy_(torch.rand(3, 4, generator=draw))  # type: ignore[operator]
        model[1].bias.zero_()  # type: ignore[operator]
    weight = model[1].weight.detach().double().numpy().copy()  # type: ignore[operator]
    bias = np.zeros(3)
    recorder = make_recorder(list(model.parameters()), CONFIGS["full"])
    assert recorder is not None
    training = LocalTraining(rate, 4, 2, "sgd")
    train(model, data, training, torch.Generator().manual_seed(5), on_step=recorder.step)

    same = torch.Generator().manual_seed(5)
    expected = []
    for _ in range(2):
        for images, labels in data.batches(4, same, shuffle=True):
            x, y = images.flatten(1).double().numpy(), np.eye(3)[labels.numpy()]
            scores = np.exp(x @ weight.T + bias)
            error = (scores / scores.sum(axis=1, keepdims=True) - y) / len(x)
            step = -rate * np.concatenate([(error.T @ x).ravel(), error.sum(axis=0)])
            weight, bias = weight + step[:12].reshape(3, 4), bias + step[12:]
            expected.append(step)
    rows = recorder.arrays()["full"]
    assert rows.shape == (6, 15)
    np.testing.assert_allclose(rows, np.stack(expected), rtol=1e-4, atol=1e-6)


def test_nothing_is_recorded_unless_asked() -> None:
    assert make_recorder([torch.zeros(2)], {}) is None
    assert make_recorder([torch.zeros(2)], {"server-round": 1, "sketch-size": 4}) is None


def test_an_unknown_form_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(ConfigError, check=names("encoding of batch updates", "half")) as caught:
        make_recorder([torch.zeros(2)], {"batch-updates": "half"})
    assert all(form in str(caught.value) for form in RECORDERS)
