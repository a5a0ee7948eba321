"""One contract for every strategy of the registry."""

import itertools
import json

import numpy as np
import pytest
from handmade import HandMade, initial, moves, steps_extra, weights

from fda_flower.errors import ConfigError
from fda_flower.files import json_safe
from fda_flower.runs.methods import METHODS
from fda_flower.strategies import (
    KD3A,
    FedDA,
    FedDAJoint,
    FedDWA,
    FedGP,
    FedProx,
    KNNPer,
    RunFolder,
    TargetOnly,
    VREx,
)
from fda_flower.strategies.hooks import COMMON as COMMON_OPTIONS

STEPS = [[0.2, 0.0], [0.0, 0.1], [0.3, 0.3]]
TOTAL = np.sum(STEPS, axis=0)


def build(method, **options):
    if method == "fedgp-auto":
        options["batch_update_encoding"] = "full"
    return METHODS[method].build(**{"warmup_rounds": 0, **options})


def nodes(order=(0, 1, 2, 3), target=None, **replaced):
    answers = {
        "a": moves([0.5, 0.25], domain="a", examples=30),
        "b": moves([0.1, -0.7], domain="b", examples=7),
        "c": moves([-0.3, 0.3], domain="c", examples=11),
        "t": target or moves(TOTAL, "target", "t", examples=5, steps=3, rate=0.1, extra=steps_extra(STEPS)),
        **replaced,
    }
    all_nodes = [("target" if name == "t" else "source", name, answer) for name, answer in answers.items()]
    return [all_nodes[i] for i in order]


def run(method, federation, rounds=1, **options):
    strategy = build(method, **options)
    return strategy.start(HandMade(federation).grid(), initial(), rounds), strategy


def roles_that_train(strategy):
    """The roles that are asked at once, and the target where it is asked later."""
    return strategy.trains | ({"target"} if strategy.asks_again else set())


@pytest.fixture(params=METHODS)
def method(request):
    return request.param


def test_it_moves_the_model_and_records_the_round(method):
    result, strategy = run(method, nodes())
    assert np.isfinite(weights(result)).all()
    assert not np.array_equal(weights(result), [1.0, 2.0])
    (record,) = strategy.history
    assert record["round"] == 1
    assert record["held"] is None
    assert record["dropped"] == []
    assert record["accuracy"] == 0.5
    assert record["bytes-received"] > 0
    assert set(record["seconds"]) == {"train", "aggregate", "evaluate"}


def test_the_order_of_the_nodes_changes_no_bit(method):
    models = {weights(run(method, nodes(order))[0]).tobytes() for order in itertools.permutations(range(4))}
    assert len(models) == 1


def test_it_keeps_types_names_and_shapes(method):
    result, _ = run(method, nodes())
    assert list(result.arrays) == ["w"]
    assert result.arrays["w"].dtype == "float32"
    assert weights(result).shape == (2,)


def test_only_the_roles_that_train_are_asked(method):
    federation = HandMade(nodes())
    strategy = build(method)
    strategy.start(federation.grid(), initial(), 1)
    asked = {"target" if domain == "t" else "source" for domain, _ in federation.configs}
    assert asked == roles_that_train(strategy)


def test_only_sources_train_in_the_initial_rounds_and_are_averaged(method):
    federation = HandMade(nodes())
    strategy = build(method, warmup_rounds=2, learning_rate_factor=0.25)
    result = strategy.start(federation.grid(), initial(), 2 + 1)
    asked = [domain for domain, _ in federation.configs]
    assert asked[:6] == ["a", "b", "c", "a", "b", "c"]
    assert {"target" if domain == "t" else "source" for domain in asked[6:]} == roles_that_train(strategy)
    assert [record["warmup"] for record in strategy.history] == [True, True, False]
    factors = [config.get("rate-factor") for _, config in federation.configs]
    assert factors[:6] == [None] * 6
    assert set(factors[6:]) == {0.25}
    two_rounds, _ = run("source-only", nodes(), rounds=2, source_mean=strategy.source_mean)
    assert not np.array_equal(weights(result), weights(two_rounds))
    initial_part = build(method, warmup_rounds=2)
    stopped = []

    def stop(record):
        stopped.append(initial_part.model["w"].copy())

    initial_part.progress.on_round = stop
    initial_part.start(HandMade(nodes()).grid(), initial(), 3)
    np.testing.assert_array_equal(stopped[1], weights(two_rounds))


