"""The methods under Flower's older server API: the same bits as under the Message API."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod, message_size_mod
from flwr.common import (
    Code,
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

from fda_flower.clients import LocalTraining, SourceClient, TargetClient, serve
from fda_flower.datasets import DataSpec, load_federation
from fda_flower.engines import LocalGrid
from fda_flower.errors import ConfigError, RunError
from fda_flower.legacy import LegacyStrategy
from fda_flower.models import build_model
from fda_flower.runs.methods import METHODS
from fda_flower.strategies import KD3A, FedAvg, FedDA, FedGP, RunFolder
from fda_flower.wire.internals import TaskIdentity  # type: ignore[attr-defined]

pytestmark = pytest.mark.usefixtures("in_a_run")

DATA = load_federation(DataSpec("digits", "rotate", target_samples=20))
DOMAINS = list(DATA.domains)
TARGET = DATA.target
HERE = Path(__file__).parent
RAY = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # else Ray's workers starve on a machine that is busy otherwise
}
NAMES = list(build_model("mlp", DATA.shape, DATA.classes, seed=0).state_dict())


def network():
    return build_model("mlp", DATA.shape, DATA.classes, seed=0)


def client_of(domain, method="fedgp", state=None):
    kind = METHODS[method].client_class("target" if domain == TARGET else "source")
    about = {"domain": domain, "role": kind.role}
    return kind(DATA.domains[domain], network(), LocalTraining(0.05, 10), seed=1, about=about, state=state)


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


def manager(clients=None):
    found = SimpleClientManager()
    for i, client in enumerate(map(client_of, DOMAINS) if clients is None else clients):
        found.register(Proxy(client, f"client-{i}"))
    return found


def initial():
    return ndarrays_to_parameters([tensor.numpy() for tensor in network().state_dict().values()])


def run_legacy(strategy, clients=None, rounds=3, **options):
    """Rounds of a `Server`; its model, its history."""
    server = Server(
        client_manager=manager(clients),
        strategy=LegacyStrategy(strategy, options.pop("initial_parameters", initial()), **options),
    )
    server.set_max_workers(1)
    history, _ = server.fit(rounds, None)
    return server.parameters.tensors, history


def run_messages(strategy, rounds=3, method="fedgp"):
    app = serve(
        lambda context: client_of(DOMAINS[context.node_config["partition-id"]], method, context.state)  # type: ignore[index]
    )
    result = strategy.start(LocalGrid(app, len(DOMAINS)), ArrayRecord(network().state_dict()), rounds)
    return [array.data for array in result.arrays.values()]


def build(method, **options):
    return METHODS[method].build(wait_for=len(DOMAINS), **options)


def comparable(history):
    """Records without times and bytes; here the bytes lack types and shapes of the arrays.

    The older server does not tell which round is the last, so that it asks for no confusion matrix.
    """
    left_out = ("seconds", "bytes-received", "confusion")
    return [
        {
            name: comparable([value])[0] if name == "target" and value else value
            for name, value in record.items()
            if name not in left_out
        }
        for record in history
    ]


@pytest.mark.parametrize("method", [name for name in METHODS if name not in ("feddaf", "kd3a", "mixture")])
def test_the_same_bits_and_records_as_under_the_message_api(method):
    own = {"finetune-offline": {"warmup_rounds": 1}, "fedrep": {"final_head_epochs": 0}}
    options = own.get(method, {})
    one, other = build(method, **options), build(method, **options)
    model, history = run_legacy(one, [client_of(domain, method) for domain in DOMAINS], names=NAMES)
    assert model == run_messages(other, method=method)
    assert comparable(one.history) == comparable(other.history)
    end = "-global" if one.evaluates_trained else ""
    assert history.metrics_distributed["accuracy"] == [(r["round"], r[f"accuracy{end}"]) for r in one.history]
    assert history.losses_distributed == [(r["round"], r[f"loss{end}"]) for r in one.history]
    assert history.metrics_distributed_fit["dropped"] == [(1, 0), (2, 0), (3, 0)]
    assert set(one.history[0]["seconds"]) == {"train", "aggregate", "evaluate"}
    if getattr(METHODS[method].build(), "auto", False):
        assert all(e["fallback"] is None for r in one.history for e in r["sources"].values())


@pytest.mark.parametrize("method", ["fedda-auto", "fedda-joint", "fedgp-auto"])
def test_gradients_at_the_global_model_travel_among_the_metrics(method):
    options = {"estimate_at": "start", "sketch_size": 128}
    one, other = build(method, **options), build(method, **options)
    model, _ = run_legacy(one, [client_of(domain, method) for domain in DOMAINS], names=NAMES)
    assert model == run_messages(other, method=method)
    assert all(e["fallback"] is None for r in one.history for e in r["sources"].values())


def test_arrays_need_no_names():
    assert run_legacy(build("fedgp-auto"))[0] == run_legacy(build("fedgp-auto"), names=NAMES)[0]


def test_the_order_of_the_clients_changes_no_bit():
    clients = [client_of(domain) for domain in DOMAINS]
    assert run_legacy(build("fedgp-auto"))[0] == run_legacy(build("fedgp-auto"), clients[::-1])[0]


def test_without_a_model_a_clients_is_the_initial_one():
    assert run_legacy(build("fedgp"), initial_parameters=None)[0] == run_legacy(build("fedgp"))[0]


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

    source = Curious(DATA.domains[DOMAINS[0]], network(), LocalTraining(0.05, 10), about={"domain": "a"})
    run_legacy(
        FedAvg(target=TARGET, learning_rate_factor=0.5),
        [source, client_of(TARGET)],
        rounds=1,
        on_fit_config_fn=lambda server_round: {"epochs": 10 * server_round},
    )
    assert seen == [{"server-round": 1, "rate-factor": 0.5, "epochs": 10}]


def test_the_servers_own_evaluation_is_flowers():
    strategy = build("fedavg")
    _, history = run_legacy(
        strategy,
        rounds=2,
        evaluate_fn=lambda number, arrays, config: (float(number), {"arrays": len(arrays)}),
    )
    assert history.losses_centralized == [(0, 0.0), (1, 1.0), (2, 2.0)]
    assert strategy.history[1]["server"] == {"loss": 2.0, "arrays": 4}


# failures


class Broken(SourceClient):
    def fit(self, parameters, config):
        raise OSError("disk full")


class Refusing(Proxy):
    def fit(self, ins, timeout, group_id):
        return FitRes(Status(Code.FIT_NOT_IMPLEMENTED, "not today"), Parameters([], ""), 0, {})


def broken(domain):
    about = {"domain": domain, "role": "source"}
    return Broken(DATA.domains[domain], network(), LocalTraining(0.05, 10), about=about)


def test_failing_clients_are_dropped_and_named():
    strategy = build("fedgp")
    clients = [broken(d) if d in DOMAINS[:2] else client_of(d) for d in DOMAINS]
    run_legacy(strategy, clients, rounds=1)
    (record,) = strategy.history
    assert [(each["domain"], "disk full" in each["reason"]) for each in record["dropped"]] == [
        (DOMAINS[0], True),
        (DOMAINS[1], True),
    ]
    assert list(record["sources"]) == [DOMAINS[2]]
    assert record["held"] is None


def test_a_client_that_refuses_is_dropped_with_its_reason():
    connected = manager()
    connected.unregister(connected.clients["client-0"])
    connected.register(Refusing(client_of(DOMAINS[0]), "other"))
    strategy = build("fedavg")
    Server(client_manager=connected, strategy=LegacyStrategy(strategy, initial())).fit(1, None)
    (dropped,) = strategy.history[0]["dropped"]
    assert dropped["domain"] == DOMAINS[0]
    assert "not today" in dropped["reason"]


def test_too_few_arrays_are_dropped_and_named():
    class Forgetful(SourceClient):
        def fit(self, parameters, config):
            arrays, examples, metrics = super().fit(parameters, config)
            return arrays[:-1], examples, metrics

    forgetful = Forgetful(DATA.domains[DOMAINS[0]], network(), LocalTraining(0.05, 10), about={"domain": "a"})
    strategy = FedGP(target=TARGET)
    run_legacy(strategy, [forgetful, client_of(DOMAINS[1]), client_of(TARGET)], rounds=1)
    (dropped,) = strategy.history[0]["dropped"]
    assert dropped == {"domain": "a", "reason": "its arrays lack '3' (1 of 4 missing)"}


def test_damaged_batch_updates_fall_back_to_the_fixed_beta():
    class Damaged(TargetClient):
        def fit(self, parameters, config):
            arrays, examples, metrics = super().fit(parameters, config)
            return arrays, examples, {**metrics, "batch-updates.norms": b"what?", "note": b"x", "ok": True}

    about = {"domain": TARGET, "role": "target"}
    target = Damaged(DATA.domains[TARGET], network(), LocalTraining(0.05, 10), about=about)
    strategy = FedDA(auto=True)
    run_legacy(strategy, [client_of(DOMAINS[0]), target], rounds=1)
    assert "'norms' cannot be read" in strategy.history[0]["sources"][DOMAINS[0]]["fallback"]


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


def test_without_usable_replies_the_run_ends_with_an_error():
    clients = [broken(d) if d != TARGET else client_of(d) for d in DOMAINS]
    strategy = build("fedgp", max_held_rounds=2)
    with pytest.raises(RunError, match=r"2 rounds in a row.*usable replies of sources"):
        run_legacy(strategy, clients, rounds=5)
    assert len(strategy.history) == 2


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


def test_a_target_that_cannot_evaluate_says_so_in_the_record():
    class Blind(TargetClient):
        def evaluate(self, parameters, config):
            raise OSError("no test set")

    about = {"domain": TARGET, "role": "target"}
    target = Blind(DATA.domains[TARGET], network(), LocalTraining(0.05, 10), about=about)
    strategy = FedGP()
    _, history = run_legacy(strategy, [client_of(DOMAINS[0]), target], rounds=1)
    assert "no test set" in strategy.history[0]["evaluation-failed"]
    assert history.losses_distributed == []


# roles


def test_no_target_is_an_error_that_names_the_remedy():
    with pytest.raises(RunError, match=r"no node with role 'target' among .*target argument"):
        run_legacy(FedGP(wait_for=2), [client_of(d) for d in DOMAINS if d != TARGET])


def test_without_get_properties_the_error_says_what_to_do():
    class Plain(NumPyClient):
        def fit(self, parameters, config):
            return parameters, 1, {}

    with pytest.raises(RunError, match=r"client-0 does not report its domain: let its get_properties return"):
        run_legacy(FedGP(target="3", wait_for=2), [Plain(), Plain()])


def test_a_client_that_cannot_report_is_left_out_with_its_reason():
    class Sick(SourceClient):
        def get_properties(self, config):
            raise OSError("no data")

    sick = Sick(DATA.domains[DOMAINS[0]], network(), LocalTraining(0.05, 10))
    strategy = FedGP(wait_for=3)
    run_legacy(strategy, [sick, client_of(DOMAINS[1]), client_of(TARGET)], rounds=1)
    (missing,) = strategy.history[0]["missing"]
    assert "no data" in missing["reason"]


# what is not supported


@pytest.mark.parametrize("strategy", [FedGP(aggregate_on="target"), KD3A()], ids=["FedGP", "KD3A"])
def test_a_method_that_asks_twice_in_a_round_is_refused(strategy):
    name = type(strategy).__name__
    with pytest.raises(ConfigError, match=f"{name} asks its clients twice in a round"):
        LegacyStrategy(strategy)


def test_an_averaged_model_is_refused():
    with pytest.raises(ConfigError, check=names("average", "tail:2")):
        LegacyStrategy(FedAvg(average="tail:2"))


def test_a_mixture_is_refused():
    with pytest.raises(ConfigError, match=r"Mixture has its target evaluate in the last round.*Message API"):
        LegacyStrategy(build("mixture"))


def test_feddaf_is_refused():
    strategy = build("feddaf")
    with pytest.raises(ConfigError, match=r"sends its clients 'global'.*use the Message API"):
        run_legacy(strategy)
    assert strategy.history == []


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
    ("extra", "named"), [("record", "'prototypes'"), ("list", "'layers'"), ("ask", "once")]
)
def test_methods_that_need_more_of_their_clients_are_refused(extra, named):
    with pytest.raises(ConfigError, match=f"{named}.*use the Message API"):
        run_legacy(Demanding(extra))


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


def counted(**options):
    strategy = FedGP(beta=0.5, target="t", buffer_names=options.pop("buffer_names", None))
    arrays = [np.ones(2, np.float32), np.ones(2, np.float32), np.array(3)]
    clients = [Counting("t", np.float32(1)), Counting("a", np.float32(-1))]
    model, _ = run_legacy(
        strategy, clients, rounds=1, initial_parameters=ndarrays_to_parameters(arrays), **options
    )
    return parameters_to_ndarrays(Parameters(model, "numpy.ndarray"))


@pytest.mark.parametrize(
    "options", [{"names": ["w", "bn.running_mean", "bn.num_batches_tracked"]}, {"buffer_names": ["1", "2"]}]
)
def test_buffers_are_given_by_names_or_by_numbers(options):
    weights, mean, count = counted(**options)
    np.testing.assert_array_equal(weights, [1.5, 1.5])
    np.testing.assert_array_equal(mean, [1.0, 1.0])
    assert count == 4


def test_buffers_that_are_not_given_are_refused():
    with pytest.raises(ConfigError, check=names("array", "2")):
        counted()


def test_names_that_do_not_fit_are_refused():
    with pytest.raises(ConfigError, match="there are 2 names for 3 arrays"):
        counted(names=["a", "b"])


# records, checkpoints, resume


def test_records_checkpoints_and_resume(tmp_path):
    whole, _ = run_legacy(build("fedgp-auto"), rounds=4)
    run_legacy(build("fedgp-auto", output=RunFolder(tmp_path)), rounds=2, names=NAMES)
    folder = RunFolder(tmp_path, resume=True)
    assert list(folder.load_checkpoint().model) == NAMES
    strategy = build("fedgp-auto", output=folder)
    resumed, _ = run_legacy(strategy, rounds=2, names=NAMES)
    assert resumed == whole
    assert [record["round"] for record in RunFolder(tmp_path).read_rounds()] == [1, 2, 3, 4]


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    run_legacy(build("fedavg", output=RunFolder(tmp_path)), rounds=1)
    strategy = build("fedavg", output=RunFolder(tmp_path, resume=True))
    with pytest.raises(ConfigError, match="another model"):
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


SIMULATION = """
import json, sys
from flwr.clientapp import ClientApp
from flwr.server import Server, ServerApp, ServerAppComponents, ServerConfig, SimpleClientManager
from flwr.simulation import run_simulation
import test_strategy as t

