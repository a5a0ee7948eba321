"""One contract for every strategy of the registry."""

import inspect
import itertools
import json
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import Strategy
from handmade import HandMade, bits, build, failing, initial, moves, steps_extra, weights
from naming import names
from whole_runs import untimed

from fda_flower.errors import ConfigError, RunError
from fda_flower.files import json_safe
from fda_flower.names.registry import resolve
from fda_flower.runs.methods import METHODS, find_method, messages_of, of_every_site, run_names
from fda_flower.strategies import (
    APFL,
    IRM,
    KD3A,
    Ditto,
    FedAvg,
    FedAvgFT,
    FedBN,
    FedDA,
    FedDAF,
    FedDAJoint,
    FedDWA,
    FedGP,
    FedPer,
    FedProx,
    FedRep,
    GroupDRO,
    KNNPer,
    Mixture,
    Ridge,
    RunFolder,
    SourceOnly,
    TargetOnly,
    VREx,
)
from fda_flower.strategies.options import COMMON as COMMON_OPTIONS
from fda_flower.wire import asked
from fda_flower.wire.asked import QUESTIONS
from fda_flower.wire.asked.columns import DescribeColumns
from fda_flower.wire.asked.generalisation import MeasureLoss, Penalise
from fda_flower.wire.asked.personal import (
    Blend,
    EvaluateMix,
    EvaluateNeighbours,
    EvaluatePersonal,
    FineTune,
    Guide,
    Personalise,
    TrainToMix,
)
from fda_flower.wire.asked.personal_layers import EvaluateWithPart, KeepPart

STEPS = [[0.2, 0.0], [0.0, 0.1], [0.3, 0.3]]
TOTAL = np.sum(STEPS, axis=0)


def nodes(order=(0, 1, 2, 3), **replaced):
    answers = {
        "a": moves([0.5, 0.25], domain="a", examples=30),
        "b": moves([0.1, -0.7], domain="b", examples=7),
        "c": moves([-0.3, 0.3], domain="c", examples=11),
        "t": moves(TOTAL, "target", "t", examples=5, steps=3, rate=0.1, extra=steps_extra(STEPS)),
        **replaced,
    }
    all_nodes = [("target" if name == "t" else "source", name, answer) for name, answer in answers.items()]
    return [all_nodes[i] for i in order]


def run(method, federation, rounds=1, **options):
    strategy = build(method, **options)
    return strategy.start(HandMade(federation).grid(), initial(method=method), rounds), strategy


def roles_that_train(strategy):
    """The roles that are asked at once, and the target where it is asked later."""
    return strategy.trains | ({"target"} if strategy.asks_again else set())


@pytest.fixture(params=METHODS)
def method(request):
    return request.param


def test_it_moves_the_model_and_records_the_round_whatever_the_order_of_the_nodes(method):
    result, strategy = run(method, nodes())
    assert (list(result.arrays), weights(result).shape) == (list(initial(method=method)), (2,))
    assert result.arrays["w"].dtype == "float32"
    assert np.isfinite(weights(result)).all()
    assert not np.array_equal(weights(result), [1.0, 2.0])
    (record,) = strategy.history
    told = [record[name] for name in ("round", "held", "dropped", "accuracy")]
    assert told == [1, None, [], 0.5]
    assert record["bytes-received"] > 0
    assert set(record["seconds"]) == {"train", "aggregate", "evaluate"}
    for order in itertools.permutations(range(4)):
        assert bits(run(method, nodes(order))[0].arrays) == bits(result.arrays)


