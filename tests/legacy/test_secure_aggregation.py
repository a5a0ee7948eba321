"""Flower's secure aggregation under the methods that need only the sources' mean: docs/privacy.md."""

import copy

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import LegacyContext, ServerConfig
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow

from fda_flower.clients import LocalTraining
from fda_flower.datasets import DataSpec, load_federation
from fda_flower.engines import LocalGrid
from fda_flower.errors import ConfigError
from fda_flower.legacy import LegacyStrategy
from fda_flower.legacy.messages import as_types_of
from fda_flower.models import build_model
from fda_flower.runs.methods import METHODS
from fda_flower.strategies import FedAvg, FedDA, Mixture, SourceOnly

pytestmark = pytest.mark.usefixtures("in_a_run")

DATA = load_federation(DataSpec("digits", "rotate", target_samples=20, source_samples=60, test_samples=50))
DOMAINS = list(DATA.domains)


def network():
    return build_model("logistic", DATA.shape, DATA.classes, seed=0)


def client_fn(context):
    domain = DOMAINS[int(context.node_config["partition-id"])]
    kind = METHODS["source-only"].client_class("target" if domain == DATA.target else "source")
    about = {"domain": domain, "role": kind.role}
    return kind(DATA.domains[domain], network(), LocalTraining(0.05, 10), seed=1, about=about).to_client()


def run(strategy, secure, rounds=2):
    """The model after some rounds, as one vector."""
    client_app = ClientApp(client_fn, mods=[secaggplus_mod] if secure else [])

    def app(message, context):
        # Flower's workflow sends all nodes the same content, which its mod changes: over a network each has
        # its own.
        message.content = copy.deepcopy(message.content)
        return client_app(message, context)

    initial = [tensor.numpy() for tensor in network().state_dict().values()]
    names = list(network().state_dict())
    context = LegacyContext(
        Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={}),
        config=ServerConfig(num_rounds=rounds),
        strategy=LegacyStrategy(
            strategy, ndarrays_to_parameters(initial), names=names, secure_aggregation=secure
        ),
    )
    fit = {"fit_workflow": SecAggPlusWorkflow(3, 2)} if secure else {}
    grid = LocalGrid(app, len(DOMAINS))  # type: ignore[arg-type]
    DefaultWorkflow(**fit)(grid, context)
    return np.concatenate([array.reshape(-1) for array in strategy.model.values()])


@pytest.mark.parametrize("method", [SourceOnly, FedAvg])
def test_the_mean_of_masked_models_is_the_mean(method):
    open_, secure = run(method(), False), run(method(), True)
    np.testing.assert_allclose(secure, open_, atol=2e-4)
    assert np.abs(secure).max() > 0.01


def test_the_server_sees_no_model_but_the_mean(monkeypatch):
    seen = []
    whole = LegacyStrategy.aggregate_fit

    def aggregate_fit(self, server_round, results, failures):
        seen.append([result.parameters.tensors for _, result in results])
        return whole(self, server_round, results, failures)

    monkeypatch.setattr(LegacyStrategy, "aggregate_fit", aggregate_fit)
    strategy = SourceOnly()
    run(strategy, True, rounds=1)
    (models,) = seen
    assert len(models) == 3
    assert models[0] == models[1] == models[2]
    assert strategy.history[0]["dropped"] == []
    assert strategy.history[0]["accuracy"] > 0


@pytest.mark.parametrize(
    "strategy",
    [
        FedDA(beta=0.5),
        FedDA(auto=True),
        Mixture(),
        SourceOnly(source_weights="uniform"),
        FedAvg(max_update_norm=1.0),
        SourceOnly(source_mean="median"),
    ],
)
def test_what_looks_at_each_model_is_refused(strategy):
    if not isinstance(strategy, Mixture):
        with pytest.raises(ConfigError, match="secure aggregation shows only their mean by examples"):
            LegacyStrategy(strategy, secure_aggregation=True)
    else:
        with pytest.raises(ConfigError, match="has its target evaluate in the last round"):
            LegacyStrategy(strategy, secure_aggregation=True)


def test_counters_keep_their_type():
    like = [np.array([1.0], np.float32), np.array(3)]
    mean = ndarrays_to_parameters([np.array([0.25]), np.array(6.9999)])
    floats, counter = parameters_to_ndarrays(as_types_of(like, mean))
    assert str(floats.dtype) == "float32"
    assert floats.tolist() == [0.25]
    assert str(counter.dtype) == "int64"
    assert counter.tolist() == 7
