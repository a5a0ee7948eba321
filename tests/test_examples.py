"""The projects of `examples/`, cut down, and others that the contract of docs/plug-in.md has to hold for."""

import difflib
import importlib
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod, arrays_size_mod, message_size_mod
from torch import nn

from fda_flower.clients import aggregate_on_target, answer_role_query, record_updates, serve
from fda_flower.engines import LocalGrid
from fda_flower.errors import RunError
from fda_flower.strategies import DomainAdaptationStrategy, FedDA, FedGP, RunFolder
from fda_flower.wire.internals import task_identity

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = {
    "plugin-message-api": "plugin_message_api",
    "plugin-mixture": "plugin_mixture",
    "plugin-numpyclient": "plugin_numpyclient",
    "plugin-scikit-learn": "plugin_sklearn",
}


@pytest.fixture
def load(monkeypatch):
    """Import a module of an example."""
    for folder in EXAMPLES:
        monkeypatch.syspath_prepend(str(ROOT / "examples" / folder))
    return importlib.import_module


def configured(folder, **settings):
    pyproject = tomllib.loads((ROOT / "examples" / folder / "pyproject.toml").read_text(encoding="utf-8"))
    return pyproject["tool"]["flwr"]["app"]["config"] | settings


def with_config(app, config):
    """The app as it is called in a run with this configuration."""

    def call(message, context):
        context.run_config = config
        return app(message, context)

    return call


def run_app(load, package, folder, rounds=2):
    """Run an example's two apps in this process."""
    config = configured(folder, **{"num-server-rounds": rounds})
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=config)
    clients = with_config(load(f"{package}.client_app").app, config)
    with task_identity():
        load(f"{package}.server_app").app(LocalGrid(clients, 4), context)


@pytest.fixture
def histories(monkeypatch):
    """The records of the rounds of each strategy that is started."""
    found = []
    start = DomainAdaptationStrategy.start

    def recorded(self, *args, **kwargs):
        found.append(self.history)
        return start(self, *args, **kwargs)

    monkeypatch.setattr(DomainAdaptationStrategy, "start", recorded)
    return found


@pytest.mark.parametrize("folder", ["plugin-message-api", "plugin-numpyclient", "plugin-scikit-learn"])
def test_an_example_runs(load, histories, folder):
    run_app(load, EXAMPLES[folder], folder)
    (history,) = histories
    assert [(record["held"], record["dropped"]) for record in history] == [(None, [])] * 2
    assert all(list(record["sources"]) == ["0", "1", "2"] for record in history)
    assert history[-1]["target"]["domain"] == "3"
    assert "evaluation-failed" not in history[-1]


@pytest.mark.slow
def test_the_example_on_the_message_api_estimates_beta(load, histories, capsys):
    run_app(load, "plugin_message_api", "plugin-message-api")
    ((_, last),) = histories
    for entry in last["sources"].values():
        assert entry["fallback"] is None
        assert 0 <= entry["beta"] <= 1
    assert {entry["beta"] for entry in last["sources"].values()} != {0.5}
    assert capsys.readouterr().out.startswith("Last round: {'eval_loss'")


def test_the_example_on_the_message_api_ran_before_it_was_changed(load, capsys):
    run_app(load, "plugin_message_api.before", "plugin-message-api", rounds=1)
    assert capsys.readouterr().out.startswith("Last round: {'eval_loss'")


@pytest.mark.slow
def test_the_example_of_mixture_is_better_than_the_sources_model(load, histories):
    run_app(load, "plugin_mixture", "plugin-mixture")
    ((first, last),) = histories
    assert [(record["held"], record["dropped"]) for record in (first, last)] == [(None, [])] * 2
    assert list(last["sources"]) == ["0", "1", "2"]
    assert "mixture_acc" not in first["metrics"], "only the last round pays for a mixture"
    assert last["metrics"]["eval_acc"] < 0.3
    assert last["metrics"]["mixture_acc"] > 0.6


@pytest.mark.slow
def test_the_example_of_mixture_with_the_strategy_and_our_clients(load, histories, capsys):
    run_app(load, "plugin_mixture.strategy", "plugin-mixture")
    ((_, last),) = histories
    assert (last["held"], last["dropped"]) == (None, [])
    assert last["accuracy"] > 0.6
    members = list(last["mixture"]["members"])
    assert members == ["sources", "target", "tuned-1", "tuned-30", "prior"]
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in printed] == ["Mixture", *members]


