"""The methods under Flower's older server API: the same bits as under the Message API."""

import logging

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod, message_size_mod
from flwr.common import (
    Code,
    EvaluateRes,
    FitRes,
    GetPropertiesRes,
    Parameters,
    Status,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.server import Server, ServerConfig, SimpleClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.server.compat import start_grid
from naming import names
from whole_runs import untimed

from fda_flower.clients import LocalTraining, SourceClient, TargetClient, serve
from fda_flower.datasets import DataSpec, load_federation
from fda_flower.engines import LocalGrid
from fda_flower.errors import ConfigError, RunError
from fda_flower.legacy import LegacyStrategy
from fda_flower.models import build_model
from fda_flower.runs.methods import METHODS
from fda_flower.strategies import KD3A, FedAvg, FedGP, Mixture, PFedFDA, RunFolder
from fda_flower.wire.internals import TaskIdentity  # type: ignore[attr-defined]

pytestmark = pytest.mark.usefixtures("in_a_run")

DATA = load_federation(DataSpec("digits", "rotate", target_samples=20))
DOMAINS = list(DATA.domains)
TARGET = DATA.target


def network(method="fedgp"):
    name = "logistic" if "frozen body" in METHODS[method].needs else "mlp"
    return build_model(name, DATA.shape, DATA.classes, seed=0)


NAMES = list(network().state_dict())


def client_of(domain, method="fedgp", state=None, kind=None):
    kind = kind or (TargetClient if domain == TARGET else SourceClient)
    about = {"domain": domain, "role": kind.role}
    return kind(
        DATA.domains[domain], network(method), LocalTraining(0.05, 10), seed=1, about=about, state=state
    )


def clients(method="fedgp", **kinds):
    """The clients of all domains, called a, b, c, target; some of kinds of their own."""
    names = ("a", "b", "c", "target")
    return [client_of(d, method, kind=kinds.get(n)) for n, d in zip(names, DOMAINS, strict=True)]


def client_fn(context):
    """What a simulation's nodes run, here and in a subprocess."""
    return client_of(DOMAINS[int(context.node_config["partition-id"])]).to_client()


class Proxy(ClientProxy):
    """A connected client, in this process."""

    def __init__(self, client, cid):
        super().__init__(cid)
        self.wrapped = client.to_client()

    def get_properties(self, ins, timeout, group_id):
        if "get_properties" not in vars(type(self.wrapped)):
            return GetPropertiesRes(Status(Code.GET_PROPERTIES_NOT_IMPLEMENTED, "not there"), {})
        return self.wrapped.get_properties(ins)

    def get_parameters(self, ins, timeout, group_id):
        return self.wrapped.get_parameters(ins)

    def fit(self, ins, timeout, group_id):
        return self.wrapped.fit(ins)

    def evaluate(self, ins, timeout, group_id):
        return self.wrapped.evaluate(ins)

    def reconnect(self, ins, timeout, group_id):
        raise NotImplementedError


def manager(connected=None):
    found = SimpleClientManager()
    for i, client in enumerate(connected or clients()):
        found.register(Proxy(client, f"client-{i}"))
    return found


def initial(method="fedgp"):
    return ndarrays_to_parameters([tensor.numpy() for tensor in network(method).state_dict().values()])


def run_legacy(strategy, connected=None, rounds=3, **options):
    """Rounds of a `Server`; its model, its history."""
    server = Server(
        client_manager=manager(connected),
        strategy=LegacyStrategy(strategy, options.pop("initial_parameters", initial()), **options),
    )
    server.set_max_workers(1)
    history, _ = server.fit(rounds, None)
    return server.parameters.tensors, history


def run_messages(strategy, rounds=3, method="fedgp"):
    app = serve(
        lambda context: client_of(DOMAINS[context.node_config["partition-id"]], method, context.state)  # type: ignore[index]
    )
    result = strategy.start(LocalGrid(app, len(DOMAINS)), ArrayRecord(network(method).state_dict()), rounds)
    return [array.data for array in result.arrays.values()]


def build(method, **options):
    return METHODS[method].build(wait_for=len(DOMAINS), **options)


def comparable(history):
    """Records without times and bytes; here the bytes lack types and shapes of the arrays.

    The older server does not tell which round is the last, so that it asks for no confusion matrix.
    """
    targets = [{k: v for k, v in (each["target"] or {}).items() if k != "confusion"} for each in history]
    return targets, untimed(history, "bytes-received", "confusion", "target")


OWN = {"finetune-offline": {"warmup_rounds": 1}, "fedrep": {"final_head_epochs": 0}}
REFUSED = ("kd3a", "fada", "mixture", "pfedfda", "ridge")
AT_START = {"estimate_at": "start", "sketch_size": 128}


@pytest.mark.parametrize(
    ("method", "options"),
    [
        *((name, OWN.get(name, {})) for name in METHODS if name not in REFUSED),
        ("fedavg", {"average": "tail:2"}),
        *((name, AT_START) for name in ("fedda-auto", "fedda-joint", "fedgp-auto")),
    ],
)
def test_the_same_bits_and_records_as_under_the_message_api(method, options):
    one, other = build(method, **options), build(method, **options)
    names = [*network(method).state_dict()]
    model, history = run_legacy(one, clients(method), names=names, initial_parameters=initial(method))
    assert model == run_messages(other, method=method)
    assert comparable(one.history) == comparable(other.history)
    assert history.metrics_distributed["accuracy"] == [(r["round"], r["accuracy"]) for r in one.history]
    assert history.losses_distributed == [(r["round"], r["loss"]) for r in one.history]
    assert history.metrics_distributed_fit["dropped"] == [(1, 0), (2, 0), (3, 0)]
    assert set(one.history[0]["seconds"]) == {"train", "aggregate", "evaluate"}
    if getattr(METHODS[method].build(), "auto", False):
        assert all(e["fallback"] is None for r in one.history for e in r["sources"].values())


def test_neither_names_nor_a_first_model_nor_the_order_of_the_clients_change_a_bit():
    expected, _ = run_legacy(build("fedgp-auto"), names=NAMES)
    assert run_legacy(build("fedgp-auto"), clients()[::-1])[0] == expected
    assert run_legacy(build("fedgp-auto"), initial_parameters=None)[0] == expected


def test_outside_a_run_no_identity_is_left_behind(monkeypatch):
    for field in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, field, None)
    run_legacy(build("fedavg"), rounds=1)
    assert TaskIdentity._run_id is None


