"""The contract of docs/plug-in.md and docs/wire.md, and the recipes, on projects that are not ours."""

import inspect
import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import fixedclipping_mod
from flwr.server.strategy import FedAvg as FlowersOlderFedAvg
from flwr.serverapp.strategy import DifferentialPrivacyClientSideFixedClipping
from flwr.serverapp.strategy import FedAvg as FlowersFedAvg
from naming import names
from projects import (
    EXAMPLES,
    client_app,
    data,
    fallbacks,
    loss_of,
    network,
    partition_of,
    recorded_train,
    reply_to,
    same_bits,
    sgd,
    start,
    take_steps,
)
from torch import nn

from fda_flower.clients import (
    answer_role_query,
    batch_gradients,
    make_recorder,
    record_updates,
    serve,
)
from fda_flower.errors import ConfigError, RunError
from fda_flower.legacy import LegacyStrategy
from fda_flower.strategies import (
    FedAvg,
    FedBN,
    FedDA,
    FedDAJoint,
    FedGP,
    FedOMG,
    FedRep,
    KNNPer,
    Mixture,
    RunFolder,
    SourceOnly,
)
from fda_flower.strategies.flowers_options import OF_FEDAVG, RENAMED
from fda_flower.wire.asked.personal_layers import EvaluateWithPart, KeepPart, PartKept

ROOT = Path(__file__).resolve().parent.parent

AUTO = [
    lambda **more: FedDA(target="3", auto=True, **more),
    lambda **more: FedGP(target="3", auto=True, sketch_size=4, **more),
    lambda **more: FedGP(target="3", auto=True, **more),
]
every_auto = pytest.mark.parametrize("make", AUTO, ids=["norms", "sketch", "full"])


def users_train(message, context):
    return reply_to(message, message.content["arrays"].to_torch_state_dict())


def users_project(records=False, takes_gradients=False):
    """A project with a recorder, or with gradients at the global model, or neither."""

    def train(message, context):
        torch.manual_seed(0)
        model, config = network(), message.content["config"]
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        if takes_gradients:
            samples = torch.utils.data.TensorDataset(*data(partition_of(context)))
            loader = torch.utils.data.DataLoader(samples, 8, shuffle=True)
            gradients = batch_gradients(model, loader, loss_of, config)
        recorder = make_recorder(list(model.parameters()), config) if records else None
        take_steps(model, sgd(model), partition_of(context), recorder.step if recorder else lambda: None)
        told = {"num-steps": 3, "learning-rate": 0.1} if records else {}
        updates = recorder.arrays() if recorder else None
        reply = reply_to(message, model.state_dict(), updates, train_loss=0.5, **told)
        if takes_gradients:
            gradients.add_to(reply.content)
        return reply

    return client_app(train)


def initial():
    return ArrayRecord(network().state_dict())


def test_fixed_beta_in_two_lines():
    strategy = FedGP(target="3")
    result = start(strategy, users_project(), initial(), 3)
    assert strategy.nodes.target.domain == "3"
    assert all(record["held"] is None and not record["dropped"] for record in strategy.history)
    assert (result.arrays["1.running_var"].numpy() > 0).all()
    assert result.evaluate_metrics_clientapp[3]["eval_loss"] == 0.1
    assert strategy.history[2]["metrics"] == {"eval_loss": 0.1}
    assert not np.array_equal(result.arrays["0.weight"].numpy(), initial()["0.weight"].numpy())


PAIRS = [(FlowersFedAvg, FedGP), (FlowersOlderFedAvg, LegacyStrategy)]


@pytest.mark.parametrize(("flowers", "ours"), PAIRS)
def test_what_serves_instead_is_known_of_each_option_of_flowers_fedavg(flowers, ours):
    def options(of):
        return {*inspect.signature(of).parameters}

    assert options(flowers) - options(ours) <= {*OF_FEDAVG, *RENAMED}
    assert options(ours).isdisjoint(OF_FEDAVG)


