"""Each record of a reply, worked by hand: what of it leaves, with how much noise."""

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fda_flower.aggregation import BatchUpdates, CountSketch, GradientForm, MeanGradient
from fda_flower.site import Mechanism, PrivacyError, PrivacySettings
from fda_flower.site.noise import gaussian
from fda_flower.site.privacy import (
    Exchange,
    batch_updates,
    gradients,
    planned,
    protect_evaluation,
    protect_training,
    trained_model,
)
from fda_flower.wire.protocol import to_layers, to_record

MODEL = {
    "w": np.array([1.0, 2.0], np.float32),
    "bn.running_mean": np.array([0.0], np.float32),
    "bn.running_var": np.array([1.0], np.float32),
    "bn.num_batches_tracked": np.array(3),
    "seen": np.array([7, 8]),
}
TRAINED = {
    "w": np.array([4.0, 6.0], np.float32),
    "bn.running_mean": np.array([0.6], np.float32),
    "bn.running_var": np.array([0.2], np.float32),
    "bn.num_batches_tracked": np.array(5),
    "seen": np.array([9, 9]),
}


def exchange(noise=0.0, clip=1.0, config=None, model=None, seed=0, **settings):
    found = PrivacySettings(dp_clip=clip, dp_noise=noise, **settings)
    mechanism = Mechanism(clip, noise, np.random.default_rng(seed).bytes)
    return Exchange(found, mechanism, MODEL if model is None else model, config or {})


def reply(metrics=None, info=None, **arrays):
    content = RecordDict({"arrays": to_record(TRAINED), "metrics": MetricRecord(metrics or {})})
    content["info"] = ConfigRecord({"domain": "a", "role": "source", **(info or {})})
    for name, layers in arrays.items():
        content[name.replace("_", "-")] = to_record(layers)
    return content


# the model


def test_the_update_of_the_parameters_is_clipped_and_gets_noise():
    sent = trained_model(exchange(noise=0.5), TRAINED)
    update = np.array([0.6, 0.8]) + 2 * 0.5 * gaussian(2, np.random.default_rng(0).bytes)
    np.testing.assert_array_equal(sent["w"], (MODEL["w"] + update).astype(np.float32))
    assert {name: array.dtype for name, array in sent.items()} == {n: a.dtype for n, a in MODEL.items()}


def test_running_statistics_stay_at_the_site_and_its_counter_passes():
    one = exchange(noise=0.5)
    sent = trained_model(one, TRAINED)
    for name in ("bn.running_mean", "bn.running_var", "seen"):
        np.testing.assert_array_equal(sent[name], MODEL[name])
    assert sent["bn.num_batches_tracked"] == 5
    assert one.mechanism.releases == 1


def test_running_statistics_with_noise_are_a_release_of_their_own_with_a_positive_variance():
    one = exchange(noise=0.0, dp_buffers="noise")
    sent = trained_model(one, TRAINED)
    np.testing.assert_allclose(sent["bn.running_mean"], [0.6], rtol=1e-6)
    np.testing.assert_allclose(sent["bn.running_var"], [0.2], rtol=1e-5)
    np.testing.assert_array_equal(sent["seen"], MODEL["seen"])
    assert one.mechanism.releases == planned(one.settings, MODEL, {}) == 2
    for seed in range(5):
        noisy = trained_model(exchange(noise=5.0, dp_buffers="noise", seed=seed), TRAINED)
        assert noisy["bn.running_var"] >= 1e-3
        assert noisy["bn.running_mean"] != TRAINED["bn.running_mean"]


def test_a_model_without_buffers_has_one_release_however_buffers_are_sent():
    plain = {"w": MODEL["w"]}
    one = exchange(noise=1.0, model=plain, dp_buffers="noise")
    trained_model(one, {"w": TRAINED["w"]})
    assert one.mechanism.releases == planned(one.settings, plain, {}) == 1


@pytest.mark.parametrize(
    "arrays",
    [{"w": TRAINED["w"]}, {**TRAINED, "v": TRAINED["w"]}, {**TRAINED, "w": np.zeros(2)}],
    ids=["fewer", "more", "another type"],
)
def test_a_model_of_another_form_has_no_update_to_clip(arrays):
    with pytest.raises(PrivacyError, match="its arrays are not those of the message"):
        trained_model(exchange(), arrays)


# batch updates: what the server makes of them with noise

