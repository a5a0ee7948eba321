"""Clients served through Flower's messages: what a strategy gets to see."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from naming import names
from numpy.typing import NDArray

from fda_flower import RunConfig
from fda_flower.client_app import make_client, make_client_app
from fda_flower.clients import DomainClient, SourceClient, TargetClient, answer_role_query, serve
from fda_flower.datasets import load_federation
from fda_flower.engines import LocalGrid
from fda_flower.errors import ConfigError
from fda_flower.metrics import metric_names
from fda_flower.models import build_model
from fda_flower.models.devices import find_device
from fda_flower.strategies import FedGP
from fda_flower.wire.internals import task_identity

CONFIG = RunConfig(method="fedgp-auto", model="mlp", target_samples=12, target_batch_size=4, device="cpu")
DOMAINS = ["source-1", "source-2", "source-3", "target"]
SOURCE, TARGET = 0, 3


@pytest.fixture(autouse=True)
def _identity() -> Iterator[None]:
    with task_identity():
        yield


@pytest.fixture
def grid() -> LocalGrid:
    return LocalGrid(make_client_app(CONFIG), len(DOMAINS))


def model() -> ArrayRecord:
    federation = load_federation(CONFIG.data)
    return ArrayRecord(build_model("mlp", federation.shape, federation.classes, seed=0).state_dict())


def ask(grid: LocalGrid, node: int, kind: str, arrays: ArrayRecord | None = None, **config: Any) -> Message:
    """The reply of the node with this partition id."""
    content = RecordDict()
    if kind != "query.role":
        content["arrays"] = model() if arrays is None else arrays
    if config:
        settings = {key.replace("_", "-"): value for key, value in config.items()}
        content["config"] = ConfigRecord(settings)
    (reply,) = grid.send_and_receive([Message(content, list(grid.get_node_ids())[node], kind)])
    return reply


def answer(app: ClientApp, kind: str, node_config: dict[str, Any], arrays: ArrayRecord | None = None) -> Any:
    """The content of an app's reply on a node of this configuration."""
    content = RecordDict() if arrays is None else RecordDict({"arrays": arrays})
    context = Context(run_id=1, node_id=7, node_config=node_config, state=RecordDict(), run_config={})
    message = Message(content, 7, kind)
    message.metadata.__dict__["_message_id"] = "1"
    return app(message, context).content


# the package's own clients


@pytest.mark.parametrize("node", range(4))
def test_a_train_reply_has_arrays_metrics_and_info(grid: LocalGrid, node: int) -> None:
    reply = ask(grid, node, "train", server_round=1)
    assert not reply.has_error(), reply.error
    assert set(reply.content) == {"arrays", "metrics", "info"}
    arrays, sent = reply.content.array_records["arrays"], model()
    assert list(arrays) == list(sent)
    for name in sent:
        array, before = arrays[name].numpy(), sent[name].numpy()
        assert (array.shape, array.dtype) == (before.shape, before.dtype), name
        assert np.isfinite(array).all(), name
        assert not np.array_equal(array, before), name
    metrics = reply.content.metric_records["metrics"]
    domain = load_federation(CONFIG.data).domains[DOMAINS[node]]
    training = CONFIG.target_training if node == TARGET else CONFIG.source_training
    assert set(metrics) == {"num-examples", "num-steps", "learning-rate", "batch-size", "train-loss"}
    assert metrics["num-examples"] == len(domain.train)
    assert metrics["num-steps"] == training.steps(len(domain.train))
    assert metrics["learning-rate"] == training.learning_rate
    info = dict(reply.content.config_records["info"])
    assert info == {"role": "target" if node == TARGET else "source", "domain": DOMAINS[node]}


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
def test_the_target_sends_batch_updates_in_the_form_asked_for(
    grid: LocalGrid, asked: dict[str, Any], shapes: dict[str, tuple[int, ...]]
) -> None:
    reply = ask(grid, TARGET, "train", server_round=1, **asked)
    assert set(reply.content) == {"arrays", "metrics", "info", "batch-updates"}
    record = reply.content.array_records["batch-updates"]
    assert {name: array.numpy().shape for name, array in record.items()} == shapes
    assert set(reply.content.metric_records["metrics"]) == {
        "num-examples",
        "num-steps",
        "learning-rate",
        "batch-size",
        "train-loss",
    }


