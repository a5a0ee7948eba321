"""APFL's target: by hand, and its two models against FedAvg's and local training bit for bit."""

from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import RecordDict

from fda_flower.clients import APFLTarget, LocalTraining, TargetClient
from fda_flower.clients.personal import RandomNumbers
from fda_flower.datasets import DataSpec, Domain, Samples, load_federation
from fda_flower.wire.protocol import EvaluateRequest, TrainRequest, to_record

SPEC = DataSpec("digits", "noise", (("std", 0.1),), target_samples=50, test_samples=60)
MIXES = pytest.mark.parametrize("mix", ["outputs", "parameters"])
OPTIMIZERS = pytest.mark.parametrize("optimizer", ["sgd", "adam"])


def network():
    """A network with BatchNorm and dropout."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(64, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.5),
            torch.nn.ReLU(), torch.nn.Linear(16, 10),
        )  # fmt: skip


def make(state=None, kind=APFLTarget, optimizer="sgd", folder=None):
    domain = load_federation(SPEC).domains["target"]
    training = LocalTraining(0.05, 11, 2, optimizer)
    return kind(domain, network(), training, 3, state=state, own_folder=folder)


def settings(a, server_round, mix="outputs", adaptive=False, alpha_decay=0.0, **config):
    return {
        **{"server-round": server_round, "mixing": a, "mix": mix},
        **{"adaptive": adaptive, "alpha-decay": alpha_decay, **config},
    }


def ask(client, a, server_round=1, model=None, **config):
    arrays = to_record(make().layers() if model is None else model)
    return client.local_train(TrainRequest(arrays, settings(a, server_round, **config)))


def plain(server_round=1, model=None, optimizer="sgd", **config):
    """A plain target's training."""
    arrays = to_record(make().layers() if model is None else model)
    client = make(kind=TargetClient, optimizer=optimizer)
    return client.local_train(TrainRequest(arrays, {"server-round": server_round, **config}))


def evaluated(client, a, model, server_round=1, **config):
    return client.local_evaluate(EvaluateRequest(to_record(model), settings(a, server_round, **config)))


def own(client):
    return client.own_state.load("apfl")[0]


def same(one, other):
    return one.keys() == other.keys() and all(one[name].tobytes() == other[name].tobytes() for name in one)


# By hand: z = w x, squared loss / 2, x = 1, y = 2, w = 0, v = 1, a = 0.5, η = 0.1


