"""A site's gate around whole apps: what is refused, before any data are read, and what is noted."""

import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.common import ndarray_to_bytes
from sites import run_sites

import fda_flower.datasets
from fda_flower import RunConfig
from fda_flower.aggregation import CountSketch
from fda_flower.client_app import make_client_app
from fda_flower.clients import serve
from fda_flower.errors import RunError
from fda_flower.site import SiteGate, read_log
from fda_flower.wire.protocol import to_record

CONFIG = RunConfig(
    method="fedgp-auto", model="mlp", sources=2, rounds=1, device="cpu",
    target_samples=16, source_samples=20, test_samples=20, method_options={"sketch_size": 500},
)  # fmt: skip
MODEL = to_record({"w": np.zeros(40, np.float32)})


@pytest.fixture(autouse=True)
def _always_in_a_run(in_a_run: None) -> None:
    """Every test here makes messages."""


def nodes(target: dict[str, Any] | None = None, source: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    return [
        {"domain": "source-1", "role": "source", **(source or {})},
        {"domain": "source-2", "role": "source"},
        {"domain": "target", "role": "target", **(target or {})},
    ]


def ask(
    app: ClientApp, node: dict[str, Any], kind: str, settings: dict[str, Any] | None = None, **config: Any
) -> Any:
    content = RecordDict(
        {"config": ConfigRecord({key.replace("_", "-"): value for key, value in config.items()})}
    )
    if kind != "query.role":
        content["arrays"] = ArrayRecord(dict(MODEL))
    return app(Message(content, 2, kind), Context(5, 2, node, RecordDict(), settings or {}))


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Whose data were loaded."""
    loaded: list[str] = []

    def load(spec: Any, name: str) -> Any:
        loaded.append(name)
        raise AssertionError("data were read")

    monkeypatch.setattr(fda_flower.datasets, "load_domain", load)
    return loaded


SKETCH: dict[str, Any] = {"batch_updates": "sketch", "sketch_size": 8, "sketch_seed": 1}


@pytest.mark.parametrize("kind", ["query.role", "train", "evaluate"])
@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ({"allow-methods": "fedavg"}, "the site allows the methods fedavg, not 'fedgp-auto'"),
        ({"allow-methods": "fedagv"}, "unknown method 'fedagv'"),
        ({"allow-batch-update": "norms"}, "unknown rule of the node configuration"),
    ],
)
def test_each_message_of_a_run_that_is_not_allowed_is_refused_before_data_are_read(
    rules: dict[str, Any], says: str, kind: str, no_data: list[str]
) -> None:
    reply = ask(make_client_app(CONFIG), nodes(rules)[2], kind)
    told = reply.content["info"]["problem"] if kind == "query.role" else reply.error.reason
    assert says in str(told)
    assert no_data == []


def test_a_server_that_asks_for_more_than_it_told_is_refused_before_data_are_read(no_data: list[str]) -> None:
    reply = ask(make_client_app(CONFIG), nodes({"allow-batch-updates": "norms"})[2], "train", **SKETCH)
    assert "the site allows 'norms' of each batch, the run asks for 'sketch'" in reply.error.reason
    assert reply.error.reason.endswith("(the site's allow-batch-updates)")
    assert no_data == []


def test_the_rules_are_those_of_the_runs_configuration_where_the_app_has_none(no_data: list[str]) -> None:
    node = {"domain": "target", "allow-methods": "fedavg"}
    reply = ask(make_client_app(), node, "train", CONFIG.to_flower())
    assert "not 'fedgp-auto'" in reply.error.reason
    assert no_data == []


def test_a_node_that_does_not_fit_the_run_says_so_with_rules_too(no_data: list[str]) -> None:
    reply = ask(
        make_client_app(CONFIG), {"domain": "target", "role": "source", "min-samples": 1}, "query.role"
    )
    assert "has role 'source', but the run's target is 'target'" in str(reply.content["info"]["problem"])
    assert "refused" not in reply.content["info"]


@pytest.mark.parametrize(
    ("target", "source", "says"),
    [
        (
            {"allow-methods": "fedavg"},
            {},
            r"a site refuses the run: 'target': the site allows the methods fedavg",
        ),
        ({}, {"allow-methods": "fedavg"}, r"a site refuses the run: 'source-1': .*; change the run, or take"),
        (
            {"allow-batch-updates": "norms"},
            {},
            r"'target': .*'norms' of each batch, the run asks for 'sketch'",
        ),
        ({"min-samples": 17}, {}, r"'target': .* trained on 16 labelled samples, the site wants at least 17"),
        ({"min-samples": 17}, {"min-samples": 21}, r"'source-1': .* on 20 .*; 'target': .* on 16 "),
    ],
)
def test_a_run_that_a_site_refuses_ends_before_any_training_with_the_sites_reason(
    target: dict[str, Any], source: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fda_flower.clients.client.train", lambda *args, **kwargs: pytest.fail("it trains"))
    with pytest.raises(RunError, match=says):
        run_sites(CONFIG, nodes(target, source))


def test_sites_that_allow_what_is_asked_take_part_and_note_what_they_send(tmp_path: Path) -> None:
    rules = {"allow-methods": "fedavg,fedgp-auto", "allow-batch-updates": "sketch", "min-samples": 16}
    plain, _ = run_sites(CONFIG, nodes())
    model, [record] = run_sites(CONFIG, nodes({**rules, "state-dir": str(tmp_path)}, rules))
    assert record["held"] is None
    assert {name: array.tobytes() for name, array in model.items()} == {
        name: array.tobytes() for name, array in plain.items()
    }
    query, train, evaluate = read_log(tmp_path)
    assert [line["message"] for line in (query, train, evaluate)] == ["query.role", "train", "evaluate"]
    assert set(query["records"]) == {"info"}
    assert set(train["records"]) == {"arrays", "batch-updates", "info", "metrics"}
    assert train["records"]["batch-updates"]["arrays"] == {
        "norms": ["float64", [4]],
        "sketch": ["float64", [4, 500]],
    }
    assert {line["domain"] for line in (query, train, evaluate)} == {"target"}
    assert (query["round"], train["round"], evaluate["round"]) == (None, 1, 1)


@pytest.mark.parametrize("method", ["mixture", "knn-per"])
def test_what_a_site_keeps_is_for_its_account_alone(method: str, tmp_path: Path) -> None:
    """KNN-Per's model holds features and labels."""
    config, state = replace(CONFIG, method=method, method_options={}), tmp_path / "not" / "yet"
    rules = {"dp-clip": 1.0, "dp-noise": 1.0, "dp-allow": "*", "allow-batch-updates": "norms"}
    before = os.umask(0o022)
    try:
        run_sites(config, nodes({**rules, "state-dir": str(state)}))
    finally:
        os.umask(before)
    names = {path.name for path in state.rglob("*")}
    own = "mixture.safetensors" if method == "mixture" else "target-privacy.json"
    assert names > {own, "sent.jsonl", "model.safetensors", "model.json"}
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (state.parent, state, *state.rglob("*"))}
    assert {path: mode for path, mode in modes.items() if mode != (0o700 if path.is_dir() else 0o600)} == {}