def test_a_source_sends_no_batch_updates_whatever_it_is_asked(grid: LocalGrid) -> None:
    reply = ask(grid, SOURCE, "train", server_round=1, batch_updates="full")
    assert set(reply.content) == {"arrays", "metrics", "info"}


def test_replies_have_the_same_bits_in_any_order_of_the_clients() -> None:
    def replies(order: list[int]) -> dict[int, list[bytes]]:
        grid = LocalGrid(make_client_app(CONFIG), len(DOMAINS))
        found = {}
        for node in order:
            record = ask(grid, node, "train", server_round=2).content.array_records["arrays"]
            found[node] = [array.data for array in record.values()]
        return found

    assert replies([0, 1, 2, 3]) == replies([3, 1, 0, 2])


@pytest.mark.parametrize("node", [SOURCE, TARGET])
def test_an_evaluate_reply_has_the_figures_and_examples(grid: LocalGrid, node: int) -> None:
    reply = ask(grid, node, "evaluate", server_round=1)
    assert set(reply.content) == {"metrics"}
    metrics = reply.content.metric_records["metrics"]
    assert set(metrics) == {*metric_names(regression=False), "num-examples"}
    assert metrics["num-examples"] == len(load_federation(CONFIG.data).domains[DOMAINS[node]].test)
    assert 0 <= metrics["accuracy"] <= 1  # type: ignore[operator]
    assert metrics["loss"] > 0  # type: ignore[operator]


@pytest.mark.parametrize("node", range(4))
def test_every_node_tells_its_role_and_domain(grid: LocalGrid, node: int) -> None:
    reply = ask(grid, node, "query.role")
    assert set(reply.content) == {"info"}
    domain = load_federation(CONFIG.data).domains[DOMAINS[node]]
    assert (domain.unlabelled is not None) == (node == TARGET)
    assert dict(reply.content.config_records["info"]) == {
        "role": "target" if node == TARGET else "source",
        "domain": DOMAINS[node],
        "examples": len(domain.train),
        "unlabelled": 0 if domain.unlabelled is None else len(domain.unlabelled),
        "test-examples": len(domain.test),
        "regression": False,
        "shape": [1, 8, 8],
        "classes": 10,
    }


@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_arrays_of_another_model_become_an_error_reply(grid: LocalGrid, kind: str) -> None:
    reply = ask(grid, SOURCE, kind, ArrayRecord([np.zeros(3, np.float32)]), server_round=1)
    assert reply.has_error()
    assert "ValueError" in str(reply.error.reason)


def test_a_message_without_a_config_is_served(grid: LocalGrid) -> None:
    assert not ask(grid, TARGET, "train").has_error()
    assert not ask(grid, TARGET, "evaluate").has_error()


# the app that `flwr run` starts


def test_a_node_may_be_given_its_domain_in_place_of_a_partition() -> None:
    info = answer(make_client_app(CONFIG), "query.role", {"domain": "target"})["info"]
    assert (info["role"], info["domain"]) == ("target", "target")
    info = answer(make_client_app(CONFIG), "query.role", {"domain": "source-2", "partition-id": 0})["info"]
    assert (info["role"], info["domain"]) == ("source", "source-2")


@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_an_unknown_domain_of_a_node_is_refused_with_the_valid_ones(kind: str) -> None:
    with pytest.raises(ConfigError, check=names("domain", "attic")):
        answer(make_client_app(CONFIG), kind, {"domain": "attic"}, two_numbers())


