import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fda_flower.aggregation import (
    Coefficients,
    FedDA,
    FedGP,
    Geometry,
    Update,
    alignment,
    alignment_by_size,
    combine,
    mean_update,
    source_weights,
)
from fda_flower.aggregation.rules import weighted_mean
from fda_flower.aggregation.updates import BLOCK

deterministic = settings(derandomize=True, deadline=None, max_examples=80)

RULES = [
    FedDA("raw"),
    FedDA("aligned"),
    *(FedGP(g, f, m) for g in ("layer", "model") for f in (True, False) for m in ("projection", "cosine")),
]
PROJECTIONS = [FedGP(g, f, "projection") for g in ("layer", "model") for f in (True, False)]
FILTERED = [FedGP(g, True, m) for g in ("layer", "model") for m in ("projection", "cosine")]


def aggregate(rule, model, target, sources, betas, alphas=None):
    """One round of `rule`, from updates to the new model."""
    alphas = source_weights(sources) if alphas is None else np.asarray(alphas, np.float64)
    geometry = Geometry.of(target, sources)
    coefficients = rule.coefficients(target, sources, geometry, alphas, np.asarray(betas, np.float64))
    return combine(model, target, sources, coefficients)


def assert_layers(got, expected):
    assert list(got) == list(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(got[name], values, rtol=2e-7, atol=1e-7, err_msg=name)


# --- FedDA, by hand ---------------------------------------------------------------------------------


def test_fedda_of_raw_updates_by_hand(make_update):
    model = {"w": np.array([1, 1, 1], np.float32)}
    target = make_update([4, 8, 0])
    a, b = make_update([2, 0, 4], examples=3), make_update([-4, 8, 8], examples=1)
    new = aggregate(FedDA(), model, target, [a, b], betas=[0.5, 0.25])
    # α = 3/4, 1/4: a counts 0.75·0.5 = 0.375, b 0.25·0.25 = 0.0625, the target 1 - 0.4375 = 0.5625.
    assert_layers(
        new,
        {
            "w": [
                1 + 0.5625 * 4 + 0.375 * 2 - 0.0625 * 4,
                1 + 0.5625 * 8 + 0.375 * 0 + 0.0625 * 8,
                1 + 0.5625 * 0 + 0.375 * 4 + 0.0625 * 8,
            ]
        },
    )


def test_fedda_of_aligned_updates_by_hand(make_update):
    model = {"w": np.array([1, 1, 1], np.float32)}
    target = make_update([4, 8, 0], steps=4, rate=0.5)
    a = make_update([2, 0, 4], examples=3, steps=2, rate=0.5)
    b = make_update([-4, 8, 8], examples=1, steps=8, rate=0.5)
    new = aggregate(FedDA("aligned"), model, target, [a, b], betas=[0.5, 0.25])
    # Kη is 2 for the target, 1 for a, 4 for b: in the target's units a is [4, 0, 8] and b is [-2, 4, 4].
    assert_layers(
        new,
        {
            "w": [
                1 + 0.5625 * 4 + 0.375 * 4 - 0.0625 * 2,
                1 + 0.5625 * 8 + 0.375 * 0 + 0.0625 * 4,
                1 + 0.5625 * 0 + 0.375 * 8 + 0.0625 * 4,
            ]
        },
    )


def test_fedda_with_uniform_source_weights_by_hand(make_update):
    model = {"w": np.zeros(3, np.float32)}
    a, b = make_update([4, 0, 0], examples=1000), make_update([0, 8, 0], examples=1)
    sources = [a, b]
    new = aggregate(
        FedDA(), model, make_update([0, 0, 16]), sources, [0.5, 0.5], source_weights(sources, "uniform")
    )
    # Each source counts 0.5·0.5, the target the other half.
    assert_layers(new, {"w": [0.25 * 4, 0.25 * 8, 0.5 * 16]})


def test_fedda_at_beta_one_is_source_only(make_update):
    model = {"w": np.ones(3, np.float32)}
    sources = [make_update([2, 0, 4], examples=3), make_update([-4, 8, 8], examples=1)]
    new = aggregate(FedDA(), model, make_update([5, 6, 7]), sources, betas=[1, 1])
    assert_layers(new, mean_update(model, sources, source_weights(sources)))


# --- FedGP, by hand ---------------------------------------------------------------------------------

# Two layers, three elements. Layer x: ⟨T,a⟩ = 3·1 + 4·2 = 11, ‖a‖² = 5, ‖T‖² = 25; layer y: ⟨T,a⟩ = -4,
# ‖a‖² = 4, ‖T‖² = 4; the model: ⟨T,a⟩ = 7, ‖a‖² = 9, ‖T‖² = 29. Kη is 2 for the target, 0.5 for a, so that
# a aligned is 4a.
P_X, P_Y, P_MODEL = 11 / 5, -4 / 4, 7 / 9
C_X, C_Y, C_MODEL = 4 * 11 / math.sqrt(25 * 5), 4 * -4 / 4, 4 * 7 / math.sqrt(29 * 9)


@pytest.mark.parametrize(
    ("granularity", "filter_on", "magnitude", "on_x", "on_y"),
    [
        ("layer", True, "projection", P_X, 0),
        ("layer", False, "projection", P_X, P_Y),
        ("model", True, "projection", P_MODEL, P_MODEL),
        ("model", False, "projection", P_MODEL, P_MODEL),
        ("layer", True, "cosine", C_X, 0),
        ("layer", False, "cosine", C_X, C_Y),
        ("model", True, "cosine", C_MODEL, C_MODEL),
        ("model", False, "cosine", C_MODEL, C_MODEL),
    ],
)
def test_fedgp_by_hand(make_update, granularity, filter_on, magnitude, on_x, on_y):
    model = {"x": np.array([1, 1], np.float32), "y": np.array([1], np.float32)}
    target = make_update({"x": [3, 4], "y": [-2]}, steps=4, rate=0.5)
    a = make_update({"x": [1, 2], "y": [2]}, steps=1, rate=0.5)
    new = aggregate(FedGP(granularity, filter_on, magnitude), model, target, [a], betas=[0.25])
    assert_layers(
        new,
        {
            "x": [1 + 0.75 * 3 + 0.25 * on_x * 1, 1 + 0.75 * 4 + 0.25 * on_x * 2],
            "y": [1 + 0.75 * -2 + 0.25 * on_y * 2],
        },
    )


@pytest.mark.parametrize(
    ("filter_on", "magnitude", "factor"),
    [
        (True, "projection", 0),
        (False, "projection", -7 / 9),
        (True, "cosine", 0),
        (False, "cosine", 4 * -7 / math.sqrt(29 * 9)),
    ],
)
def test_fedgp_of_the_whole_model_with_an_opposed_source_by_hand(make_update, filter_on, magnitude, factor):
    model = {"x": np.array([0, 0], np.float32), "y": np.array([0], np.float32)}
    target = make_update({"x": [3, 4], "y": [-2]}, steps=4, rate=0.5)
    opposed = make_update({"x": [-1, -2], "y": [-2]}, steps=1, rate=0.5)
    new = aggregate(FedGP("model", filter_on, magnitude), model, target, [opposed], betas=[1])
    assert_layers(new, {"x": [-factor, -2 * factor], "y": [-2 * factor]})


def test_fedgp_of_two_sources_by_hand(make_update):
    model = {"w": np.array([1, 1, 1], np.float32)}
    target = make_update([4, 2, 0])
    a, b = make_update([1, 1, 1], examples=3), make_update([0, 2, -1], examples=1)
    new = aggregate(FedGP(), model, target, [a, b], betas=[0.5, 0.25])
    # P(T|a) = 6/3·a = [2, 2, 2]; P(T|b) = 4/5·b = [0, 1.6, -0.8]; a counts 0.375, b 0.0625, T 0.5625.
    assert_layers(
        new,
        {
            "w": [
                1 + 0.5625 * 4 + 0.375 * 2 + 0.0625 * 0,
                1 + 0.5625 * 2 + 0.375 * 2 + 0.0625 * 1.6,
                1 + 0.5625 * 0 + 0.375 * 2 - 0.0625 * 0.8,
            ]
        },
    )


@pytest.mark.parametrize("rule", PROJECTIONS, ids=str)
def test_fedgp_onto_the_target_itself_is_target_only(make_update, rule):
    model = {"x": np.ones(2, np.float32), "y": np.ones(1, np.float32)}
    target = make_update({"x": [3, 4], "y": [-2]})
    assert_layers(aggregate(rule, model, target, [target], betas=[0.7]), {"x": [4, 5], "y": [-1]})


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_zero_source_adds_nothing(make_update, rule):
    model = {"x": np.ones(2, np.float32), "y": np.ones(1, np.float32)}
    target = make_update({"x": [3, 4], "y": [-2]}, steps=1, rate=1)
    zero = make_update({"x": [0, 0], "y": [0]}, steps=1, rate=1)
    new = aggregate(rule, model, target, [zero], betas=[0.5])
    assert_layers(new, {"x": [1 + 0.5 * 3, 1 + 0.5 * 4], "y": [1 - 0.5 * 2]})


def test_a_layer_where_the_source_did_not_move_adds_nothing_in_that_layer(make_update):
    model = {"x": np.zeros(2, np.float32), "y": np.zeros(1, np.float32)}
    target = make_update({"x": [3, 4], "y": [8]})
    new = aggregate(FedGP(), model, target, [make_update({"x": [0, 0], "y": [2]})], betas=[0.5])
    # On y: ⟨T,a⟩/‖a‖² = 16/4, so P(T|a) = 4·2 = 8.
    assert_layers(new, {"x": [0.5 * 3, 0.5 * 4], "y": [0.5 * 8 + 0.5 * 8]})


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_zero_target_update_is_no_fault(make_update, rule):
    model = {"w": np.ones(3, np.float32)}
    target = make_update([0, 0, 0], steps=1, rate=1)
    new = aggregate(rule, model, target, [make_update([2, 4, 8], steps=1, rate=1)], betas=[0.5])
    assert_layers(new, {"w": [2, 3, 5] if isinstance(rule, FedDA) else [1, 1, 1]})


# --- Alignment and coefficients ---------------------------------------------------------------------


def test_alignment_by_hand(make_update):
    target = make_update([1], steps=4, rate=0.5)
    sources = [make_update([1], steps=k, rate=r) for k, r in ((4, 0.5), (2, 0.5), (10, 0.1), (1, 4))]
    assert alignment(target, sources) == pytest.approx([1, 2, 2, 0.5], rel=1e-15)


def test_alignment_by_size_by_hand(make_update):
    # 100 samples in batches of 16 are 6.25 steps, not 7; 6,000 in batches of 64 are 93, not 94.
    def client(examples, batch_size, steps, rate):
        return replace(make_update([1], examples=examples, steps=steps, rate=rate), batch_size=batch_size)

    target = client(100, 16, 7, 0.005)
    sources = [client(6000, 64, 94, 0.01), client(6000, 64, 93, 0.005), client(40, 64, 1, 0.01)]
    expected = [6.25 / 93 / 2, 6.25 / 93, 6.25 / 1 / 2]
    assert alignment_by_size(target, sources) == pytest.approx(expected, rel=1e-15)


def test_fedgp_of_the_authors_code_by_hand(make_update):
    model = {"w": np.ones(3, np.float32)}
    target = replace(make_update([4, 2, 0], examples=10, steps=3, rate=0.5), batch_size=4)
    agrees = replace(make_update([0, 3, 4], examples=11, steps=3, rate=1.0), batch_size=5)
    opposed = replace(make_update([-1, 0, 0], examples=11, steps=3, rate=1.0), batch_size=5)
    new = aggregate(FedGP(magnitude="reference-code"), model, target, [agrees, opposed], betas=[0.5, 0.5])
    # cos = 6/(√20·5), and the steps are 10/4 at rate ½ against ⌊11/5⌋ at 1: 1.25/2. Each source counts ¼.
    factor = 0.25 * 6 / (5 * math.sqrt(20)) * 1.25 / 2
    assert_layers(new, {"w": [1 + 0.5 * 4, 1 + 0.5 * 2 + 3 * factor, 1 + 4 * factor]})


@pytest.mark.parametrize("silent", ["target", "source"])
@pytest.mark.parametrize("told", [{"batch_size": 0}, {"learning_rate": 0.0}], ids=["no size", "no rate"])
def test_the_authors_code_needs_batch_size_and_learning_rate_of_every_client(make_update, silent, told):
    rule = FedGP(magnitude="reference-code")
    heard = replace(make_update([1, 2, 3], steps=3, rate=0.1), batch_size=4)
    mute = replace(heard, **told)
    target, other = (mute, heard) if silent == "target" else (heard, mute)
    assert rule.needs_scale
    assert rule.needs_batch_size
    with pytest.raises(ValueError, match="batch-size and learning-rate from every client"):
        aggregate(rule, {"w": np.zeros(3, np.float32)}, target, [heard, other], betas=[1, 1])


@pytest.mark.parametrize("rule", [FedDA("aligned"), FedGP(magnitude="cosine")], ids=str)
@pytest.mark.parametrize("silent", ["target", "source"])
@pytest.mark.parametrize("told", [{"steps": 3}, {"rate": 0.1}, {}], ids=["no rate", "no steps", "neither"])
def test_rules_that_align_need_steps_and_learning_rate_of_every_client(make_update, rule, silent, told):
    heard = make_update([1, 2, 3], steps=3, rate=0.1)
    mute = make_update([1, 2, 3], **told)
    target, other = (mute, heard) if silent == "target" else (heard, mute)
    assert rule.needs_scale
    with pytest.raises(ValueError, match="num-steps and learning-rate"):
        aggregate(rule, {"w": np.zeros(3, np.float32)}, target, [heard, other], betas=[1, 1])


@pytest.mark.parametrize("rule", [FedDA("raw"), *PROJECTIONS], ids=str)
def test_rules_that_do_not_align_need_neither(make_update, rule):
    assert not rule.needs_scale
    assert not rule.needs_batch_size
    new = aggregate(
        rule, {"w": np.zeros(3, np.float32)}, make_update([1, 2, 3]), [make_update([1, 2, 3])], [0.5]
    )
    assert_layers(new, {"w": [1, 2, 3]})


def test_coefficients_by_hand(make_update):
    target = make_update({"x": [3, 4], "y": [-2]}, steps=4, rate=0.5)
    a = make_update({"x": [1, 2], "y": [2]}, steps=1, rate=0.5)
    b = make_update({"x": [0, 1], "y": [-1]}, steps=2, rate=0.5)
    geometry = Geometry.of(target, [a, b])
    alphas, betas = np.array([0.75, 0.25]), np.array([0.5, 1.0])

    fedda = FedDA("aligned").coefficients(target, [a, b], geometry, alphas, betas)
    assert fedda.target == 1 - 0.375 - 0.25
    assert fedda.sources.tolist() == [[0.375 * 4] * 2, [0.25 * 2] * 2]
    assert fedda.buffers.tolist() == [0.375, 0.25]  # values of buffers are not rescaled

    fedgp = FedGP().coefficients(target, [a, b], geometry, alphas, betas)
    assert fedgp.target == fedda.target
    np.testing.assert_allclose(fedgp.sources, [[0.375 * 11 / 5, 0], [0.25 * 4, 0.25 * 2]], rtol=1e-15)
    assert fedgp.buffers.tolist() == fedda.buffers.tolist()


def test_default_rules_are_the_raw_combination_and_the_filtered_projection_by_layer():
    assert FedDA() == FedDA(updates="raw")
    assert FedGP() == FedGP(granularity="layer", filter=True, magnitude="projection")


# --- Buffers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_buffers_by_hand(rule):
    model = {
        "w": np.zeros(3, np.float32),
        "bn.running_var": np.ones(3, np.float32),
        "bn.num_batches_tracked": np.array(5),
    }

    def client(variance, batches, examples, steps):
        buffers = {
            "bn.running_var": np.array(variance, np.float32),
            "bn.num_batches_tracked": np.array(batches),
        }
        return Update({"w": np.array([1, -2, 3], np.float32)}, buffers, examples, steps, 0.5)

    target = client([1, 2, 3], 9, examples=5, steps=4)
    sources = [client([5, 2, 11], 100, examples=3, steps=2), client([9, 18, 3], 200, examples=1, steps=8)]
    new = aggregate(rule, model, target, sources, betas=[0.5, 0.25])
    # The combination of FedDA, whatever the rule: a counts 0.375, b 0.0625, the target 0.5625.
    np.testing.assert_allclose(
        new["bn.running_var"],
        [
            0.5625 * 1 + 0.375 * 5 + 0.0625 * 9,
            0.5625 * 2 + 0.375 * 2 + 0.0625 * 18,
            0.5625 * 3 + 0.375 * 11 + 0.0625 * 3,
        ],
        rtol=2e-7,
    )
    assert new["bn.num_batches_tracked"] == 9
    assert list(new) == list(model)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.bool_])
