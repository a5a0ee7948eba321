"""Clients served through Flower's messages: what a strategy gets to see."""

import logging
from typing import Any

import numpy as np
import pytest
from asking import app_of
from digit_clients import state_of
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod
from naming import names

from fda_flower import RunConfig
from fda_flower.client_app import make_client, make_client_app
from fda_flower.clients import SourceClient, TargetClient, answer_role_query, serve
from fda_flower.datasets import load_federation
from fda_flower.engines import LocalGrid, Resources, run_local
from fda_flower.errors import ConfigError, RunError
from fda_flower.metrics import LIMITS, metric_names
from fda_flower.models import build_model
from fda_flower.server_app import run_server
from fda_flower.site.words import KEPT
from fda_flower.strategies import FedGP
from fda_flower.wire.numpy_client import numbers_in

CONFIG = RunConfig(method="fedgp-auto", model="mlp", target_samples=12, target_batch_size=4, device="cpu")
DOMAINS = ["source-1", "source-2", "source-3", "target"]
SOURCE, TARGET = 0, 3
FEDERATION = load_federation(CONFIG.data)
METRICS = {"num-examples", "num-steps", "learning-rate", "batch-size", "train-loss"}

pytestmark = pytest.mark.usefixtures("in_a_run")


def network(seed=0):
    return build_model("mlp", FEDERATION.shape, FEDERATION.classes, seed=seed)


@pytest.fixture
def grid() -> LocalGrid:
    return LocalGrid(make_client_app(CONFIG), len(DOMAINS))


def ask(grid, node, kind, arrays=None, **config):
    """The reply of the node with this partition id."""
    content = RecordDict()
    if kind != "query.role":
        content["arrays"] = ArrayRecord(network().state_dict()) if arrays is None else arrays
    if config:
        content["config"] = ConfigRecord({key.replace("_", "-"): value for key, value in config.items()})
    (reply,) = grid.send_and_receive([Message(content, list(grid.get_node_ids())[node], kind)])
    return reply


def two_numbers() -> ArrayRecord:
    return ArrayRecord([np.array([1, 2], np.float32)])


def answer(app, kind, node_config=None, arrays=None, run_config=None) -> Any:
    """The content of an app's reply on a node of this configuration."""
    content = RecordDict({} if kind == "query.role" else {"arrays": arrays or two_numbers()})
    context = Context(
        run_id=1, node_id=7, node_config=node_config or {}, state=RecordDict(), run_config=run_config or {}
    )
    message = Message(content, 7, kind)
    message.metadata.__dict__["_message_id"] = "1"
    return app(message, context).content


def about(app, **node_config: Any) -> dict[str, Any]:
    """What an app answers to the role query."""
    return dict(
        answer(app, "query.role", {key.replace("_", "-"): v for key, v in node_config.items()})["info"]
    )


# The package's own clients


@pytest.mark.parametrize("node", [SOURCE, TARGET])
def test_a_reply_has_arrays_metrics_and_info_and_an_evaluation_its_figures(grid, node):
    reply, sent = ask(grid, node, "train", server_round=1), state_of(network())
    assert not reply.has_error(), reply.error
    assert set(reply.content) == {"arrays", "metrics", "info"}
    assert list(reply.content["arrays"]) == list(sent)
    for name, record in reply.content["arrays"].items():
        array = record.numpy()
        assert (array.shape, array.dtype) == (sent[name].shape, sent[name].dtype), name
        assert np.isfinite(array).all(), name
        assert not np.array_equal(array, sent[name]), name
    metrics, examples = reply.content["metrics"], len(FEDERATION.domains[DOMAINS[node]].train)
    training = CONFIG.target_training if node == TARGET else CONFIG.source_training
    assert set(metrics) == METRICS
    expected = examples, training.steps(examples), training.learning_rate
    assert tuple(metrics[name] for name in ("num-examples", "num-steps", "learning-rate")) == expected
    role = "target" if node == TARGET else "source"
    assert dict(reply.content["info"]) == {"role": role, "domain": DOMAINS[node]}
    assert not ask(grid, node, "train").has_error(), "a config is not needed"
    content = ask(grid, node, "train", batch_updates="full").content
    assert set(content) == {"arrays", "metrics", "info", *(["batch-updates"] if node == TARGET else [])}
    if node == SOURCE:
        return  # the method asks it for no evaluation
    evaluation = ask(grid, node, "evaluate").content
    assert set(evaluation) == {"metrics"}
    assert set(evaluation["metrics"]) - LIMITS.keys() == {*metric_names("classes"), "num-examples"}
    assert evaluation["metrics"]["num-examples"] == len(FEDERATION.domains[DOMAINS[node]].test)