def test_a_site_that_refuses_later_is_left_out_with_its_reason() -> None:
    """The server's role query has not told what it asks for."""
    app = serve(lambda context: Own())
    reply = ask(app, {"allow-batch-updates": "none"}, "train", batch_updates="full")
    assert reply.error.reason.startswith("the site allows 'none' of each batch, the run asks for 'full'")


def test_a_site_allows_strategies_of_flowers(no_data: list[str]) -> None:
    config = replace(CONFIG, method="flower:Krum", method_options={})
    node = {"domain": "target", "allow-methods": "flower:FedMedian, flower:Krum"}
    with pytest.raises(AssertionError, match="data were read"):
        ask(make_client_app(config), node, "train")
    reply = ask(make_client_app(config), {**node, "allow-methods": "flower:FedMedian"}, "train")
    assert "not 'flower:Krum'" in reply.error.reason


def full_batches(app: ClientApp, model: ArrayRecord) -> Any:
    """What the target's batch updates are, as a site without rules sends them."""
    config: dict[str, Any] = {"batch-updates": "full"}
    reply = train(app, {}, model, **config)
    return reply.content["batch-updates"]["full"].numpy()


def train(app: ClientApp, node: dict[str, Any], model: ArrayRecord, run: int = 1, **config: Any) -> Message:
    content = RecordDict({"arrays": model, "config": ConfigRecord({"server-round": 1, **config})})
    context = Context(run, 2, {"domain": "target", **node}, RecordDict(), {})
    return app(Message(content, 2, "train"), context)


def test_a_server_that_asks_again_and_again_cannot_invert_the_sketches(tmp_path: Path) -> None:
    app = make_client_app(replace(CONFIG, model="logistic"))
    model = to_record({"0.weight": np.zeros((10, 64), np.float32), "0.bias": np.zeros(10, np.float32)})
    true = full_batches(app, model)
    node = {"allow-batch-updates": "sketch", "state-dir": str(tmp_path)}
    known = []
    for run, (size, seed) in enumerate(
        [(80, seed) for seed in range(1, 13)] + [(n, 1) for n in range(70, 80)]
    ):
        asked = {"batch-updates": "sketch", "sketch-size": size, "sketch-seed": seed}
        reply = train(app, node, model, run, **asked)
        if reply.has_content():
            places = CountSketch(size, seed).places(650)
            columns = (np.arange(size)[:, None] == places) * 1.0 - (np.arange(size)[:, None] == places - size)
            known.append((columns, reply.content["batch-updates"]["sketch"].numpy().T))
    matrix, sketches = (np.concatenate(parts) for parts in zip(*known, strict=True))
    guess = np.linalg.lstsq(matrix, sketches)[0].T
    assert np.allclose(matrix @ true.T, sketches), "the server knows the maps"
    assert len(matrix) == 80
    assert np.linalg.norm(guess - true) > 0.8 * np.linalg.norm(true)