def test_buffers_that_are_not_floats_are_copies_of_the_first(dtype):
    first, second = np.array([1, 0, 1], dtype), np.array([0, 0, 0], dtype)
    mean = weighted_mean([first, second], [0.1, 0.9])
    assert mean.dtype == dtype
    assert mean.tolist() == first.tolist()
    assert not np.shares_memory(mean, first)


def test_weighted_mean_by_hand():
    arrays = [np.array(v, np.float32) for v in ([1, 2, 3], [5, 2, -1])]
    assert weighted_mean(arrays, [0.75, 0.25]).tolist() == [2, 2, 2]


def test_weighted_mean_stays_within_its_inputs_when_the_weights_are_off_by_rounding():
    ones = np.ones(3, np.float64)
    assert weighted_mean([ones, ones], [0.5, 0.5 + 1e-9]).tolist() == [1, 1, 1]
    assert weighted_mean([ones, 3 * ones], [-1e-9, 1 + 1e-9]).tolist() == [3, 3, 3]
    assert weighted_mean([ones, 3 * ones], [1 + 1e-9, -1e-9]).tolist() == [1, 1, 1]


def test_weighted_mean_stays_within_its_inputs_element_by_element():
    agreed = np.array([1.0, 3.0])
    for off in (1e-9, -1e-9):
        assert weighted_mean([agreed, agreed], [0.5, 0.5 + off]).tolist() == [1, 3]