def test_only_sources_train_in_the_warm_up_and_are_averaged_then_the_roles_of_the_method(method):
    federation = HandMade(nodes())
    strategy, models = build(method, warmup_rounds=2, learning_rate_factor=0.25), []
    strategy.progress.on_round = lambda record: models.append(bits(strategy.model))
    strategy.start(federation.grid(), initial(method=method), 3)
    asked = [domain for domain, _ in federation.configs]
    assert asked[:6] == ["a", "b", "c", "a", "b", "c"]
    assert {"target" if domain == "t" else "source" for domain in asked[6:]} == roles_that_train(strategy)
    assert [record["warmup"] for record in strategy.history] == [True, True, False]
    factors = [config.get("rate-factor") for _, config in federation.configs]
    assert factors[:6] == [None] * 6
    assert set(factors[6:]) == {0.25}
    alone = build("source-only", source_mean=strategy.source_mean)
    two_rounds = alone.start(HandMade(nodes()).grid(), initial(method=method), 2)
    assert models[1] == bits(two_rounds.arrays) != models[2]


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (moves([np.nan, 0.0], domain="a"), "NaN or infinity"),
        (moves([np.inf, 0.0], domain="a"), "NaN or infinity"),
        (failing(None), "off"),
    ],
)
def test_a_reply_that_is_missing_or_not_finite_is_dropped_and_named(method, bad, says):
    result, strategy = run(method, nodes(a=bad))
    assert np.isfinite(weights(result)).all()
    if "source" in strategy.trains:
        (dropped,) = strategy.history[0]["dropped"]
        assert (dropped["domain"], says in dropped["reason"]) == ("a", True)
        assert bits(result.arrays) == bits(run(method, nodes((1, 2, 3)))[0].arrays)


def test_without_usable_replies_the_model_holds_until_the_run_ends_with_an_error(method):
    nobody = nodes(**{name: failing(None, why=name) for name in "abct"})
    result, strategy = run(method, nobody, rounds=2)
    np.testing.assert_array_equal(weights(result), [1.0, 2.0])
    assert all("usable repl" in record["held"] for record in strategy.history)
    with pytest.raises(RunError, check=names("held rounds", 2)):
        run(method, nobody, rounds=5, max_held_rounds=2)


def test_what_all_clients_fail_at_ends_the_run_in_its_first_round_with_the_cause_once(method, flower_log):
    strategy = build(method)
    federation = HandMade(nodes(**dict.fromkeys("abct", failing(None))))
    if len(roles_that_train(strategy)) == 1 and "target" in strategy.trains:  # one node proves nothing
        strategy.start(federation.grid(), initial(method=method), 2)
        return
    with pytest.raises(RunError, check=names("client app")) as error:
        strategy.start(federation.grid(), initial(method=method), 5)
    assert str(error.value).count("off") == 1
    assert not any("off" in line for line in flower_log.messages)
    assert {config["server-round"] for _, config in federation.configs} == {1}


def test_a_resumed_run_has_the_same_bits_states_and_records(method, tmp_path):
    every = {"every": 1} if method == "mixture" else {}
    whole, expected = run(method, nodes(), rounds=4, **every)
    run(method, nodes(), rounds=2, output=RunFolder(tmp_path), **every)
    resumed, strategy = run(method, nodes(), rounds=4, output=RunFolder(tmp_path, resume=True), **every)
    assert bits(resumed.arrays) == bits(whole.arrays)
    states = [{name: bits(layers) for name, layers in s.state_dict().items()} for s in (strategy, expected)]
    assert states[0] == states[1]
    histories = [
        [
            {name: value for name, value in record.items() if name != "seconds" and "-final-head" not in name}
            for record in json_safe(each.history)
        ]
        for each in (strategy, expected)
    ]
    assert histories[0] == histories[1]
    assert list(resumed.train_metrics_clientapp) == [3, 4]
    assert RunFolder(tmp_path).read_rounds() == json_safe(strategy.history)