def test_a_node_that_cannot_take_part_tells_the_server_why_and_logs_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR, "flwr"):
        info = answer(make_client_app(CONFIG), "query.role", {"domain": "attic", "role": "source"})["info"]
    assert (info["domain"], info["role"]) == ("attic", "source")
    assert str(info["problem"]).startswith("unknown domain 'attic': choose one of source-1")
    assert "This node cannot take part" in caplog.text


def test_an_error_that_is_no_message_for_people_is_told_with_its_kind() -> None:
    def client_fn(context: Context) -> NumPyClient:
        raise ZeroDivisionError("by a bug")

    info = answer(serve(client_fn), "query.role", {"domain": "a"})["info"]
    assert dict(info) == {"domain": "a", "problem": "ZeroDivisionError('by a bug')"}


def test_the_properties_of_a_users_client_are_told() -> None:
    class Knowing(NumPyClient):
        def get_properties(self, config: dict[str, Any]) -> dict[str, Any]:
            return {"shape": [3], "classes": 2, "domain": "is the node's"}

    info = answer(serve(lambda context: Knowing()), "query.role", {"domain": "a", "role": "target"})["info"]
    assert dict(info) == {"domain": "a", "role": "target", "shape": [3], "classes": 2}


@pytest.mark.parametrize(("name", "kind"), [("source-2", SourceClient), ("target", TargetClient)])
def test_a_client_trains_with_the_settings_of_the_run(name: str, kind: type[DomainClient]) -> None:
    threads = torch.get_num_threads() + 1
    config = RunConfig(model="mlp", seed=5, threads=threads, batch_size=50, device="cpu")
    training = config.target_training if name == "target" else config.source_training
    federation = load_federation(config.data)
    network = build_model("mlp", federation.shape, federation.classes, seed=1)
    initial = [value.numpy().copy() for value in network.state_dict().values()]
    used: list[int] = []
    replies = []
    for client in (
        make_client(config, name),
        kind(federation.domains[name], network, training, seed=5, threads=threads),
    ):
        assert type(client) is kind
        hook = client.model.register_forward_hook(lambda *_: used.append(torch.get_num_threads()))
        replies.append(client.fit(initial, {"server-round": 3}))
        hook.remove()
    (first, *told), (second, *again) = replies
    assert all(map(np.array_equal, first, second))
    assert told == again
    assert set(used) == {threads}


def test_a_clients_settings_are_read_from_the_run_if_none_are_given() -> None:
    context = Context(
        run_id=1,
        node_id=2,
        node_config={"partition-id": 2, "num-partitions": 3},
        state=RecordDict(),
        run_config={"shift": "color", "model": "mlp", "target-samples": 9, "device": "cpu"},
    )
    message = Message(RecordDict(), 2, "query.role")
    message.metadata.__dict__["_message_id"] = "1"
    info = make_client_app()(message, context).content["info"]
    assert (info["role"], info["domain"]) == ("target", "-90%")
    assert (info["shape"], info["classes"], info["examples"]) == ([2, 8, 8], 2, 9)


def test_the_device_is_found_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for available, expected in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr("torch.cuda.is_available", lambda available=available: available)
        assert find_device("auto").type == expected
        assert find_device("cpu").type == "cpu"


# clients of others


class Plain(NumPyClient):
    """As from Flower's template: no role, no domain, no steps."""

    def fit(
        self, parameters: list[NDArray[Any]], config: dict[str, Any]
    ) -> tuple[list[NDArray[Any]], int, dict[str, Any]]:
        return [array + 1 for array in parameters], 5, {"train_loss": 0.25, "note": "text", "blob": b"x"}

    def evaluate(
        self, parameters: list[NDArray[Any]], config: dict[str, Any]
    ) -> tuple[float, int, dict[str, Any]]:
        return 0.5, 7, {"accuracy": 0.75, "note": "text"}