def test_another_number_of_weights_than_clients_is_an_error(make_update):
    model, one = {"w": np.zeros(3)}, make_update([1, 2, 3])
    for weights in ([1.0], [0.5, 0.25, 0.25]):
        with pytest.raises(ValueError, match="zip"):
            mean_update(model, [one, one], np.array(weights))
        with pytest.raises(ValueError, match="zip"):
            weighted_mean([model["w"]] * 2, weights)
        few = Coefficients(0.5, np.full((len(weights), 1), 0.25), np.full(len(weights), 0.25))
        with pytest.raises(ValueError, match="zip"):
            combine(model, one, [one, one], few)


def test_weighted_mean_of_a_buffer_without_dimensions():
    mean = weighted_mean([np.array(1.0, np.float32), np.array(3.0, np.float32)], [0.5, 0.5])
    assert isinstance(mean, np.ndarray)
    assert mean.shape == ()
    assert mean.dtype == np.float32
    assert mean == 2.0


# --- The baselines ----------------------------------------------------------------------------------


def client_of(values, examples, variance, batches):
    buffers = {
        "bn.running_var": np.array(variance, np.float32),
        "bn.num_batches_tracked": np.array(batches),
    }
    return Update({"w": np.array(values, np.float32)}, buffers, examples)


@pytest.mark.parametrize(
    ("who", "weights", "expected", "variance", "batches"),
    [
        # Source Only: (3a + b)/4.
        (
            ["a", "b"],
            [0.75, 0.25],
            [1 + 1.5 - 1, 1 + 0 + 2, 1 + 3 + 2],
            [0.75 * 4 + 0.25 * 8, 0.75 * 8 + 0.25 * 4, 1],
            3,
        ),
        # FedAvg: (4T + 3a + b)/8.
        (
            ["target", "a", "b"],
            [0.5, 0.375, 0.125],
            [1 + 2 + 0.75 - 0.5, 1 + 4 + 0 + 1, 1 + 0 + 1.5 + 1],
            [0.5 * 16 + 0.375 * 4 + 0.125 * 8, 0.5 * 16 + 0.375 * 8 + 0.125 * 4, 1],
            9,
        ),
        # Target Only.
        (["target"], [1.0], [1 + 4, 1 + 8, 1 + 0], [16, 16, 1], 9),
    ],
    ids=["source only", "fedavg", "target only"],
)
def test_mean_update_by_hand(who, weights, expected, variance, batches):
    model = {
        "w": np.ones(3, np.float32),
        "bn.running_var": np.ones(3, np.float32),
        "bn.num_batches_tracked": np.array(0),
    }
    clients = {
        "target": client_of([4, 8, 0], 4, [16, 16, 1], 9),
        "a": client_of([2, 0, 4], 3, [4, 8, 1], 3),
        "b": client_of([-4, 8, 8], 1, [8, 4, 1], 1),
    }
    chosen = [clients[name] for name in who]
    assert source_weights(chosen).tolist() == weights
    new = mean_update(model, chosen, np.array(weights))
    assert_layers(new, {"w": expected, "bn.running_var": variance, "bn.num_batches_tracked": batches})


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_what_no_client_has_changed_keeps_its_bits(dtype):
    rng = np.random.default_rng(0)
    model = {
        "w": np.array([-0.0, 0.0, 1e-7, 0.1], dtype),
        "bn.running_var": rng.random(1000).astype(dtype),
        "bn.num_batches_tracked": np.array(5),
    }
    clients = [Update.between(model, model, n) for n in (3, 5, 7)]
    new = mean_update(model, clients, source_weights(clients))
    assert {name: array.tobytes() for name, array in new.items()} == {
        name: array.tobytes() for name, array in model.items()
    }
    assert not any(new[name] is model[name] for name in model)