@pytest.mark.parametrize("folder", [False, True])
def test_many_short_starts_with_the_model_returned_last_are_one_long_run(method, folder, tmp_path):
    options: dict[str, Any] = {"gate_rounds": 3} if method == "kd3a" else {}
    options |= {"fraction_train": 0.5} if METHODS[method].strategy_class.needs_all_sources is None else {}
    options |= {"output": RunFolder(tmp_path)} if folder else {}
    strategy, grid, numbers = build(method, **options), HandMade(nodes()).grid(), list[int]()
    arrays = initial(method=method)
    for _ in range(3):
        result = strategy.start(grid, arrays, 1, evaluate_fn=lambda number, _: numbers.append(number))
        arrays = ArrayRecord({name: Array(array.numpy().copy()) for name, array in result.arrays.items()})
        assert list(result.train_metrics_clientapp) == [1], "as in Flower"
    assert numbers == [0, 1] * 3
    if strategy.ends_with_an_evaluation:
        return
    expected, whole = run(method, nodes(), rounds=3, **{**options, "output": None})
    assert untimed(strategy.history) == untimed(whole.history)
    assert bits(arrays) == bits(expected.arrays)
    if folder:
        assert RunFolder(tmp_path).read_rounds() == json_safe(strategy.history)


def test_a_domain_of_any_name_keeps_its_state_over_a_resume_beside_an_average(method, tmp_path):
    sources = ("", "average/0", "average/x", "head/t|w", "state", "0|w")
    answers = [moves([i, -i], domain=name, examples=5 + i) for i, name in enumerate(sources, 1)]
    federation = [*(("source", *each) for each in zip(sources, answers, strict=True)), *nodes((3,))]
    options: dict[str, Any] = {"average": "ema:0.5"} | ({"every": 1} if method == "mixture" else {})
    _, expected = run(method, federation, rounds=2, **options)
    run(method, federation, rounds=1, output=RunFolder(tmp_path), **options)
    _, strategy = run(method, federation, rounds=2, output=RunFolder(tmp_path, resume=True), **options)
    assert [record["held"] for record in expected.history] == [None, None]
    ends = [
        [bits(s.model), {name: bits(layers) for name, layers in s.state_dict().items()}]
        + [bits(layers) for layers in s.model_average.models]
        for s in (strategy, expected)
    ]
    assert ends[0] == ends[1]


class Around(Strategy):
    """A strategy around another, whose rounds Flower runs, as its wrappers for differential privacy."""

    def __init__(self, strategy):
        self.strategy = strategy
        for name in ("configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate"):
            setattr(self, name, getattr(strategy, name))

    def summary(self):
        self.strategy.summary()

    def configure_train(self, *args):
        raise AssertionError

    aggregate_train = configure_evaluate = aggregate_evaluate = configure_train


@pytest.mark.parametrize("known", [True, False])
def test_rounds_that_a_wrapper_runs_are_the_same_or_its_last_one_must_be_known(method, known, tmp_path):
    options = {"output": RunFolder(tmp_path / "whole"), "average": "ema:0.5"}
    whole, expected = run(method, nodes(), rounds=3, **options)
    driven = build(method, **{**options, "output": RunFolder(tmp_path / "driven")})
    driven.num_rounds = 3 if known else 0
    if not known and driven.needs_num_rounds:
        with pytest.raises(ConfigError, check=names("num_rounds", 0)):
            Around(driven).start(HandMade(nodes()).grid(), initial(method=method), 3)
        return
    result = Around(driven).start(HandMade(nodes()).grid(), initial(method=method), 3)
    left_out = () if known else ("confusion",)
    assert untimed(driven.history, *left_out) == untimed(expected.history, *left_out)
    assert RunFolder(tmp_path / "driven").read_rounds() == json_safe(driven.history)
    states = [{name: bits(layers) for name, layers in s.state_dict().items()} for s in (driven, expected)]
    assert (states[0], bits(result.arrays)) == (states[1], bits(whole.arrays))


def test_what_only_the_own_start_can_do_is_refused_where_a_wrapper_runs_the_rounds(method, tmp_path):
    run(method, nodes(), output=RunFolder(tmp_path))
    for options, thing in (
        ({"patience": 2}, "patience"),
        ({"evaluate_every": 2}, "num_rounds"),
        ({"output": RunFolder(tmp_path, resume=True)}, "output"),
    ):
        driven = build(method, **options)
        driven.num_rounds = 3 * (thing != "num_rounds")
        with pytest.raises(ConfigError, check=names(thing)):
            Around(driven).start(HandMade(nodes()).grid(), initial(method=method), 3)


