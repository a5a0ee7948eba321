"""FedDAF's target: its gradients, its blend and what it keeps, against the definitions."""

import numpy as np
import pytest
import torch
from digit_clients import kept, make, same, shifted, trained
from flwr.app import RecordDict
from tensors import tensors

from fda_flower.aggregation import blend, functional_distance
from fda_flower.clients import TargetClient
from fda_flower.wire.asked.personal import Blend

every_network = pytest.mark.parametrize("model", ["mlp", "batchnorm"])


def ask(state=None, round=1, model="mlp", mu=5.0, shift=0.0, **code):
    """The reply of a round to the network's first arrays, all of them moved by a number."""
    client = make(TargetClient, model, state=state)
    question = Blend(mu=mu, **{"gradients": "alike", "statistics": "blended", "penalty": 0.0, **code})
    return trained(client, round, shifted(client.layers(), shift), question)


def own(state):
    return kept(make(TargetClient, state=state), "feddaf")


@every_network
def test_in_the_first_round_it_takes_the_sources_model_as_it_is(model):
    state, plain = RecordDict(), make(TargetClient, model)
    start = plain.layers()
    reply, expected = ask(state, model=model), trained(plain)
    assert same(reply.answer.adapted, start)
    assert same(reply.arrays, expected.arrays)
    assert (reply.metrics, reply.answer.fresh_start) == (expected.metrics, True)
    assert same(own(state), reply.arrays)


@every_network
@pytest.mark.parametrize("mu", [5.0, 0.0, -3.0])
def test_in_the_second_it_blends_and_trains_from_the_blend(model, mu):
    state, plain = RecordDict(), make(TargetClient, model)
    first = ask(state, model=model, mu=mu).arrays
    reply = ask(state, 2, model, mu, 0.01)
    theta, alpha = functional_distance(reply.answer.sim, mu)
    assert (reply.answer.theta, reply.answer.alpha, reply.answer.fresh_start) == (theta, alpha, False)
    received = shifted(plain.layers(), 0.01)
    buffers = received.keys() - dict(plain.model.named_parameters()).keys()
    expected = blend(received, first, alpha, buffers)
    assert same(reply.answer.adapted, expected)
    assert same(reply.arrays, trained(plain, 2, expected).arrays)
    assert same(own(state), reply.arrays)


def test_in_the_authors_code_it_keeps_its_own_statistics_and_is_drawn_to_the_sources_model():
    state, plain = RecordDict(), make(TargetClient, "batchnorm")
    first = ask(state, model="batchnorm").arrays
    alike = ask(state, 2, "batchnorm", 5.0, 0.01).answer
    reply = ask(state, 2, "batchnorm", 5.0, 0.01, gradients="apart", statistics="own", penalty=0.1)
    received, parameters = shifted(plain.layers(), 0.01), dict(plain.model.named_parameters())
    assert reply.answer.sim != alike.sim
    expected = blend(received, first, reply.answer.alpha, received.keys() - parameters.keys())
    expected |= {name: layer for name, layer in first.items() if name not in parameters}
    assert same(reply.answer.adapted, expected)
    plain.load(received)
    anchor = [p.detach().clone() for p in plain.model.parameters()]

    def loss(model, x, y):
        pairs = zip(model.parameters(), anchor, strict=True)
        far = sum((p - a).square().sum() for p, a in pairs)
        return torch.nn.functional.cross_entropy(model(x), y) + 0.05 * far

    by_hand = plain.train_from(expected, {"server-round": 2}, loss).arrays
    assert all(np.allclose(reply.arrays[name], by_hand[name], atol=1e-6) for name in by_hand)


def test_the_similarity_is_of_the_two_mean_gradients():
    state, samples, gradients = RecordDict(), make(TargetClient).domain.train, []
    first = ask(state).arrays
    reply = ask(state, 2, shift=0.01)
    for arrays in (shifted(make(TargetClient).layers(), 0.01), first):
        client, batches = make(TargetClient), []
        client.load(arrays)
        for begin in range(0, 50, 10):
            client.model.zero_grad()
            x, y = (each[begin : begin + 10] for each in tensors(samples))
            torch.nn.functional.cross_entropy(client.model(x), y).backward()
            batches.append(torch.cat([p.grad.flatten() for p in client.model.parameters()]).double())
        gradients.append(torch.stack(batches).mean(dim=0))
    cosine = torch.nn.functional.cosine_similarity(*gradients, dim=0)  # type: ignore[arg-type, misc]
    assert reply.answer.sim == pytest.approx(float(cosine), abs=1e-5)