# --- Types, order, precision, memory ----------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("rule", [FedDA(), FedGP(), FedGP("model", magnitude="cosine")], ids=str)
def test_the_new_model_has_names_shapes_and_types_of_the_old(make_update, rule, dtype):
    shapes = {"z": (2, 3), "a": (), "m": (0,)}
    model = {name: np.ones(shape, dtype) for name, shape in shapes.items()}
    client = make_update(model, steps=1, rate=1, dtype=dtype)
    new = aggregate(rule, model, client, [client], betas=[0.5])
    assert [(n, a.shape, a.dtype) for n, a in new.items()] == [(n, s, dtype) for n, s in shapes.items()]
    assert all(isinstance(array, np.ndarray) for array in new.values())
    assert all((array == 2).all() for array in new.values())


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_the_round_leaves_model_and_updates_as_they_are(make_update, rule):
    values = [[1, 2, 3], [3, 4, 5], [1, -2, 2]]
    model, target, source = (make_update(v, steps=1, rate=1) for v in values)
    aggregate(rule, model.parameters, target, [source], betas=[0.5])
    assert [u.parameters["w"].tolist() for u in (model, target, source)] == values


def test_many_small_sources_are_not_lost_beside_a_large_parameter(make_update):
    # Above 2**24 neighbouring float32 numbers are 2 apart: 8 steps of 0.5 one by one would change nothing.
    model = {"w": np.full(3, 2**24, np.float32)}
    sources = [make_update([4, 4, 4]) for _ in range(8)]
    new = mean_update(model, sources, np.full(8, 1 / 8))
    in_float32 = model["w"]
    for source in sources:
        in_float32 = in_float32 + np.float32(1 / 8) * source.parameters["w"]
    assert in_float32.tolist() == [2**24] * 3
    assert new["w"].tolist() == [2**24 + 4] * 3


