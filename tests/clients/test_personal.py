"""Ditto's, APFL's and kNN-Per's targets: by hand, and bit for bit against FedAvg's and local training."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from digit_clients import NOISY, evaluated, kept, make, mlp, same, scalar, shifted, trained
from flwr.app import RecordDict
from naming import names
from tensors import tensors

from fda_flower.aggregation import choose_weight, mixed_scores, neighbour_probabilities
from fda_flower.clients import LocalTraining, TargetClient
from fda_flower.datasets import DataSpec, Domain, Samples, load_federation
from fda_flower.errors import RunError
from fda_flower.models import build_model
from fda_flower.models.devices import RandomNumbers
from fda_flower.prediction.batches import batches
from fda_flower.wire.asked.personal import (
    EvaluateMix,
    EvaluateNeighbours,
    EvaluatePersonal,
    FineTune,
    NeighboursUsed,
    Personalise,
    Personalised,
    TrainToMix,
)

OPTIMIZERS = pytest.mark.parametrize("optimizer", ["sgd", "adam"])
MIXES = pytest.mark.parametrize("mix", ["outputs", "parameters"])
SMALL = DataSpec("digits", "rotate", target_samples=40, test_samples=60)


def line(v):
    return {"v": np.array([[v]], np.float32)}


# Ditto


def ditto(state=None, optimizer="sgd", rate=0.05):
    return make(TargetClient, training=LocalTraining(rate, 11, optimizer=optimizer), state=state)


def personal(state):
    return kept(ditto(state), "personal")


@pytest.mark.parametrize(("epochs", "v"), [(1, 0.2), (200, 1.0)])
def test_a_personal_model_by_hand_and_its_fixed_point(epochs, v):
    client = scalar(TargetClient, 0.1, epochs)
    trained(client, model=line(0), question=Personalise(penalty=1.0))
    np.testing.assert_allclose(kept(client, "personal")["v"], v, rtol=1e-6)


@OPTIMIZERS
def test_without_a_penalty_the_personal_model_is_local_training_bit_for_bit(optimizer):
    state, plain = RecordDict(), None
    for server_round in (1, 2):
        trained(ditto(state, optimizer=optimizer), server_round, question=Personalise(penalty=0.0))
        plain = trained(ditto(optimizer=optimizer), server_round, plain).arrays
        assert same(personal(state), plain)


@pytest.mark.parametrize("penalty", [0.0, 5.0])
def test_dittos_global_model_is_trained_as_in_fedavg_and_its_own_goes_on_at_the_client(penalty):
    state, anchor = RecordDict(), ditto().layers()
    first = trained(ditto(state), question=Personalise(penalty=penalty))
    assert same(first.arrays, trained(ditto()).arrays)
    assert (first.records, first.answer) == ({}, Personalised(distance=0.0, fresh_start=True))
    before = personal(state)
    second = trained(ditto(state), 2, question=Personalise(penalty=penalty))
    squares = (((before[n].astype(np.float64) - anchor[n]) ** 2).sum() for n in anchor)
    assert second.answer.distance == pytest.approx(sum(squares) ** 0.5)
    assert not second.answer.fresh_start
    assert not same(personal(state), before)
    expected = evaluated(ditto(), 2, personal(state))
    assert evaluated(ditto(state), 2, question=EvaluatePersonal()) == expected


@pytest.mark.parametrize("part", ["all", "head"])
def test_a_fine_tuned_model_is_replied_kept_and_evaluated(part):
    state = RecordDict()
    reply = trained(ditto(state), question=FineTune(part=part))
    assert same(reply.arrays, trained(ditto(), tune=part).arrays)
    found = evaluated(ditto(state), question=EvaluatePersonal())
    assert found == evaluated(ditto(), model=reply.arrays)
    with pytest.raises(RunError, check=names("target")):
        evaluated(ditto(), question=EvaluatePersonal())


# APFL


def apfl(state=None, optimizer="sgd", **more):
    training = LocalTraining(0.05, 11, 2, optimizer)
    return make(TargetClient, "batchnorm", NOISY, training, seed=3, state=state, **more)


def settings(a, mix="outputs", adaptive=False, decay=0.0) -> dict[str, Any]:
    return {"question": TrainToMix(mixing=a, mix=mix, adaptive=adaptive, alpha_decay=decay)}


def mixture(state, round, model, mix="outputs", **config):
    return evaluated(apfl(state), round, model, EvaluateMix(mix=mix), **config)


def own(state):
    return kept(apfl(state), "apfl")


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
def test_one_step_of_a_mixture_by_hand(mix, adaptive, decay, v, a):
    """``w = 0``, ``v = 1``, ``a = 0.5``, ``η = 0.1``."""
    client, asked = scalar(TargetClient, 0.1), settings(0.5, mix, adaptive, decay)
    client.private_state.save_after("apfl", line(1.0), {"alpha": 0.5}, 1)
    reply = trained(client, 2, line(0.0), **asked)
    np.testing.assert_allclose(reply.arrays["v"], 0.2, rtol=1e-6)
    np.testing.assert_allclose(kept(client, "apfl")["v"], v, rtol=1e-6)
    assert reply.answer.alpha == pytest.approx(a, rel=1e-6)
    found = evaluated(client, 2, reply.arrays, EvaluateMix(mix=mix)).metrics
    assert found["loss"] == pytest.approx((a * v + (1 - a) * 0.2 - 2) ** 2 / 2, rel=1e-5)


@pytest.mark.parametrize(("v", "w", "a"), [(50.0, 0.0, 0.0), (1.0, -50.0, 1.0)])
def test_the_adaptive_weight_stays_between_0_and_1(v, w, a):
    client = scalar(TargetClient, 0.1)
    client.private_state.save_after("apfl", line(v), {"alpha": 0.5}, 1)
    assert trained(client, 2, line(w), **settings(0.5, "parameters", True)).answer.alpha == a


@MIXES
def test_the_weight_moves_once_a_round_and_goes_on_from_there(mix):
    state, start, asked = RecordDict(), apfl().layers(), settings(0.5, mix, True)
    alphas = [trained(apfl(state), n, start, **asked).answer.alpha for n in (1, 2, 3)]
    # In the first round both models are one, until one of them has made a step.
    assert (alphas[0] == 0.5) == (mix == "parameters")
    assert len({0.5, *alphas[1:]}) == 3
    client = apfl()
    client.training = LocalTraining(0.05, 11, 1, "sgd")  # a second epoch would not move it again
    assert trained(client, **asked).answer.alpha == alphas[0]


@MIXES
@OPTIMIZERS
@pytest.mark.parametrize("a", [0.0, 0.5, 1.0])
def test_the_reply_is_fedavgs_bit_for_bit_whatever_the_weight(mix, optimizer, a):
    state = RecordDict()
    for server_round in (1, 2):
        reply = trained(apfl(state, optimizer=optimizer), server_round, **settings(a, mix))
        expected = trained(apfl(optimizer=optimizer), server_round)
        assert same(reply.arrays, expected.arrays)
        assert expected.metrics == reply.metrics
        assert reply.records == {}, "its own model stays"
        assert reply.answer.fresh_start == (server_round == 1)


@MIXES
@OPTIMIZERS
def test_with_weight_1_the_own_model_is_local_training_bit_for_bit(mix, optimizer):
    state, start, alone = RecordDict(), apfl().layers(), None
    for server_round in (1, 2, 3):
        received = shifted(start, 1.0) if server_round > 1 else start
        trained(apfl(state, optimizer=optimizer), server_round, received, **settings(1.0, mix))
        alone = trained(apfl(optimizer=optimizer), server_round, alone).arrays
        assert same(own(state), alone)


@MIXES
def test_with_weight_1_the_mixture_is_the_own_model_and_with_0_or_none_the_global_one(mix):
    received, more = trained(apfl()).arrays, {"outcomes": True}
    for a in (0.0, 1.0, None):
        state = RecordDict()
        if a is not None:
            trained(apfl(state), **settings(a, mix))
        found = mixture(state, 1, received, mix, **more)
        expected = evaluated(apfl(), 1, own(state) if a else received, **more)
        assert expected.metrics == found.metrics
        assert same(found.records["outcomes"], expected.records["outcomes"])


def test_half_of_the_outputs_each():
    state, client, outputs = RecordDict(), apfl(), []
    received = trained(apfl(state), **settings(0.5)).arrays
    for model in (own(state), received):
        client.load(model)
        with client.drawing("test", {"server-round": 1}) as generator, torch.no_grad():
            client.model.eval()
            (x, y), *_ = batches(client.domain.test, 256, generator)
            outputs.append(client.model(x))
    expected = torch.nn.functional.cross_entropy((outputs[0] + outputs[1]) / 2, y)
    found = mixture(state, 1, received).metrics
    assert found["loss"] == pytest.approx(float(expected), rel=1e-6)
    assert found["accuracy"] == float(((outputs[0] + outputs[1]).argmax(1) == y).float().mean())


def test_mixed_parameters_have_mixed_running_statistics():
    state, asked = RecordDict(), settings(0.25, "parameters")
    received = trained(apfl(state), **asked).arrays
    mixed = {
        name: v if v.dtype.kind == "i" else (0.25 * v + 0.75 * received[name]).astype(v.dtype)
        for name, v in own(state).items()
    }
    expected = evaluated(apfl(), 1, mixed).metrics
    found = mixture(state, 1, received, "parameters").metrics
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-5)


def test_the_evaluation_takes_the_model_of_the_last_training_up_to_its_round():
    state, received, asked = RecordDict(), trained(apfl()).arrays, settings(0.5)
    trained(apfl(state), **asked)
    first = mixture(state, 1, received)
    assert mixture(state, 2, received).metrics != first.metrics, "other noise"
    trained(apfl(state), 2, **asked)
    assert mixture(state, 1, received) == first


def test_the_factor_of_the_learning_rate_multiplies_that_of_all_that_moves():
    halved, by_hand = RecordDict(), RecordDict()
    asked = settings(0.5, adaptive=True, decay=0.02)
    reply = trained(apfl(halved), **asked, **{"rate-factor": 0.5})
    client = apfl(by_hand)
    client.training = LocalTraining(0.025, 11, 2, "sgd")
    assert reply.answer.alpha == trained(client, **asked).answer.alpha
    assert same(own(halved), own(by_hand))


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


# kNN-Per


def knn(spec=SMALL, model=None, **more):
    return make(
        TargetClient, mlp(spec) if model is None else model, spec, LocalTraining(0.01, 11), seed=3, **more
    )


@cache
def known(spec=SMALL):
    """A model that knows something: the target's, after a few epochs."""
    return trained(knn(spec), epochs=3).arrays