class Saving(FedGP):
    """A project's own class, which names options of Flower's FedAvg and passes them on."""

    def __init__(self, fraction_evaluate=0.5, weighted_by_key="num-examples", evaluate_metrics_aggr_fn=None):
        options: dict[str, Any] = {
            "fraction_evaluate": fraction_evaluate,
            "weighted_by_key": weighted_by_key,
            "train_metrics_aggr_fn": lambda records, key: {"most": max(r["metrics"][key] for r in records)},
            "evaluate_metrics_aggr_fn": evaluate_metrics_aggr_fn,
        }
        super().__init__(target="3", **options)


def test_a_projects_own_class_passes_on_flowers_options_and_its_functions_make_metrics(flower_log):
    strategy = Saving(evaluate_metrics_aggr_fn=lambda records, key: MetricRecord({"mine": len(records)}))
    (warning,) = flower_log.messages
    assert warning.startswith("Saving: options of Flower's FedAvg without effect: fraction_evaluate")
    result = start(strategy, users_project(), initial())
    assert result.train_metrics_clientapp[2]["most"] == 24
    assert result.train_metrics_clientapp[2]["beta.0"] == 0.5
    assert dict(result.evaluate_metrics_clientapp[2]) == {"eval_loss": 0.1, "num-examples": 24, "mine": 1}


def test_a_projects_function_that_fails_on_the_replies_does_not_end_the_run(flower_log):
    options: dict[str, Any] = {"evaluate_metrics_aggr_fn": lambda records, key: records[0]["metrics"]["f1"]}
    strategy = FedGP(target="3", **options)
    result = start(strategy, users_project(), initial())
    assert result.evaluate_metrics_clientapp[2]["eval_loss"] == 0.1
    assert flower_log.messages == ["Your function <lambda> has failed on the replies: KeyError: 'f1'"] * 2


@pytest.mark.parametrize(
    "make",
    [FedGP, SourceOnly, lambda **options: OwnStart(**options), lambda **o: LegacyStrategy(FedGP(), **o)],
)
@pytest.mark.parametrize(
    ("name", "alike", "value"),
    [
        ("weighted_by_key", "num-examples", "batches"),
        ("accept_failures", True, False),
    ],
)
def test_of_flowers_fedavg_only_what_would_change_the_result_is_refused(make, name, alike, value, flower_log):
    make(**{name: alike, "fraction_evaluate": 0.5})
    (warning,) = flower_log.messages
    assert name in warning
    assert "fraction_evaluate (only the target" in warning
    with pytest.raises(ConfigError, check=names(name, value)):
        make(**{name: value})


@pytest.mark.parametrize(
    ("make", "name", "remedy"),
    [
        (lambda **options: FedDA(**options), "proximal_mu", 'set "proximal-mu" in train_config'),
        (lambda **options: LegacyStrategy(FedGP(), **options), "proximal_mu", "on_fit_config_fn"),
        (lambda **options: OwnStart(**options), "eta", "the method itself updates the model"),
    ],
)
def test_options_of_flowers_other_strategies_are_refused_by_name(make, name, remedy):
    with pytest.raises(ConfigError, match=re.escape(remedy), check=names(name, 0.1)):
        make(**{name: 0.1})


class Strict(FedGP):
    """A project's own class, which looks at the replies as Flower's FedAvg does."""

    def aggregate_train(self, server_round, replies):
        valid, self.errors = self._check_and_log_replies(iter(replies), is_train=True)
        self.weights = [reply.content["metrics"][self.weighted_by_key] for reply in valid]
        return super().aggregate_train(server_round, valid)


def test_a_projects_own_class_looks_at_the_replies_as_in_flowers_fedavg():
    strategy = Strict(target="3", auto=True)
    start(strategy, users_project(), initial())
    assert (strategy.weights, strategy.errors) == ([24, 24, 24, 24], [])


class OwnMean(FedGP):
    """A project's own class that aggregates alone."""

    def aggregate_train(self, server_round, replies):
        return next(iter(replies)).content["arrays"], None


def test_a_projects_own_class_that_aggregates_alone_is_refused():
    with pytest.raises(RunError, match=r"call super\(\).aggregate_train"):
        start(OwnMean(target="3"), users_project(), initial())


OLDER: dict[str, Any] = {"fraction_fit": 0.5, "min_fit_clients": 3, "min_available_clients": 4}
NEWER: dict[str, Any] = {"fraction_train": 0.5, "min_train_nodes": 3, "min_available_nodes": 4}


