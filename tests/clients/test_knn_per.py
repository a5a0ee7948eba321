"""kNN-Per's target: against the definition with loops, and its ends against plain evaluation."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from fda_flower.clients import KNNPerTarget, LocalTraining, TargetClient
from fda_flower.datasets import DataSpec, Domain, load_federation
from fda_flower.models import build_model
from fda_flower.wire.protocol import EvaluateRequest, TrainRequest, to_record

SPEC = DataSpec("digits", "rotate", target_samples=40, test_samples=60)
NOISY = DataSpec("digits", "noise", (("std", 0.3),), target_samples=30, test_samples=40)


def make(spec=SPEC, kind=KNNPerTarget, model="mlp", domain=None):
    data = load_federation(spec)
    network = build_model(model, data.shape, data.classes, seed=0)
    return kind(data.domains["target"] if domain is None else domain, network, LocalTraining(0.01, 11), 3)


@cache
def trained(spec=SPEC):
    """A model that knows something: the target's, after a few epochs."""
    client = make(spec, TargetClient)
    client.training = replace(client.training, epochs=3)
    return client.train_from(client.layers(), {"server-round": 1}).arrays


def ask(client, k=3, lam: float | str = 0.5, scale=1.0, mix="probabilities", model=None, **config):
    asked = {"neighbours": k, "lambda": lam, "kernel-scale": scale, "mix": mix, "server-round": 2, **config}
    return client.local_evaluate(EvaluateRequest(to_record(model or trained()), asked))


def plain(spec=SPEC, model=None, **config):
    arrays = to_record(model or trained(spec))
    return make(spec, TargetClient).local_evaluate(EvaluateRequest(arrays, {"server-round": 2, **config}))


class Definition:
    """Kernel and mixture for each sample alone, in NumPy."""

    def __init__(self, client, model, k, scale):
        client.load(model)
        client.model.eval()
        body, head = client.model[:-1], client.model[-1]
        train, test = client.domain.train, client.domain.test
        with torch.no_grad():
            self.keys, self.queries = (body(s.x).double().numpy() for s in (train, test))
            self.known, self.logits = (head(body(s.x)).double().numpy() for s in (train, test))
        self.y, self.answers = train.y.numpy(), test.y.numpy()
        self.k, self.scale = k, scale

    def near(self, query, left_out=None):
        squares = {j: ((query - key) ** 2).sum() for j, key in enumerate(self.keys) if j != left_out}
        p = np.zeros(10)
        for j in sorted(squares, key=lambda j: squares[j])[: self.k]:
            p[self.y[j]] += np.exp(-squares[j] / (len(query) * self.scale))
        return p / p.sum()

    def mixed(self, lam, queries, logits, left_out=False):
        rows = []
        for i, (query, z) in enumerate(zip(queries, logits, strict=True)):
            softmax = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
            rows.append(lam * self.near(query, i if left_out else None) + (1 - lam) * softmax)
        return np.array(rows)

    def held_out(self, lam):
        p = self.mixed(lam, self.keys, self.known, left_out=True)
        likelihoods = np.maximum(p[range(len(self.y)), self.y], np.finfo(float).tiny)
        return (p.argmax(axis=1) == self.y).sum(), np.log(likelihoods).sum()


@pytest.mark.parametrize(("k", "lam", "scale"), [(3, 0.5, 1.0), (7, 0.9, 0.1), (40, 1.0, 1.0)])
def test_the_mixture_by_the_definition(k, lam, scale):
    by_hand = Definition(make(), trained(), k, scale)
    p = by_hand.mixed(lam, by_hand.queries, by_hand.logits)
    reply = ask(make(), k, lam, scale)
    rows = range(len(p))
    assert reply.metrics["accuracy"] == (p.argmax(axis=1) == by_hand.answers).mean()
    loss = -np.log(np.maximum(p[rows, by_hand.answers], np.finfo(float).tiny)).mean()
    assert reply.metrics["loss"] == pytest.approx(loss, rel=1e-5)
    assert reply.metrics["lambda"] == lam