def ask(client, k=3, lam: float | str = 0.5, scale=1.0, model=None, **config):
    asked = EvaluateNeighbours(k=k, scale=scale, weight=None if isinstance(lam, str) else lam)
    return evaluated(client, 2, model or known(), asked, **config)


def by_hand(client, k, scale):
    """Logits of training and test samples, and the probabilities of their neighbours among the others."""
    client.load(known())
    client.model.eval()
    train, test = client.domain.train, client.domain.test
    with torch.no_grad():
        features = [client.model[:-1](tensors(samples)[0]).double() for samples in (train, test)]
        logits = [client.model[-1](each.float()).numpy() for each in features]
    found = []
    for queries in features:
        distances = np.sqrt(((queries[:, None] - features[0]) ** 2).sum(dim=2).numpy())
        if queries is features[0]:
            names = np.arange(len(train)) if train.groups is None else train.groups
            distances[names[:, None] == names] = np.inf
        nearest = distances.argsort(axis=1)[:, :k]
        near = np.take_along_axis(distances, nearest, axis=1)
        found.append(neighbour_probabilities(near, train.y[nearest], 10, len(queries[0]), scale))
    return logits, found


@pytest.mark.parametrize(("k", "lam", "scale"), [(3, 0.5, 1.0), (7, 0.9, 0.1), (40, 1.0, 1.0)])
def test_neighbours_by_the_definition(k, lam, scale):
    client = knn()
    (_, logits), (_, near) = by_hand(client, k, scale)
    scores, y = mixed_scores(logits, near, lam), client.domain.test.y
    reply = ask(client, k, lam, scale, outcomes=True)
    right = scores.argmax(axis=1) == y
    assert reply.metrics["accuracy"] == right.mean()
    assert np.unpackbits(reply.records["outcomes"]["right"], count=60).tolist() == right.tolist()
    assert reply.metrics["loss"] == pytest.approx(-scores[range(len(y)), y].mean(), rel=1e-5)
    assert reply.answer == NeighboursUsed(weight=lam)