@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_a_problem_excuses_no_reply_but_to_the_role_query(kind: str) -> None:
    app = ClientApp(mods=[SiteGate()])
    stolen = RecordDict(
        {"info": ConfigRecord({"problem": "none"}), "x": to_record({"w": np.ones((200, 40))})}
    )

    @app.train()
    def trains(message: Message, context: Context) -> Message:
        return Message(stolen, reply_to=message)

    @app.evaluate()
    def evaluates(message: Message, context: Context) -> Message:
        return Message(stolen, reply_to=message)

    @app.query("role")
    def role(message: Message, context: Context) -> Message:
        return Message(stolen, reply_to=message)

    node = {"allow-batch-updates": "none", "min-samples": 6}
    assert "and may have" in ask(app, node, kind).error.reason
    assert "and may have" in str(ask(app, node, "query.role").content["info"]["problem"])


class Own(NumPyClient):
    """A client of a project's own, which sends its batch updates in full whatever it is asked for."""

    def get_properties(self, config: Any) -> Any:
        return {"examples": 5}

    def fit(self, parameters: Any, config: Any) -> Any:
        if config.get("fails"):
            raise OSError("the disk is full")
        batches: dict[str, Any] = {
            "batch-updates.norms": np.ones(3),
            "batch-updates.full": np.ones((3, 40), np.float32),
        }
        return parameters, 5, {"num-steps": 3} | {k: ndarray_to_bytes(v) for k, v in batches.items()}

    def evaluate(self, parameters: Any, config: Any) -> Any:
        return 0.5, 5, {"accuracy": 1.0}


@pytest.mark.parametrize(
    ("level", "leaves"), [("none", False), ("norms", False), ("sketch", False), ("full", True)]
)
def test_a_client_of_a_projects_own_cannot_send_more_than_its_site_allows(level: str, leaves: bool) -> None:
    reply = ask(serve(lambda context: Own()), {"allow-batch-updates": level}, "train", batch_updates="none")
    if leaves:
        assert set(reply.content["batch-updates"]) == {"norms", "full"}
    else:
        assert f"allows '{level}' of each batch, the record 'batch-updates' has 'full'" in reply.error.reason


@pytest.mark.parametrize(
    ("settings", "answers"), [({}, False), ({"method": "mine"}, True), ({"method": "other"}, False)]
)
def test_a_project_tells_its_method_in_the_runs_configuration(
    settings: dict[str, Any], answers: bool
) -> None:
    node = {"allow-methods": "mine", "domain": "north", "role": "source"}
    info = ask(serve(lambda context: Own()), node, "query.role", settings).content["info"]
    assert ("problem" not in info) == answers
    assert (info["domain"], info["role"]) == ("north", "source")
    if not settings:
        assert "the run names none: set 'method' in the run's configuration" in str(info["problem"])


def test_any_client_app_may_have_the_gate() -> None:
    app = ClientApp(mods=[SiteGate()])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        metrics = MetricRecord({"num-examples": 5})
        return Message(RecordDict({"arrays": MODEL, "metrics": metrics}), reply_to=message)

    assert ask(app, {"min-samples": 5}, "train").has_content()
    assert "at least 6" in ask(app, {"min-samples": 6}, "train").error.reason


def test_what_cannot_be_noted_does_not_leave(tmp_path: Path) -> None:
    (tmp_path / "sent.jsonl").mkdir()
    app, node = serve(lambda context: Own()), {"state-dir": str(tmp_path)}
    assert "the site cannot note what it sends" in ask(app, node, "train").error.reason
    assert "the site cannot note" in str(ask(app, node, "query.role").content["info"]["problem"])


def test_refusals_and_errors_are_noted_too(tmp_path: Path) -> None:
    app, node = serve(lambda context: Own()), {"state-dir": str(tmp_path), "min-samples": 6}
    ask(app, node, "query.role")
    ask(app, node, "train")
    with pytest.raises(OSError, match="the disk is full"):
        ask(app, node, "train", fails=True)
    query, train, error = read_log(tmp_path)
    for line in (query, train):
        assert "trained on 5 labelled samples, the site wants at least 6" in line["refused"]
    assert error["failed"] == "OSError('the disk is full')"
    assert (train["records"], error["bytes"]) == ({}, 0)


def test_a_simulation_keeps_no_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert ask(serve(lambda context: Own()), {"partition-id": 0}, "train").has_content()
    assert os.listdir(tmp_path) == []