@pytest.mark.parametrize(
    "make",
    [
        lambda: FedGP(**NEWER),
        lambda: FedGP(**OLDER),
        lambda: OwnStart(**NEWER),
        lambda: LegacyStrategy(FedGP(), **OLDER).strategy,
    ],
)
def test_options_of_flowers_fedavg_that_have_the_same_effect_are_taken_by_its_names(make, flower_log):
    strategy = make()
    assert (strategy.fraction_train, strategy.min_train_nodes, strategy.wait_for) == (0.5, 3, 4)
    assert flower_log.messages == []


@pytest.mark.parametrize(
    ("make", "thing"),
    [
        (lambda: FedGP(min_available_nodes=4, wait_for=5), "min_available_nodes"),  # type: ignore[call-arg]
        (lambda: FedGP(fraction_train=0.5, fraction_fit=0.25), "fraction_fit"),  # type: ignore[call-arg]
        (lambda: LegacyStrategy(FedGP(), fraction_fit=0.0), "fraction_train"),
        (lambda: LegacyStrategy(FedGP(), fraction_fit="half"), "fraction_train"),  # type: ignore[arg-type]
    ],
)
def test_an_option_under_two_names_or_out_of_its_bounds_is_refused(make, thing):
    with pytest.raises(ConfigError, check=lambda error: error.thing == thing):
        make()


def test_a_subclass_may_take_an_option_of_flowers_fedavg_itself():
    class Sampling(FedGP):
        def __init__(self, fraction_evaluate, target, share=1, **options):
            super().__init__(target=target, **options)
            self.fraction_evaluate = fraction_evaluate

    strategy = Sampling(0.5, "3", min_available_clients=4)
    assert (strategy.fraction_evaluate, strategy.target, strategy.wait_for) == (0.5, "3", 4)


@pytest.mark.parametrize("make", [FedDA, FedDAJoint, FedGP])
def test_estimates_from_gradients_at_the_global_model(make):
    auto = {} if make is FedDAJoint else {"auto": True}
    strategy = make(target="3", estimate_at="start", **auto)
    start(strategy, users_project(takes_gradients=True), initial())
    assert fallbacks(strategy) == {None}
    for record in strategy.history:
        for entry in record["sources"].values():
            assert 0 <= entry.get("beta", entry.get("weight")) <= 1
            assert entry["sigma2"] > 0


def project_that_keeps_a_part(names):
    """A client app that does what the page says of `keep_part`, by the page's own code."""
    page = (ROOT / "docs" / "wire.md").read_text(encoding="utf-8")
    (code,) = (code for code in re.findall(r"```python\n(.*?)```", page, re.S) if "KeepPart.read" in code)

    app = client_app(lambda message, context: pytest.fail("a plain message trains"))

    @app.train("keep_part")
    def train(message, context):
        own = partition_of(context)
        found = {
            **{"message": message, "context": context, "names": names},
            **{"Array": Array, "ArrayRecord": ArrayRecord, "ConfigRecord": ConfigRecord},
            **{"KeepPart": KeepPart, "PartKept": PartKept},
            "train": lambda model: {n: np.asarray(a + own + 1, a.dtype) for n, a in model.items()},
        }
        exec(code, found)
        reply = reply_to(message, found["arrays"])
        reply.content.update(found["answer"].records())
        return reply

    @app.evaluate("with_part")
    def evaluate(message, context):
        EvaluateWithPart.read(message.content)
        metrics = MetricRecord({"num-examples": 10, "accuracy": 0.5})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (FedRep, ["2.weight", "2.bias"]),
        (FedBN, [f"1.{n}" for n in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")]),
    ],
)
def test_a_part_that_clients_keep_by_the_pages_own_code(make, names):
    strategy, first = make(target="3"), initial()
    result = start(strategy, project_that_keeps_a_part(names), first)
    for name, array in result.arrays.items():
        assert (array.numpy().tobytes() == initial()[name].numpy().tobytes()) == (name in names), name
    for record in strategy.history:
        entries = [record["target"], *record["sources"].values()]
        assert [entry["local-part"] for entry in entries] == [record["round"] - 1] * 4
        assert not any("fallback" in entry for entry in entries)
        assert not record["dropped"]


