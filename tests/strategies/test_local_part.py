"""FedPer, FedRep and FedBN on the server: what clients are told, the records, and FedRep's last round."""

import handmade
import pytest
from handmade import HandMade, initial, moves, weights

from fda_flower.errors import ConfigError
from fda_flower.strategies import FedAvg, FedBN, FedPer, FedRep, RunFolder

EACH = pytest.mark.parametrize("kind", [FedPer, FedRep, FedBN])


@pytest.fixture(autouse=True)
def replies_as_they_are(monkeypatch):
    """Nothing is added to the replies of these tests' clients."""
    monkeypatch.setattr(handmade, "add_what_is_asked", lambda *_: None)


def keeps(role="source", domain="a", lost=(), off=()):
    """A client that tells the round of its part: the one before, but 0 in the rounds of `lost`."""

    def answer(model, message):
        round = message.content["config"]["server-round"]
        if round in off:
            raise OSError("off")
        told = {"local-part": 0 if round in lost else round - 1}
        return moves(0.5, role, domain, **told)(model, message)

    return (role, domain, answer)


TARGET = keeps("target", "t")


class Watched(HandMade):
    """Also records the settings of the evaluate messages, and reports a final head where one is asked for."""

    def __init__(self, nodes):
        super().__init__(nodes, mods=[self.watch])
        self.evaluated: list[dict] = []

    def watch(self, message, context, call_next):
        reply = call_next(message, context)
        if message.metadata.message_type == "evaluate":
            self.evaluated.append(dict(message.content["config"]))
            if "final-head-epochs" in message.content["config"]:
                reply.content["metrics"].update({"accuracy-final-head": 0.625, "loss-final-head": 0.75})
        return reply


def start(kind, nodes, rounds=1, **options):
    federation, strategy = Watched(nodes), kind(**options)
    return strategy.start(federation.grid(), initial(), rounds), strategy, federation


@EACH
@pytest.mark.parametrize("options", [{}, {"weights": "uniform"}])
def test_the_mean_is_fedavgs(kind, options):
    nodes = [keeps(), keeps(domain="b"), TARGET]
    found, _, _ = start(kind, nodes, 2, **options)
    assert weights(found).tobytes() == weights(start(FedAvg, nodes, 2, **options)[0]).tobytes()


def test_every_client_is_told_fedreps_part_and_phases():
    options = {"head_epochs": 7, "body_epochs": 2, "final_head_epochs": 0}
    _, _, federation = start(FedRep, [keeps(), TARGET], **options)
    told = {"local-part": "head", "head-epochs": 7, "epochs": 2, "tune": "body", "server-round": 1}
    assert dict(federation.configs) == {"a": told, "t": told}
    assert federation.evaluated == [{"local-part": "head", "server-round": 1, "confusion": True}]


def test_every_client_is_told_fedbns_part():
    _, _, federation = start(FedBN, [keeps(), TARGET])
    told = {"local-part": "batch-norm", "server-round": 1}
    assert dict(federation.configs) == {"a": told, "t": told}
    assert federation.evaluated == [told | {"confusion": True}]


@EACH
def test_in_warm_up_rounds_nobody_has_a_part_of_its_own(kind):
    nodes = [("source", "a", moves(0.5, domain="a", **{"local-part": 0})), TARGET]
    _, strategy, federation = start(kind, nodes, 3, warmup_rounds=2)
    parts = [(domain, config.get("local-part")) for domain, config in federation.configs]
    assert parts == [("a", None), ("a", None), ("a", kind.part), ("t", kind.part)]
    assert [config.get("local-part") for config in federation.evaluated] == [None, None, kind.part]
    assert "fallback" not in strategy.history[2]["sources"]["a"]


@EACH
def test_the_averaged_model_is_evaluated_with_the_targets_part_too(kind):
    _, strategy, federation = start(kind, [keeps(), TARGET], 2, average="tail:2")
    assert [config["local-part"] for config in federation.evaluated] == [kind.part] * 4
    assert strategy.history[1]["accuracy-average"] == 0.5


@EACH
def test_a_client_that_lost_its_part_is_recorded_but_not_one_in_its_first_round(kind):
    nodes = [keeps(off=(1,), lost=(2,)), keeps(domain="b", lost=(1, 3)), keeps("target", "t", lost=(1, 4))]
    _, strategy, _ = start(kind, nodes, 5)
    found = [
        (record["round"], entry["domain"])
        for record in strategy.history
        for entry in [record["target"], *record["sources"].values()]
        if "fallback" in entry
    ]
    assert found == [(3, "b"), (4, "t")]
    assert "began with that of the server's model" in strategy.history[3]["target"]["fallback"]
    assert [record["target"]["local-part"] for record in strategy.history] == [0, 1, 2, 0, 4]


@EACH
def test_an_older_part_is_recorded_with_its_round(kind):
    def older(model, message):
        return moves(0.5, "target", "t", **{"local-part": 1})(model, message)

    _, strategy, _ = start(kind, [keeps(), ("target", "t", older)], 3)
    assert "fallback" not in strategy.history[1]["target"]
    assert "began with that of round 1" in strategy.history[2]["target"]["fallback"]


@EACH
def test_a_part_lost_between_a_run_and_its_resume_is_recorded(kind, tmp_path):
    nodes = [keeps(lost=(3,)), TARGET]
    start(kind, nodes, 2, output=RunFolder(tmp_path))
    _, strategy, _ = start(kind, nodes, 4, output=RunFolder(tmp_path, resume=True))
    told = ["fallback" in record["sources"]["a"] for record in strategy.history]
    assert told == [False, False, True, False]


@EACH
def test_a_client_that_keeps_nothing_is_dropped_with_the_remedy(kind):
    _, strategy, _ = start(kind, [("source", "a", moves(0.5, domain="a")), keeps(domain="b"), TARGET])
    (dropped,) = strategy.history[0]["dropped"]
    assert dropped["domain"] == "a"
    assert f"no 'local-part': {kind.__name__}'s clients" in dropped["reason"]
    assert "LocalPartSource" in dropped["reason"]


# FedRep's final head


@pytest.mark.parametrize("factor", [1.0, 0.25])
def test_the_last_round_has_the_final_head_beside_the_headline(factor):
    _, strategy, federation = start(FedRep, [keeps(), TARGET], 3, learning_rate_factor=factor)
    assert [config.get("final-head-epochs") for config in federation.evaluated] == [None, None, 10]
    assert federation.evaluated[2].get("rate-factor") == (None if factor == 1 else factor)
    *others, last = strategy.history
    assert (last["accuracy"], last["accuracy-final-head"], last["loss-final-head"]) == (0.5, 0.625, 0.75)
    assert not any("accuracy-final-head" in record for record in others)
    assert "metrics" not in last


def test_without_final_epochs_the_last_round_is_like_the_others():
    _, strategy, federation = start(FedRep, [keeps(), TARGET], 2, final_head_epochs=0)
    assert not any("final-head-epochs" in config for config in federation.evaluated)
    assert not any("accuracy-final-head" in record for record in strategy.history)
    assert not strategy.ends_with_an_evaluation
    assert FedRep().ends_with_an_evaluation


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"head_epochs": 0}, "head_epochs is 0: it must be at least 1"),
        ({"body_epochs": -2}, "body_epochs is -2: it must be at least 1"),
        ({"final_head_epochs": -1}, "final_head_epochs is -1: it must be at least 0"),
    ],
)
def test_numbers_of_epochs_that_cannot_work_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        FedRep(**options)
