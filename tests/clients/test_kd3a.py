"""KD3A's target: votes, distillation, and labels that are not read."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sites import write_images
from torch import nn

from fda_flower.clients import KD3ATarget, LocalTraining, TargetClient
from fda_flower.clients.kd3a import distillation
from fda_flower.datasets import DataSpec, Domain, Samples, load_federation
from fda_flower.datasets.preparation import ImageFiles
from fda_flower.models import build_model
from fda_flower.wire.protocol import TrainReply, TrainRequest, to_record

SPEC = DataSpec("digits", "noise", (("std", 0.1),), target_samples=30, source_samples=40)
TRAINING = LocalTraining(0.01, 16)


def network(batch_norm: bool = False) -> nn.Module:
    if not batch_norm:
        return build_model("mlp", (1, 8, 8), 10, seed=0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10)]
        return nn.Sequential(*layers)


def make(domain=None, batch_norm=False, kind=KD3ATarget, model=None, **training):
    domain = load_federation(SPEC).domains["target"] if domain is None else domain
    how = replace(TRAINING, **training)
    return kind(domain, network(batch_norm) if model is None else model, how)


def teachers(batch_norm=False, epochs=10, number=3):
    """Models that sources have trained."""
    found = {}
    for i in range(1, number + 1):
        domain = load_federation(SPEC).domains[f"source-{i}"]
        client = make(domain, batch_norm, TargetClient, epochs=epochs)
        found[f"source-{i}"] = client.train_from(client.layers(), {"server-round": 1}).arrays
    return found


def ask(client, models, server_round=1, gate=0.8, mixup=True, teacher_bn="batch", arrays=None) -> TrainReply:
    records = {f"source-{domain}": to_record(model) for domain, model in models.items()}
    config: dict[str, Any] = {
        "server-round": server_round,
        "gate": gate,
        "mixup": mixup,
        "teacher-bn": teacher_bn,
    }
    start = to_record(client.layers() if arrays is None else arrays)
    reply: TrainReply = client.local_train(TrainRequest(start, config, records))
    return reply


def same(one, other):
    return all(one[name].tobytes() == other[name].tobytes() for name in one)


def told(reply):
    return [float(str(reply.metrics[f"contribution-source-{i}"])) for i in (1, 2, 3)]


def test_it_trains_on_all_samples_of_the_target():
    reply, domain = ask(make(), teachers()), load_federation(SPEC).domains["target"]
    assert domain.unlabelled is not None
    number = 30 + len(domain.unlabelled)
    assert reply.examples == number
    assert reply.metrics["num-steps"] == -(-number // 16)
    assert reply.metrics["batch-size"] == 16
    assert reply.metrics["learning-rate"] == 0.01
    assert 0 < float(str(reply.metrics["mask-share"])) < 1
    assert float(str(reply.metrics["train-loss"])) > 0
    assert min(told(reply)) > 0


def test_it_tells_which_arrays_are_its_head():
    assert make().get_properties({})["head"] == ["3.weight", "3.bias"]
    assert make().get_properties({})["examples"] == 30


@pytest.mark.parametrize("batch_norm", [False, True])
def test_the_labels_of_the_target_are_never_read(batch_norm):
    domain, models = load_federation(SPEC).domains["target"], teachers(batch_norm)
    assert domain.unlabelled is not None
    shuffled = domain.train.y[torch.randperm(30, generator=torch.Generator().manual_seed(5))]
    assert not torch.equal(shuffled, domain.train.y)
    others = [
        Domain("target", replace(domain.train, y=y), domain.test, replace(domain.unlabelled, y=z))
        for y, z in (
            (shuffled, domain.unlabelled.y),
            (torch.full((30,), -1), torch.zeros_like(domain.unlabelled.y)),
        )
    ]
    expected = ask(make(domain, batch_norm), models)
    for other in others:
        found = ask(make(other, batch_norm), models)
        assert same(found.arrays, expected.arrays)
        assert found.metrics == expected.metrics


def test_a_target_without_unlabelled_samples_uses_those_that_it_has():
    domain = replace(load_federation(SPEC).domains["target"], unlabelled=None)
    assert ask(make(domain), teachers()).examples == 30


@pytest.mark.parametrize("batch_norm", [False, True])
def test_with_a_gate_of_1_nothing_passes_and_the_model_stays_as_it_is(batch_norm):
    client = make(batch_norm=batch_norm)
    start, models = client.layers(), teachers(batch_norm)
    reply = ask(client, models, gate=1.0)
    assert same(reply.arrays, start)
    assert (reply.metrics["mask-share"], reply.metrics["num-steps"], reply.metrics["train-loss"]) == (0, 0, 0)
    assert told(reply) == [0, 0, 0]


def test_the_same_round_has_the_same_bits_whatever_came_before():
    models, start = teachers(), make().layers()
    first = ask(make(), models)
    client = make()
    ask(client, models, server_round=2)
    assert same(ask(client, models, arrays=start).arrays, first.arrays)
    assert not same(ask(make(), models, server_round=2).arrays, first.arrays)


def test_the_order_of_the_models_in_the_message_changes_no_bit():
    models = teachers()
    reverse = dict(reversed(models.items()))
    one, other = ask(make(), models), ask(make(), reverse)
    assert same(one.arrays, other.arrays)
    assert one.metrics == other.metrics


def test_with_teachers_that_are_right_the_target_learns():
    models, client = teachers(epochs=30), make(epochs=3)
    ask(client, models, gate=0.5)
    reply = client.score(client.single(client.layers(), {}), {})
    assert float(str(reply.metrics["accuracy"])) > 0.75


def test_without_batch_norm_both_ways_of_voting_are_the_same():
    models = teachers()
    assert ask(make(), models).metrics == ask(make(), models, teacher_bn="eval").metrics


def test_teachers_use_the_statistics_of_the_batch_or_their_own():
    models = teachers(batch_norm=True)
    shifted = {
        domain: {**model, "2.running_mean": model["2.running_mean"] + np.float32(3)}
        for domain, model in models.items()
    }

    def votes(given, way):
        return told(ask(make(batch_norm=True), given, teacher_bn=way))

    assert votes(models, "batch") == votes(shifted, "batch")
    assert votes(models, "eval") != votes(shifted, "eval")
    assert votes(models, "eval") != votes(models, "batch")


@pytest.mark.parametrize("teacher_bn", ["batch", "eval"])
def test_dropout_is_off_in_the_vote_and_the_teachers_leave_nothing_in_the_model(teacher_bn):
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 10)
    )
    client, seen = make(model=model), []
    start = client.layers()
    model[3].register_forward_hook(lambda module, *_: seen.append(module.training))
    models = {"source-1": start, "source-2": {name: np.array(array * 2) for name, array in start.items()}}
    reply = ask(client, models, gate=2.0, teacher_bn=teacher_bn)
    assert not any(seen)
    assert same(reply.arrays, start)


def test_all_teachers_vote_on_one_draw_of_the_noise():
    client, seen = make(), []
    hook = client.model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].clone()))
    ask(client, teachers(), gate=2.0)
    hook.remove()
    first, second, third = np.split(torch.cat(seen).numpy(), 3)
    assert np.array_equal(first, second)
    assert np.array_equal(first, third)


def test_features_are_not_mixed():
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    samples = Samples(x, (x.sum(dim=1) > 0).long())
    domain = Domain("t", samples, samples, samples.without_labels())
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    start = {k: v.numpy().copy() for k, v in model.state_dict().items()}
    models = {"a": start}
    one, other = (
        ask(make(domain, model=model), models, gate=0.0, mixup=mix, arrays=start) for mix in (True, False)
    )
    assert same(one.arrays, other.arrays)
    assert not same(one.arrays, start)


def test_images_are_mixed_unless_it_is_told_not_to():
    models = teachers()
    mixed, plain = ask(make(), models), ask(make(), models, mixup=False)
    assert mixed.metrics["mask-share"] == plain.metrics["mask-share"]
    assert not same(mixed.arrays, plain.arrays)


def test_images_in_files_are_joined(tmp_path):
    write_images(tmp_path, seed=0)
    paths = tuple(sorted(tmp_path.rglob("*.png")))
    whole = Samples(ImageFiles(paths, 8), torch.arange(len(paths)) % 2)  # type: ignore[arg-type]
    few, rest = whole.take(torch.arange(4)), whole.take(torch.arange(4, len(paths))).without_labels()
    in_memory = [Samples(s.x[torch.arange(len(s))], s.y) for s in (few, rest)]
    replies = []
    for own, others in ((few, rest), in_memory):
        client = make(Domain("t", own, whole, others), model=build_model("mlp", (3, 8, 8), 2, seed=0))
        start = client.layers()
        replies.append(ask(client, {"a": start}, gate=0.5))
    assert replies[0].examples == len(paths)
    assert same(replies[0].arrays, replies[1].arrays)


def test_without_a_gate_it_is_a_plain_target():
    plain, start = make(kind=TargetClient), make().layers()
    request = TrainRequest(to_record(start), {"server-round": 1})
    assert same(make().local_train(request).arrays, plain.local_train(request).arrays)


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


def test_labels_and_mask_go_by_position():
    x = torch.tensor([[0.0, 2.0], [4.0, 0.0]])
    labels, mask = torch.tensor([0, 1, 1]), torch.tensor([True, False, True])
    found = float(distillation(labels, mask, None)(Logits(), x, torch.tensor([2, 1])))
    assert found == pytest.approx(np.log(1 + np.exp(-2)) / 2)


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


def test_the_middle_one_of_three_uniform_numbers_is_beta_2_2():
    drawn = torch.rand(20000, 3, generator=torch.Generator().manual_seed(0)).median(dim=1).values
    assert float(drawn.mean()) == pytest.approx(0.5, abs=0.01)
    assert float(drawn.var()) == pytest.approx(0.05, abs=0.002)
