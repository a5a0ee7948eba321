"""How a strategy reads the figures on samples held out, and what it does where they are missing."""

from typing import Any

import pytest
from flwr.app import Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from handmade import HandMade, initial, moves

from fda_flower.engines import LocalGrid
from fda_flower.errors import ConfigError
from fda_flower.legacy import LegacyStrategy
from fda_flower.strategies import FedAvg
from fda_flower.strategies.selection import Selection, default_metric

pytestmark = pytest.mark.usefixtures("in_a_run")


class Judged(HandMade):
    """Nodes whose evaluation has a figure for each round; None for a reply without one."""

    def __init__(self, figures, mute=(), name="accuracy"):
        nodes = [
            ("source", "a", moves(1.0, domain="a")),
            ("source", "b", moves(1.0, domain="b")),
            ("target", "t", moves(1.0, role="target", domain="t")),
        ]
        super().__init__(nodes)
        self.asked: list[tuple[str, object]] = []
        answer = self.app
        self.app = ClientApp()

        @self.app.evaluate()
        def evaluate(message, context):
            _, domain, _ = nodes[context.node_config["partition-id"]]
            config = message.content["config"]
            self.asked.append((domain, config.get("validation")))
            if domain in mute:
                raise RuntimeError("no reply")
            figure = figures[config["server-round"] - 1]
            metrics: dict[str, Any] = {"accuracy": 0.5, "loss": 1.0, "num-examples": 4}
            if figure is not None:
                metrics[f"validation-{name}"] = figure
            return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)

        @self.app.train()
        def train(message, context):
            return answer(message, context)

        @self.app.query("role")
        def role(message, context):
            return answer(message, context)


def started(client, rounds, **options):
    strategy = FedAvg(**options)
    strategy.start(LocalGrid(client.app, 3), initial(), num_rounds=rounds)
    return strategy


def chosen(strategy):
    return [record.get("selected") for record in strategy.history]


def test_clients_of_other_authors_may_report_the_figure():
    strategy = started(Judged([0.2, 0.4, 0.4, 0.1]), 4)
    assert chosen(strategy) == [1, 2, 2, 2]
    assert not any("metrics" in record for record in strategy.history)


def test_a_round_without_a_figure_is_not_chosen():
    assert chosen(started(Judged([None, 0.4, None]), 3)) == [None, 2, None]


def test_the_strategy_stops_by_itself():
    assert len(started(Judged([0.4, 0.3, 0.2, 0.9]), 4, patience=2).history) == 3


def test_an_error_is_better_the_smaller_it_is():
    assert chosen(started(Judged([0.4, 0.3, 0.5], name="rmse"), 3)) == [1, 2, 2]


def test_warmup_rounds_are_not_judged():
    assert chosen(started(Judged([0.9, 0.3]), 2, warmup_rounds=1)) == [None, 2]


def test_figures_that_are_known_beforehand_choose():
    strategy = started(Judged([None, None]), 2, validation={1: 0.7, 2: 0.6})
    assert chosen(strategy) == [1, 1]
    assert strategy.history[0]["selected-by"] == "folds"


def test_sources_are_asked_for_the_samples_held_out_alone():
    client = Judged([0.2, 0.4])
    strategy = started(client, 2, select_by="sources")
    assert chosen(strategy) == [1, 2]
    assert sorted(client.asked[:3], key=str) == [("a", "only"), ("b", "only"), ("t", None)]
    assert strategy.history[0]["sources"]["a"]["validation"] == 0.2


def test_a_round_is_not_judged_unless_all_sources_reply():
    assert chosen(started(Judged([0.2, 0.4], mute=("b",)), 2, select_by="sources")) == [None, None]


def test_the_first_known_figure_is_the_headline():
    assert default_metric([{}, {"loss": 1.0, "r2": 0.5}]) == "r2"
    assert default_metric([]) == "accuracy"


def test_the_older_server_runs_all_its_rounds():
    for options in ({"patience": 3}, {"select_by": "sources"}):
        with pytest.raises(ConfigError, match="Flower's older server asks the target alone"):
            LegacyStrategy(FedAvg(target="t", **options))


def test_a_word_or_number_that_cannot_work_is_refused():
    with pytest.raises(ConfigError, match="select_by is 'nobody'"):
        FedAvg(select_by="nobody")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="patience is 0"):
        FedAvg(patience=0)


def test_nobody_is_asked_beside_the_target_by_default():
    client = Judged([0.5])
    started(client, 1)
    assert client.asked == [("t", None)]
    assert Selection().patience is None