@every_auto
def test_auto_weighting_with_the_recorder_also_with_records_of_other_names(make):
    """The client of a project whose records are not called as Flower's template calls them."""
    ours = users_project(records=True)
    app = ClientApp()
    answer_role_query(app)

    def renamed(content, names):
        return RecordDict({names.get(key, key): record for key, record in content.items()})

    def answer(message, context):
        assert {"model", "settings"} == set(message.content)
        message.content = renamed(message.content, {"model": "arrays", "settings": "config"})
        reply = ours(message, context)
        reply.content = renamed(reply.content, {"arrays": "model"})
        return reply

    app.train()(answer)
    app.evaluate()(answer)
    strategy = make(arrayrecord_key="model", configrecord_key="settings")
    result = start(strategy, app, initial())
    assert fallbacks(strategy) == {None}
    assert all(0 <= e["beta"] <= 1 for record in strategy.history for e in record["sources"].values())
    assert not any(record["dropped"] or record["held"] for record in strategy.history)
    assert same_bits(result.arrays, start(make(), ours, initial()).arrays)


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

    def sent(self, whole):
        return {k: t for k, t in self.state_dict().items() if whole or not k.startswith("frozen")}


def partial_project(whole, seen):
    """Clients that send the adapters alone, or (`whole`) the frozen layer as well."""

    def train(message, context):
        model = Adapted()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict(), strict=whole)
        optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.05)
        given = model.parameters() if whole else None
        with record_updates(optimizer, message.content["config"], given) as updates:
            take_steps(model, optimizer, partition_of(context))
        reply = reply_to(message, model.sent(whole))
        updates.add_to(reply.content)
        if "batch-updates" in reply.content:
            seen.append(reply.content["batch-updates"]["norms"].numpy())
        return reply

    return client_app(train)


@every_auto
@pytest.mark.parametrize("everything", [True, False])
def test_of_a_frozen_body_the_decorator_finds_what_is_sent(make, everything):
    """As in Flower's `flowertune-vit`: the optimizer has all parameters, and the head alone travels."""

    @record_updates
    def train(message, context):
        model = Adapted()
        for tensor in (model.lora_a, model.lora_b):
            tensor.requires_grad_(False)
        model.head.load_state_dict(message.content["arrays"].to_torch_state_dict())
        held = model.parameters() if everything else model.head.parameters()
        take_steps(model, torch.optim.Adam(held, lr=0.05), partition_of(context))
        return reply_to(message, model.head.state_dict())

    strategy, first = make(), Adapted().head.state_dict()
    result = start(strategy, client_app(train), ArrayRecord(first))
    assert fallbacks(strategy) == {None}
    assert not any(torch.equal(torch.tensor(result.arrays[name].numpy()), first[name]) for name in first)


def project_that_returns(returned):
    """Clients that receive a model, and return the parts that `returned` gives by partition and round."""

    @record_updates
    def train(message, context):
        model = Adapted()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict(), strict=False)
        for tensor in (model.lora_a, model.lora_b):
            tensor.requires_grad_(False)
        own, number = partition_of(context), message.content["config"]["server-round"]
        take_steps(model, sgd(model), own)
        parts = returned(own, number)
        return reply_to(message, {n: t for n, t in model.state_dict().items() if n.startswith(parts)})

    return client_app(train)


@pytest.mark.parametrize(
    "make", [*(lambda make=make: make(target="3") for make in (FedAvg, SourceOnly, FedGP, FedOMG)), *AUTO]
)
def test_arrays_that_all_replies_lack_stay_as_they_were_sent_and_the_rest_is_as_if_sent_alone(
    make, flower_log
):
    strategy, app, first = make(), project_that_returns(lambda *_: "head"), Adapted().state_dict()
    result = start(strategy, app, ArrayRecord(Adapted().state_dict()))
    assert list(result.arrays) == list(first)
    entries = [entry for record in strategy.history for entry in record["sources"].values()]
    assert not any(entry.get("fallback") for entry in entries)
    assert [line for line in flower_log.messages if "absent" in line] == [
        "Round 1: absent from all replies: 4 of 6 arrays, such as 'lora_a'; they keep the values sent"
    ]
    own = {name: array for name, array in first.items() if name.startswith("head")}
    alone = start(make(), app, ArrayRecord(own)).arrays
    assert same_bits(result.arrays, alone)
    assert not any(np.array_equal(alone[name].numpy(), own[name]) for name in own)
    rest = {name: Array(array.numpy()) for name, array in first.items() if name not in own}
    assert same_bits(result.arrays, rest)