@pytest.mark.parametrize(
    "options", [{"warmup_rounds": -1}, {"learning_rate_factor": 0.0}, {"learning_rate_factor": np.inf}]
)
def test_initial_rounds_and_rate_factors_that_cannot_work_are_refused(method, options):
    (name,) = options
    with pytest.raises(ConfigError, match=name):
        build(method, **options)


def test_initial_rounds_leave_a_round_to_the_method(method):
    with pytest.raises(ConfigError, match="at least 3 with 2 warm-up rounds"):
        run(method, nodes(), rounds=2, warmup_rounds=2)


def test_each_variant_can_be_built(method):
    assert set(METHODS[method].variants) == {"reference-code", "paper"}
    for options in METHODS[method].variants.values():
        METHODS[method].build(**options)


def test_one_source_is_enough(method):
    result, strategy = run(method, nodes((0, 3)))
    assert strategy.history[0]["held"] is None
    assert np.isfinite(weights(result)).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_reply_that_is_not_finite_is_dropped_and_named(method, bad):
    federation = nodes(a=moves([bad, 0.0], domain="a"))
    result, strategy = run(method, federation)
    assert np.isfinite(weights(result)).all()
    if "source" in strategy.trains:
        (dropped,) = strategy.history[0]["dropped"]
        assert dropped["domain"] == "a"
        assert "NaN or infinity" in dropped["reason"]
        expected, _ = run(method, nodes((1, 2, 3)))
        np.testing.assert_array_equal(weights(result), weights(expected))


def test_a_missing_reply_is_dropped_and_named(method):
    def fails(model, message):
        raise OSError("disk full")

    _, strategy = run(method, nodes(b=fails))
    if "source" in strategy.trains:
        (dropped,) = strategy.history[0]["dropped"]
        assert dropped["domain"] == "b"
        assert "disk full" in dropped["reason"]


def test_without_usable_replies_the_model_holds_and_the_round_says_so(method):
    def fails(model, message):
        raise OSError("off")

    federation = [(role, name, fails) for role, name, _ in nodes()]
    result, strategy = run(method, federation, rounds=2)
    np.testing.assert_array_equal(weights(result), [1.0, 2.0])
    assert all("usable repl" in record["held"] for record in strategy.history)


def test_too_many_held_rounds_end_the_run_with_an_error(method):
    def fails(model, message):
        raise OSError("off")

    federation = [(role, name, fails) for role, name, _ in nodes()]
    with pytest.raises(RuntimeError, match="could not be updated for 2 rounds in a row"):
        run(method, federation, rounds=5, max_held_rounds=2)


def test_state_survives_a_checkpoint(method, tmp_path):
    whole, _ = run(method, nodes(), rounds=4)
    run(method, nodes(), rounds=2, output=RunFolder(tmp_path))
    resumed, strategy = run(method, nodes(), rounds=4, output=RunFolder(tmp_path, resume=True))
    assert weights(resumed).tobytes() == weights(whole).tobytes()
    assert [record["round"] for record in strategy.history] == [1, 2, 3, 4]
    assert list(resumed.train_metrics_clientapp) == [3, 4]
    on_disk = RunFolder(tmp_path).read_rounds()
    assert on_disk == json_safe(strategy.history)


def test_settings_are_json_and_tell_the_methods_apart(method):
    settings = build(method).settings()
    assert json.loads(json.dumps(settings)) == settings
    if METHODS[method].weighted:
        assert settings not in [build(other).settings() for other in METHODS if other != method]


COMMON = {"min-sources": 1, "warmup-rounds": 0, "learning-rate-factor": 1.0}
WEIGHED = {"beta": 0.5, "auto": False, "source-weights": "examples", "aggregate-on": "server"}
SKETCHES = {"sketch-size": 1024, "estimate-at": "training", "gradient-encoding": "sketch"}
FEDDA = {**WEIGHED, **SKETCHES, "batch-update-encoding": "norms", "updates": "raw"}
FEDDA_BETA = {**FEDDA, "beta-formula": "definition"}
KD3A_GATE = {"gate-start": 0.8, "gate-end": 0.95, "gate-rounds": 0}
KD3A_DEFAULTS = {**KD3A_GATE, "mixup": True, "teacher-bn": "batch", "momentum": 0.9}


