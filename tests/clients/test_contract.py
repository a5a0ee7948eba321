"""What every client of the package keeps to: one test for all of them."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from fda_flower.clients import (
    APFLTarget,
    DittoTarget,
    DomainClient,
    FedDAFTarget,
    IRMSource,
    KD3ATarget,
    KNNPerTarget,
    LocalPartSource,
    LocalPartTarget,
    LocalTraining,
    SourceClient,
    TargetClient,
)
from fda_flower.datasets import DataSpec, load_federation
from fda_flower.metrics import metric_names
from fda_flower.models import build_model

NDArrays = list[NDArray[Any]]
CLIENTS: dict[str, tuple[type[DomainClient], str]] = {
    "source": (SourceClient, "source-1"),
    "irm": (IRMSource, "source-1"),
    "target": (TargetClient, "target"),
    "feddaf": (FedDAFTarget, "target"),
    "ditto": (DittoTarget, "target"),
    "kd3a": (KD3ATarget, "target"),
    "apfl": (APFLTarget, "target"),
    "knn-per": (KNNPerTarget, "target"),
    "local part": (LocalPartTarget, "target"),
    "local part, source": (LocalPartSource, "source-1"),
}
SPEC = DataSpec("digits", "noise", (("std", 0.1),), target_samples=50)
ASKED: dict[str, dict[str, Any]] = {
    "norms": {"batch-updates": "norms"},
    "sketch": {"batch-updates": "sketch", "sketch-size": 16, "sketch-seed": 3},
    "full": {"batch-updates": "full"},
}

every_client = pytest.mark.parametrize("role", list(CLIENTS))


def network(name: str = "mlp") -> nn.Module:
    """``mlp``, or one with all that could go wrong: dropout, and integer and float buffers."""
    federation = load_federation(SPEC)
    if name == "mlp":
        return build_model("mlp", federation.shape, federation.classes, seed=0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(64, 16),
            nn.BatchNorm1d(16),
            nn.ReLU(),
            nn.Dropout(0.3),
            nn.Linear(16, 10),
        )


def make(role: str, model: str = "mlp", seed: int = 0, threads: int = 1, **training: Any) -> DomainClient:
    client, domain = CLIENTS[role]
    settings = LocalTraining(**{"learning_rate": 0.01, "batch_size": 11, **training})
    return client(load_federation(SPEC).domains[domain], network(model), settings, seed, threads)


def copies(arrays: NDArrays) -> NDArrays:
    return [array.copy() for array in arrays]


def initial(model: str = "mlp") -> NDArrays:
    return [value.numpy().copy() for value in network(model).state_dict().values()]


def fit(client: DomainClient, server_round: int = 1, model: str = "mlp", **config: Any) -> NDArrays:
    """The arrays after one round from the initial model, copied."""
    arrays, _, _ = client.fit(initial(model), {"server-round": server_round, **config})
    return copies(arrays)


def equal(first: NDArrays, second: NDArrays) -> bool:
    return len(first) == len(second) and all(map(np.array_equal, first, second))


@every_client
def test_its_role_and_domain_are_told(role: str) -> None:
    client = make(role)
    assert client.role == ("target" if CLIENTS[role][1] == "target" else "source")
    assert client.domain.name == CLIENTS[role][1]


@every_client
@pytest.mark.parametrize("model", ["mlp", "batchnorm"])
def test_its_parameters_are_the_state_dictionary_in_its_order(role: str, model: str) -> None:
    client = make(role, model)
    parameters, state = client.get_parameters({}), network(model).state_dict()
    assert len(parameters) == len(state)
    for array, (name, tensor) in zip(parameters, state.items(), strict=True):
        assert np.array_equal(array, tensor.numpy()), name
        assert array.dtype == tensor.numpy().dtype, name


@every_client
@pytest.mark.parametrize("model", ["mlp", "batchnorm"])
def test_fit_returns_arrays_like_those_of_get_parameters(role: str, model: str) -> None:
    client = make(role, model)
    arrays, _, _ = client.fit(initial(model), {"server-round": 1})
    for array, given, own in zip(arrays, initial(model), client.get_parameters({}), strict=True):
        assert isinstance(array, np.ndarray)
        assert (array.shape, array.dtype) == (given.shape, given.dtype)
        assert np.array_equal(array, own)
        assert np.isfinite(array).all()
        assert not np.array_equal(array, given), "training moves every layer and buffer"


@every_client
@pytest.mark.parametrize(("batch_size", "epochs"), [(8, 1), (7, 2), (25, 1), (1000, 1)])
def test_fit_tells_examples_steps_rate_and_loss(role: str, batch_size: int, epochs: int) -> None:
    client = make(role, batch_size=batch_size, epochs=epochs, learning_rate=0.02)
    _, examples, metrics = client.fit(initial(), {"server-round": 1})
    assert examples == len(client.domain.train)
    assert metrics["num-steps"] == math.ceil(examples / batch_size) * epochs
    assert metrics["learning-rate"] == 0.02
    assert metrics["batch-size"] == batch_size
    assert math.isfinite(metrics["train-loss"])
    assert metrics["train-loss"] > 0
    assert set(metrics) == {"num-steps", "learning-rate", "batch-size", "train-loss"}


@every_client
@pytest.mark.parametrize("model", ["mlp", "batchnorm"])
def test_the_same_round_gives_the_same_bits(role: str, model: str) -> None:
    client = make(role, model)
    first = fit(client, 1, model)
    fit(client, 2, model)
    assert equal(fit(client, 1, model), first), "a client keeps nothing between rounds"
    assert equal(fit(make(role, model), 1, model), first), "nor does anything else"


@every_client
def test_another_round_another_seed_or_another_domain_gives_other_bits(role: str) -> None:
    first = fit(make(role))
    assert not equal(fit(make(role), 2), first)
    assert not equal(fit(make(role, seed=1)), first)
    client = make(role)
    client.domain = type(client.domain)("elsewhere", client.domain.train, client.domain.test)
    assert not equal(fit(client), first)


@every_client
@pytest.mark.parametrize("model", ["mlp", "batchnorm"])
def test_the_global_random_state_decides_nothing(role: str, model: str) -> None:
    results = []
    with torch.random.fork_rng():
        for seed in (1, 2):
            torch.manual_seed(seed)
            client = make(role, model)
            results.append((fit(client, 1, model), client.evaluate(initial(model), {"server-round": 1})))
    assert equal(results[0][0], results[1][0])
    assert results[0][1] == results[1][1]


@every_client
@pytest.mark.parametrize("what", ["fit", "evaluate"])
def test_the_global_random_state_and_threads_are_left_as_they_were(role: str, what: str) -> None:
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    client, used = make(role, "batchnorm", threads=threads + 1), set()
    client.model.register_forward_hook(lambda *_: used.add(torch.get_num_threads()))
    getattr(client, what)(initial("batchnorm"), {"server-round": 1})
    assert used == {threads + 1}
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)


@every_client
@pytest.mark.parametrize("what", ["fit", "evaluate"])
def test_the_arrays_it_is_given_are_not_changed(role: str, what: str) -> None:
    given, client = initial("batchnorm"), make(role, "batchnorm")
    kept = copies(given)
    getattr(client, what)(given, {"server-round": 1})
    client.fit(initial("batchnorm"), {"server-round": 2})
    assert equal(given, kept)


@every_client
def test_fit_does_not_change_what_get_parameters_has_returned(role: str) -> None:
    client = make(role)
    before = client.get_parameters({})
    kept = copies(before)
    client.fit(before, {"server-round": 1})
    assert equal(before, kept)


@every_client
def test_fit_does_not_change_what_an_earlier_fit_has_returned(role: str) -> None:
    client = make(role)
    first, _, _ = client.fit(initial(), {"server-round": 1})
    kept = copies(first)
    client.fit(initial(), {"server-round": 2})
    assert equal(first, kept)


@every_client
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_fit_takes_arrays_that_are_read_only(role: str) -> None:
    given = initial()
    for array in given:
        array.setflags(write=False)
    arrays, _, _ = make(role).fit(given, {"server-round": 1})
    assert equal(copies(arrays), fit(make(role)))


@every_client
def test_another_number_of_arrays_is_refused(role: str) -> None:
    for wrong in (initial()[:-1], [*initial(), np.zeros(1, np.float32)]):
        with pytest.raises(ValueError, match="argument 2 is"):
            make(role).fit(wrong, {"server-round": 1})


@every_client
@pytest.mark.parametrize("model", ["mlp", "batchnorm"])
def test_evaluate_tells_loss_examples_and_accuracy(role: str, model: str) -> None:
    client = make(role, model)
    loss, examples, metrics = client.evaluate(initial(model), {"server-round": 1})
    assert math.isfinite(loss)
    assert loss > 0
    assert examples == len(client.domain.test)
    assert set(metrics) == set(metric_names(regression=False)) - {"loss"}
    assert 0 <= metrics["accuracy"] <= 1
    assert equal(client.get_parameters({}), initial(model)), "evaluation changes no model"


@every_client
def test_evaluate_repeats_itself_and_follows_the_model(role: str) -> None:
    client = make(role)
    first = client.evaluate(initial(), {"server-round": 3})
    trained = fit(client)
    assert client.evaluate(initial(), {"server-round": 3}) == first
    assert client.evaluate(trained, {"server-round": 3})[0] < first[0]


@every_client
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_the_loss_goes_down_over_rounds(role: str, optimizer: str) -> None:
    client = make(role, optimizer=optimizer, learning_rate=0.01 if optimizer == "adam" else 0.2, batch_size=5)
    arrays, losses = initial(), []
    for server_round in range(1, 9):
        arrays, _, metrics = client.fit(copies(arrays), {"server-round": server_round})
        losses.append(metrics["train-loss"])
    assert losses[-1] < 0.6 * losses[0]
    loss, _, metrics = client.evaluate(copies(arrays), {})
    assert metrics["accuracy"] > 0.6
    assert loss < losses[0]


# recording


@pytest.mark.parametrize("form", list(ASKED))
def test_a_source_records_nothing_whatever_it_is_asked(form: str) -> None:
    arrays, _, metrics = make("source").fit(initial(), {"server-round": 1, **ASKED[form]})
    assert set(metrics) == {"num-steps", "learning-rate", "batch-size", "train-loss"}
    assert equal(copies(arrays), fit(make("source")))


@pytest.mark.parametrize("form", list(ASKED))
def test_recording_does_not_change_the_targets_training(form: str) -> None:
    arrays, _, metrics = make("target").fit(initial(), {"server-round": 1, **ASKED[form]})
    recorded = {name for name in metrics if name.startswith("batch-updates.")}
    assert recorded == {"batch-updates.norms"} | ({f"batch-updates.{form}"} - {"batch-updates.norms"})
    assert all(isinstance(metrics[name], bytes) for name in recorded)
    assert equal(copies(arrays), fit(make("target")))
