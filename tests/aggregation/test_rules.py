"""The rules and the averages of models: by hand, and what always holds."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fda_flower.aggregation import (
    FedDA,
    FedGP,
    Geometry,
    MovingAverage,
    TailAverage,
    Update,
    combine,
    mean_update,
    source_weights,
)
from fda_flower.aggregation.rules import Coefficients, alignment, alignment_by_size, weighted_mean
from fda_flower.clients.settings import LocalTraining

examples = settings(max_examples=80)

RULES = [
    FedDA("raw"),
    FedDA("aligned"),
    *(FedGP(g, f, m) for g in ("layer", "model") for f in (True, False) for m in ("projection", "cosine")),
]
PROJECTIONS = [FedGP(g, f, "projection") for g in ("layer", "model") for f in (True, False)]


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


# --- FedDA and FedGP, by hand -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "a", "b"),
    [
        (FedDA(), [2, 0, 4], [-4, 8, 8]),
        # Kη is 2 for the target, 1 for a, 4 for b: in the target's units a is doubled and b halved.
        (FedDA("aligned"), [4, 0, 8], [-2, 4, 4]),
        # P(T|a) = 24/20·a, P(T|b) = 80/144·b.
        (FedGP("model"), [2.4, 0, 4.8], [-20 / 9, 40 / 9, 40 / 9]),
    ],
    ids=str,
)
def test_two_sources_by_hand(make_update, rule, a, b):
    target = make_update([4, 8, 4], steps=4, rate=0.5)
    sources = [
        make_update([2, 0, 4], examples=3, steps=2, rate=0.5),
        make_update([-4, 8, 8], examples=1, steps=8, rate=0.5),
    ]
    new = aggregate(rule, {"w": np.ones(3, np.float32)}, target, sources, betas=[0.5, 0.25])
    # α = 3/4, 1/4: a counts 0.75·0.5 = 0.375, b 0.25·0.25 = 0.0625, the target 1 - 0.4375 = 0.5625.
    expected = 1 + 0.5625 * np.array([4, 8, 4]) + 0.375 * np.array(a) + 0.0625 * np.array(b)
    assert_layers(new, {"w": expected})


# Two layers, three elements. Layer x: ⟨T,a⟩ = 3·1 + 4·2 = 11, ‖a‖² = 5, ‖T‖² = 25; layer y: ⟨T,a⟩ = -4,
# ‖a‖² = 4, ‖T‖² = 4; the model: ⟨T,a⟩ = 7, ‖a‖² = 9, ‖T‖² = 29. Kη is 2 for the target, 0.5 for a, so that
# a aligned is 4a. The opposed source is -a on x and a on y, so that in the model ⟨T,a⟩ = -15.
P_X, P_Y, P_MODEL = 11 / 5, -4 / 4, 7 / 9
C_X, C_Y, C_MODEL = 4 * 11 / math.sqrt(25 * 5), 4 * -4 / 4, 4 * 7 / math.sqrt(29 * 9)


@pytest.mark.parametrize(
    ("granularity", "filter_on", "magnitude", "on_x", "on_y", "opposed"),
    [
        ("layer", True, "projection", P_X, 0, (0, 0)),
        ("layer", False, "projection", P_X, P_Y, (-P_X, P_Y)),
        ("model", True, "projection", P_MODEL, P_MODEL, (0, 0)),
        ("model", False, "projection", P_MODEL, P_MODEL, (-15 / 9, -15 / 9)),
        ("layer", True, "cosine", C_X, 0, (0, 0)),
        ("layer", False, "cosine", C_X, C_Y, (-C_X, C_Y)),
        ("model", True, "cosine", C_MODEL, C_MODEL, (0, 0)),
        ("model", False, "cosine", C_MODEL, C_MODEL, (-15 / 7 * C_MODEL, -15 / 7 * C_MODEL)),
    ],
)
def test_fedgp_by_hand(make_update, granularity, filter_on, magnitude, on_x, on_y, opposed):
    rule, model = FedGP(granularity, filter_on, magnitude), {"x": np.ones(2, np.float32), "y": np.ones(1)}
    target = make_update({"x": [3, 4], "y": [-2]}, steps=4, rate=0.5)
    for sign, (x, y) in ((1, (on_x, on_y)), (-1, opposed)):
        source = make_update({"x": [sign * 1, sign * 2], "y": [2]}, steps=1, rate=0.5)
        new = aggregate(rule, model, target, [source], betas=[0.25])
        on_layer_x = [1 + 0.75 * own + 0.25 * x * sign * theirs for own, theirs in ((3, 1), (4, 2))]
        assert_layers(new, {"x": on_layer_x, "y": [1 + 0.75 * -2 + 0.25 * y * 2]})


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_updates_of_zero_add_nothing(make_update, rule):
    model = {"x": np.ones(2, np.float32), "y": np.ones(1, np.float32)}
    target = make_update({"x": [3, 4], "y": [-2]}, steps=1, rate=1)
    still = make_update({"x": [0, 0], "y": [0]}, steps=1, rate=1)
    new = aggregate(rule, model, target, [still], betas=[0.5])
    assert_layers(new, {"x": [1 + 0.5 * 3, 1 + 0.5 * 4], "y": [1 - 0.5 * 2]})
    new = aggregate(rule, model, still, [target], betas=[0.5])
    assert_layers(new, {"x": [2.5, 3], "y": [0]} if isinstance(rule, FedDA) else model)
    if rule in PROJECTIONS:  # onto the target itself
        assert_layers(aggregate(rule, model, target, [target], betas=[0.7]), {"x": [4, 5], "y": [-1]})


# --- Alignment ----------------------------------------------------------------------------------------


def client(examples, batch_size, steps, rate, values=(1,)):
    return Update({"w": np.array(values, np.float32)}, {}, examples, steps, rate, batch_size)


def test_alignments_by_hand():
    target = client(1, 0, 4, 0.5)
    sources = [client(1, 0, steps, rate) for steps, rate in ((4, 0.5), (2, 0.5), (10, 0.1), (1, 4))]
    assert alignment(target, sources) == pytest.approx([1, 2, 2, 0.5], rel=1e-15)
    # 100 samples in batches of 16 are 6.25 steps, not 7; 6,000 in batches of 64 are 93, not 94.
    target = client(100, 16, 7, 0.005)
    sources = [client(6000, 64, 94, 0.01), client(6000, 64, 93, 0.005), client(40, 64, 1, 0.01)]
    expected = [6.25 / 93 / 2, 6.25 / 93, 6.25 / 1 / 2]
    assert alignment_by_size(target, sources) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize(("samples", "size"), [(6000, 64), (100, 32), (96, 32), (20, 32)])
@pytest.mark.parametrize("drops", [False, True])
def test_local_epochs_count_at_the_target_and_divide_at_a_source(samples, size, drops):
    cut = LocalTraining(0.5, size, batches="drop-last" if drops else "even")

    def trained(epochs):
        return client(samples, size, replace(cut, epochs=epochs).steps(samples), 0.5)

    (once,) = alignment_by_size(trained(1), [trained(1)])
    assert once == samples / size / max(samples // size, 1)
    for epochs in (2, 3):
        assert alignment_by_size(trained(epochs), [trained(1)]) == pytest.approx([epochs * once])
        assert alignment_by_size(trained(1), [trained(epochs)]) == pytest.approx([once / epochs])


def test_fedgp_of_the_authors_code_by_hand():
    target = client(10, 4, 3, 0.5, [4, 2, 0])
    sources = [client(11, 5, 3, 1.0, values) for values in ([0, 3, 4], [-1, 0, 0])]
    rule, model = FedGP(magnitude="reference-code"), {"w": np.ones(3, np.float32)}
    new = aggregate(rule, model, target, sources, betas=[0.5, 0.5])
    # cos = 6/(√20·5), and the steps are 10/4 at rate ½ against ⌊11/5⌋ at 1: 1.25/2. Each source counts ¼.
    factor = 0.25 * 6 / (5 * math.sqrt(20)) * 1.25 / 2
    assert_layers(new, {"w": [1 + 0.5 * 4, 1 + 0.5 * 2 + 3 * factor, 1 + 4 * factor]})


NO_STEPS, NO_RATE = {"steps": 0}, {"learning_rate": 0.0}


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        *((FedGP(magnitude="reference-code"), told) for told in ({"batch_size": 0}, NO_STEPS, NO_RATE)),
        *(
            (rule, told)
            for rule in (FedDA("aligned"), FedGP(magnitude="cosine"))
            for told in (NO_STEPS, NO_RATE)
        ),
    ],
)
def test_rules_that_align_need_what_they_align_by_of_every_client(rule, told):
    heard = client(11, 4, 3, 0.1, [1, 2, 3])
    mute = replace(heard, **told)
    assert rule.needs_scale
    assert rule.needs_batch_size == (rule.magnitude == "reference-code" if isinstance(rule, FedGP) else False)
    for target, source in ((mute, heard), (heard, mute)):
        with pytest.raises(ValueError, match="learning-rate"):
            aggregate(rule, {"w": np.zeros(3, np.float32)}, target, [heard, source], betas=[1, 1])


@pytest.mark.parametrize("rule", [FedDA("raw"), *PROJECTIONS], ids=str)
def test_rules_that_do_not_align_as_by_default_need_nothing(make_update, rule):
    assert (FedDA(), FedGP()) == (FedDA("raw"), FedGP("layer", True, "projection"))
    assert not rule.needs_scale
    assert not rule.needs_batch_size
    update = make_update([1, 2, 3])
    assert_layers(aggregate(rule, {"w": np.zeros(3, np.float32)}, update, [update], [0.5]), {"w": [1, 2, 3]})


# --- Buffers and baselines ----------------------------------------------------------------------------


def with_buffers(values, examples, variance, batches):
    buffers = {
        "bn.running_var": np.array(variance, np.float32),
        "bn.num_batches_tracked": np.array(batches),
    }
    return Update({"w": np.array(values, np.float32)}, buffers, examples, 1 + examples, 0.5)


MODEL = {
    "w": np.ones(3, np.float32),
    "bn.running_var": np.ones(3, np.float32),
    "bn.num_batches_tracked": np.array(0),
}


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_buffers_by_hand(rule):
    target, *sources = (
        with_buffers([1, -2, 3], examples, variance, batches)
        for examples, variance, batches in ((5, [1, 2, 3], 9), (3, [5, 2, 11], 100), (1, [9, 18, 3], 200))
    )
    new = aggregate(rule, MODEL, target, sources, betas=[0.5, 0.25])
    # The combination of FedDA, whatever the rule: a counts 0.375, b 0.0625, the target 0.5625.
    expected = 0.5625 * np.array([1, 2, 3]) + 0.375 * np.array([5, 2, 11]) + 0.0625 * np.array([9, 18, 3])
    np.testing.assert_allclose(new["bn.running_var"], expected, rtol=2e-7)
    assert new["bn.num_batches_tracked"] == 9
    assert list(new) == list(MODEL)


def test_a_mean_stays_within_its_inputs_though_the_weights_are_off_by_rounding():
    one, three = np.array([1.0, 3.0]), np.array([3.0, 9.0])
    assert weighted_mean([one, one], [0.5, 0.5 + 1e-9]).tolist() == [1, 3]
    assert weighted_mean([one, three], [-1e-9, 1 + 1e-9]).tolist() == [3, 9]


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


def test_the_mean_of_a_buffer_without_dimensions_or_of_flags_keeps_its_type():
    mean = weighted_mean([np.array(1.0, np.float32), np.array(3.0, np.float32)], [0.5, 0.5])
    assert isinstance(mean, np.ndarray)
    assert (mean.tolist(), mean.dtype) == (2, np.dtype(np.float32))
    flags = np.array([True, False])
    assert weighted_mean([flags, ~flags], [0.1, 0.9]).tolist() == [True, False]


@pytest.mark.parametrize(
    ("who", "weights", "batches"),
    [
        (["a", "b"], [0.75, 0.25], 3),
        (["target", "a", "b"], [0.5, 0.375, 0.125], 9),
        (["target"], [1.0], 9),
    ],
    ids=["source only", "fedavg", "target only"],
)
def test_mean_update_by_hand(who, weights, batches):
    clients = {
        "target": with_buffers([4, 8, 0], 4, [16, 16, 1], 9),
        "a": with_buffers([2, 0, 4], 3, [4, 8, 1], 3),
        "b": with_buffers([-4, 8, 8], 1, [8, 4, 1], 1),
    }
    chosen = [clients[name] for name in who]
    assert source_weights(chosen).tolist() == weights
    expected = 1 + sum(w * c.parameters["w"] for w, c in zip(weights, chosen, strict=True))
    variance = sum(w * c.buffers["bn.running_var"] for w, c in zip(weights, chosen, strict=True))
    new = mean_update(MODEL, chosen, np.array(weights))
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
    assert {n: a.tobytes() for n, a in new.items()} == {n: a.tobytes() for n, a in model.items()}
    assert not any(new[name] is model[name] for name in model)


# --- Averages of the rounds' models -------------------------------------------------------------------


def averages(rule, models):
    """The average after each of the models."""
    kept, found = (), []
    for model in models:
        kept = rule.add(kept, model)
        found.append(rule.average(kept))
    return found


def models_of(*values):
    return [{"w": np.array(value, np.float32)} for value in values]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        # 3/4 of the average, 1/4 of the new model
        (MovingAverage(0.75), [[1, 0, -4], [1.5, 2, -3], [2.375, 2.5, -1.75]]),
        (TailAverage(2), [[1, 0, -4], [2, 4, -2], [4, 6, 1]]),
        (TailAverage(1), [[1, 0, -4], [3, 8, 0], [5, 4, 2]]),
    ],
    ids=str,
)
def test_averages_by_hand(rule, expected):
    models = models_of([1, 0, -4], [3, 8, 0], [5, 4, 2])
    assert [average["w"].tolist() for average in averages(rule, models)] == expected
    assert [model["w"].tolist() for model in models] == [[1, 0, -4], [3, 8, 0], [5, 4, 2]]


def test_statistics_are_averaged_and_counters_are_the_last_ones():
    models = [
        {"bn.running_var": np.array(var, np.float64), "bn.num_batches_tracked": np.array(count)}
        for var, count in ((1e-9, 3), (2.0, 5), (4.0, 11))
    ]
    for rule, variance in ((MovingAverage(0.5), 2.5), (TailAverage(2), 3.0)):
        last = averages(rule, models)[-1]
        assert last == {"bn.running_var": pytest.approx(variance), "bn.num_batches_tracked": 11}
        assert [(a.dtype, a.shape) for a in last.values()] == [(np.float64, ()), (np.int64, ())]


def test_averages_are_of_higher_precision_than_the_models():
    (value,) = averages(TailAverage(3), models_of([1e8], [1.0], [-1e8]))[-1]["w"]
    assert value == pytest.approx(1 / 3, rel=1e-6)


AVERAGES = st.one_of(
    st.floats(0, 1, exclude_min=True, exclude_max=True).map(MovingAverage),
    st.integers(1, 9).map(TailAverage),
)


@given(st.lists(st.floats(2.0**-60, 2.0**60, width=32), min_size=1, max_size=8), AVERAGES)
def test_a_variance_stays_positive_and_between_the_models_variances(values, rule):
    for average in averages(rule, models_of(*values)):
        assert np.float32(min(values)) <= average["w"] <= np.float32(max(values))
        assert average["w"] > 0


@pytest.mark.parametrize(
    ("kind", "value"),
    [*((MovingAverage, factor) for factor in (0.0, 1.0, -0.5, math.nan)), (TailAverage, 0)],
)
def test_an_average_without_a_share_of_each_model_is_refused(kind, value):
    with pytest.raises(ValueError, match="factor" if kind is MovingAverage else "length"):
        kind(value)


# --- Properties -------------------------------------------------------------------------------------

# A round is the slow part of an example, so each property checks all its rules on the same round.

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


def assert_same_bits(got, expected, rule):
    assert list(got) == list(expected)
    for name, array in expected.items():
        assert got[name].dtype == array.dtype
        assert got[name].tobytes() == array.tobytes(), f"{name} by {rule}"


@given(round_=rounds())
@examples
def test_beta_zero_is_target_only_bit_for_bit(round_):
    model, target, sources, _ = round_
    alone = mean_update(model, [target], np.ones(1))
    for rule in RULES:
        assert_same_bits(aggregate(rule, model, target, sources, np.zeros(len(sources))), alone, rule)


@given(round_=rounds(), exponents=st.lists(st.integers(-30, 30), min_size=4, max_size=4))
@examples
def test_fedgp_does_not_depend_on_the_scale_of_a_source(round_, exponents):
    model, target, sources, betas = round_
    # Powers of two scale without rounding, so the result is the same to the last bit.
    twos = [
        replace(source, parameters={n: a * np.float32(2.0**e) for n, a in source.parameters.items()})
        for source, e in zip(sources, exponents, strict=False)
    ]
    for rule in PROJECTIONS:
        expected = aggregate(rule, model, target, sources, betas)
        assert_same_bits(aggregate(rule, model, target, twos, betas), expected, rule)


@given(round_=rounds())
@examples
def test_buffers_stay_within_those_of_the_clients_and_integers_are_the_targets(round_):
    model, target, sources, betas = round_
    everyone = [target, *sources]
    inputs = [client.buffers["bn.running_var"] for client in everyone]
    news = [aggregate(rule, model, target, sources, betas) for rule in RULES]
    for new in (*news, mean_update(model, everyone, source_weights(everyone))):
        assert (new["bn.running_var"] > 0).all()
        assert (new["bn.running_var"] >= np.min(inputs, axis=0)).all()
        assert (new["bn.running_var"] <= np.max(inputs, axis=0)).all()
        counter = new["bn.num_batches_tracked"]
        assert isinstance(counter, np.ndarray)
        assert (counter.dtype, counter) == (np.int64, target.buffers["bn.num_batches_tracked"])
        assert not np.shares_memory(counter, target.buffers["bn.num_batches_tracked"])