def test_settings_are_json_name_every_option_and_tell_the_methods_apart(method):
    settings = build(method).settings()
    assert json.loads(json.dumps(settings)) == settings
    options = set(inspect.signature(METHODS[method].strategy_class).parameters) - COMMON_OPTIONS
    missing = {name.replace("_", "-") for name in options} - set(settings)
    assert missing == ({"every"} if method == "mixture" else set())
    if METHODS[method].takes("beta"):
        assert settings not in [build(other).settings() for other in METHODS if other != method]


def test_options_are_keywords_its_own_first(method):
    owner = METHODS[method].strategy_class
    options = inspect.signature(owner).parameters
    assert {option.kind for option in options.values()} == {inspect.Parameter.KEYWORD_ONLY}
    shared = [name in COMMON_OPTIONS and name not in inspect.get_annotations(owner) for name in options]
    assert shared == sorted(shared)


COMMON = {"min-sources": 1, "warmup-rounds": 0, "learning-rate-factor": 1.0}
WEIGHED = {"beta": 0.5, "auto": False, "source-weights": "examples", "aggregate-on": "server"}
SKETCHES = {"sketch-size": 1024, "estimate-at": "training"}
FEDDA = {**WEIGHED, **SKETCHES, "batch-update-encoding": "norms", "updates": "raw"}
FEDDA_BETA = {**FEDDA, "beta-formula": "definition"}
GATE = {"gate-start": 0.9, "gate-end": 1.0, "gate-rounds": 7}