def test_clients_receive_the_projects_settings_and_the_strategys():
    seen = []

    class Curious(SourceClient):
        def fit(self, parameters, config):
            seen.append(config)
            return super().fit(parameters, config)

    strategy = build("fedavg", learning_rate_factor=0.5)
    run_legacy(
        strategy, clients(a=Curious), rounds=1, on_fit_config_fn=lambda number: {"epochs": 10 * number}
    )
    assert seen == [{"server-round": 1, "rate-factor": 0.5, "epochs": 10}]


def test_the_servers_own_evaluation_is_flowers_and_nobody_says_how_many_rounds_there_are(flower_log):
    flower_log.set_level(logging.INFO, "flwr")
    strategy = build("fedavg")
    _, history = run_legacy(
        strategy,
        rounds=2,
        evaluate_fn=lambda number, arrays, config: (float(number), {"arrays": len(arrays)}),
    )
    assert history.losses_centralized == [(0, 0.0), (1, 1.0), (2, 2.0)]
    assert strategy.history[1]["server"] == {"loss": 2.0, "arrays": 4}
    lines = [line.partition(":")[0] for line in flower_log.messages if line.startswith("round")]
    assert lines == ["round 1", "round 2"]


def test_a_fraction_of_the_sources_is_the_same_as_under_the_message_api_and_a_wait_ends_with_the_target():
    one, other = build("fedgp-auto"), build("fedgp-auto", fraction_train=0.4, min_train_nodes=3)
    model, _ = run_legacy(one, names=NAMES, fraction_fit=0.4, min_fit_clients=3, min_available_clients=4)
    assert model == run_messages(other)
    assert [each["drawn"] for each in one.history] == [each["drawn"] for each in other.history]
    assert {len(each["drawn"]) for each in one.history} == {2}


class Late(SimpleClientManager):
    """A manager whose last client, the target, comes once it has been listed a few times."""

    lists = 0

    def all(self):
        self.lists += 1
        return dict([*self.clients.items()][: 4 if self.lists > 5 else 3])


def test_it_begins_with_the_target_even_if_enough_others_are_there_before():
    late, strategy = Late(), FedAvg()
    late.clients = manager().clients
    Server(client_manager=late, strategy=LegacyStrategy(strategy, initial())).fit(1, None)
    (record,) = strategy.history
    assert (record["target"]["domain"], record["missing"]) == (TARGET, [])


def test_a_server_that_fits_again_goes_on_with_the_model_it_had_and_else_begins_anew():
    strategy, whole = build("fedgp-auto"), build("fedgp-auto")
    wrapper, connected = LegacyStrategy(strategy, initial(), names=NAMES), manager()
    server = Server(client_manager=connected, strategy=wrapper)
    server.set_max_workers(1)
    for _ in range(2):
        server.fit(1, None)
        wrapper.initial_parameters = server.parameters
    assert server.parameters.tensors == run_legacy(whole, rounds=2, names=NAMES)[0]
    assert untimed(strategy.history, "bytes-received") == untimed(whole.history, "bytes-received")
    wrapper.initial_parameters = initial()
    server.fit(1, None)
    assert [each["round"] for each in strategy.history] == [1]