def test_replies_that_lack_different_arrays_are_dropped():
    strategy = SourceOnly(target="3", max_held_rounds=9)
    app = project_that_returns(lambda own, number: ("head", "lora") if own < number - 1 else "head")
    start(strategy, app, ArrayRecord(Adapted().state_dict()), 4)
    two, four = "'frozen.weight' (2 of 6 missing)", "'lora_a' (4 of 6 missing)"
    reasons = [[drop["reason"] for drop in record["dropped"]] for record in strategy.history]
    assert reasons == [
        [],
        *([f"its arrays lack {each}" for each in s] for s in ([two, four, four], [two, two, four])),
        [],
    ]


def test_a_held_round_keeps_the_arrays_that_its_replies_lack():
    def train(message, context):
        value = np.nan if partition_of(context) == 0 else 1
        return reply_to(message, {"weight": np.full((1, 3), value, np.float32)})

    strategy = SourceOnly(target="3", min_sources=3)
    result = start(strategy, client_app(train), linear(), 1)
    assert strategy.record["held"] == "2 usable replies of sources, at least 3 needed"
    assert [*strategy.model] == [*result.arrays] == ["weight", "bias"]


def test_replies_that_all_lack_the_parameters_are_not_averaged():
    def train(message, context):
        return reply_to(message, {"bias": np.ones(1, np.float32)})

    with pytest.raises(RunError, match=r"its arrays lack 'weight' \(1 of 2 missing\)"):
        start(FedDA(target="3", buffer_names=["bias"]), client_app(train), linear())


@pytest.mark.parametrize(
    ("make", "named", "why"),
    [
        (lambda: FedGP(target="3", aggregate_on="target"), True, "FedGP needs the whole model"),
        (lambda: FedAvg(target="3"), False, "arrays without names"),
    ],
)
def test_what_needs_the_arrays_that_all_replies_lack_is_named(make, named, why):
    def train(message, context):
        return reply_to(message, {"weight" if named else "0": np.ones((1, 3), np.float32)})

    with pytest.raises(RunError, match=f"lack .* as all replies do, but {why}"):
        start(make(), client_app(train), linear() if named else linear(("0", "1")))


def test_an_app_that_says_it_has_no_evaluate_function_is_never_asked(flower_log):
    flower_log.set_level(logging.INFO, "flwr")
    asked = []

    def counts(message, context, call_next):
        asked.append(message.metadata.message_type)
        return call_next(message, context)

    app = ClientApp(mods=[counts])
    answer_role_query(app)
    app.train()(users_train)
    strategy = FedGP(target="3")
    start(strategy, app, initial(), evaluate_fn=lambda *_: MetricRecord({"acc": 0.5}))
    assert set(asked) == {"query.role", "train"}
    assert not any("evaluation-failed" in record for record in strategy.history)
    assert [line for line in flower_log.messages if "evalua" in line] == [
        "Round 1: no evaluation by 3: its app has no evaluate function, so it is not asked"
    ]
    assert [line for line in flower_log.messages if line.startswith("round 2/2: server acc 0.5")]


@pytest.mark.parametrize(("method", "action"), [(Mixture, "mixture"), (KNNPer, "neighbours")])
@pytest.mark.parametrize("make", [client_app, lambda _: serve(lambda context: NoAnswer())])
def test_an_app_that_does_not_answer_the_question_of_an_evaluation_ends_the_run(make, method, action):
    with pytest.raises(RunError, match=f"'3' does not answer .* '{action}'.*add a function @app.evaluate"):
        start(method(target="3"), make(users_train), initial())


class NoAnswer(NumPyClient):
    """Flower's own client, which knows no questions."""

    def fit(self, parameters, config):
        return parameters, EXAMPLES, {}