def test_the_projection_of_a_long_layer_is_not_spoilt_by_float32(make_update):
    # a = [10 000, 1, …, 1], T = [1, …, 1]: ⟨T,a⟩ = 1e4 + 4e6 and ‖a‖² = 1e8 + 4e6. Added up in float32 the
    # square stops at 1e8, and the coefficient comes out 4 % too large.
    values = np.ones(4_000_001, np.float32)
    values[0] = 10_000
    assert np.cumsum(values * values, dtype=np.float32)[-1] == 1e8
    target, a = make_update(np.ones_like(values)), make_update(values)
    coefficients = FedGP().coefficients(target, [a], Geometry.of(target, [a]), np.ones(1), np.ones(1))
    assert coefficients.sources.tolist() == [[(1e4 + 4e6) / (1e8 + 4e6)]]


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_the_new_model_does_not_depend_on_memory_order(rule):
    rng = np.random.default_rng(7)
    arrays = rng.standard_normal((4, BLOCK // 64 + 1, 80)).astype(np.float32)
    variances = rng.uniform(0.1, 2, (4, 30, 40)).astype(np.float32)

    def round_of(arrange):
        clients = [
            Update({"w": arrange(w)}, {"bn.running_var": arrange(v)}, 1, 2, 0.1)
            for w, v in zip(arrays[1:], variances[1:], strict=True)
        ]
        model = {"w": arrange(arrays[0]), "bn.running_var": arrange(variances[0])}
        return aggregate(rule, model, clients[0], clients[1:], betas=[0.3, 0.9])

    plain = round_of(np.ascontiguousarray)
    strided, backwards = (lambda a: np.repeat(a, 2, axis=1)[:, ::2]), (lambda a: a[::-1].copy()[::-1])
    for arrange in (np.asfortranarray, strided, backwards):
        other = round_of(arrange)
        for name, array in plain.items():
            assert array.tobytes() == other[name].tobytes()


# --- Properties -------------------------------------------------------------------------------------

# A round is the slow part of an example, so each property checks all its rules on the same round.

SHAPES = {"x": (2, 3), "y": (3,), "z": ()}
TINY = [float(np.float32(v)) for v in (1e-38, 1e-30, 2e-30, 1e-12)]
LARGE = float(np.float32(1e30))

numbers = st.floats(-100, 100, width=32).map(lambda x: 0.0 if abs(x) < 1e-15 else x)
variances = st.sampled_from(TINY) | st.floats(TINY[1], LARGE, width=32)


@st.composite
def clients(draw):
    flat = np.array(draw(st.lists(numbers, min_size=10, max_size=10)), np.float32)
    parameters = {"x": flat[:6].reshape(2, 3), "y": flat[6:9], "z": flat[9].reshape(())}
    buffers: dict[str, np.ndarray] = {
        "bn.running_mean": flat[3:6] / 2 + flat[:3],
        "bn.running_var": np.array(draw(st.lists(variances, min_size=3, max_size=3)), np.float32),
        "bn.num_batches_tracked": np.array(draw(st.integers(0, 10**9))),
    }
    steps, rate = draw(st.integers(1, 20)), draw(st.sampled_from([0.001, 0.01, 0.1, 0.5]))
    return Update(parameters, buffers, draw(st.integers(1, 1000)), steps, rate)


@st.composite
def rounds(draw):
    """A model, the target, one to four sources, and a β for each source."""
    before, target = draw(clients()), draw(clients())
    sources = draw(st.lists(clients(), min_size=1, max_size=4))
    betas = draw(st.lists(st.floats(0, 1), min_size=len(sources), max_size=len(sources)))
    return {**before.parameters, **before.buffers}, target, sources, betas


def with_parameters(client, parameters):
    return replace(client, parameters={n: np.asarray(a, np.float32) for n, a in parameters.items()})


def assert_same_bits(got, expected, rule):
    assert list(got) == list(expected)
    for name, array in expected.items():
        assert got[name].dtype == array.dtype
        assert got[name].tobytes() == array.tobytes(), f"{name} by {rule}"


def assert_close(got, expected, rule, tolerance):
    for name in SHAPES:
        np.testing.assert_allclose(
            got[name], expected[name], rtol=0, atol=tolerance, err_msg=f"{name} by {rule}"
        )


def size_of(layers):
    return max(float(np.abs(layers[name]).max()) for name in SHAPES)


@given(round_=rounds())
@deterministic
def test_beta_zero_is_target_only_bit_for_bit(round_):
    model, target, sources, _ = round_
    alone = mean_update(model, [target], np.ones(1))
    for rule in RULES:
        assert_same_bits(aggregate(rule, model, target, sources, np.zeros(len(sources))), alone, rule)


@given(round_=rounds(), exponents=st.lists(st.integers(-30, 30), min_size=4, max_size=4))
@deterministic
def test_fedgp_does_not_depend_on_the_scale_of_a_source(round_, exponents):
    model, target, sources, betas = round_
    # Powers of two scale without rounding, so the result is the same to the last bit.
    scaled = [
        with_parameters(source, {n: a * 2.0**e for n, a in source.parameters.items()})
        for source, e in zip(sources, exponents, strict=False)
    ]
    for rule in PROJECTIONS:
        expected = aggregate(rule, model, target, sources, betas)
        assert_same_bits(aggregate(rule, model, target, scaled, betas), expected, rule)


@given(round_=rounds(), factor=st.floats(1e-6, 1e6))
@deterministic
def test_fedgp_depends_on_any_other_scale_by_rounding_only(round_, factor):
    model, target, sources, betas = round_
    scaled = [with_parameters(s, {n: a * factor for n, a in s.parameters.items()}) for s in sources]
    tolerance = 1e-6 * (size_of(model) + 10 * size_of(target.parameters))
    for rule in PROJECTIONS:
        expected = aggregate(rule, model, target, sources, betas)
        assert_close(aggregate(rule, model, target, scaled, betas), expected, rule, tolerance)


@given(round_=rounds(), opposition=st.lists(st.floats(0, 100), min_size=2, max_size=2))
@deterministic
def test_an_orthogonal_or_opposed_source_adds_nothing_when_filtered(round_, opposition):
    model, target, sources, betas = round_
    even = {n: np.arange(a.size).reshape(a.shape) % 2 == 0 for n, a in target.parameters.items()}
    target = with_parameters(target, {n: np.where(even[n], a, 0) for n, a in target.parameters.items()})
    # Without its even places a source is orthogonal to the target in every layer; with a negative multiple
    # of the target in them it is opposed.
    others = [
        with_parameters(
            source, {n: np.where(even[n], -c * target.parameters[n], a) for n, a in source.parameters.items()}
        )
        for source in sources
        for c in (0.0, *opposition)
    ]
    alphas, betas = np.full(len(others), 1 / len(others)), np.repeat(betas, 3)
    expected = mean_update(model, [target], np.array([1 - (alphas * betas).sum()]))
    geometry = Geometry.of(target, others)
    for rule in FILTERED:
        assert not rule.coefficients(target, others, geometry, alphas, betas).sources.any()
        new = aggregate(rule, model, target, others, betas, alphas)
        assert_same_bits({n: new[n] for n in SHAPES}, {n: expected[n] for n in SHAPES}, rule)


@given(data=st.data(), round_=rounds())
@deterministic
def test_the_order_of_the_sources_matters_by_rounding_only(data, round_):
    model, target, sources, betas = round_
    order = data.draw(st.permutations(range(len(sources))))
    sizes = [size_of(u.parameters) * r for u, r in zip(sources, alignment(target, sources), strict=True)]
    sizes += [size_of(layers) for layers in (model, *(u.parameters for u in (target, *sources)))]
    for rule in RULES:
        new = aggregate(rule, model, target, sources, betas)
        other = aggregate(rule, model, target, [sources[i] for i in order], [betas[i] for i in order])
        assert_close(new, other, rule, 1e-6 * max(sizes))
        np.testing.assert_allclose(new["bn.running_var"], other["bn.running_var"], rtol=1e-6)
        np.testing.assert_allclose(new["bn.running_mean"], other["bn.running_mean"], rtol=0, atol=1e-4)
        assert new["bn.num_batches_tracked"] == other["bn.num_batches_tracked"]


def assert_variances_between(new, inputs, rule):
    new, inputs = new["bn.running_var"], [client.buffers["bn.running_var"] for client in inputs]
    assert (new > 0).all(), str(rule)
    assert (new >= np.min(inputs, axis=0)).all(), str(rule)
    assert (new <= np.max(inputs, axis=0)).all(), str(rule)


@given(round_=rounds())
@deterministic
def test_running_variances_stay_positive_and_between_those_of_the_clients(round_):
    model, target, sources, betas = round_
    everyone = [target, *sources]
    for rule in RULES:
        assert_variances_between(aggregate(rule, model, target, sources, betas), everyone, rule)
    assert_variances_between(mean_update(model, everyone, source_weights(everyone)), everyone, "the mean")


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_tiny_running_variances_stay_as_they_are_if_all_clients_agree(make_update, rule, beta):
    tiny = np.array([1e-30, 1e-38, 1e-45], np.float32)
    client = make_update([1, 2, 3], buffers={"bn.running_var": tiny}, steps=1, rate=0.1)
    model = {"w": np.zeros(3, np.float32), "bn.running_var": np.ones(3, np.float32)}
    new = aggregate(rule, model, client, [client] * 3, betas=[beta] * 3)
    assert np.array_equal(new["bn.running_var"], tiny)


@given(round_=rounds())
@deterministic
def test_integer_buffers_are_those_of_the_target(round_):
    model, target, sources, betas = round_
    for rule in RULES:
        new = aggregate(rule, model, target, sources, betas)["bn.num_batches_tracked"]
        assert isinstance(new, np.ndarray)
        assert new.dtype == np.int64
        assert new == target.buffers["bn.num_batches_tracked"]
        assert not np.shares_memory(new, target.buffers["bn.num_batches_tracked"])


@given(round_=rounds(), steps=st.integers(1, 50), rate=st.floats(1e-4, 1))
@deterministic
def test_aligned_fedda_of_sources_with_the_scale_of_the_target_is_raw(round_, steps, rate):
    model, target, sources, betas = round_
    target, *sources = (replace(u, steps=steps, learning_rate=rate) for u in (target, *sources))
    raw, aligned = (aggregate(FedDA(u), model, target, sources, betas) for u in ("raw", "aligned"))
    assert_same_bits(aligned, raw, "FedDA")


@given(round_=rounds())
@deterministic
def test_the_filter_changes_nothing_where_every_layer_agrees(round_):
    model, target, sources, betas = round_
    agreeing = [
        with_parameters(s, {n: np.copysign(a, target.parameters[n]) for n, a in s.parameters.items()})
        for s in sources
    ]
    for g in ("layer", "model"):
        for m in ("projection", "cosine"):
            on, off = (aggregate(FedGP(g, f, m), model, target, agreeing, betas) for f in (True, False))
            assert_same_bits(on, off, f"FedGP of {g} and {m}")


@given(round_=rounds())
@deterministic
def test_granularity_changes_nothing_in_a_model_of_one_layer(round_):
    model, target, sources, betas = round_
    target, *sources = (with_parameters(u, {"x": u.parameters["x"]}) for u in (target, *sources))
    model = {"x": model["x"]}
    for f in (True, False):
        for m in ("projection", "cosine"):
            layer, whole = (
                aggregate(FedGP(g, f, m), model, target, sources, betas) for g in ("layer", "model")
            )
            assert_same_bits(layer, whole, f"FedGP with filter {f} and {m}")


@given(round_=rounds())
@deterministic
def test_a_filtered_projection_is_never_longer_than_the_target_and_never_against_it(round_):
    _, target, sources, _ = round_
    geometry, one = Geometry.of(target, sources), np.ones(len(sources))
    for g in ("layer", "model"):
        factors = FedGP(g).coefficients(target, sources, geometry, one, one).sources
        for factor, source in zip(factors, sources, strict=True):
            theirs, owns = (
                [update.parameters[n].ravel().astype(np.float64) for n in SHAPES]
                for update in (source, target)
            )
            projections = [f * layer for f, layer in zip(factor, theirs, strict=True)]
            if g == "model":
                projections, owns = [np.concatenate(projections)], [np.concatenate(owns)]
            for projection, own in zip(projections, owns, strict=True):
                assert np.linalg.norm(projection) <= np.linalg.norm(own) * (1 + 1e-12)
                assert projection @ own >= 0
                # What is left of the target is orthogonal to the source, unless the filter dropped it.
                assert abs(projection @ (own - projection)) <= 1e-12 * (own @ own)