class Line(torch.nn.Module):
    """``z = w x``."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(1, 1))

    def forward(self, x):
        return x @ self.w


def line_target(kind=APFLTarget):
    """``F(w) = (w − 2)²/2`` as the mean squared error of one sample: x = √½, y = √2."""
    samples = Samples(torch.tensor([[0.5**0.5]]), torch.tensor([[2.0**0.5]]))
    return kind(Domain("t", samples, samples), Line(), LocalTraining(0.1, 1, 1, "sgd"), state=RecordDict())


def line(value):
    return {"w": np.array([[value]], np.float32)}


@pytest.mark.parametrize(
    ("mix", "adaptive", "decay", "v", "a"),
    [
        ("parameters", False, 0.0, 1.075, 0.5),
        ("parameters", True, 0.0, 1.075, 0.65),
        ("outputs", False, 0.0, 1.07, 0.5),
        ("outputs", True, 0.0, 1.07, 0.612),  # 0.5 − 0.1 · (1 − 0.2)(0.6 − 2)
        ("outputs", True, 0.2, 1.07, 0.602),
    ],
)
def test_one_step_by_hand(mix, adaptive, decay, v, a):
    client = line_target()
    client.own_state.save_after("apfl", line(1.0), {"alpha": 0.5}, 1)
    reply = ask(client, 0.5, 2, line(0.0), mix=mix, adaptive=adaptive, alpha_decay=decay)
    np.testing.assert_allclose(reply.arrays["w"], 0.2, rtol=1e-6)
    np.testing.assert_allclose(own(client)["w"], v, rtol=1e-6)
    assert reply.metrics["alpha"] == pytest.approx(a, rel=1e-6)
    found = evaluated(client, 0.5, reply.arrays, 2, mix=mix).metrics
    mixture = a * v + (1 - a) * 0.2
    assert found["loss"] == pytest.approx((mixture - 2) ** 2 / 2, rel=1e-5)
    assert found["loss-global"] == pytest.approx(1.62)


@pytest.mark.parametrize(("v", "w", "a"), [(50.0, 0.0, 0.0), (1.0, -50.0, 1.0)])
def test_the_adaptive_weight_stays_between_0_and_1(v, w, a):
    client = line_target()
    client.own_state.save_after("apfl", line(v), {"alpha": 0.5}, 1)
    assert ask(client, 0.5, 2, line(w), mix="parameters", adaptive=True).metrics["alpha"] == a


@MIXES
def test_the_weight_moves_once_a_round_and_goes_on_from_there(mix):
    state = RecordDict()
    alphas = [ask(make(state), 0.5, n, mix=mix, adaptive=True).metrics["alpha"] for n in (1, 2, 3)]
    # In the first round both models are one, until one of them has made a step.
    assert (alphas[0] == 0.5) == (mix == "parameters")
    assert len({0.5, *alphas[1:]}) == 3
    client = make(RecordDict())
    client.training = LocalTraining(0.05, 11, 1, "sgd")  # a second epoch would not move it again
    assert ask(client, 0.5, 1, mix=mix, adaptive=True).metrics["alpha"] == alphas[0]


# Bit for bit


@MIXES
@OPTIMIZERS
@pytest.mark.parametrize("a", [0.0, 0.5, 1.0])
def test_the_reply_is_fedavgs_bit_for_bit_whatever_the_weight(mix, optimizer, a):
    state = RecordDict()
    for server_round in (1, 2):
        reply = ask(make(state, optimizer=optimizer), a, server_round, mix=mix)
        expected = plain(server_round, optimizer=optimizer)
        assert same(reply.arrays, expected.arrays)
        assert expected.metrics.items() <= reply.metrics.items()
        assert reply.records == {}, "its own model stays"


@MIXES
@OPTIMIZERS
def test_with_weight_1_the_own_model_is_local_training_bit_for_bit(mix, optimizer):
    state, alone = RecordDict(), make().layers()
    for server_round in (1, 2, 3):
        moved = {name: np.asarray(array + array.dtype.type(1)) for name, array in make().layers().items()}
        received = moved if server_round > 1 else None
        ask(make(state, optimizer=optimizer), 1.0, server_round, received, mix=mix)
        alone = plain(server_round, alone, optimizer).arrays
        assert same(own(make(state)), alone)


@MIXES
def test_with_weight_1_the_mixture_is_the_own_model_and_with_0_the_global_one(mix):
    state, received = RecordDict(), plain().arrays
    ask(make(state), 1.0, mix=mix)
    found = evaluated(make(state), 1.0, received, mix=mix, outcomes=True)
    alone = make(kind=TargetClient).local_evaluate(
        EvaluateRequest(to_record(own(make(state))), {"server-round": 1, "outcomes": True})
    )
    shared = make(kind=TargetClient).local_evaluate(EvaluateRequest(to_record(received), {"server-round": 1}))
    assert alone.metrics.items() <= found.metrics.items()
    assert found.records["outcomes"]["right"].tobytes() == alone.records["outcomes"]["right"].tobytes()
    state = RecordDict()
    ask(make(state), 0.0, mix=mix)
    found = evaluated(make(state), 0.0, received, mix=mix)
    for name, value in shared.metrics.items():
        assert found.metrics[name] == found.metrics[f"{name}-global"] == value


def test_half_of_the_outputs_each():
    state = RecordDict()
    received = ask(make(state), 0.5).arrays
    client = make()
    outputs = []
    for model in (own(make(state)), received):
        client.load(model)
        with client.drawing("test", {"server-round": 1}) as generator, torch.no_grad():
            client.model.eval()
            (x, y), *_ = client.domain.test.batches(256, generator)
            outputs.append(client.model(x))
    expected = torch.nn.functional.cross_entropy((outputs[0] + outputs[1]) / 2, y)
    found = evaluated(make(state), 0.5, received).metrics
    assert found["loss"] == pytest.approx(float(expected), rel=1e-6)
    assert found["accuracy"] == float(((outputs[0] + outputs[1]).argmax(1) == y).float().mean())


def test_mixed_parameters_have_mixed_running_statistics():
    state = RecordDict()
    received = ask(make(state), 0.25, mix="parameters").arrays
    mixed = {
        name: v if v.dtype.kind == "i" else (0.25 * v + 0.75 * received[name]).astype(v.dtype)
        for name, v in own(make(state)).items()
    }
    expected = make(kind=TargetClient).local_evaluate(EvaluateRequest(to_record(mixed), {"server-round": 1}))
    found = evaluated(make(state), 0.25, received, mix="parameters").metrics
    assert found["loss"] == pytest.approx(expected.metrics["loss"], rel=1e-5)


# What it keeps


@pytest.mark.parametrize("where", ["folder", "context"])
def test_the_own_model_is_kept_and_a_round_run_again_begins_from_the_state_before(where, tmp_path):
    kept: dict[str, Any] = {"folder": tmp_path} if where == "folder" else {"state": RecordDict()}
    first, second = (ask(make(**kept), 0.5, n, adaptive=True) for n in (1, 2))
    assert first.metrics["fresh-start"] == 1
    assert second.metrics["fresh-start"] == 0
    after = own(make(**kept))
    again = ask(make(**kept), 0.5, 2, adaptive=True)
    assert again.metrics == second.metrics
    assert same(own(make(**kept)), after)


@MIXES
def test_a_target_without_an_own_model_evaluates_the_global_one(mix):
    received = plain().arrays
    found = evaluated(make(RecordDict()), 0.75, received, mix=mix).metrics
    assert (found["accuracy"], found["loss"]) == (found["accuracy-global"], found["loss-global"])


def test_the_evaluation_takes_the_model_of_the_last_training_up_to_its_round(tmp_path):
    received = plain().arrays
    ask(make(folder=tmp_path), 0.5, 1)
    first = evaluated(make(folder=tmp_path), 0.5, received, 1)
    assert evaluated(make(folder=tmp_path), 0.5, received, 2).metrics != first.metrics, "other noise"
    ask(make(folder=tmp_path), 0.5, 2)
    assert evaluated(make(folder=tmp_path), 0.5, received, 1) == first


def test_a_training_that_fails_keeps_the_model_as_it_was(monkeypatch):
    state = RecordDict()
    ask(make(state), 0.5)
    before = own(make(state))

    def fails(*args, **more):
        raise MemoryError

    monkeypatch.setattr(TargetClient, "train_from", fails)
    with pytest.raises(MemoryError):
        ask(make(state), 0.5, 2)
    assert same(own(make(state)), before)


def test_the_factor_of_the_learning_rate_multiplies_that_of_all_that_moves():
    halved, by_hand = RecordDict(), RecordDict()
    config: dict[str, Any] = {"adaptive": True, "alpha_decay": 0.02}
    reply = ask(make(halved), 0.5, **config, **{"rate-factor": 0.5})
    client = make(by_hand)
    client.training = LocalTraining(0.025, 11, 2, "sgd")
    assert reply.metrics["alpha"] == ask(client, 0.5, **config).metrics["alpha"]
    assert same(own(make(halved)), own(make(by_hand)))


def test_without_its_settings_it_is_a_plain_target():
    client = make(RecordDict())
    arrays = to_record(client.layers())
    reply = client.local_train(TrainRequest(arrays, {"server-round": 1}))
    assert same(reply.arrays, plain().arrays)
    assert reply.metrics == plain().metrics
    assert client.own_state.load("apfl") is None
    request = EvaluateRequest(arrays, {"server-round": 1})
    expected = make(kind=TargetClient).local_evaluate(request)
    assert make(RecordDict()).local_evaluate(request) == expected


def test_random_numbers_of_a_gpu_are_apart_too(monkeypatch):
    gpu, now = torch.device("cuda", 0), {"state": torch.tensor([7])}
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: now["state"])
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: now.update(state=state))
    numbers, seen = RandomNumbers(gpu), []
    for _ in range(2):
        now["state"] = torch.tensor([1])  # what the other model has drawn
        with numbers.drawn():
            seen.append((int(now["state"]), float(torch.rand(1))))
            now["state"] = now["state"] + 1
        assert int(now["state"]) == 1
    assert [state for state, _ in seen] == [7, 8]
    assert seen[0][1] != seen[1][1]
