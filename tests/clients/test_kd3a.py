"""KD3A's target: votes, distillation, and labels that are not read."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from digit_clients import mlp, normalised, same, state_of, trained
from sites import write_images
from tensors import samples_of
from torch import nn

from fda_flower.clients import LocalTraining, TargetClient
from fda_flower.clients.kd3a import distil, distillation
from fda_flower.datasets import DataSpec, Domain, Samples, load_federation
from fda_flower.datasets.preparation import ImageFiles
from fda_flower.models import build_model
from fda_flower.wire.asked.kd3a import Distil
from fda_flower.wire.protocol import TrainReply, TrainRequest, to_record

SPEC = DataSpec("digits", "noise", (("std", 0.1),), target_samples=30, source_samples=40)
TRAINING = LocalTraining(0.01, 16)


def target(domain=None, batch_norm=False, model=None, **training):
    domain = load_federation(SPEC).domains["target"] if domain is None else domain
    network = model or (normalised(0.0) if batch_norm else mlp())
    return TargetClient(domain, network, replace(TRAINING, **training))


def teachers(batch_norm=False, epochs=10, number=3):
    """Models that sources have trained."""
    found = {}
    for i in range(1, number + 1):
        domain = load_federation(SPEC).domains[f"source-{i}"]
        found[f"source-{i}"] = trained(target(domain, batch_norm, epochs=epochs)).arrays
    return found


def ask(client, models, server_round=1, gate=0.8, mixup=True, teacher_bn="batch", arrays=None) -> TrainReply:
    question = Distil(gate=gate, mixup=mixup, teacher_bn=teacher_bn, models=models)
    start = to_record(client.layers() if arrays is None else arrays)
    return distil(client, TrainRequest(start, {"server-round": server_round}), question)


def told(reply):
    return [reply.answer.contribution[f"source-{i}"] for i in (1, 2, 3)]


def test_it_trains_on_all_samples_of_the_target():
    domain = load_federation(SPEC).domains["target"]
    assert domain.unlabelled is not None
    assert ask(target(replace(domain, unlabelled=None)), teachers()).examples == 30
    reply, properties = ask(target(), teachers()), target().get_properties({})
    assert (reply.answer.head, properties["examples"]) == (("3.weight", "3.bias"), 30)
    number = 30 + len(domain.unlabelled)
    assert reply.examples == number
    assert reply.metrics["num-steps"] == -(-number // 16)
    assert reply.metrics["batch-size"] == 16
    assert reply.metrics["learning-rate"] == 0.01
    assert 0 < reply.answer.mask_share < 1
    assert float(str(reply.metrics["train-loss"])) > 0
    assert min(told(reply)) > 0


@pytest.mark.parametrize("batch_norm", [False, True])
def test_the_labels_of_the_target_are_never_read(batch_norm):
    domain, models = load_federation(SPEC).domains["target"], teachers(batch_norm)
    assert domain.unlabelled is not None
    shuffled = domain.train.y[np.random.default_rng(5).permutation(30)]
    assert not np.array_equal(shuffled, domain.train.y)
    others = [
        Domain("target", replace(domain.train, y=y), domain.test, replace(domain.unlabelled, y=z))
        for y, z in (
            (shuffled, domain.unlabelled.y),
            (np.full(30, -1), np.zeros_like(domain.unlabelled.y)),
        )
    ]
    expected = ask(target(domain, batch_norm), models)
    for other in others:
        found = ask(target(other, batch_norm), models)
        assert same(found.arrays, expected.arrays)
        assert found.metrics == expected.metrics


@pytest.mark.parametrize("batch_norm", [False, True])
def test_with_a_gate_of_1_nothing_passes_and_the_model_stays_as_it_is(batch_norm):
    client = target(batch_norm=batch_norm)
    start, models = client.layers(), teachers(batch_norm)
    reply = ask(client, models, gate=1.0)
    assert same(reply.arrays, start)
    assert (reply.answer.mask_share, reply.metrics["num-steps"], reply.metrics["train-loss"]) == (0, 0, 0)
    assert told(reply) == [0, 0, 0]


def test_the_same_round_has_the_same_bits_whatever_came_before():
    models, start = teachers(), target().layers()
    first, turned = ask(target(), models), ask(target(), dict(reversed(models.items())))
    assert (turned.arrays.keys(), turned.metrics) == (first.arrays.keys(), first.metrics)
    assert same(turned.arrays, first.arrays), "in any order"
    client = target()
    ask(client, models, server_round=2)
    assert same(ask(client, models, arrays=start).arrays, first.arrays)
    assert not same(ask(target(), models, server_round=2).arrays, first.arrays)


def test_with_teachers_that_are_right_the_target_learns():
    models, client = teachers(epochs=30), target(epochs=3)
    ask(client, models, gate=0.5)
    reply = client.score(client.single(client.layers(), {}), {})
    assert float(str(reply.metrics["accuracy"])) > 0.75


def test_teachers_use_the_statistics_of_the_batch_or_their_own():
    models = teachers(batch_norm=True)
    shifted = {
        domain: {**model, "2.running_mean": model["2.running_mean"] + np.float32(3)}
        for domain, model in models.items()
    }

    def votes(given, way):
        return told(ask(target(batch_norm=True), given, teacher_bn=way))

    assert votes(models, "batch") == votes(shifted, "batch")
    assert votes(models, "eval") != votes(shifted, "eval")
    assert votes(models, "eval") != votes(models, "batch")
    assert ask(target(), teachers()).metrics == ask(target(), teachers(), teacher_bn="eval").metrics, (
        "without"
    )


@pytest.mark.parametrize("teacher_bn", ["batch", "eval"])
def test_dropout_is_off_in_the_vote_and_the_teachers_leave_nothing_in_the_model(teacher_bn):
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 10)
    )
    client, seen = target(model=model), []
    start = client.layers()
    model[3].register_forward_hook(lambda module, *_: seen.append(module.training))
    models = {"source-1": start, "source-2": {name: np.array(array * 2) for name, array in start.items()}}
    reply = ask(client, models, gate=2.0, teacher_bn=teacher_bn)
    assert not any(seen)
    assert same(reply.arrays, start)


def test_all_teachers_vote_on_one_draw_of_the_noise():
    client, seen = target(), []
    hook = client.model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].clone()))
    ask(client, teachers(), gate=2.0)
    hook.remove()
    first, second, third = np.split(torch.cat(seen).numpy(), 3)
    assert np.array_equal(first, second)
    assert np.array_equal(first, third)


def test_images_are_mixed_if_it_is_told_to_and_features_never():
    mixed, plain = (ask(target(), teachers(), mixup=mix) for mix in (True, False))
    assert mixed.answer.mask_share == plain.answer.mask_share
    assert not same(mixed.arrays, plain.arrays)
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    samples = samples_of(x, (x.sum(dim=1) > 0).long())
    domain = Domain("t", samples, samples, samples.without_labels())
    start, replies = state_of(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))), []
    for mix in (True, False):
        client = target(domain, model=nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))
        replies.append(ask(client, {"a": start}, gate=0.0, mixup=mix, arrays=start).arrays)
    assert same(*replies)
    assert not same(replies[0], start)


def test_images_in_files_are_joined(tmp_path):
    write_images(tmp_path, seed=0)
    paths = tuple(sorted(tmp_path.rglob("*.png")))
    images = Samples(ImageFiles(paths, 8), np.arange(len(paths)) % 2)
    few, rest = images.take(np.arange(4)), images.take(np.arange(4, len(paths))).without_labels()
    in_memory = [Samples(s.x[np.arange(len(s))], s.y) for s in (few, rest)]
    replies = []
    for own, others in ((few, rest), in_memory):
        client = target(Domain("t", own, images, others), model=build_model("mlp", (3, 8, 8), 2, seed=0))
        start = client.layers()
        replies.append(ask(client, {"a": start}, gate=0.5))
    assert replies[0].examples == len(paths)
    assert same(replies[0].arrays, replies[1].arrays)


# The objective


class Logits(nn.Module):
    """A model whose outputs are its inputs."""

    def forward(self, x):
        return x


def test_the_objective_without_mixing_by_hand():
    x = torch.tensor([[0.0, 0.0], [3.0, 1.0], [0.0, 5.0]])
    objective = distillation(torch.tensor([0, 0, 1]), torch.tensor([True, False, False]), None)
    # ln 2 of the one sample of three that counts
    assert float(objective(Logits(), x, torch.arange(3))) == pytest.approx(np.log(2) / 3)
    assert float(objective(Logits(), x[[1, 0]], torch.tensor([1, 0]))) == pytest.approx(np.log(2) / 2)
    # Labels go by position: the third sample's is 1, e¹ against e³.
    objective = distillation(torch.tensor([0, 0, 1]), torch.tensor([False, False, True]), None)
    assert float(objective(Logits(), x[[1, 0]], torch.tensor([2, 1]))) == pytest.approx(
        np.log1p(np.exp(2)) / 2
    )


def test_mixed_pairs_by_hand():
    x = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]])
    labels, mask = torch.tensor([0, 1, 1]), torch.tensor([True, False, True])
    found = distillation(labels, mask, torch.Generator().manual_seed(4))(Logits(), x, torch.arange(3))
    again = torch.Generator().manual_seed(4)
    u = float(torch.rand(3, generator=again).median())
    other = torch.randperm(3, generator=again)
    assert other.tolist() != [0, 1, 2]
    y = np.eye(2)[labels.numpy()]
    mixed, soft = u * x + (1 - u) * x[other], u * y + (1 - u) * y[other.numpy()]
    losses = -(soft * mixed.log_softmax(dim=1).numpy()).sum(axis=1)
    assert float(found) == pytest.approx((losses[0] + losses[2]) / 3, rel=1e-6)