@pytest.mark.parametrize(
    ("strategy", "own"),
    [
        (
            TargetOnly(min_sources=2, max_update_norm=4),
            {"min-sources": 2, "max-update-norm": 4.0},
        ),
        (FedProx(mu=2), {"weights": "examples", "mu": 2.0}),
        (FedAvgFT(), {"weights": "uniform", "tune": "all"}),
        (
            KD3A(gate_start=0.9, gate_end=1, gate_rounds=7, mixup=False, teacher_bn="eval", momentum=0),
            {**GATE, "mixup": False, "teacher-bn": "eval", "momentum": 0.0},
        ),
        (
            KNNPer(mixing="0.5"),
            {"weights": "examples", "k": 10, "mixing": 0.5, "scale": 1.0, "mix": "probabilities"},
        ),
        (FedDA(beta=(0.25, 1)), {**FEDDA_BETA, "beta": [0.25, 1.0]}),
        (FedDA(beta={"a": 1}, auto=True), {**FEDDA_BETA, "beta": {"a": 1.0}, "auto": True}),
        (FedDAJoint(), {**FEDDA, "auto": True}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_settings_are_the_options_of_the_method(strategy, own):
    assert strategy.settings() == {**COMMON, **own}


def test_the_variants_of_the_adaptive_methods():
    assert FedDA.variants == {
        "reference-code": {"updates": "raw", "source_weights": "examples", "beta_formula": "reference-code"},
        "paper": {"updates": "aligned", "source_weights": "uniform"},
    }
    code = {"granularity": "layer", "magnitude": "reference-code", "beta_formula": "reference-code"}
    paper = {"granularity": "model", "magnitude": "projection", "source_weights": "uniform"}
    assert FedGP.variants == {"reference-code": code, "paper": paper}


# What a method asks of its clients

PERSONAL = {"question": EvaluatePersonal()}
SKETCH = {"sketch-size": 64, "sketch-seed": 2}
SHORTEST = {**SKETCH, "sketch-size": 2}
"""No longer than the model's two numbers; a longer one would be the updates in full."""
AT_START: dict[str, Any] = {"estimate_at": "start", "sketch_size": 64}


@pytest.mark.parametrize(
    ("strategy", "clients", "target", "evaluation"),
    [
        (FedAvg, {}, {}, {}),
        (partial(FedProx, mu=0.25), {"proximal": 0.25}, {}, {}),
        (FedAvgFT, {}, {"question": FineTune()}, PERSONAL),
        (partial(FedAvgFT, tune="head"), {}, {"question": FineTune(part="head")}, PERSONAL),
        (partial(Ditto, lam=0.25), {}, {"question": Personalise(penalty=0.25)}, PERSONAL),
        (
            partial(Ditto, lam=0.25, global_branch="none"),
            {"proximal": 0.25},
            {"question": FineTune()},
            PERSONAL,
        ),
        (
            partial(APFL, mixing=0.75, mix="parameters", adaptive=True, alpha_decay=0.02),
            {},
            {"question": TrainToMix(mixing=0.75, mix="parameters", adaptive=True, alpha_decay=0.02)},
            {"question": EvaluateMix(mix="parameters")},
        ),
        (
            partial(KNNPer, k=7, mixing=0.5, scale=2),
            {},
            {},
            {"question": EvaluateNeighbours(k=7, weight=0.5, scale=2.0)},
        ),
        *(
            (kind, {"question": KeepPart(part=part)}, {}, {"question": EvaluateWithPart(part=part)})
            for kind, part in ((FedPer, "head"), (FedBN, "batch-norm"))
        ),
        (
            partial(FedRep, head_epochs=7, body_epochs=2, final_head_epochs=0),
            {"question": KeepPart(part="head", head_epochs=7), "epochs": 2, "tune": "body"},
            {},
            {"question": EvaluateWithPart(part="head")},
        ),
        (FedDWA, {"question": Guide(keep=False)}, {}, {}),
        (
            partial(FedDWA, evaluate="trained"),
            {"question": Guide(keep=False)},
            {"question": Guide(keep=True)},
            PERSONAL,
        ),
        (
            partial(FedDAF, mu=-2.5),
            {},
            {"question": Blend(mu=-2.5, gradients="alike", statistics="blended", penalty=0.0)},
            {},
        ),
        (partial(IRM, lam=7.0, anneal_steps=0), {"question": Penalise(strength=7.0)}, None, {}),
        (partial(IRM, lam=0.0), {}, None, {}),
        (VREx, {"question": MeasureLoss()}, None, {}),
        (partial(FedDA, auto=True), {}, {"batch-updates": "norms"}, {}),
        (partial(FedDA, estimate_at="start"), {}, {}, {}),
        (partial(FedGP, auto=True, sketch_size=2), {}, {"batch-updates": "sketch", **SHORTEST}, {}),
        (partial(FedGP, auto=True, sketch_size=3), {}, {"batch-updates": "full"}, {}),
        *(
            (partial(kind, **AT_START), {"gradients": "sketch", **SKETCH}, {}, {})
            for kind in (partial(FedDA, auto=True), partial(FedGP, auto=True), FedDAJoint)
        ),
    ],
)
def test_clients_are_told_what_the_method_needs_but_not_in_warm_up_rounds(
    strategy, clients, target, evaluation
):
    federation = HandMade(nodes((0, 3)))
    strategy(warmup_rounds=1).start(federation.grid(), initial(), 2)
    first, *second = federation.configs
    assert first == ("a", {"server-round": 1})
    told = {"server-round": 2, **clients}
    assert dict(second) == {"a": told, **({} if target is None else {"t": {**told, **target}})}
    warmup, headline, *further = federation.evaluations
    assert (warmup, headline) == ({"server-round": 1}, {"server-round": 2, "confusion": True, **evaluation})
    assert all(asked == {"server-round": 2, "beside": True} for asked in further)


# What it asks of their replies


@pytest.mark.usefixtures("bare_replies")
@pytest.mark.parametrize(
    ("kind", "options", "remedy"),
    [
        (Ditto, {}, "'fresh_start'"),
        (APFL, {}, "'fresh_start'"),
        (FedDAF, {}, "'fresh_start'"),
        (FedDWA, {}, "'guidance'"),
        (IRM, {"anneal_steps": 0}, "'penalty'"),
        (VREx, {"anneal_steps": 0}, "'loss_at_start'"),
        *((kind, {}, "'began_in'") for kind in (FedPer, FedRep, FedBN)),
    ],
)
def test_a_reply_without_the_answer_is_dropped(kind, options, remedy):
    strategy, other = kind(**options), failing(None)  # a failure of all alike would end the run
    strategy.start(HandMade(nodes(b=other)).grid(), initial(), options.get("evaluate_every", 1))
    (first, *_) = strategy.history
    assert remedy in first["dropped"][-1]["reason"]
    assert first["held"] is not None


@pytest.mark.parametrize("kind", [IRM, VREx, GroupDRO])
@pytest.mark.parametrize("metric", ["num-steps", "train-loss"])
def test_steps_and_losses_are_required_where_they_count(kind, metric):
    def lacking(model, message):
        content = moves([0.1, -0.7], domain="b")(model, message)
        del content["metrics"][metric]
        return content

    strategy = kind()
    strategy.start(HandMade(nodes(b=lacking)).grid(), initial(), 1)
    needed = metric == "num-steps" or kind is GroupDRO
    assert [f"no '{metric}'" in drop["reason"] for drop in strategy.history[0]["dropped"]] == [True] * needed


# What is refused


@pytest.mark.parametrize(
    ("kind", "option", "value"),
    [
        (FedAvg, "wait_for", -1),
        *((FedAvg, "fraction_train", value) for value in (0.0, 1.5, np.nan)),
        (FedAvg, "min_sources", 0),
        (FedAvg, "max_held_rounds", 0),
        (FedAvg, "warmup_rounds", -1),
        (FedAvg, "learning_rate_factor", 0.0),
        (FedAvg, "query_timeout", -1.0),
        (FedAvg, "query_timeout", np.nan),
        *((FedAvg, "wait_seconds", value) for value in (np.nan, np.inf, -1.0, True)),
        (FedAvg, "max_update_norm", 0.0),
        (FedAvg, "max_update_norm", np.nan),
        (FedAvg, "patience", 0),
        (FedAvg, "evaluate_every", 0),
        (FedAvg, "buffers", "median"),
        (FedAvg, "weights", "size"),
        (SourceOnly, "source_weights", "size"),
        (FedProx, "mu", np.inf),
        (FedAvgFT, "tune", "body"),
        (Ditto, "lam", -0.1),
        (Ditto, "global_branch", "both"),
        (APFL, "mixing", 1.5),
        (APFL, "mix", "both"),
        (APFL, "alpha_decay", -1.0),
        *((KNNPer, "mixing", value) for value in (1.5, -0.1, "nan", "test")),
        (KNNPer, "k", 0),
        (KNNPer, "scale", 0.0),
        (FedRep, "head_epochs", 0),
        (FedRep, "body_epochs", -2),
        (FedRep, "final_head_epochs", -1),
        (FedDAF, "mu", np.inf),
        (FedDAF, "max_update_norm", 1.0),
        (FedDWA, "top", 0),
        (FedDWA, "evaluate", "best"),
        (KD3A, "gate_start", -0.1),
        (KD3A, "gate_end", np.inf),
        (KD3A, "gate_rounds", -1),
        (KD3A, "momentum", 1.0),
        (KD3A, "teacher_bn", "train"),
        (IRM, "lam", np.nan),
        (Ridge, "paths", "all"),
        (Ridge, "max_update_norm", 1.0),
        (VREx, "anneal_steps", -1),
        (GroupDRO, "step_size", np.inf),
        *((FedGP, "beta", value) for value in (-0.1, 1.5, np.nan, [0.5, 2.0], {"a": -1.0})),
        (FedDA, "beta_formula", "mine"),
        (FedGP, "batch_update_encoding", "norms"),
        (FedGP, "sketch_size", 0),
        (FedGP, "estimate_at", "end"),
        (FedGP, "aggregate_on", "client"),
        (Mixture, "views", "some"),
        (Mixture, "every", -1),
        (Mixture, "report", "some"),
        (Mixture, "members", "prior"),
        (Mixture, "members", "sources,sources"),
        (Mixture, "folds", 1),
        (Mixture, "folds", 2.5),
        (Mixture, "epochs", "30,1"),
        (Mixture, "epochs", "1,x"),
        (Mixture, "epochs", 0),
        (Mixture, "epochs", [1.5, 30]),
    ],
)
def test_an_option_that_cannot_work_is_refused(kind, option, value):
    with pytest.raises(ConfigError, check=lambda error: error.thing == option):
        kind(**{option: value})


def test_every_question_of_this_package_is_one_of_a_method():
    ours = {question for question in QUESTIONS.values() if question.__module__.startswith(asked.__name__)}
    methods = [find_method(name) for name in run_names()]
    forms = [form for each in methods for form in (each.strategy, each.every_site) if form is not None]
    of_methods = {each for form in forms for each in getattr(resolve(form), "questions", ())}
    assert ours == {DescribeColumns, *of_methods}


@pytest.mark.parametrize(
    ("method", "options", "source", "target"),
    [
        ("fedavg", {}, "train", "train evaluate"),
        ("source-only", {}, "train", "evaluate"),
        ("target-only", {}, "", "train evaluate"),
        ("target-only", {"warmup_rounds": 5}, "train", "train evaluate"),
        ("fedgp-auto", {"aggregate_on": "target"}, "train", "train evaluate"),
        ("fedavg-ft", {}, "train", "train.fine_tune evaluate evaluate.personal"),
        ("irm", {}, "train.penalise", "evaluate"),
        ("irm", {"lam": 0}, "train", "evaluate"),
        ("kd3a", {}, "train", "train.distil evaluate"),
        ("fada", {}, "train.disentangle", "train.align evaluate"),
        ("fedper", {}, "train.keep_part", "train.keep_part evaluate evaluate.with_part"),
        ("pfedfda", {}, "train.mix_gaussians", "train.mix_gaussians evaluate evaluate.gaussians"),
        ("mixture", {}, "train", "evaluate evaluate.mixture"),
        ("ridge", {}, "train.sum_rows", "train.fit_head evaluate"),
        ("ridge", {"secure": True}, "train.mask_sums", "train.fit_head evaluate"),
        ("flower:Krum", {}, "train", "train evaluate"),
        ("central:erm", {}, "", ""),
    ],
)
def test_a_method_says_which_messages_it_sends_to_each_role(method, options, source, target):
    entry = find_method(method)
    own = {**entry.options, **options}
    columns = {DescribeColumns.message_type()} if source and not own.get("secure") else set()
    assert messages_of(method, "source", **own) == {*source.split(), *columns}
    assert messages_of(method, "target", **own) == {*target.split()}
    if not entry.centralised:
        assert messages_of(method, "source", **own, columns="own") == {*source.split()}


def test_where_every_site_is_a_target_each_is_asked_like_a_source():
    form = of_every_site("ridge").build(secure=True)
    assert form.asked_of("source") == {"train.mask_sums", "train.fit_site_head"}
    assert form.asked_of("target") == frozenset()


@pytest.mark.parametrize("undeclared", ["train", "train.fine_tune"])
def test_a_message_that_the_method_does_not_declare_ends_the_run_before_it_is_sent(undeclared):
    class Undeclared(FedAvg):
        questions = (FineTune,) if undeclared == "train" else ()

        def train_request(self, node, round):
            asked = None if undeclared == "train" else FineTune()
            return replace(super().train_request(node, round), question=asked)

    value = "train" if undeclared == "train" else "FineTune"
    with pytest.raises(RunError, check=names("question", value)):
        Undeclared().start(HandMade(nodes()).grid(), initial(), 1)


@pytest.mark.parametrize(("rounds", "warmup"), [(0, 0), (2, 2)])
def test_the_warm_up_leaves_a_round_to_the_method(rounds, warmup):
    with pytest.raises(ConfigError, check=names("num_rounds", rounds, remedy=f"at least {warmup + 1}")):
        run("fedavg", nodes(), rounds=rounds, warmup_rounds=warmup)
