"""Clients served through Flower's messages: what a strategy gets to see."""

import logging
from typing import Any

import numpy as np
import pytest
import torch
from digit_clients import state_of
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod, fixedclipping_mod
from naming import names

from fda_flower import RunConfig
from fda_flower.client_app import make_client, make_client_app
from fda_flower.clients import SourceClient, TargetClient, answer_role_query, serve
from fda_flower.datasets import load_federation
from fda_flower.engines import LocalGrid, Resources, run_local
from fda_flower.errors import ConfigError, RunError
from fda_flower.metrics import metric_names
from fda_flower.models import build_model
from fda_flower.models.devices import find_device
from fda_flower.server_app import run_server
from fda_flower.strategies import FedGP

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
def test_a_train_reply_has_arrays_metrics_and_info(grid, node):
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


@pytest.mark.parametrize(
    ("asked", "shapes"),
    [
        ({"batch_updates": "norms"}, {"norms": (3,)}),
        (
            {"batch_updates": "sketch", "sketch_size": 16, "sketch_seed": 1},
            {"norms": (3,), "sketch": (3, 16)},
        ),
        ({"batch_updates": "full"}, {"norms": (3,), "full": (3, 64 * 64 + 64 + 64 * 10 + 10)}),
    ],
)
def test_the_target_alone_sends_batch_updates_in_the_form_asked_for(grid, asked, shapes):
    reply = ask(grid, TARGET, "train", server_round=1, **asked)
    assert set(reply.content) == {"arrays", "metrics", "info", "batch-updates"}
    record = reply.content["batch-updates"]
    assert {name: array.numpy().shape for name, array in record.items()} == shapes
    assert set(reply.content["metrics"]) == METRICS
    assert "batch-updates" not in ask(grid, SOURCE, "train", server_round=1, **asked).content


def test_replies_have_the_same_bits_in_any_order_of_the_clients():
    def replies(order):
        grid, found = LocalGrid(make_client_app(CONFIG), len(DOMAINS)), {}
        for node in order:
            record = ask(grid, node, "train", server_round=2).content["arrays"]
            found[node] = [array.data for array in record.values()]
        return found

    assert replies([0, 1, 2, 3]) == replies([3, 1, 0, 2])


@pytest.mark.parametrize("node", [SOURCE, TARGET])
def test_an_evaluate_reply_has_the_figures_and_examples(grid, node):
    reply = ask(grid, node, "evaluate", server_round=1)
    assert set(reply.content) == {"metrics"}
    metrics = reply.content["metrics"]
    assert set(metrics) == {*metric_names(regression=False), "num-examples"}
    assert metrics["num-examples"] == len(FEDERATION.domains[DOMAINS[node]].test)


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
    assert about(app, role="other") == told, "an app of one's own tells what its client does"


@pytest.mark.parametrize("kind", ["train", "evaluate"])
@pytest.mark.parametrize("change", [lambda arrays: arrays[:-1], lambda arrays: [*arrays, arrays[0]]])
def test_arrays_of_another_model_become_an_error_reply(grid, kind, change):
    reply = ask(grid, SOURCE, kind, ArrayRecord(change(list(state_of(network()).values()))), server_round=1)
    assert reply.has_error()
    assert "ValueError" in str(reply.error.reason)


@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_a_message_without_a_config_is_served(grid, kind):
    assert not ask(grid, TARGET, kind).has_error()


# The app that `flwr run` starts


@pytest.mark.parametrize(
    ("node", "role", "domain"),
    [
        ({"domain": "target"}, "target", "target"),
        ({"domain": "source-2", "partition_id": 0}, "source", "source-2"),
    ],
)
def test_a_node_may_be_given_its_domain_in_place_of_a_partition(node, role, domain):
    info = about(make_client_app(CONFIG), **node)
    assert (info["role"], info["domain"]) == (role, domain)


@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_an_unknown_domain_of_a_node_is_refused_with_the_valid_ones(kind):
    with pytest.raises(ConfigError, check=names("domain", "attic")):
        answer(make_client_app(CONFIG), kind, {"domain": "attic"})


def test_a_node_that_cannot_take_part_tells_the_server_why_and_logs_it(caplog):
    with caplog.at_level(logging.ERROR, "flwr"):
        info = about(make_client_app(CONFIG), domain="attic", role="source")
    assert (info["domain"], info["role"]) == ("attic", "source")
    assert str(info["problem"]).startswith("unknown domain 'attic': choose one of source-1")
    assert "This node cannot take part" in caplog.text

    def client_fn(context: Context) -> NumPyClient:
        raise ZeroDivisionError("by a bug")

    told = about(serve(client_fn), domain="a")
    assert told == {"domain": "a", "problem": "ZeroDivisionError('by a bug')"}, "no message for people"


