"""A project's own class of strategies on Flower's older API, with plain clients."""

from functools import partialmethod
from typing import Any

import numpy as np
import pytest
from flwr.client import NumPyClient
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import Server, SimpleClientManager
from flwr.server.client_proxy import ClientProxy

from fda_flower.legacy import LegacyStrategy
from fda_flower.strategies import FedGP

pytestmark = pytest.mark.usefixtures("in_a_run")


class Client(NumPyClient):
    """Adds its rate to the model; its first `late` answers come too late."""

    def __init__(self, domain, late=0):
        self.domain, self.late = domain, late

    def get_properties(self, config):
        self.late -= 1
        if self.late >= 0:
            raise ValueError(
                "Message contains an Error (reason: Error: Message Unavailable - The requested ..."
            )
        return {"domain": self.domain}

    def fit(self, parameters, config):
        return [parameters[0] + np.float32(config["lr"])], 4, {"scanner": "ct"}

    def evaluate(self, parameters, config):
        return 0.5, 8, {"accuracy": 0.25}


def passed_on(self, call, ins, timeout, group_id):
    return getattr(self.client, call)(ins)


CALLS = ("get_properties", "get_parameters", "fit", "evaluate", "reconnect")
Proxy: Any = type("Proxy", (ClientProxy,), {call: partialmethod(passed_on, call) for call in CALLS})


class Saving(LegacyStrategy):
    """Names options of Flower's FedAvg, passes on others, and saves each model."""

    def __init__(self, saved, fraction_fit=1.0, fraction_evaluate=1.0, **more):
        first = ndarrays_to_parameters([np.zeros(2, np.float32)])
        more |= {"fraction_fit": fraction_fit, "fraction_evaluate": fraction_evaluate}
        super().__init__(FedGP(target="2"), first, **more)
        self.saved = saved

    def aggregate_fit(self, server_round, results, failures):
        parameters, metrics = super().aggregate_fit(server_round, results, failures)
        self.saved.extend(parameters_to_ndarrays(parameters))  # type: ignore[arg-type]
        return parameters, metrics


def history_of(strategy, rounds=2, late=0):
    manager = SimpleClientManager()
    for domain in "012":
        proxy = Proxy(domain)
        proxy.client = Client(domain, late).to_client()
        manager.register(proxy)
    return Server(client_manager=manager, strategy=strategy).fit(rounds, None)[0]


def test_a_projects_own_class_saves_models_and_its_functions_make_metrics():
    saved: list[Any] = []
    strategy = Saving(
        saved,
        min_available_clients=3,
        fit_metrics_aggregation_fn=lambda pairs: {"ct": [m["scanner"] for _, m in pairs].count("ct")},
        evaluate_metrics_aggregation_fn=lambda pairs: {"right": pairs[0][0] * pairs[0][1]["accuracy"]},
    )
    strategy.on_fit_config_fn = lambda number: {"lr": 1 / number}
    history = history_of(strategy)
    assert [model.tolist() for model in saved] == [[1, 1], [1.5, 1.5]]
    assert history.metrics_distributed_fit["ct"] == [(1, 3), (2, 3)]
    assert history.metrics_distributed["right"] == [(1, 2), (2, 2)]


def test_a_client_whose_role_comes_too_late_is_asked_again():
    strategy = Saving([], on_fit_config_fn=lambda number: {"lr": 1})
    assert history_of(strategy, 1, late=1).metrics_distributed_fit["dropped"] == [(1, 0)]
