"""One network out of a mixture: what it begins with, what it learns from, and what it is without that."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from digit_clients import evaluated, mixture_of, mlp, state_of
from tensors import samples_of, tensors

from fda_flower.aggregation import Mixture
from fda_flower.clients import LocalTraining, MixturePlan, TargetClient
from fda_flower.clients.mixture import (
    MOST_UNLABELLED,
    first_of_student,
    learn,
    names_of_linear_head,
    samples_of_student,
    soup,
)
from fda_flower.datasets import DataSpec, load_federation
from fda_flower.prediction.predictors import Mixed, Single

SPEC = DataSpec("digits", "rotate", target_samples=30, source_samples=60, test_samples=80)


def samples(count, noise=0.0, regression=False):
    y = torch.zeros(count, 1) if regression else torch.arange(count) % 3
    return samples_of(torch.arange(count).float()[:, None] / count, y, noise)


@pytest.mark.parametrize("regression", [False, True], ids=["classes", "regression"])
@pytest.mark.parametrize("count", [5, 70])
def test_a_student_learns_by_the_definition(regression, count):
    """Adam by hand: the moments, the cosine, the cross entropy of probabilities."""
    taught = torch.randn(count, 1 if regression else 3, generator=torch.Generator().manual_seed(1))
    taught = taught if regression else taught.log_softmax(dim=1)
    x, model = samples(count, regression=regression), torch.nn.Linear(1, taught.shape[1]).double()
    x = replace(x, x=x.x.astype(np.float64))
    parameters = [p.detach().clone() for p in model.parameters()]
    batches = math.ceil(count / 32)
    total = batches * max(10, math.ceil(500 / batches))
    generator, step = torch.Generator().manual_seed(2), 0
    moments: list[tuple[Any, Any]] = [(0.0, 0.0)] * 2
    while step < total:
        for rows in torch.randperm(count, generator=generator).tensor_split(batches):
            w, b = (p.requires_grad_() for p in parameters)
            z = tensors(x)[0][rows] @ w.T + b
            aims = taught[rows].double()
            losses = (z - aims) ** 2 if regression else -(aims.exp() * z.log_softmax(dim=1)).sum(dim=1)
            gradients = torch.autograd.grad(losses.mean(), [w, b])
            rate = 0.01 * (1 + math.cos(math.pi * step / total)) / 2
            step += 1
            for i, g in enumerate(gradients):
                m, v = 0.9 * moments[i][0] + 0.1 * g, 0.999 * moments[i][1] + 0.001 * g**2
                moments[i] = (m, v)
                move = m / (1 - 0.9**step) / ((v / (1 - 0.999**step)).sqrt() + 1e-8)
                parameters[i] = (parameters[i] - rate * move).detach()
    steps = learn(model, x, taught, 0.01, torch.Generator().manual_seed(2))
    assert steps == total >= 500
    for found, expected in zip(model.parameters(), parameters, strict=True):
        assert torch.allclose(found, expected, rtol=1e-6, atol=1e-9)


def test_many_samples_are_passed_ten_times():
    model = torch.nn.Linear(1, 3)
    count = 32 * 51
    assert learn(model, samples(count), torch.zeros(count, 3), 0.01, torch.Generator()) == 10 * 51


def test_it_learns_from_all_labelled_samples_and_some_of_many_others_without_their_labels():
    labelled, rest = samples(4), samples(MOST_UNLABELLED + 500).without_labels()
    found = samples_of_student(labelled, rest, torch.Generator().manual_seed(0))
    assert len(found) == MOST_UNLABELLED + 4
    assert (found.y == -1).all()
    assert found.x[:4].tolist() == labelled.x.tolist()
    chosen = found.x[4:, 0].tolist()
    assert chosen == sorted(set(chosen)), "no sample twice"
    other = samples_of_student(labelled, rest, torch.Generator().manual_seed(1))
    assert other.x.tolist() != found.x.tolist()


def test_noise_is_drawn_once():
    found = samples_of_student(
        samples(4, noise=0.5), samples(300, noise=0.5), torch.Generator().manual_seed(0)
    )
    assert found.noise == 0
    added = found.x - np.concatenate([samples(4).x, samples(300).x])
    assert added.std() == pytest.approx(0.5, rel=0.2)


def mixture_with(weights, temperatures):
    return Mixture(weights=weights, temperatures=temperatures, regression=not temperatures, left_out=())


def test_it_begins_with_the_model_of_all_labels_of_the_heaviest_member_with_its_temperature():
    views = {"sources": 1, "target": 2, "tuned-30": 2}
    models = {
        name: [{"body": np.full(1, 8, np.float32), "w": np.full(1, 8 + i, np.float32)} for i in range(n)]
        for name, n in views.items()
    }
    weights = {"prior": 0.8, "target": 0.15, "tuned-30": 0.05}
    mixture = mixture_with(weights, {"target": 4.0, "tuned-30": 16.0})
    found = first_of_student(models, mixture, ["w"])
    assert (found["body"].item(), found["w"].item(), found["w"].dtype) == (8, 2, np.dtype(np.float32))
    assert first_of_student(models, mixture_with({"prior": 1.0}, {}), ["w"])["w"] == 8
    assert first_of_student(models, mixture, []) == models["target"][0]


def test_only_a_head_of_one_linear_layer_is_divided():
    linear = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 4))
    assert names_of_linear_head(linear) == ("2.weight", "2.bias")
    assert names_of_linear_head(torch.nn.Conv2d(1, 1, 1)) == ()


def test_a_soup_is_the_mean_of_the_models_tuned_longest():
    models = {
        "target": [{"w": np.full(2, 9, np.float32)}],
        "tuned-4": [{"w": np.full(2, 8, np.float32)}],
        "tuned-30": [{"w": np.full(2, k, np.float32)} for k in (1, 2, 6)],
    }
    found = soup(models)
    assert found is not None
    mean = found["w"]
    assert mean.tolist() == [3.0, 3.0]
    assert mean.dtype == np.float32
    assert soup({"target": models["target"]}) is None


# The target


def made(domain=None, **options):
    """The reply of a target that evaluates its mixture, and the predictor that it publishes."""
    federation, found = load_federation(SPEC), []
    client = TargetClient(
        domain or federation.domains[federation.target], mlp(SPEC), LocalTraining(0.01, 7), 3
    )
    client.publish = lambda predictor, *about: found.append(predictor)
    sources, first = (state_of(mlp(SPEC, seed)) for seed in (1, 0))
    reply = evaluated(client, 2, sources, mixture_of(MixturePlan(epochs=(1, 3)), first, **options))
    return reply, found[0], client


def bits(layers):
    return {name: array.tobytes() for name, array in layers.items()}


def test_the_targets_figures_and_its_model_are_those_of_the_student():
    plain, mixed, _ = made()
    reply, student, client = made(student=True)
    assert (isinstance(mixed, Mixed), isinstance(student, Single)) == (True, True)
    assert reply.answer.taught == len(client.domain.unlabelled) > 200
    assert reply.answer.teacher == pytest.approx(plain.metrics["accuracy"])
    assert replace(reply.answer, taught=None, teacher=None) == plain.answer
    right = student.outputs(client.passes({})).argmax(axis=1) == client.domain.test.y
    assert right.mean() == pytest.approx(reply.metrics["accuracy"])
    assert bits(made(student=True)[1].layers) == bits(student.layers)


def test_without_unlabelled_samples_it_is_the_soup():
    federation = load_federation(SPEC)
    domain = replace(federation.domains[federation.target], unlabelled=None)
    reply, found, _ = made(domain, student=True)
    assert reply.answer.taught == 0
    assert bits(found.layers) == bits(soup(made(domain)[1].models))


def test_with_no_report_only_the_model_is_made():
    reply, student, client = made(student=True, report="none")
    assert (reply.metrics, isinstance(student, Single)) == ({}, True)
    assert student.layers.keys() == state_of(client.model).keys()