@pytest.mark.parametrize(("name", "kind"), [("source-2", SourceClient), ("target", TargetClient)])
def test_a_client_trains_with_the_settings_of_the_run(name, kind):
    threads = torch.get_num_threads() + 1
    config = RunConfig(model="mlp", seed=5, threads=threads, batch_size=50, device="cpu")
    training = config.target_training if name == "target" else config.source_training
    domain, initial = load_federation(config.data).domains[name], list(state_of(network(1)).values())
    used, replies = set(), []
    for client in (
        make_client(config, name),
        kind(domain, network(1), training, seed=5, threads=threads),
    ):
        assert type(client) is kind
        client.model.register_forward_hook(lambda *_: used.add(torch.get_num_threads()))
        replies.append(client.fit(initial, {"server-round": 3}))
    (first, *told), (second, *again) = replies
    assert all(map(np.array_equal, first, second))
    assert told == again
    assert used == {threads}


def test_a_clients_settings_are_read_from_the_run_if_none_are_given():
    run_config = {"shift": "color", "model": "mlp", "target-samples": 9, "device": "cpu"}
    node = {"partition-id": 2, "num-partitions": 3}
    info = answer(make_client_app(), "query.role", node, run_config=run_config)["info"]
    assert (info["role"], info["domain"]) == ("target", "-90%")
    assert (info["shape"], info["classes"], info["examples"]) == ([2, 8, 8], 2, 9)


@pytest.mark.parametrize(("available", "expected"), [(True, "cuda"), (False, "cpu")])
def test_the_device_is_found_by_name(monkeypatch, available, expected):
    monkeypatch.setattr("torch.cuda.is_available", lambda: available)
    assert find_device("auto").type == expected
    assert find_device("cpu").type == "cpu"


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


def test_too_few_arrays_of_a_client_are_refused():
    class Forgetful(Plain):
        def fit(self, parameters: Any, config: Any) -> Any:
            return parameters[:-1], 3, {}

    with pytest.raises(ValueError, match="argument 2 is shorter"):
        answer(serve(lambda context: Forgetful()), "train")


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
    strategy.start(grid, ArrayRecord({"w": Array(np.zeros(2, np.float32))}), 1)
    assert [dropped["reason"] for dropped in strategy.history[0]["dropped"]] == ["error 0: not with me"] * 2


def handmade() -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        records = {"arrays": message.content["arrays"], "metrics": MetricRecord({"num-examples": 1})}
        return Message(RecordDict(records), reply_to=message)

    return app


def test_a_handmade_app_answers_the_role_query_from_its_node():
    app = handmade()
    answer_role_query(app)
    assert about(app, role="target", domain="a") == {"role": "target", "domain": "a"}
    assert about(app, partition_id=2) == {"domain": "2"}
    assert set(answer(app, "train")) == {"arrays", "metrics"}


# Flower's mods for local differential privacy, as docs/deployment.md says them


CLIPPING = 0.5


def run_with(mod: Any, roles: set[str], **settings: Any) -> list[dict[str, Any]]:
    """The records of a run in which the clients of some roles have a mod."""
    config = RunConfig(rounds=3, sources=2, model="mlp", device="cpu", **settings)
    plain, modded = make_client_app(config), make_client_app(config, mods=[mod])
    target, histories = config.data.domain_names.index(config.data.target_name), []

    def app(message: Message, context: Context) -> Message:
        role = "target" if context.node_config["partition-id"] == target else "source"
        return (modded if role in roles else plain)(message, context)

    run_local(lambda grid: histories.append(run_server(grid, config)[1]), app, 3, Resources())  # type: ignore[arg-type]
    return histories[0]


def noisy(epsilon: float, sensitivity: float = CLIPPING) -> LocalDpMod:
    return LocalDpMod(clipping_norm=CLIPPING, sensitivity=sensitivity, epsilon=epsilon, delta=1e-5)


@pytest.mark.parametrize("method", ["fedavg", "fedda", "fedgp", "fedda-auto", "fedgp-auto", "kd3a"])
def test_sources_can_clip_with_every_method(method):
    for record in run_with(noisy(1, 0), {"source"}, method=method):
        assert (record["held"], record["dropped"]) == (None, [])
        for source in record["sources"].values():
            assert source.get("norm", CLIPPING) == pytest.approx(CLIPPING, rel=1e-4)


def test_auto_weighting_trusts_noisy_sources_less():
    beta = {}
    for epsilon in (1e6, 1.0):
        last = run_with(noisy(epsilon), {"source"}, method="fedda-auto")[-1]
        beta[epsilon] = max(source["beta"] for source in last["sources"].values())
    assert beta[1.0] < 0.01 < beta[1e6]


def test_the_target_can_have_it_with_a_fixed_beta():
    for record in run_with(noisy(1e6), {"source", "target"}, method="fedgp"):
        assert (record["held"], record["dropped"]) == (None, [])


@pytest.mark.parametrize(
    ("mod", "role", "method", "says"),
    [
        # The target sends nothing rather than batch updates without noise.
        (noisy(1e6), "target", "fedda-auto", "could not be updated for 3 rounds"),
        # The mods for central privacy want a limit that the strategy does not send.
        (fixedclipping_mod, "source", "fedgp", "could not be updated for 3 rounds"),
        # KD3A's target receives several models.
        (noisy(1e6), "target", "kd3a", "no usable reply of the target"),
    ],
)
def test_what_cannot_be_private_ends_the_run(mod, role, method, says):
    with pytest.raises(RunError, match=says):
        run_with(mod, {role}, method=method)