@pytest.mark.slow
def test_the_example_of_mixture_ran_before_it_was_changed(load, capsys):
    run_app(load, "plugin_mixture.before", "plugin-mixture", rounds=1)
    assert capsys.readouterr().out.startswith("Last round: {'eval_loss'")


def changed(folder, name):
    """The lines that were taken out of an example's module, and those that were put in."""
    package = ROOT / "examples" / folder / EXAMPLES[folder]
    before, after = (
        (package / path).read_text(encoding="utf-8").splitlines() for path in (f"before/{name}", name)
    )
    diff = list(difflib.ndiff(before, after))
    return [
        [line[2:] for line in diff if line.startswith(sign) and line[2:].strip()] for sign in ("- ", "+ ")
    ]


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("plugin-message-api", "client_app.py"),
        ("plugin-message-api", "server_app.py"),
        ("plugin-numpyclient", "client_app.py"),
    ],
)
def test_at_most_three_lines_were_changed(folder, name):
    removed, added = changed(folder, name)
    assert 0 < len(added) <= 3
    assert len(removed) <= 3


@pytest.mark.parametrize(("name", "lines"), [("client_app.py", 7), ("server_app.py", 2)])
def test_so_many_lines_were_changed_for_mixture(name, lines):
    removed, added = changed("plugin-mixture", name)
    assert len(added) == lines
    assert len(removed) <= 2


@pytest.mark.parametrize("folder", ["plugin-message-api", "plugin-mixture"])
def test_the_diff_of_the_documentation_is_the_examples(folder):
    text = (ROOT / "docs" / "plug-in.md").read_text(encoding="utf-8")
    for name in ("client_app.py", "server_app.py"):
        removed, added = changed(folder, name)
        for sign, lines in (("-", removed), ("+", added)):
            assert not [line for line in lines if f"\n{sign}{line}\n" not in text]


def test_auto_weighting_with_clients_in_another_framework(load):
    strategy = FedDA(target="3", auto=True)
    with task_identity():
        app, zeros = load("plugin_sklearn.client_app").app, load("plugin_sklearn.task").zeros
        strategy.start(LocalGrid(app, 4), zeros(), 2)
    assert [e["fallback"] for record in strategy.history for e in record["sources"].values()] == [None] * 6


# other projects


def regression(partition):
    generator = torch.Generator().manual_seed(partition)
    x = torch.randn(24, 3, generator=generator)
    return x, (x.sum(dim=1, keepdim=True) > 0.3 * partition).float()


def fit(model, optimizer, partition):
    x, y = regression(partition)
    for part in range(0, 24, 8):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x[part : part + 8]), y[part : part + 8]).backward()
        optimizer.step()


def start(strategy, app, arrays, rounds=2, **kwargs):
    with task_identity():
        return strategy.start(LocalGrid(app, 4), arrays, rounds, **kwargs)


def fallbacks(strategy):
    return {entry["fallback"] for record in strategy.history for entry in record["sources"].values()}