def two_numbers() -> ArrayRecord:
    return ArrayRecord([np.array([1, 2], np.float32)])


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
def test_a_plain_client_has_role_and_domain_of_its_node(
    node_config: dict[str, Any], expected: dict[str, str], kind: str
) -> None:
    app = serve(lambda context: Plain())
    content = answer(app, kind, node_config, two_numbers() if kind == "train" else None)
    assert dict(content["info"]) == expected


def test_a_clients_own_role_and_domain_come_before_its_nodes() -> None:
    class Named(Plain):
        role = "target"
        domain = "mine"

    info = answer(serve(lambda context: Named()), "query.role", {"role": "source", "domain": "node's"})[
        "info"
    ]
    assert dict(info) == {"role": "target", "domain": "mine"}


def test_a_plain_clients_replies_hold_its_numbers_and_leave_the_rest() -> None:
    app = serve(lambda context: Plain())
    content = answer(app, "train", {}, two_numbers())
    assert set(content) == {"arrays", "metrics", "info"}
    (array,) = content["arrays"].values()
    assert array.numpy().tolist() == [2, 3]
    assert dict(content["metrics"]) == {"num-examples": 5, "train_loss": 0.25}
    content = answer(app, "evaluate", {}, two_numbers())
    assert dict(content["metrics"]) == {"loss": 0.5, "num-examples": 7, "accuracy": 0.75}


def with_metrics(examples: Any, **metrics: Any) -> Callable[[Context], NumPyClient]:
    class Client(Plain):
        def fit(self, parameters: Any, config: Any) -> Any:
            return parameters, examples, metrics

        def evaluate(self, parameters: Any, config: Any) -> Any:
            return np.float32(0.5), examples, metrics

    return lambda context: Client()


@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_metrics_may_be_numpys_numbers(kind: str) -> None:
    client = with_metrics(3, a=np.float32(0.5), b=np.int64(2), c=np.float64(0.25))
    metrics = answer(serve(client), kind, {}, two_numbers())["metrics"]
    assert {key: metrics[key] for key in "abc"} == {"a": 0.5, "b": 2, "c": 0.25}
    assert all(type(value) in (int, float) for value in metrics.values())


@pytest.mark.parametrize("kind", ["train", "evaluate"])
@pytest.mark.parametrize("examples", [np.int64(3), np.int32(3)])
def test_examples_may_be_one_of_numpys_integers(kind: str, examples: Any) -> None:
    metrics = answer(serve(with_metrics(examples)), kind, {}, two_numbers())["metrics"]
    assert metrics["num-examples"] == 3


@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_metrics_may_be_truth_values(kind: str) -> None:
    metrics = answer(serve(with_metrics(3, converged=True)), kind, {}, two_numbers())["metrics"]
    assert metrics["num-examples"] == 3


def test_too_few_arrays_of_a_client_are_refused() -> None:
    class Forgetful(Plain):
        def fit(self, parameters: Any, config: Any) -> Any:
            return parameters[:-1], 3, {}

    with pytest.raises(ValueError, match="argument 2 is shorter"):
        answer(serve(lambda context: Forgetful()), "train", {}, two_numbers())


def test_a_method_of_flowers_that_a_client_overrides_is_called_in_place_of_the_hook() -> None:
    class Mine(SourceClient):
        def fit(self, parameters: Any, config: Any) -> Any:
            arrays, examples, metrics = super().fit(parameters, config)
            return arrays, examples, {**metrics, "mine": 1.0}

    data, network = (
        load_federation(CONFIG.data).domains["source-1"],
        build_model("mlp", (1, 8, 8), 10, seed=0),
    )
    plain, mine = (kind(data, network, CONFIG.source_training) for kind in (SourceClient, Mine))
    arrays = ArrayRecord(list(plain.layers().values()))
    expected = answer(serve(lambda context: plain), "train", {}, arrays)["metrics"]
    found = answer(serve(lambda context: mine), "train", {}, arrays)["metrics"]
    assert dict(found) == {**dict(expected), "mine": 1.0}


