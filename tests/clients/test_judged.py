"""A client judges the model that it evaluates, on the samples held out from training too."""

from dataclasses import replace

import torch
from flwr.app import ArrayRecord

from fda_flower.aggregation.mixture import MixturePlan
from fda_flower.clients import MixtureTarget, TargetClient
from fda_flower.clients.training import LocalTraining
from fda_flower.datasets import Domain, Samples
from fda_flower.wire.protocol import EvaluateReply, EvaluateRequest, split_held_out


def samples(count, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 2, generator=generator)
    return Samples(x, (x.sum(dim=1) > 0).long())


HELD_OUT = samples(10, 2)
WHOLE = Domain("t", samples(24, 0), samples(20, 1), validation=HELD_OUT)


def client(domain=WHOLE, kind=TargetClient):
    torch.manual_seed(0)
    return kind(domain, torch.nn.Linear(2, 2), LocalTraining(0.1, 4))


def request(of, **config):
    return EvaluateRequest(ArrayRecord(of.model.state_dict()), {"server-round": 1, **config})


def test_the_samples_held_out_are_evaluated_as_the_test_set_is():
    judging = client()
    own, held_out = split_held_out(judging.local_evaluate(request(judging)).metrics)
    alone = client(replace(WHOLE, validation=None))
    assert own == alone.local_evaluate(request(alone)).metrics
    other = client(replace(WHOLE, test=HELD_OUT, validation=None))
    assert held_out == other.local_evaluate(request(other)).metrics


def test_a_source_may_be_asked_for_the_samples_held_out_alone():
    judging = client()
    reply = judging.local_evaluate(request(judging, validation="only"))
    own, held_out = split_held_out(reply.metrics)
    assert not own
    assert held_out.keys() == {"accuracy", "balanced-accuracy", "macro-f1", "auroc", "ece", "loss"}
    assert reply.examples == 10


def test_without_samples_held_out_there_is_nothing_to_report():
    judging = client(replace(WHOLE, validation=None))
    assert judging.local_evaluate(request(judging, validation="only")) == EvaluateReply(0)


def test_the_evaluation_of_a_trained_model_is_judged_too():
    judging = client()
    reply = judging.train_from(judging.layers(), {"server-round": 1, "evaluate-trained": True})
    expected = judging.local_evaluate(request(judging)).in_train_reply
    assert {name: reply.metrics[name] for name in expected} == expected
    assert "eval-validation-accuracy" in expected


def test_a_mixture_is_trained_once_for_both(monkeypatch):
    judging, trainings = client(kind=MixtureTarget), []
    train = MixtureTarget._train

    def counted(self, *given):
        trainings.append(1)
        return train(self, *given)

    monkeypatch.setattr(MixtureTarget, "_train", counted)
    asked = request(judging, **{"mixture": MixturePlan(2).to_text(), "first-round": 1, "report": "full"})
    reply = judging.local_evaluate(replace(asked, records={"first": asked.arrays}))
    assert len(trainings) == 1
    assert "validation-accuracy" in reply.metrics
    assert "validation-weight.target" not in reply.metrics