PLAIN = {"w": np.zeros(6, np.float32)}
ROWS = np.random.default_rng(1).normal(size=(4, 6)).astype(np.float32)


def with_updates(encoding, noise):
    sketch = CountSketch(64, 9)
    arrays = {"norms": np.square(ROWS, dtype=np.float64).sum(axis=1)}
    if encoding == "full":
        arrays["full"] = ROWS
    if encoding == "sketch":
        arrays["sketch"] = np.stack([sketch({"w": row}) for row in ROWS])
    config = {"batch-updates": encoding, "sketch-size": 64, "sketch-seed": 9}
    one = exchange(noise=noise, clip=2.0, config=config, model=PLAIN)
    trained_model(one, {"w": ROWS.sum(axis=0)})
    sent = batch_updates(one, arrays)
    return one, BatchUpdates.from_arrays(sent, encoding, 4, 6, sketch), arrays


@pytest.mark.parametrize("noise", [0.0, 0.3, 3.0])
@pytest.mark.parametrize("encoding", ["norms", "sketch", "full"])
def test_batch_updates_fit_the_update_that_is_sent(encoding, noise):
    one, sent, _ = with_updates(encoding, noise)
    sent.check_sum(one.update)
    assert one.mechanism.releases == planned(one.settings, PLAIN, one.config) == 2


def test_without_noise_the_norms_are_clipped_together():
    _, sent, arrays = with_updates("norms", 0.0)
    np.testing.assert_allclose(sent.squared_norms, arrays["norms"] * 4.0 / arrays["norms"].sum())


def test_each_step_bears_its_part_of_the_updates_noise():
    _, sent, arrays = with_updates("norms", 0.5)
    clipped = arrays["norms"] * 4.0 / arrays["norms"].sum()
    draw = np.random.default_rng(0).bytes
    gaussian(6, draw)
    own = np.maximum(clipped + np.sqrt(2) * 0.5 * 4.0 * gaussian(4, draw), 0)
    np.testing.assert_allclose(sent.squared_norms, own + 6 * (2 * 0.5 * 2.0) ** 2 / 4)


@pytest.mark.parametrize(
    ("config", "arrays", "says"),
    [
        ({}, {"norms": np.ones(2)}, "'batch-updates' .norms., which nobody asked for"),
        ({"batch-updates": "norms"}, {"norms": np.ones(2), "x": np.ones(2)}, "hold norms, x, not norms"),
        ({"batch-updates": "full"}, {"norms": np.ones(2)}, "hold norms, not full, norms"),
    ],
)
def test_batch_updates_that_were_not_asked_for_are_refused(config, arrays, says):
    with pytest.raises(PrivacyError, match=says):
        batch_updates(exchange(config=config), arrays)


# gradients at the global model


@pytest.mark.parametrize("encoding", ["sketch", "full"])
def test_gradients_have_the_norm_and_the_variance_of_what_is_sent(encoding):
    config = {"gradients": encoding, "sketch-size": 8, "sketch-seed": 3}
    values = np.full(8, 1.0, np.float64 if encoding == "sketch" else np.float32)
    arrays = {encoding: values, "norm": np.array(8.0), "variance": np.array(0.5), "batches": np.array(4)}
    if encoding == "sketch":
        arrays |= {"sketch-size": np.array(8), "sketch-seed": np.array(3)}
    one = exchange(noise=0.25, clip=2.0, config=config, model=PLAIN)
    sent = gradients(one, arrays)
    draw = np.random.default_rng(0).bytes
    expected = np.asarray(values, np.float64) * 2.0 / np.sqrt(8) + gaussian(8, draw)
    np.testing.assert_allclose(sent[encoding], expected, rtol=1e-6)
    variance = max(0.5 * 4 / 8 + 0.25 * 4.0 * float(gaussian(1, draw)[0]), 0.0)
    assert float(sent["variance"]) == pytest.approx(variance + 8 * 1.0**2)
    assert one.mechanism.releases == 2
    assert planned(one.settings, PLAIN, config) == 3
    read = MeanGradient.from_arrays(sent, GradientForm(encoding, CountSketch(8, 3), 8))
    assert read.squared_norm == pytest.approx(np.square(sent[encoding], dtype=np.float64).sum())


def test_other_arrays_among_the_gradients_are_refused():
    with pytest.raises(PrivacyError, match="'gradients' hold full, not batches, full, norm, variance"):
        gradients(exchange(config={"gradients": "full"}), {"full": np.ones(2)})
    with pytest.raises(PrivacyError, match="nobody asked for"):
        gradients(exchange(), {"full": np.ones(2)})