class Adapted(nn.Module):
    """A frozen layer with a low-rank adapter, and a head that is trained whole."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.frozen = nn.Linear(3, 4)
        self.lora_a, self.lora_b = nn.Parameter(torch.randn(3, 2)), nn.Parameter(torch.randn(2, 4))
        self.head = nn.Linear(4, 1)
        self.frozen.requires_grad_(False)

    def forward(self, x):
        return self.head(torch.relu(self.frozen(x) + x @ self.lora_a @ self.lora_b))

    def adapters(self):
        return {name: t for name, t in self.state_dict().items() if not name.startswith("frozen")}


def partial_project(whole, seen=None):
    """Clients that send the adapters alone, or (`whole`) the frozen layer as well."""
    app = ClientApp()
    answer_role_query(app)

    @app.train()
    def train(message, context):
        model = Adapted()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict(), strict=whole)
        optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.05)
        sent = model.parameters() if whole else None
        with record_updates(optimizer, message.content["config"], sent) as updates:
            fit(model, optimizer, context.node_config["partition-id"])
        arrays = ArrayRecord(model.state_dict() if whole else model.adapters())
        reply = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 24})})
        updates.add_to(reply)
        if seen is not None and "batch-updates" in reply:
            seen.append(reply["batch-updates"]["norms"].numpy())
        return Message(reply, reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

    return app


every_auto = pytest.mark.parametrize(
    "make",
    [
        lambda: FedDA(target="3", auto=True),
        lambda: FedGP(target="3", auto=True),
        lambda: FedGP(target="3", auto=True, batch_update_encoding="full"),
    ],
    ids=["norms", "sketch", "full"],
)


@every_auto
@pytest.mark.parametrize("whole", [False, True], ids=["adapters", "all"])
def test_a_partly_frozen_model_with_auto_weighting(make, whole):
    strategy, model = make(), Adapted()
    initial = ArrayRecord(model.state_dict() if whole else model.adapters())
    result = start(strategy, partial_project(whole), initial)
    assert fallbacks(strategy) == {None}
    assert list(result.arrays) == list(initial)
    for name in initial:
        same = np.array_equal(result.arrays[name].numpy(), initial[name].numpy())
        assert same == name.startswith("frozen"), name


def test_the_frozen_part_makes_no_difference_to_norms():
    recorded = []
    for whole in (False, True):
        model, seen = Adapted(), []
        start(
            FedDA(target="3", auto=True),
            partial_project(whole, seen),
            ArrayRecord(model.state_dict() if whole else model.adapters()),
            rounds=1,
        )
        recorded += seen
    np.testing.assert_allclose(recorded[0], recorded[1], rtol=1e-6)


def named_project(names=("weight", "bias"), mods=None, train_mods=None):
    """Arrays of any names: the client knows them by their order."""
    app = ClientApp(mods=mods)
    answer_role_query(app)

    @app.train(mods=train_mods)
    @record_updates
    def train(message, context):
        model = nn.Linear(3, 1)
        with torch.no_grad():
            for parameter, array in zip(
                model.parameters(), message.content["arrays"].to_numpy_ndarrays(), strict=True
            ):
                parameter.copy_(torch.from_numpy(array))
        fit(model, torch.optim.SGD(model.parameters(), lr=0.1), context.node_config["partition-id"])
        arrays = (Array(parameter.detach().numpy()) for parameter in model.parameters())
        arrays = ArrayRecord(dict(zip(names, arrays, strict=True)))  # type: ignore[assignment]
        metrics = MetricRecord({"num-examples": 24})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)  # type: ignore[dict-item]

    @app.evaluate()
    def evaluate(message, context):
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

    return app


def linear(names=("weight", "bias")):
    arrays = (Array(np.zeros(shape, np.float32)) for shape in ((1, 3), (1,)))
    return ArrayRecord(dict(zip(names, arrays, strict=True)))


@every_auto
@pytest.mark.parametrize("names", [("0", "1"), ("layers/0/kernel:0", "bias β")], ids=["numbers", "paths"])
def test_arrays_of_other_names(make, names):
    strategy = make()
    initial = linear(names)
    result = start(strategy, named_project(names), initial)
    assert fallbacks(strategy) == {None}
    assert list(result.arrays) == list(names)


def test_arrays_of_other_names_can_be_resumed(tmp_path):
    names = ("layers/0/kernel:0", "bias β")
    initial = linear(names)
    whole = start(FedGP(target="3"), named_project(names), initial, rounds=3)
    for rounds, resume in ((1, False), (3, True)):
        folder = RunFolder(tmp_path / "run", resume=resume)
        strategy = FedGP(target="3", output=folder)
        resumed = start(strategy, named_project(names), initial, rounds)
    for name in names:
        assert whole.arrays[name].numpy().tobytes() == resumed.arrays[name].numpy().tobytes()


@every_auto
def test_flowers_mods_that_only_look_work_beside_auto_weighting(make):
    strategy = make()
    start(strategy, named_project(mods=[arrays_size_mod, message_size_mod]), linear())
    assert fallbacks(strategy) == {None}


def test_flowers_privacy_mod_works_on_the_train_function_with_a_fixed_beta():
    mod = LocalDpMod(clipping_norm=0.01, sensitivity=0, epsilon=1, delta=1e-5)
    strategy = FedGP(target="3")
    start(strategy, named_project(train_mods=[mod]), linear())
    for record in strategy.history:
        assert (record["held"], record["dropped"]) == (None, [])
        assert [e["norm"] for e in record["sources"].values()] == [pytest.approx(0.01, rel=1e-4)] * 3


def test_flowers_privacy_mod_on_the_whole_app_keeps_its_nodes_out_and_the_error_says_so():
    mod = LocalDpMod(clipping_norm=1, sensitivity=0, epsilon=1, delta=1e-5)
    with pytest.raises(RunError, match=r"keeps nodes out .*LocalDpMod"):
        start(FedGP(target="3"), named_project(mods=[mod]), linear())


def test_a_mod_that_changes_the_targets_arrays_makes_beta_the_fixed_one():
    def doubling(message, context, call_next):
        reply = call_next(message, context)
        arrays = reply.content["arrays"]
        reply.content["arrays"] = ArrayRecord({k: Array(2 * a.numpy() + 1) for k, a in arrays.items()})
        return reply

    strategy = FedGP(beta=0.25, target="3", auto=True)
    start(strategy, named_project(train_mods=[doubling]), linear(), rounds=1)
    assert {entry["beta"] for entry in strategy.history[0]["sources"].values()} == {0.25}
    assert all("do not fit the target's update" in reason for reason in fallbacks(strategy))


@every_auto
def test_the_target_can_aggregate_what_was_recorded(make):
    results = []
    for place in ("server", "target"):
        strategy = make()
        options = (
            {"batch_update_encoding": strategy.batch_update_encoding} if isinstance(strategy, FedGP) else {}
        )
        strategy = type(strategy)(target="3", auto=True, aggregate_on=place, **options)
        results.append(start(strategy, named_project(mods=[aggregate_on_target]), linear()))
    for name in linear():
        first, second = (result.arrays[name].numpy().tobytes() for result in results)
        assert first == second


def grouped_project(how):
    """Weights and biases in groups of their own, as for weight decay: another order than the arrays'."""
    app = ClientApp()
    answer_role_query(app)

    def train(message, context):
        config = message.content["config"]
        model = nn.Linear(3, 1)
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimizer = torch.optim.SGD([{"params": [model.bias]}, {"params": [model.weight]}], lr=0.1)  # type: ignore[arg-type]
        reply = RecordDict({"metrics": MetricRecord({"num-examples": 24})})
        if how == "decorated":
            fit(model, optimizer, context.node_config["partition-id"])
        else:
            parameters = model.parameters() if how == "given" else None
            with record_updates(optimizer, config, parameters) as updates:
                fit(model, optimizer, context.node_config["partition-id"])
            updates.add_to(reply)
        reply["arrays"] = ArrayRecord(model.state_dict())
        return Message(reply, reply_to=message)

    app.train()(record_updates(train) if how == "decorated" else train)

    @app.evaluate()
    def evaluate(message, context):
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

    return app