for own_server in (False, True):
    strategy = t.build("fedgp-auto")
    wrapper = t.LegacyStrategy(strategy, t.initial())
    server = Server(client_manager=SimpleClientManager(), strategy=wrapper)

    def server_fn(context):
        config = ServerConfig(num_rounds=2)
        if own_server:
            return ServerAppComponents(server=server, config=config)
        return ServerAppComponents(strategy=wrapper, config=config)

    run_simulation(
        ServerApp(server_fn=server_fn),
        ClientApp(client_fn=t.client_fn),
        len(t.DOMAINS),
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0},
            "init_args": {"include_dashboard": False, "num_cpus": 2},
        },
    )
    arrays = [array.tobytes().hex() for array in strategy.model.values()]
    print("RESULT", json.dumps([arrays, t.comparable(strategy.history)]))
"""


@pytest.mark.slow
def test_flowers_simulation_gives_the_same_bits(tmp_path):
    strategy = build("fedgp-auto")
    run_messages(strategy, rounds=2)
    expected = [
        [array.tobytes().hex() for array in strategy.model.values()],
        comparable(strategy.history),
    ]
    script = tmp_path / "simulation.py"
    script.write_text(SIMULATION)
    paths = [path for path in sys.path if path]
    done = subprocess.run(
        [sys.executable, script],
        env={**os.environ, **RAY, "PYTHONPATH": ":".join([str(HERE), *paths])},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert len(lines) == 2, done.stderr[-3000:]
    for line in lines:
        assert json.loads(line.removeprefix("RESULT ")) == json.loads(json.dumps(expected))


def test_a_method_whose_target_keeps_a_model_resumes(tmp_path):
    whole = build("ditto")
    run_legacy(whole, [client_of(domain, "ditto") for domain in DOMAINS], names=NAMES)
    clients = [client_of(domain, "ditto") for domain in DOMAINS]
    run_legacy(build("ditto", output=RunFolder(tmp_path)), clients, rounds=1, names=NAMES)
    resumed = build("ditto", output=RunFolder(tmp_path, resume=True))
    run_legacy(resumed, clients, rounds=2, names=NAMES)
    assert comparable(resumed.history) == comparable(whole.history)