@pytest.mark.parametrize("node", range(4))
def test_every_node_tells_its_role_and_domain(grid, node):
    reply, domain = ask(grid, node, "query.role"), FEDERATION.domains[DOMAINS[node]]
    assert set(reply.content) == {"info"}
    assert (domain.unlabelled is not None) == (node == TARGET)
    told = {
        "role": "target" if node == TARGET else "source",
        "domain": DOMAINS[node],
        "examples": len(domain.train),
        "unlabelled": 0 if domain.unlabelled is None else len(domain.unlabelled),
        "test-examples": len(domain.test),
        "regression": False,
    }
    assert dict(reply.content["info"]) == {**told, "shape": [1, 8, 8], "classes": 10}
    kind = TargetClient if node == TARGET else SourceClient
    answer_role_query(app := handmade(), lambda context: kind(domain, network(), CONFIG.source_training))
    own = {**told, "evaluates": False}
    assert about(app, role="other") == own, "an app of one's own tells what its client does"


@pytest.mark.parametrize("kind", ["train", "evaluate"])
@pytest.mark.parametrize("change", [lambda arrays: arrays[:-1], lambda arrays: [*arrays, arrays[0]]])
def test_arrays_of_another_model_become_an_error_reply(grid, kind, change):
    reply = ask(grid, TARGET, kind, ArrayRecord(change(list(state_of(network()).values()))), server_round=1)
    assert reply.has_error()
    assert "the network 4 arrays" in str(reply.error.reason)


# The app that `flwr run` starts


def test_a_node_that_cannot_take_part_tells_the_server_why_and_logs_it(caplog):
    with caplog.at_level(logging.WARNING, "flwr"):
        info = about(make_client_app(CONFIG), domain="attic", role="source")
    assert (info["domain"], info["role"]) == ("attic", "source")
    assert str(info["problem"]).startswith("unknown domain 'attic': choose one of source-1")
    assert "This site refuses" in caplog.text

    def client_fn(context: Context) -> NumPyClient:
        raise ZeroDivisionError("by a bug")

    told = about(serve(client_fn), domain="a")
    assert told == {"domain": "a", "problem": KEPT}
    told = about(serve(client_fn), partition_id=1)
    assert told == {"domain": "1", "problem": "ZeroDivisionError('by a bug')"}, "no message for people"


@pytest.mark.parametrize(("name", "kind"), [("source-2", SourceClient), ("target", TargetClient)])
def test_a_client_trains_with_the_settings_of_the_run(name, kind):
    config = RunConfig(model="mlp", seed=5, threads=3, batch_size=50, device="cpu")
    client = make_client(config, name)
    training = config.target_training if name == "target" else config.source_training
    assert (type(client), client.domain.name, client.training) == (kind, name, training)
    assert (client.seed, client.threads) == (5, 3)


def test_a_clients_settings_are_read_from_the_run_if_none_are_given():
    run_config = {"shift": "color", "model": "mlp", "target-samples": 9, "device": "cpu"}
    node = {"partition-id": 2, "num-partitions": 3}
    info = answer(make_client_app(), "query.role", node, run_config=run_config)["info"]
    assert (info["role"], info["domain"]) == ("target", "-90%")
    assert (info["shape"], info["classes"], info["examples"]) == ([2, 8, 8], 2, 9)


# Clients of others


class Plain(NumPyClient):
    """As from Flower's template: no role, no domain, no steps."""

    def __init__(self, examples: Any = 5, **metrics: Any) -> None:
        self.examples, self.metrics = examples, metrics or {"train_loss": 0.25, "note": "text", "blob": b"x"}

    def fit(self, parameters: Any, config: Any) -> Any:
        return [array + 1 for array in parameters], self.examples, self.metrics

    def evaluate(self, parameters: Any, config: Any) -> Any:
        return np.float32(0.5), self.examples, {**self.metrics, "accuracy": 0.75}


