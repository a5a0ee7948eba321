"""Flower's own mods with FedGP, with a fixed β and with auto-weighting, as docs/plug-in.md says."""

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord
from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp.mod import (
    LocalDpMod,
    adaptiveclipping_mod,
    arrays_size_mod,
    fixedclipping_mod,
    message_size_mod,
)
from projects import (
    EXAMPLES,
    STEPS,
    TARGET,
    client_app,
    data,
    loss_of,
    network,
    partition_of,
    reply_to,
    sgd,
    start,
    take_steps,
)

from fda_flower.clients import record_updates, serve
from fda_flower.errors import RunError
from fda_flower.strategies import FedGP

NORM = 0.01
CLIP = LocalDpMod(NORM, sensitivity=0, epsilon=1, delta=1e-5)
NOISE = LocalDpMod(1.0, sensitivity=1.0, epsilon=1, delta=1e-5)
WITH_NORM = {"clipping_norm": NORM}
ROLES = ["source", "target"]


def load(arrays, batch_norm):
    model = network(batch_norm)
    tensors = map(torch.tensor, arrays)
    model.load_state_dict(dict(zip(model.state_dict(), tensors, strict=True)))
    return model


def fit(partition, arrays, config, batch_norm):
    """The model after training, and what was recorded."""
    model = load(arrays, batch_norm)
    optimizer = sgd(model)
    with record_updates(optimizer, config) as updates:
        take_steps(model, optimizer, partition)
    return [tensor.numpy() for tensor in model.state_dict().values()], updates


def evaluate(partition, arrays, batch_norm):
    x, y = data(partition)
    with torch.no_grad():
        return float(loss_of(load(arrays, batch_norm).eval()(x), y))


class Client(NumPyClient):
    def __init__(self, partition, batch_norm):
        self.partition, self.batch_norm = partition, batch_norm

    def fit(self, parameters, config):
        arrays, updates = fit(self.partition, parameters, config, self.batch_norm)
        metrics = {}
        updates.add_to(metrics)
        return arrays, EXAMPLES, metrics

    def evaluate(self, parameters, config):
        return evaluate(self.partition, parameters, self.batch_norm), EXAMPLES, {}


def served(mods, batch_norm):
    """A `NumPyClient` with mods around training."""
    return serve(lambda context: Client(partition_of(context), batch_norm), mods=mods)


def around_training(mods, batch_norm, of_all=None):
    """A Message-API app with mods around its train function."""

    def train(message, context):
        arrays, config = message.content["arrays"], message.content["config"]
        trained, updates = fit(partition_of(context), arrays.to_numpy_ndarrays(), config, batch_norm)
        reply = reply_to(message, dict(zip(arrays, map(np.asarray, trained), strict=True)))
        updates.add_to(reply.content)
        return reply

    def measured(arrays, partition):
        return {"loss": evaluate(partition, arrays, batch_norm)}

    return client_app(train, measured, mods=of_all, train_mods=mods)


def around_all(mods, batch_norm):
    """A Message-API app with mods around all its functions."""
    return around_training([], batch_norm, mods)


WAYS = [served, around_training, around_all]
AROUND_TRAINING = [served, around_training]


def run(way, mod, roles, auto, config=None, batch_norm=False, wrap=lambda it: it):
    """A round in which the clients of some roles have a mod: the model, and the strategy."""
    plain, modded = way([], batch_norm), way([mod], batch_norm)

    def app(message, context):
        role = "target" if str(partition_of(context)) == TARGET else "source"
        return (modded if role in roles else plain)(message, context)

    np.random.seed(0)  # noqa: NPY002 - what Flower's mods draw from
    strategy = FedGP(target=TARGET, auto=auto)
    initial = ArrayRecord(network(batch_norm).state_dict())
    result = start(wrap(strategy), app, initial, 1, train_config=ConfigRecord(config or {}))
    return {name: array.numpy() for name, array in result.arrays.items()}, strategy