def test_a_client_is_made_for_each_message_from_its_nodes_context() -> None:
    seen: list[Any] = []

    def client_fn(context: Context) -> NumPyClient:
        seen.append(context.node_config["partition-id"])
        return Plain()

    grid = LocalGrid(serve(client_fn), 2)
    for node in (1, 0, 1):
        assert not ask(grid, node, "train", two_numbers()).has_error()
    assert seen == [1, 0, 1]


def test_mods_are_applied_to_training_alone() -> None:
    seen: list[str] = []

    def counting(message: Message, context: Context, call_next: Any) -> Message:
        seen.append(message.metadata.message_type)
        reply: Message = call_next(message, context)
        return reply

    app = serve(lambda context: Plain(), mods=[counting])
    answer(app, "train", {}, two_numbers())
    answer(app, "evaluate", {}, two_numbers())
    answer(app, "query.role", {})
    assert seen == ["train"]


# answer_role_query


def handmade() -> ClientApp:
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        records = {"arrays": message.content["arrays"], "metrics": MetricRecord({"num-examples": 1})}
        return Message(RecordDict(records), reply_to=message)

    return app


def test_a_handmade_app_answers_the_role_query_from_its_node() -> None:
    app = handmade()
    answer_role_query(app)
    assert dict(answer(app, "query.role", {"role": "target", "domain": "a"})["info"]) == {
        "role": "target",
        "domain": "a",
    }
    assert dict(answer(app, "query.role", {"partition-id": 2})["info"]) == {"domain": "2"}
    assert set(answer(app, "train", {}, two_numbers())) == {"arrays", "metrics"}


@pytest.mark.parametrize(("client", "domain"), [(SourceClient, "source-1"), (TargetClient, "target")])
def test_a_handmade_app_answers_the_role_query_from_its_client(client: type, domain: str) -> None:
    app = handmade()
    data = load_federation(CONFIG.data).domains[domain]
    network = build_model("mlp", (1, 8, 8), 10, seed=0)
    answer_role_query(app, lambda context: client(data, network, CONFIG.source_training))
    assert dict(answer(app, "query.role", {"role": "other"})["info"]) == {
        "role": client.role,  # type: ignore[attr-defined]
        "domain": domain,
        "examples": len(data.train),
        "unlabelled": 0 if data.unlabelled is None else len(data.unlabelled),
        "test-examples": len(data.test),
        "regression": False,
    }


def test_a_client_that_ends_with_to_client_is_served_too():
    class Plain(NumPyClient):
        def fit(self, parameters, config):
            return [array + 1 for array in parameters], 5, {}

        def evaluate(self, parameters, config):
            return 0.25, 4, {"accuracy": 0.5}

    strategy = FedGP(target="1")
    grid = LocalGrid(serve(lambda context: Plain().to_client()), 2)  # type: ignore[arg-type, return-value]
    result = strategy.start(grid, ArrayRecord({"w": Array(np.zeros(2, np.float32))}), 1)
    np.testing.assert_array_equal(result.arrays["w"].numpy(), [1, 1])
    assert strategy.history[0]["accuracy"] == 0.5


def test_an_error_that_a_mod_addresses_to_the_node_itself_reaches_the_server():
    def refuses(message, context, call_next):
        reply = call_next(message, context)
        return Message(Error(0, "not with me"), reply_to=reply)

    class Plain(NumPyClient):
        def fit(self, parameters, config):
            return parameters, 5, {}

    strategy = FedGP(target="1")
    grid = LocalGrid(serve(lambda context: Plain(), mods=[refuses]), 2)
    strategy.start(grid, ArrayRecord({"w": Array(np.zeros(2, np.float32))}), 1)
    assert [dropped["reason"] for dropped in strategy.history[0]["dropped"]] == ["error 0: not with me"] * 2