@pytest.mark.parametrize(
    ("node_config", "expected"),
    [
        ({"role": "target", "domain": "photos"}, {"role": "target", "domain": "photos"}),
        ({"role": "source", "partition-id": 4}, {"role": "source", "domain": "4"}),
        ({"domain": "photos", "partition-id": 4}, {"domain": "photos"}),
        ({"partition-id": 4, "num-partitions": 5}, {"domain": "4"}),
        ({}, {"domain": "7"}),
    ],
)
@pytest.mark.parametrize("kind", ["train", "query.role"])
def test_a_plain_client_has_role_and_domain_of_its_node(node_config, expected, kind):
    assert dict(answer(serve(lambda context: Plain()), kind, node_config)["info"]) == expected


def test_a_plain_client_without_an_evaluation_is_asked_for_one_once():
    class Silent(Plain):
        evaluate = NumPyClient.evaluate  # Flower's, which would return zeros

    strategy = FedGP(target="0")
    result = strategy.start(LocalGrid(serve(lambda context: Silent()), 2), two_numbers(), 2)
    assert ["evaluation-failed" in record for record in strategy.history] == [True, False]
    assert not any("loss" in record for record in strategy.history)
    assert result.evaluate_metrics_clientapp == {}


def test_a_clients_own_role_domain_and_properties_are_told():
    class Named(Plain):
        role = "target"
        domain = "mine"

    class Knowing(Plain):
        def get_properties(self, config: Any) -> Any:
            return {"shape": [3], "classes": 2, "domain": "is the node's"}

    node = {"domain": "a", "role": "source"}
    assert about(serve(lambda context: Named()), **node) == {"role": "target", "domain": "mine"}
    assert about(serve(lambda context: Knowing()), **node) == {**node, "shape": [3], "classes": 2}


def test_a_plain_client_that_returns_a_part_of_the_arrays_is_told_that_they_have_no_names():
    class Partial(Plain):
        def fit(self, parameters, config):
            return [], 8, {}

    with pytest.raises(ConfigError, match="returned 0 arrays, but 1 were sent"):
        answer(serve(lambda context: Partial()), "train")


def test_a_plain_clients_replies_hold_its_numbers_and_leave_the_rest():
    app = serve(lambda context: Plain())
    content = answer(app, "train")
    assert set(content) == {"arrays", "metrics", "info"}
    (array,) = content["arrays"].values()
    assert array.numpy().tolist() == [2, 3]
    assert dict(content["metrics"]) == {"num-examples": 5, "train_loss": 0.25}
    metrics = dict(answer(app, "evaluate")["metrics"])
    assert metrics == {"loss": 0.5, "num-examples": 5, "train_loss": 0.25, "accuracy": 0.75}


@pytest.mark.parametrize("kind", ["train", "evaluate"])
@pytest.mark.parametrize("examples", [3, np.int64(3), np.int32(3)])
def test_numbers_may_be_numpys_or_truth_values(kind, examples):
    client = Plain(examples, a=np.float32(0.5), b=np.int64(2), c=np.float64(0.25), converged=True)
    metrics = answer(serve(lambda context: client), kind)["metrics"]
    found = {key: metrics[key] for key in ("num-examples", "a", "b", "c")}
    assert found == {"num-examples": 3, "a": 0.5, "b": 2, "c": 0.25}
    assert all(type(value) in (int, float) for value in metrics.values())


@pytest.mark.parametrize("kind", ["train", "evaluate"])
@pytest.mark.parametrize("examples", [2.5, np.nan])
def test_a_number_of_examples_that_is_not_whole_is_for_the_server_to_refuse(kind, examples):
    found = answer(serve(lambda context: Plain(examples)), kind)["metrics"]["num-examples"]
    assert np.array_equal(found, examples, equal_nan=True)


def test_metrics_that_are_no_numbers_are_logged_once_and_left_out(flower_log):
    others = {"a text": "fine", "a none": None, "a list": [1], "an array": np.array(1.0), "bytes": b""}
    for _ in range(2):
        assert numbers_in({"auc": 0.5, **others, "a true": True, "record.array": b""}) == {"auc": 0.5}
    entries = [line.split("'")[1] for line in flower_log.messages]
    assert sorted(entries) == sorted([*others, "a true"])


