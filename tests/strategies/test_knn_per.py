"""kNN-Per on the server: FedAvg, whose target is told how to mix, and what the record has of it."""

import logging

import pytest
from flwr.app import Message, MetricRecord, RecordDict
from handmade import HandMade, initial, moves, weights

from fda_flower import RunConfig
from fda_flower.errors import ConfigError
from fda_flower.strategies import FedAvg, KNNPer

NODES = [
    ("source", "a", moves([0.5, 0.0], domain="a", examples=30)),
    ("target", "t", moves([1.0, 1.0], "target", "t", examples=10)),
]
METRICS = {"accuracy": 0.75, "loss": 0.5, "accuracy-global": 0.25, "loss-global": 2.0, "lambda": 0.25}


class Federation(HandMade):
    """Keeps the settings of evaluate messages; the target replies with `metrics`."""

    def __init__(self, metrics=METRICS, info=()):
        self.asked: list[dict] = []

        def evaluates(message, context, call_next):
            if message.metadata.message_type != "evaluate":
                return call_next(message, context)
            self.asked.append(dict(message.content["config"]))
            found = MetricRecord({**metrics, "num-examples": 4})
            return Message(RecordDict({"metrics": found}), reply_to=message)

        super().__init__(NODES, info=info, mods=[evaluates])


def start(federation, rounds=1, **options):
    strategy = KNNPer(**options)
    return strategy.start(federation.grid(), initial(), rounds), strategy


@pytest.mark.parametrize("mean", ["examples", "uniform"])
def test_training_and_the_model_are_fedavgs(mean):
    federation, plain = Federation(), Federation()
    found, _ = start(federation, 3, weights=mean)
    expected = FedAvg(weights=mean).start(plain.grid(), initial(), 3)
    assert weights(found).tobytes() == weights(expected).tobytes()
    assert federation.configs == plain.configs


def test_the_evaluate_message_says_how_to_mix_but_not_in_warm_up_rounds():
    federation = Federation()
    start(federation, 2, k=7, mixing=0.5, scale=2, mix="logits", warmup_rounds=1)
    asked = {"neighbours": 7, "lambda": 0.5, "kernel-scale": 2.0, "mix": "logits"}
    assert federation.asked == [{"server-round": 1}, {"server-round": 2, "confusion": True, **asked}]
    start(federation)
    asked = {"neighbours": 10, "lambda": "cv", "kernel-scale": 1.0, "mix": "probabilities"}
    assert federation.asked[-1] == {"server-round": 1, "confusion": True, **asked}


def test_the_record_has_lambda_and_both_accuracies():
    _, strategy = start(Federation({**METRICS, "f1": 0.5}))
    (record,) = strategy.history
    assert {name: record[name] for name in METRICS} == METRICS
    assert record["metrics"] == {"f1": 0.5}
    assert "accuracy-oracle-lambda" not in record


def test_the_oracle_is_recorded_beside_the_headline():
    metrics = {**METRICS, "accuracy-oracle-lambda": 0.9, "oracle-lambda": 0.4}
    _, strategy = start(Federation(metrics), mixing="oracle-test")
    (record,) = strategy.history
    assert (record["accuracy"], record["accuracy-oracle-lambda"], record["oracle-lambda"]) == (0.75, 0.9, 0.4)
    assert "metrics" not in record


def test_a_target_that_reports_no_lambda_is_warned_of(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    logging.getLogger("flwr").setLevel(logging.WARNING)
    with caplog.at_level(logging.WARNING, logger="flwr"):
        start(Federation())
        start(Federation({"accuracy": float("nan")}))
        assert "KNNPerTarget" not in caplog.text
        start(Federation({"accuracy": 0.5}), 2, warmup_rounds=1)
    assert "Round 2: the target reports no lambda" in caplog.text
    assert "Round 1: the target reports no lambda" not in caplog.text


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"k": 0}, "k is 0: it must be at least 1"),
        ({"scale": 0.0}, "scale is 0.0: it must be a number above 0"),
        ({"scale": float("inf")}, "scale is inf"),
        ({"mixing": 1.5}, r"mixing is 1.5: give cv, a number in \[0, 1\], or oracle-test"),
        ({"mixing": -0.1}, "mixing is -0.1"),
        ({"mixing": "nan"}, "mixing is 'nan'"),
        ({"mixing": "test"}, "mixing is 'test'"),
        ({"mix": "labels"}, "mix is 'labels': choose probabilities or logits"),
    ],
)
def test_options_that_cannot_work_are_refused(options, says):
    with pytest.raises(ConfigError, match=says):
        KNNPer(**options)


def test_a_target_with_fewer_samples_than_k_is_refused_before_anything_is_trained():
    federation = Federation(info={"t": {"examples": 9}, "a": {"examples": 1}})
    with pytest.raises(ConfigError, match="'t' has 9 labelled samples, but kNN-Per looks at k = 10 of them"):
        start(federation)
    assert federation.configs == []
    start(Federation(info={"t": {"examples": 9}, "a": {"examples": 1}}), k=9)


def test_a_run_is_refused_as_soon_as_its_settings_say_so():
    with pytest.raises(ConfigError, match="the target has 4 labelled samples, but kNN-Per looks at k = 5"):
        RunConfig(method="knn-per", target_samples=4, method_options={"k": 5})
    assert RunConfig(method="knn-per", target_samples=4, source_samples=1, method_options={"k": 4})


def test_a_single_sample_cannot_be_left_out():
    with pytest.raises(ConfigError, match=r"1 labelled sample, but cross-validation needs 2: .* a number"):
        RunConfig(method="knn-per", target_samples=1, method_options={"k": 1})
    options = {"k": 1, "mixing": 1}
    assert RunConfig(method="knn-per", target_samples=1, method_options=options).target_samples == 1


def test_numbers_may_be_text():
    assert KNNPer(mixing="0.25").settings() == KNNPer(mixing=0.25).settings()
    configs = [RunConfig(method="knn-per", method_options={"mixing": mixing}) for mixing in (0.25, "0.25")]
    assert configs[0].fingerprint() == configs[1].fingerprint()