def test_an_app_that_evaluates_only_by_a_question_is_asked_it_in_each_round():
    answer_role_query(app := ClientApp())
    app.train()(users_train)

    @app.evaluate("neighbours")
    def evaluate(message, context):
        metrics = MetricRecord({"num-examples": EXAMPLES, "accuracy": 0.5})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    strategy = KNNPer(target="3")
    start(strategy, app, initial())
    assert [record["accuracy"] for record in strategy.history] == [0.5, 0.5]
    assert strategy.history[0]["evaluation-failed-global"].startswith("its app has no evaluate function")


@every_auto
def test_a_partly_frozen_model_with_auto_weighting(make):
    recorded = []
    for whole in (False, True):
        strategy, seen = make(), []
        first = ArrayRecord(Adapted().sent(whole))
        result = start(strategy, partial_project(whole, seen), ArrayRecord(Adapted().sent(whole)))
        assert fallbacks(strategy) == {None}
        assert list(result.arrays) == list(first)
        for name in first:
            same = np.array_equal(result.arrays[name].numpy(), first[name].numpy())
            assert same == name.startswith("frozen"), name
        recorded.append(seen[0])
    np.testing.assert_allclose(recorded[0], recorded[1], rtol=1e-6)


NAMES = ("layers/0/kernel:0", "bias β")


def named_project(names):
    """Arrays of any names: the client knows them by their order."""

    @record_updates
    def train(message, context):
        model = nn.Linear(3, 1)
        tensors = map(torch.from_numpy, message.content["arrays"].to_numpy_ndarrays())
        model.load_state_dict({k: t.clone() for k, t in zip(model.state_dict(), tensors, strict=True)})
        take_steps(model, sgd(model), partition_of(context))
        return reply_to(message, dict(zip(names, model.state_dict().values(), strict=True)))

    return client_app(train)


def linear(names=("weight", "bias")):
    arrays = (Array(np.zeros(shape, np.float32)) for shape in ((1, 3), (1,)))
    return ArrayRecord(dict(zip(names, arrays, strict=True)))


@every_auto
@pytest.mark.parametrize("names", [("0", "1"), NAMES], ids=["numbers", "paths"])
def test_arrays_of_other_names_also_after_a_resume(make, names, tmp_path):
    strategy = make()
    whole = start(strategy, named_project(names), linear(names), 3)
    assert fallbacks(strategy) == {None}
    assert list(whole.arrays) == list(names)
    for rounds, resume in ((1, False), (3, True)):
        strategy = make(output=RunFolder(tmp_path / "run", resume=resume))
        resumed = start(strategy, named_project(names), linear(names), rounds)
    assert same_bits(resumed.arrays, whole.arrays)


@pytest.mark.parametrize("size", [4, 1024])
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (True, None),
        (
            False,
            "batch-updates do not fit the target's update: they do not sum to it; "
            "does your client begin with the model that it received?",
        ),
    ],
)
def test_groups_in_another_order_are_told_by_the_server_unless_the_parameters_are_given(
    given, expected, size
):
    """Weights and biases in groups of their own, as for weight decay: another order than the arrays'."""

    def train(message, context):
        model = nn.Linear(3, 1)
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        groups = [{"params": [model.bias]}, {"params": [model.weight]}]
        optimizer = torch.optim.SGD(groups, lr=0.1)  # type: ignore[arg-type]
        parameters = model.parameters() if given else None
        with record_updates(optimizer, message.content["config"], parameters) as updates:
            take_steps(model, optimizer, partition_of(context))
        reply = reply_to(message, model.state_dict())
        updates.add_to(reply.content)
        return reply

    strategy = FedGP(target="3", auto=True, sketch_size=size)
    start(strategy, client_app(train), linear())
    assert fallbacks(strategy) == {expected}


class OwnStart(FedGP):
    """As in Flower's advanced example: rounds of its own, and the server's best figure."""

    def start(self, grid, arrays, rounds=3, evaluate_fn=None):  # type: ignore[override]
        best = 0.0
        for number in range(1, rounds + 1):
            sent = self.configure_train(number, arrays, ConfigRecord(), grid)
            new, _ = self.aggregate_train(number, grid.send_and_receive(sent))
            arrays = new or arrays
            asked = self.configure_evaluate(number, arrays, ConfigRecord(), grid)
            self.aggregate_evaluate(number, grid.send_and_receive(asked))
            best = max(best, evaluate_fn(number, arrays))
        return best