# failures


class Broken(SourceClient):
    def fit(self, parameters, config):
        raise OSError("disk full")


class Forgetful(SourceClient):
    def fit(self, parameters, config):
        arrays, examples, metrics = super().fit(parameters, config)
        return arrays[:-1], examples, metrics


class Sick(SourceClient):
    def get_properties(self, config):
        raise OSError("no data")


class Plain(NumPyClient):
    def fit(self, parameters, config):
        return parameters, 1, {}


class Damaged(TargetClient):
    def fit(self, parameters, config):
        arrays, examples, metrics = super().fit(parameters, config)
        return arrays, examples, {**metrics, "batch-updates.norms": b"what?", "note": b"x", "ok": True}

    def evaluate(self, parameters, config):
        raise OSError("no test set")


class Refusing(Proxy):
    def fit(self, ins, timeout, group_id):
        return FitRes(Status(Code.FIT_NOT_IMPLEMENTED, "not today"), Parameters([], ""), 0, {})


def test_what_clients_send_damaged_or_not_at_all_is_in_the_record():
    strategy = build("fedda", auto=True)
    _, history = run_legacy(strategy, clients(a=Broken, b=Forgetful, target=Damaged), rounds=1)
    (record,) = strategy.history
    (a, broken), (b, forgetful) = (each.values() for each in record["dropped"])
    assert (a, b) == (DOMAINS[0], DOMAINS[1])
    assert "disk full" in broken
    assert "returned 3 arrays, but 4 were sent" in forgetful
    assert "'norms' of its batch-updates cannot be read" in record["sources"].pop(DOMAINS[2])["fallback"]
    assert record["sources"] == {}
    assert "no test set" in record["evaluation-failed"]
    assert history.losses_distributed == []


def test_a_client_that_cannot_report_or_refuses_is_left_out_with_its_reason():
    connected = manager([*clients(a=Sick), Plain()])
    connected.clients["client-1"] = Refusing(client_of(DOMAINS[1]), "client-1")
    strategy = build("fedavg")
    Server(client_manager=connected, strategy=LegacyStrategy(strategy, initial())).fit(1, None)
    (record,) = strategy.history
    sick, plain = (each["reason"] for each in record["missing"])
    assert ("no data" in sick, "does not report its domain" in plain) == (True, True)
    ((domain, reason),) = (each.values() for each in record["dropped"])
    assert (domain, "not today" in reason) == (DOMAINS[1], True)


class OfOneModel(Proxy):
    """A client that evaluates no model beside the headline's, and says so by a status."""

    def evaluate(self, ins, timeout, group_id):
        if ins.config.get("beside"):
            return EvaluateRes(Status(Code.EVALUATE_NOT_IMPLEMENTED, "not there"), 0.0, 0, {})
        return super().evaluate(ins, timeout, group_id)


def test_a_further_evaluation_that_a_client_does_not_know_has_no_figures():
    connected = manager()
    connected.clients["client-3"] = OfOneModel(client_of(TARGET), "client-3")
    strategy = build("fedavg", average="ema:0.9")
    Server(client_manager=connected, strategy=LegacyStrategy(strategy, initial())).fit(1, None)
    (record,) = strategy.history
    assert "accuracy" in record
    assert [name for name in record if name.endswith("-average")] == ["evaluation-failed-average"]


def test_a_server_that_hands_over_bare_exceptions_loses_the_reason_alone():
    strategy = build("fedavg")
    wrapper = LegacyStrategy(strategy, initial())
    connected = manager()
    wrapper.initialize_parameters(connected)
    asked = wrapper.configure_fit(1, initial(), connected)
    results = [(proxy, proxy.fit(ins, None, 1)) for proxy, ins in asked[1:]]
    model, _ = wrapper.aggregate_fit(1, results, [OSError("off")])
    assert model is not None
    assert [each["domain"] for each in strategy.record["dropped"]] == [DOMAINS[0]]


def test_a_round_without_any_client_is_recorded():
    strategy = build("source-only", max_held_rounds=2)
    wrapper = LegacyStrategy(strategy, initial())
    connected = manager()
    wrapper.initialize_parameters(connected)
    connected.clients.clear()
    server = Server(client_manager=connected, strategy=wrapper)
    server.parameters = initial()
    assert server.fit_round(1, None) is None
    assert server.evaluate_round(1, None) is None
    (record,) = strategy.history
    assert "0 usable replies of sources" in record["held"]


# what is not supported