def test_a_method_of_flowers_that_a_client_overrides_is_called_in_place_of_the_hook():
    class Mine(SourceClient):
        def fit(self, parameters: Any, config: Any) -> Any:
            arrays, examples, metrics = super().fit(parameters, config)
            return arrays, examples, {**metrics, "mine": 1.0}

        def evaluate(self, parameters: Any, config: Any) -> Any:
            loss, examples, metrics = super().evaluate(parameters, config)
            return loss, examples, {**metrics, "mine": 1.0}

    data = FEDERATION.domains["source-1"]
    plain, mine = (kind(data, network(), CONFIG.source_training) for kind in (SourceClient, Mine))
    arrays = ArrayRecord(list(plain.layers().values()))
    for kind in ("train", "evaluate"):
        expected = answer(serve(lambda context: plain), kind, arrays=arrays)["metrics"]
        found = answer(serve(lambda context: mine), kind, arrays=arrays)["metrics"]
        assert dict(found) == {**dict(expected), "mine": 1.0}


def test_a_client_is_made_for_each_message_from_its_nodes_context_and_may_be_a_flower_client():
    seen = []

    def client_fn(context: Context) -> Any:
        seen.append(context.node_config["partition-id"])
        return Plain().to_client()

    grid = LocalGrid(serve(client_fn), 2)
    for node in (1, 0, 1):
        reply = ask(grid, node, "train", two_numbers())
        assert next(iter(reply.content["arrays"].values())).numpy().tolist() == [2, 3]
    assert seen == [1, 0, 1]


def test_mods_are_applied_to_training_alone():
    seen = []

    def counting(message: Message, context: Context, call_next: Any) -> Any:
        seen.append(message.metadata.message_type)
        return call_next(message, context)

    app = serve(lambda context: Plain(), mods=[counting])
    for kind in ("train", "evaluate", "query.role"):
        answer(app, kind)
    assert seen == ["train"]


def test_an_error_that_a_mod_addresses_to_the_node_itself_reaches_the_server():
    def refuses(message: Message, context: Context, call_next: Any) -> Message:
        return Message(Error(0, "not with me"), reply_to=call_next(message, context))

    strategy = FedGP(target="1")
    grid = LocalGrid(serve(lambda context: Plain(), mods=[refuses]), 2)
    with pytest.raises(RunError, check=names("client app", "error 0: not with me")):
        strategy.start(grid, ArrayRecord({"w": Array(np.zeros(2, np.float32))}), 1)


def handmade() -> ClientApp:
    @app_of
    def app(message: Message, context: Context) -> Message:
        records = {"arrays": message.content["arrays"], "metrics": MetricRecord({"num-examples": 1})}
        return Message(RecordDict(records), reply_to=message)

    return app


def test_a_handmade_app_answers_the_role_query_from_its_node():
    app = handmade()
    answer_role_query(app)
    assert about(app, role="target", domain="a") == {"role": "target", "domain": "a", "evaluates": False}
    assert set(answer(app, "train")) == {"arrays", "metrics"}
    app.evaluate()(answer)
    assert about(app, partition_id=2) == {"domain": "2"}


METHODS = ("fedavg", "fedda", "fedgp", "fedda-auto", "fedgp-auto", "kd3a")


@pytest.mark.parametrize(
    ("method", "roles"), [*((name, {"source"}) for name in METHODS), ("fedgp", {"source", "target"})]
)
def test_sources_can_clip_with_every_method_and_the_target_with_a_fixed_beta(method, roles):
    """By Flower's mod for local differential privacy, as docs/plug-in.md says."""
    config = RunConfig(rounds=3, sources=2, model="mlp", device="cpu", method=method)
    mod = LocalDpMod(clipping_norm=0.5, sensitivity=0, epsilon=1, delta=1e-5)
    plain, modded = make_client_app(config), make_client_app(config, mods=[mod])
    target, histories = config.data.domain_names.index(config.data.target_name), []

    def app(message: Message, context: Context) -> Message:
        role = "target" if context.node_config["partition-id"] == target else "source"
        return (modded if role in roles else plain)(message, context)

    make_app: Any = lambda: app  # noqa: E731
    run_local(lambda grid: histories.append(run_server(grid, config)[1]), make_app, 3, Resources())
    for record in histories[0]:
        assert (record["held"], record["dropped"]) == (None, [])
        for source in record["sources"].values():
            assert source.get("norm", 0.5) == pytest.approx(0.5, rel=1e-4)