def test_a_subclass_with_a_start_of_its_own_waits_for_nodes_and_says_what_a_client_with_its_own_head_lacks(
    flower_log,
):
    heads = {}

    @record_updates
    def train(message, context):
        model, own = network(batch_norm=False), partition_of(context)
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        if own in heads:
            model[-1].load_state_dict(heads[own])
        take_steps(model, sgd(model), own)
        heads[own] = {name: tensor.clone() for name, tensor in model[-1].state_dict().items()}
        return reply_to(message, model.state_dict())

    flower_log.set_level(logging.INFO, "flwr")
    strategy, seen = OwnStart(target="3", auto=True), []
    strategy.summary()
    assert not any("Target:" in line for line in flower_log.messages), "no node is connected yet"

    def judge(number, _):
        seen.append(number)
        return number / 4

    first = ArrayRecord(network(batch_norm=False).state_dict())
    assert start(strategy, client_app(train), first, evaluate_fn=judge) == 0.5
    assert seen == [1, 2]
    assert [line for line in flower_log.messages if "Target:" in line] == ["Target: 3. Sources: 0, 1, 2"]
    assert strategy.record["metrics"] == {"eval_loss": 0.1}
    told = {entry["fallback"] for entry in strategy.record["sources"].values()}
    assert all("does your client begin with the model that it received?" in each for each in told)
    with pytest.raises(RunError, check=names("domain", "9")):
        start(OwnStart(target="9", wait_seconds=0), client_app(train), first, evaluate_fn=lambda *_: 0)


@pytest.mark.parametrize("auto", [False, True])
def test_within_flowers_wrapper_for_privacy_a_fixed_beta_works_and_auto_weighting_ends_at_once(auto):
    """Its mod refuses a reply with batch updates, and the wrapper then aggregates nothing."""

    strategy = FedGP(target="3", auto=auto)
    wrapped = DifferentialPrivacyClientSideFixedClipping(strategy, 0.01, 10.0, num_sampled_clients=4)
    app = client_app(recorded_train, train_mods=[fixedclipping_mod])
    first = ArrayRecord(network(batch_norm=False).state_dict())
    if auto:
        with pytest.raises(RunError, check=names("strategy", "FedGP")):
            start(wrapped, app, first)
    else:
        start(wrapped, app, first)
        assert set(strategy.record["sources"]) == {"0", "1", "2"}
        assert [record["held"] for record in strategy.history] == [None, None]


def test_what_every_client_lacks_ends_also_a_start_of_its_own_in_the_first_round():
    rounds = []

    def train(message, context):
        rounds.append(message.content["config"]["server-round"])
        return message.content["config"]["lr"]

    with pytest.raises(RunError, match=r"all 4 nodes .*: error 2: KeyError: 'lr' \(.*test_plug_in.py, line"):
        start(OwnStart(target="3"), client_app(train), initial(), evaluate_fn=lambda *_: 0)
    assert rounds == [1] * 4


def test_arrays_of_a_logistic_regression_without_torch():
    """As in Flower's `quickstart-sklearn-tabular`: coefficients and intercept, in float64."""
    linear_model = pytest.importorskip("sklearn.linear_model")

    def train(message, context):
        x, y = (part.numpy() for part in data(partition_of(context)))
        model = linear_model.LogisticRegression(max_iter=1, warm_start=True)
        coefficients, intercept = message.content["arrays"].to_numpy_ndarrays()
        model.coef_, model.intercept_ = coefficients.copy(), intercept.copy()
        with pytest.warns(UserWarning, match="converge"):
            model.fit(x.astype(np.float64), (y[:, 0] > 0).astype(int))
        return reply_to(message, {"coef": model.coef_, "intercept": model.intercept_})

    zeros = ArrayRecord({"coef": Array(np.zeros((1, 3))), "intercept": Array(np.zeros(1))})
    strategy = FedDA(target="3")
    result = start(strategy, client_app(train), zeros, 1)
    assert strategy.history[0]["dropped"] == []
    assert result.arrays["coef"].numpy().any()