@pytest.mark.parametrize("form", ["sketch", "full"])
@pytest.mark.parametrize(
    ("how", "expected"),
    [("given", None), ("default", "batch-updates do not fit the target's update: they do not sum to it")],
)
def test_groups_in_another_order_are_told_by_the_server(how, expected, form):
    strategy = FedGP(target="3", auto=True, batch_update_encoding=form)
    start(strategy, grouped_project(how), linear())
    assert fallbacks(strategy) == {expected}


def test_groups_in_another_order_are_an_error_of_the_decorator_that_names_the_remedy():
    strategy = FedGP(target="3", auto=True)
    start(strategy, grouped_project("decorated"), linear(), rounds=1)
    (dropped,) = strategy.history[0]["dropped"]
    assert dropped["domain"] == "3"
    assert "record_updates(optimizer, config, parameters)" in dropped["reason"]


@every_auto
def test_a_numpy_client_with_auto_weighting(make):
    class Client(NumPyClient):
        def __init__(self, partition):
            self.partition = partition

        def fit(self, parameters, config):
            model = nn.Linear(3, 1)
            model.load_state_dict(
                {k: torch.from_numpy(v) for k, v in zip(model.state_dict(), parameters, strict=True)}
            )
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            with record_updates(optimizer, config) as updates:
                fit(model, optimizer, self.partition)
            metrics = {}
            updates.add_to(metrics)
            return [t.numpy() for t in model.state_dict().values()], 24, metrics

        def evaluate(self, parameters, config):
            return 0.5, 24, {}

    strategy = make()
    app = serve(lambda context: Client(context.node_config["partition-id"]))
    start(strategy, app, ArrayRecord(nn.Linear(3, 1).state_dict()))
    assert fallbacks(strategy) == {None}


def test_a_projects_own_settings_reach_its_clients_beside_the_strategys():
    configs = []
    app = ClientApp()
    answer_role_query(app)

    @app.train()
    def train(message, context):
        configs.append(set(message.content["config"]))
        records = {"arrays": message.content["arrays"], "metrics": MetricRecord({"num-examples": 1})}
        return Message(RecordDict(records), reply_to=message)

    strategy, initial = FedGP(target="3", auto=True), ArrayRecord([np.zeros(2, np.float32)])
    start(strategy, app, initial, 1, train_config=ConfigRecord({"lr": 0.1}))
    assert configs[0] == {"server-round", "lr"}
    assert configs[3] == {"server-round", "lr", "batch-updates", "sketch-size", "sketch-seed"}