class Demanding(FedAvg):
    def __init__(self, extra, **common):
        super().__init__(**common)
        self.extra = extra

    def configure_train(self, server_round, arrays, config, grid):
        for message in super().configure_train(server_round, arrays, config, grid):
            if self.extra == "record":
                message.content["prototypes"] = ConfigRecord()
            elif self.extra == "list":
                message.content["config"]["layers"] = [1, 2]  # type: ignore[assignment]
            else:
                list(grid.send_and_receive([message]))
            yield message


@pytest.mark.parametrize(
    ("strategy", "thing"),
    [
        (FedGP(aggregate_on="target"), "strategy"),
        (KD3A(), "strategy"),
        (Mixture(), "strategy"),
        (PFedFDA(), "gaussians"),
        (FedAvg(evaluate_every=2), "evaluate_every"),
        (FedAvg(patience=2), "patience"),
        (Demanding("record"), "prototypes"),
        (Demanding("list"), "layers"),
        (Demanding("ask"), "method"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_flowers_older_server_cannot_do_is_refused(strategy, thing):
    with pytest.raises(ConfigError, check=names(thing, remedy="Message API")):
        run_legacy(strategy)
    assert strategy.history == []


# names and buffers


class Counting(NumPyClient):
    """Weights, a running mean and a counter, as BatchNorm has."""

    def __init__(self, domain, step):
        self.domain, self.step = domain, step

    def get_properties(self, config):
        return {"domain": self.domain}

    def fit(self, parameters, config):
        weights, mean, count = parameters
        return [weights + self.step, mean + 4 * self.step, count + 1], 10, {}

    def evaluate(self, parameters, config):
        return 0.5, 4, {}


def counted(buffer_names=None, names=None):
    strategy = FedGP(beta=0.5, target="t", buffer_names=buffer_names)
    first = ndarrays_to_parameters([np.ones(2, np.float32), np.ones(2, np.float32), np.array(3)])
    two = [Counting("t", np.float32(1)), Counting("a", np.float32(-1))]
    model, _ = run_legacy(strategy, two, rounds=1, initial_parameters=first, names=names)
    return parameters_to_ndarrays(Parameters(model, "numpy.ndarray"))


def test_buffers_are_given_by_names_or_by_numbers_else_they_are_refused():
    for options in (
        {"names": ["w", "bn.running_mean", "bn.num_batches_tracked"]},
        {"buffer_names": ["1", "2"]},
    ):
        weights, mean, count = counted(**options)
        assert (weights.tolist(), mean.tolist(), count) == ([1.5, 1.5], [1, 1], 4)
    with pytest.raises(ConfigError, check=names("array", "2")):
        counted()
    with pytest.raises(ConfigError, check=names("names", ["a", "b"])):
        counted(names=["a", "b"])


# records, checkpoints, resume


def test_records_checkpoints_and_resume(tmp_path):
    whole, _ = run_legacy(build("fedgp-auto"), rounds=4)
    run_legacy(build("fedgp-auto", output=RunFolder(tmp_path)), rounds=2, names=NAMES)
    folder = RunFolder(tmp_path, resume=True)
    assert list(folder.load_checkpoint().model) == NAMES
    resumed, _ = run_legacy(build("fedgp-auto", output=folder), rounds=2, names=NAMES)
    assert resumed == whole
    assert [record["round"] for record in RunFolder(tmp_path).read_rounds()] == [1, 2, 3, 4]


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    run_legacy(build("fedavg", output=RunFolder(tmp_path)), rounds=1)
    strategy = build("fedavg", output=RunFolder(tmp_path, resume=True))
    with pytest.raises(ConfigError, check=names("array", remedy="--output")):
        run_legacy(strategy, initial_parameters=ndarrays_to_parameters([np.ones(3, np.float32)]))


# Flower's own messages to the clients


def run_wired(strategy, mods=()):
    """Two rounds over Flower's own client proxies and its older messages, in this process."""
    server = Server(client_manager=SimpleClientManager(), strategy=LegacyStrategy(strategy, initial()))
    server.set_max_workers(1)
    grid = LocalGrid(ClientApp(client_fn=client_fn, mods=list(mods)), len(DOMAINS))
    start_grid(grid=grid, server=server, config=ServerConfig(num_rounds=2))
    return server.parameters.tensors


@pytest.mark.parametrize("mods", [(), (message_size_mod,)])
def test_over_flowers_own_messages_the_bits_are_the_same(mods):
    assert run_wired(build("fedgp-auto"), mods) == run_messages(build("fedgp-auto"), rounds=2)


def test_mods_that_take_only_arrays_keep_the_clients_from_reporting_their_roles():
    mod = LocalDpMod(1.0, sensitivity=0, epsilon=1, delta=1e-5)
    with pytest.raises(RunError, match="LocalDpMod expects exactly one ArrayRecord, but found 0"):
        run_wired(build("fedgp"), [mod])