def test_guidance_is_released_like_the_update():
    one = exchange(config={"guidance": True}, model={"w": MODEL["w"]})
    content = RecordDict({"arrays": to_record({"w": TRAINED["w"]}), "metrics": MetricRecord()})
    content["guidance"] = to_record({"w": np.array([1.0, 12.0], np.float32)})
    assert protect_training(content, one) == []
    np.testing.assert_allclose(to_layers(content.array_records["guidance"])["w"], [1.0, 3.0])
    assert one.mechanism.releases == planned(one.settings, one.model, one.config) == 2
    content["guidance"] = to_record({"v": MODEL["w"]})
    with pytest.raises(PrivacyError, match="'guidance' has other arrays"):
        protect_training(content, one)


# what is not known


@pytest.mark.parametrize("name", ["adapted", "something"])
def test_an_unknown_record_is_refused_by_its_name(name):
    with pytest.raises(PrivacyError, match=f"its record '{name}' has no known sensitivity: choose a method"):
        protect_training(reply(**{name: MODEL}), exchange())


def test_an_unknown_metric_is_refused_unless_the_site_allows_it():
    metrics = {"num-examples": 5, "train-loss": 0.3, "penalty": 0.1}
    with pytest.raises(PrivacyError, match=r"its metric 'penalty' follows from .*dp-allow"):
        protect_training(reply(metrics), exchange())
    content = reply(metrics)
    assert protect_training(content, exchange(dp_allow="pen*")) == ["penalty"]
    assert dict(content["metrics"]) == {"num-examples": 5, "penalty": 0.1}


def test_the_training_loss_does_not_leave_unless_the_site_allows_it():
    content = reply({"num-examples": 5, "num-steps": 2, "learning-rate": 0.1, "train-loss": 0.3})
    assert protect_training(content, exchange()) == []
    assert dict(content["metrics"]) == {"num-examples": 5, "num-steps": 2, "learning-rate": 0.1}
    content = reply({"train-loss": 0.3})
    assert protect_training(content, exchange(dp_allow="train-loss")) == ["train-loss"]


def test_unknown_information_is_refused():
    with pytest.raises(PrivacyError, match="'info' has 'mean-age', which may follow from the site's data"):
        protect_training(reply(info={"mean-age": 71.0}), exchange())


def test_a_reply_without_a_model_is_refused():
    content = RecordDict({"metrics": MetricRecord(), "info": ConfigRecord()})
    with pytest.raises(PrivacyError, match="it has no ArrayRecord 'arrays'"):
        protect_training(content, exchange())


# evaluations

FIGURES = {"accuracy": 0.5, "loss": 1.0, "accuracy-global": 0.4, "validation-auroc": 0.6}


@pytest.mark.parametrize(
    ("report", "kept", "records", "uncovered"),
    [
        ("none", {"num-examples": 9}, [], []),
        ("figures", {"num-examples": 9, **FIGURES}, [], ["evaluation"]),
        (
            "full",
            {"num-examples": 9, **FIGURES, "weight.target": 0.3},
            ["confusion", "outcomes"],
            ["evaluation"],
        ),
    ],
)
def test_of_an_evaluation_leaves_what_the_site_tells(report, kept, records, uncovered):
    content = RecordDict({"metrics": MetricRecord({"num-examples": 9, **FIGURES, "weight.target": 0.3})})
    content["outcomes"], content["confusion"] = to_record(MODEL), ArrayRecord()
    assert protect_evaluation(content, PrivacySettings(dp_clip=1.0, dp_report=report)) == uncovered
    assert dict(content["metrics"]) == kept
    assert sorted(content.array_records) == records


def test_the_evaluation_in_a_train_reply_follows_the_same_word():
    metrics = {"num-examples": 5, "eval-accuracy": 0.5, "eval-num-examples": 9}
    content = reply(metrics, outcomes=MODEL)
    assert protect_training(content, exchange()) == ["eval-accuracy"]
    assert "outcomes" not in content
    content = reply(metrics, outcomes=MODEL)
    assert sorted(protect_training(content, exchange(dp_report="full"))) == ["eval-accuracy", "outcomes"]
    assert "outcomes" in content
    with pytest.raises(PrivacyError, match="its dp-report is 'none': let it be 'figures'"):
        protect_training(reply(metrics), exchange(dp_report="none"))