def test_lambda_is_chosen_by_leaving_each_training_sample_out():
    (logits, _), (near, _) = by_hand(knn(), 3, 1.0)
    target = load_federation(SMALL).domains["target"]
    expected = choose_weight(logits, near, target.train.y)
    reply = ask(knn(), lam="cv")
    assert reply.answer.weight == expected
    assert reply == ask(knn(), lam=expected)
    other = knn(domain=Domain("target", target.train, replace(target.test, y=np.roll(target.test.y, 7))))
    assert ask(other, lam="cv").answer.weight == expected, "no label of the test set chooses it"


def test_lambda_is_chosen_without_the_other_samples_of_the_same_patient():
    """Two photographs of each patient: his other one, the nearest of all, does not vote for its own label."""
    target = load_federation(SMALL).domains["target"]
    half, labels = target.train.take(np.arange(10)), np.random.default_rng(0).integers(10, size=10)
    twice = Samples(np.concatenate([half.x, half.x + np.float32(1e-3)]), np.tile(labels, 2))
    rows, groups = Domain("target", twice, target.test), np.tile(np.arange(10), 2)
    patients = replace(rows, train=replace(twice, groups=groups))
    assert ask(knn(domain=rows), k=1, lam="cv").answer.weight > 0.5
    client = knn(domain=patients)
    (logits, _), (near, _) = by_hand(client, 1, 1.0)
    expected = choose_weight(logits, near, twice.y, groups=groups)
    assert ask(client, k=1, lam="cv").answer.weight == expected


@pytest.mark.parametrize("spec", [SMALL, replace(NOISY, target_samples=30)], ids=["rotate", "noise"])
@pytest.mark.parametrize("lam", [0.0, 0.9])
def test_with_lambda_0_the_mixture_is_the_global_model(spec, lam):
    expected = evaluated(knn(spec), 2, known(spec), outcomes=True)
    reply = ask(knn(spec), lam=lam, model=known(spec), outcomes=True)
    for name in ("accuracy", "loss"):
        assert (reply.metrics[name] == expected.metrics[name]) == (lam == 0)
    assert same(reply.records["outcomes"], expected.records["outcomes"]) == (lam == 0)


def test_k_may_be_the_number_of_samples_and_features_those_of_a_convolution():
    assert 0 <= ask(knn(), k=40, lam="cv").metrics["accuracy"] <= 1
    client = knn(model=build_model("cnn", (1, 8, 8), 10, seed=0))
    assert ask(client, lam="cv", model=client.layers()).examples == 60