@pytest.mark.parametrize(
    ("strategy", "own"),
    [
        (TargetOnly(), {}),
        (FedProx(mu=2), {"weights": "examples", "mu": 2.0}),
        (FedDWA(evaluate="trained"), {"top": 5, "evaluate": "trained"}),
        (
            VREx(lam=3, clip=True),
            {"source-weights": "uniform", "lam": 3.0, "anneal-steps": 500, "clip": True},
        ),
        (
            KD3A(gate_start=0.9, gate_end=1, gate_rounds=7, mixup=False, teacher_bn="eval", momentum=0),
            {**KD3A_DEFAULTS, "gate-start": 0.9, "gate-end": 1.0, "gate-rounds": 7}
            | {"mixup": False, "teacher-bn": "eval", "momentum": 0.0},
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


def test_every_option_is_a_setting(method):
    options = set(METHODS[method].signature.parameters) - COMMON_OPTIONS
    not_settings = {"every"} if method == "mixture" else set()
    found = {name.replace("_", "-") for name in options} - set(build(method).settings())
    assert found == not_settings


def test_the_variants_of_the_adaptive_methods():
    assert dict(FedDA.variants) == {
        "reference-code": {
            "updates": "raw",
            "source_weights": "examples",
            "beta_formula": "reference-code",
        },
        "paper": {"updates": "aligned", "source_weights": "uniform"},
    }
    assert dict(FedGP.variants) == {
        "reference-code": {
            "granularity": "layer",
            "magnitude": "reference-code",
            "beta_formula": "reference-code",
        },
        "paper": {"granularity": "model", "magnitude": "projection", "source_weights": "uniform"},
    }


def test_integer_and_float_buffers_survive(method):
    from flwr.app import Array, ArrayRecord

    model = {
        "w": np.array([1.0, 2.0], np.float32),
        "bn.running_var": np.array([1e-6, 4.0], np.float32),
        "bn.num_batches_tracked": np.array(3),
    }

    def answer(step, role, domain, **kwargs):
        def make(arrays, message):
            from handmade import reply_of

            moved = {
                "w": arrays["w"] + np.float32(step),
                "bn.running_var": arrays["bn.running_var"] * np.float32(step**2),
                "bn.num_batches_tracked": arrays["bn.num_batches_tracked"] + 7,
            }
            return reply_of(moved, role=role, domain=domain, **kwargs)

        return make

    federation = [
        ("source", "a", answer(0.5, "source", "a")),
        ("target", "t", answer(-0.25, "target", "t", extra=steps_extra([[-0.2, -0.1], [-0.05, -0.15]]))),
    ]
    strategy = build(method)
    arrays = ArrayRecord({name: Array(value) for name, value in model.items()})
    result = strategy.start(HandMade(federation).grid(), arrays, 1)
    assert (result.arrays["bn.running_var"].numpy() > 0).all()
    tracked = result.arrays["bn.num_batches_tracked"].numpy()
    assert tracked == 10
    assert tracked.shape == ()
    assert tracked.dtype == np.int64


@pytest.mark.parametrize(
    ("name", "option"),
    [
        *((name, "source_weights") for name in ("source-only", "irm", "feddaf", "fedda", "fedgp")),
        *((name, "weights") for name in ("fedavg", "fedavg-ft", "ditto", "apfl", "knn-per")),
        *((name, "weights") for name in ("fedper", "fedrep", "fedbn", "fedprox")),
    ],
)
def test_weights_of_another_word_are_refused(name, option):
    with pytest.raises(ConfigError, match="weights is 'size': choose examples or uniform"):
        METHODS[name].build(**{option: "size"})


def test_no_strategy_waits_for_less_than_one_node(method):
    with pytest.raises(ConfigError, match="wait_for is 0: it must be at least 1"):
        build(method, wait_for=0)