def test_lambda_is_chosen_by_leaving_each_training_sample_out():
    by_hand = Definition(make(), trained(), 3, 1.0)
    grid = [i / 100 for i in range(101)]
    ranks = [by_hand.held_out(lam) for lam in grid]
    best = max(right for right, _ in ranks)
    expected = max((lam for lam, (right, _) in zip(grid, ranks, strict=True) if right == best),
                   key=lambda lam: by_hand.held_out(lam)[1])  # fmt: skip
    reply = ask(make(), lam="cv")
    assert reply.metrics["lambda"] == expected
    assert reply == ask(make(), lam=expected)


def test_the_labels_of_the_test_set_do_not_choose_lambda():
    target = load_federation(SPEC).domains["target"]
    shuffled = replace(target.test, y=target.test.y.roll(7))
    other = make(domain=Domain("target", target.train, shuffled))
    assert ask(other, lam="cv").metrics["lambda"] == ask(make(), lam="cv").metrics["lambda"]


def test_the_oracle_has_a_name_of_its_own_and_the_headline_stays_the_honest_one():
    honest, oracle = ask(make(), lam="cv").metrics, ask(make(), lam="oracle-test").metrics
    best = float(str(oracle["oracle-lambda"]))
    assert ask(make(), lam=best).metrics["accuracy"] == oracle["accuracy-oracle-lambda"]
    others = [ask(make(), lam=i / 10).metrics["accuracy"] for i in range(11)]
    assert oracle["accuracy-oracle-lambda"] >= max(others)
    assert all(a < oracle["accuracy-oracle-lambda"] for i, a in enumerate(others) if i / 10 < best)
    own = ("accuracy-oracle-lambda", "oracle-lambda")
    assert {name: value for name, value in oracle.items() if name not in own} == honest


@pytest.mark.parametrize("spec", [SPEC, NOISY], ids=["rotate", "noise"])
@pytest.mark.parametrize("mix", ["probabilities", "logits"])
def test_with_lambda_0_the_evaluation_has_the_bits_of_fedavgs(spec, mix):
    model = trained(spec)
    expected = plain(spec, model, outcomes=True)
    reply = ask(make(spec), lam=0.0, mix=mix, model=model, outcomes=True)
    for name in ("accuracy", "loss"):
        assert reply.metrics[name] == reply.metrics[f"{name}-global"] == expected.metrics[name]
    assert reply.records["outcomes"]["right"].tobytes() == expected.records["outcomes"]["right"].tobytes()


def test_the_global_model_is_evaluated_beside_it_whatever_lambda():
    expected, reply = plain(), ask(make(), lam=0.9, outcomes=True)
    assert reply.metrics["accuracy-global"] == expected.metrics["accuracy"]
    assert reply.metrics["loss-global"] == expected.metrics["loss"]
    assert reply.metrics["accuracy"] != expected.metrics["accuracy"]
    right = np.unpackbits(reply.records["outcomes"]["right"])[:60]
    assert right.mean() == reply.metrics["accuracy"]


def test_the_nearest_training_sample_of_each_training_sample_is_itself():
    train = load_federation(SPEC).domains["target"].train
    client = make(domain=Domain("target", train, train))
    assert ask(client, k=1, lam=1.0).metrics["accuracy"] == 1.0


def test_k_may_be_the_number_of_samples_in_cross_validation_too():
    assert 0 <= ask(make(), k=40, lam="cv").metrics["accuracy"] <= 1


def test_features_are_flat_in_a_convolutional_network():
    client = make(model="cnn")
    assert ask(client, lam="cv", model=client.layers()).examples == 60


def test_without_its_settings_it_is_a_plain_target():
    request = EvaluateRequest(to_record(trained()), {"server-round": 2})
    assert make().local_evaluate(request) == plain()
    one, other = (
        make(kind=kind).local_train(TrainRequest(to_record(trained()), {"server-round": 2}))
        for kind in (KNNPerTarget, TargetClient)
    )
    assert all(array.tobytes() == other.arrays[name].tobytes() for name, array in one.arrays.items())