def norms(strategy, role):
    record = strategy.history[0]
    entries = [record["target"]] if role == "target" else record["sources"].values()
    return [entry["norm"] for entry in entries]


def assert_good(strategy):
    (record,) = strategy.history
    assert (record["held"], record["dropped"], record["missing"]) == (None, [], [])
    assert all(entry.get("fallback") is None for entry in record["sources"].values())


@pytest.mark.parametrize("auto", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mod", [message_size_mod, arrays_size_mod])
def test_mods_that_log_sizes_change_no_bit(mod, way, auto):
    model, strategy = run(way, mod, ROLES, auto)
    assert_good(strategy)
    np.testing.assert_equal(model, run(way, mod, [], auto)[0])


every_private_mod = pytest.mark.parametrize(
    ("mod", "config"),
    [(CLIP, {}), (fixedclipping_mod, WITH_NORM), (adaptiveclipping_mod, WITH_NORM), (NOISE, {})],
)


@pytest.mark.parametrize("way", AROUND_TRAINING)
@every_private_mod
def test_all_clients_can_be_private_with_a_fixed_beta_and_sources_with_auto_weighting(mod, config, way):
    for roles, auto in ((ROLES, False), (["source"], True)):
        _, strategy = run(way, mod, roles, auto, config)
        assert_good(strategy)
        for role in ROLES:
            found = norms(strategy, role)
            if role not in roles:
                assert NORM < min(found) <= max(found) < 10
            elif mod is NOISE:
                assert min(found) > 10
            else:
                np.testing.assert_allclose(found, NORM, rtol=1e-4)


@pytest.mark.parametrize("mod", [CLIP, fixedclipping_mod, adaptiveclipping_mod])
def test_with_batchnorm_its_counter_divides_the_clipped_update_and_leaves_itself_unclipped(mod):
    plain = norms(run(served, mod, [], False, batch_norm=True)[1], "source")
    model, strategy = run(served, mod, ROLES, False, WITH_NORM, batch_norm=True)
    for before, after in zip(plain, norms(strategy, "source"), strict=True):
        assert NORM * before / (STEPS + 1) < after < NORM * before / STEPS
    assert model["1.num_batches_tracked"] == STEPS


@pytest.mark.parametrize("way", AROUND_TRAINING)
@every_private_mod
def test_with_auto_weighting_the_target_cannot_be(mod, config, way):
    """The mods take one set of arrays; they address the error to the client itself, `serve` to the server."""
    _, strategy = run(way, mod, ["target"], True, config)
    (record,) = strategy.history
    assert record["held"] == "no usable reply of the target"
    (dropped,) = record["dropped"]
    assert dropped["domain"] == TARGET
    assert ("expects exactly one ArrayRecord" if way is served else "no reply within") in dropped["reason"]


@pytest.mark.parametrize("mod", [CLIP, fixedclipping_mod, adaptiveclipping_mod])
def test_around_a_whole_app_they_refuse_the_role_query(mod):
    with pytest.raises(RunError, match="expects exactly one ArrayRecord, but found 0"):
        run(around_all, mod, ROLES, False, WITH_NORM)


@pytest.mark.parametrize("auto", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_secure_aggregation_does_not_fit(way, auto):
    _, strategy = run(way, secaggplus_mod, ["source"], auto)
    assert strategy.history[0]["held"] == "0 usable replies of sources, at least 1 needed"
    assert all("secaggplus_configs" in each["reason"] for each in strategy.history[0]["dropped"])


def test_noise_makes_running_variances_negative_and_the_model_useless():
    mod = LocalDpMod(1.0, sensitivity=1.0, epsilon=0.1, delta=1e-5)
    model, strategy = run(served, mod, ROLES, False, batch_norm=True)
    (record,) = strategy.history
    assert (record["held"], record["dropped"]) == (None, [])
    assert (model["1.running_var"] < 0).any()
    assert record["evaluation-failed"] == "its metric 'loss' is nan, expected a finite number"
