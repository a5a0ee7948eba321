"""Ditto, APFL and kNN-Per on the server: FedAvg's model, and what is read of the target's own."""

import pytest
from handmade import HandMade, failing, initial, moves, reply_of
from naming import names

from fda_flower import ConfigError, RunConfig
from fda_flower.strategies import APFL, Ditto, KNNPer, RunFolder
from fda_flower.wire.asked.personal import NeighboursUsed, Personalised, TrainedToMix

pytestmark = pytest.mark.usefixtures("bare_replies")
A = ("source", "a", moves([0.5, 0.0], domain="a", examples=30))
OWN_MODEL = pytest.mark.parametrize("kind", [APFL, Ditto])


def target(anew=(1,)):
    """A target whose own model begins again in some rounds."""

    def answer(model, message):
        number = message.content["config"]["server-round"]
        content = reply_of({"w": model["w"] + 1}, role="target", domain="t")
        told = {
            "train.train_to_mix": TrainedToMix(fresh_start=number in anew, alpha=number / 8),
            "train.personalise": Personalised(fresh_start=number in anew, distance=0.5),
        }.get(message.metadata.message_type)
        content.update({} if told is None else told.records())
        return content

    return ("target", "t", answer)


NODES = (A, target())


def start(kind, nodes=NODES, rounds=1, **options):
    strategy = kind(**options)
    return strategy.start(HandMade(nodes).grid(), initial(), rounds), strategy


def lost(strategy):
    """The rounds whose record says that the target has lost its model."""
    return [r["round"] for r in strategy.history if "fallback" in (r["target"] or {})]


def test_the_records_have_the_weight_the_distance_and_both_accuracies():
    _, apfl = start(APFL, rounds=2)
    assert [record["target"]["alpha"] for record in apfl.history] == [0.125, 0.25]
    _, ditto = start(Ditto)
    (record,) = ditto.history
    assert (record["accuracy"], record["accuracy-global"], record["target"]["distance"]) == (0.5, 0.5, 0.5)


@OWN_MODEL
@pytest.mark.parametrize(
    ("anew", "off", "said"),
    [
        ((), (), []),
        ((1,), (), []),
        ((1, 3), (), [3]),
        ((1, 2), (), [2]),
        ((2,), (1,), []),  # it had nothing to lose
        ((1, 4), (2, 3), [4]),
    ],
)
def test_a_target_that_has_lost_its_model_is_recorded(kind, anew, off, said):
    role, domain, answer = target(anew)
    _, strategy = start(kind, [A, (role, domain, failing(answer, *off) if off else answer)], 4)
    assert lost(strategy) == said
    for number in said:
        assert "from the global one" in strategy.history[number - 1]["target"]["fallback"]


@OWN_MODEL
def test_the_loss_is_recorded_of_a_held_round_too_and_after_a_resume_but_not_after_the_warm_up(
    kind, tmp_path
):
    nodes = [("source", "a", failing(A[2], 3)), target(anew=(1, 3))]
    start(kind, nodes, 2, output=RunFolder(tmp_path))
    _, strategy = start(kind, nodes, 4, output=RunFolder(tmp_path, resume=True))
    assert strategy.history[2]["held"] is not None
    assert lost(strategy) == [3]
    assert lost(start(kind, [A, target(anew=(2,))], 3, warmup_rounds=1)[1]) == []


def test_a_fixed_mixing_weight_has_no_decay():
    with pytest.raises(ConfigError, check=names("alpha_decay", 0.02, remedy="adaptive=true")):
        APFL(alpha_decay=0.02)


# kNN-Per


def mixed(answer=None, info=(), **options):
    """The record of a run whose target evaluates its mixture, and the global model, with these figures."""

    def answered(message, context, call_next):
        reply = call_next(message, context)
        if message.metadata.message_type == "evaluate.neighbours":
            reply.content.update((answer or NeighboursUsed(weight=0.25)).records())
        return reply

    def figures(domain, asked):
        return {"accuracy": 0.75, "f1": 0.5} if "question" in asked else {"accuracy": 0.25}

    federation = HandMade([A, target()], info=info, metrics=figures, mods=[answered])
    strategy = KNNPer(**options)
    strategy.start(federation.grid(), initial(), 1)
    return strategy.history[-1], federation


def test_the_record_has_lambda_and_both_accuracies():
    record, _ = mixed()
    assert (record["accuracy"], record["accuracy-global"], record["lambda"]) == (0.75, 0.25, 0.25)
    assert record["metrics"] == {"f1": 0.5}


def test_a_site_may_keep_lambda():
    record, _ = mixed(NeighboursUsed())
    assert (record["accuracy"], "lambda" in record) == (0.75, False)


def test_a_target_with_too_few_samples_is_refused_before_anything_is_trained():
    info = {"t": {"examples": 9}, "a": {"examples": 1}}
    federation = HandMade([A, target()], info=info)
    with pytest.raises(ConfigError, check=names("'t'", 9, remedy="option k")):
        KNNPer().start(federation.grid(), initial(), 1)
    assert federation.configs == []
    mixed(info=info, k=9)
    with pytest.raises(ConfigError, check=names("the target", 4)):
        RunConfig(method="knn-per", target_samples=4, method_options={"k": 5})
    assert RunConfig(method="knn-per", target_samples=4, source_samples=1, method_options={"k": 4})
    with pytest.raises(ConfigError, check=names("the target", 1, remedy="option mixing")):
        RunConfig(method="knn-per", target_samples=1, method_options={"k": 1})
    assert RunConfig(method="knn-per", target_samples=1, method_options={"k": 1, "mixing": 1})


def test_numbers_may_be_text():
    configs = [RunConfig(method="knn-per", method_options={"mixing": mixing}) for mixing in (0.25, "0.25")]
    assert configs[0].fingerprint() == configs[1].fingerprint()
