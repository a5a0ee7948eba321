"""FedPFT, MPFT and pFedFDA on the server: the linear layer that they make of clients' statistics."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from handmade import HandMade, bits, initial, moves
from naming import names

from fda_flower.aggregation import ClassGaussians, ClassMixtures, train_head
from fda_flower.errors import ConfigError
from fda_flower.files import derive_seed
from fda_flower.strategies import MPFT, FedPFT, PFedFDA
from fda_flower.wire.protocol import to_layers, to_record

pytestmark = pytest.mark.usefixtures("bare_replies")
EYE, CENTRES = np.eye(2), np.array([[3.0, 0.0], [-3.0, 0.0]])
MIXTURES = {
    domain: ClassMixtures(np.array(counts), np.ones((2, 1)), CENTRES[:, None], np.full((2, 1, 2), 0.25))
    for domain, counts in {"a": [12, 8], "b": [3, 7], "t": [1, 4]}.items()
}
USED = {"a": [[1, 1], [1, 0]], "b": [[1, 0], [1, 0]], "t": [[0, 0], [1, 1]]}
PLACES = np.arange(8.0).reshape(2, 2, 2)
GAUSSIANS = {
    "a": ([[1.0, 0.0], [0.0, 1.0]], EYE),
    "b": ([[2.0, 1.0], [0.0, 1.0]], 2 * EYE),
    "t": ([[0.0, 3.0], [2.0, 0.0]], [[3.0, 1.0], [1.0, 2.0]]),
}
EXAMPLES = {"a": 30, "b": 10, "t": 10}


def with_mixtures(domain, **changed):
    counts = MIXTURES[domain].counts
    return "mixtures", {**MIXTURES[domain].layers(), **changed}, int(counts.sum())


def with_prototypes(domain, used=None):
    used = np.array(USED[domain] if used is None else used, np.uint8)
    return "prototypes", {"used": used, "centres": PLACES.astype(np.float32)}, 10


def with_gaussians(domain, gaussians=None):
    means, covariance = (np.asarray(each, np.float32) for each in gaussians or GAUSSIANS[domain])
    return "gaussians", {"means": means, "covariance": covariance}, EXAMPLES[domain]


def start(strategy, sites, rounds=1):
    """Run over sites that reply with a record; return history, result, app and the records they were sent."""
    received, nodes = [], []
    for domain, (record, arrays, examples) in sites.items():
        role = "target" if domain == "t" else "source"

        def answer(model, message, role=role, domain=domain, record=record, arrays=arrays, examples=examples):
            received.append(to_layers(message.content.get(record, ArrayRecord())))
            content = moves(0.0, role, domain, examples=examples)(model, message)
            content[record] = ArrayRecord({name: Array(array) for name, array in arrays.items()})
            content["metrics"]["own-share"] = 0.25
            return content

        nodes.append((role, domain, answer))
    app, method = HandMade(nodes), type(strategy).__name__.lower()
    result = strategy.start(app.grid(), initial(method=method), rounds)
    return strategy.history, result, app, received


def assert_trained(result, method, rows, labels, epochs):
    """The model is the initial layer trained on these rows."""
    begun, seed = to_layers(initial(method=method)), derive_seed(0, "head", 1)
    weight, bias = train_head(begun["matrix"], begun["w"], rows, labels, epochs, seed)
    np.testing.assert_allclose(result.arrays["matrix"].numpy(), weight, rtol=1e-5)
    np.testing.assert_allclose(result.arrays["w"].numpy(), bias, rtol=1e-5)


def test_fedpft_trains_the_head_on_features_of_all_clients():
    _, result, app, _ = start(FedPFT(epochs=20), {domain: with_mixtures(domain) for domain in "bta"})
    drawn = [MIXTURES[domain].drawn(derive_seed(0, "features", 1, domain)) for domain in "tab"]
    rows, labels = (np.concatenate(parts) for parts in zip(*drawn, strict=True))
    assert_trained(result, "fedpft", rows, labels, 20)
    assert app.told("mixtures") == {"a": 1, "b": 1, "t": 1}


def test_enough_epochs_tell_the_classes_apart():
    _, result, _, _ = start(FedPFT(epochs=1000), {domain: with_mixtures(domain) for domain in "abt"})
    outputs = CENTRES @ result.arrays["matrix"].numpy().T + result.arrays["w"].numpy()
    assert outputs.argmax(axis=1).tolist() == [0, 1]


def test_mpft_trains_the_head_on_all_prototypes_that_are_used():
    strategy = MPFT(prototypes=2, epochs=30, distillation=0.5)
    _, result, app, _ = start(strategy, {domain: with_prototypes(domain) for domain in "bta"})
    used = [(label, place) for domain in "tab" for label, place in np.argwhere(USED[domain])]
    rows = np.array([PLACES[label, place] for label, place in used])
    assert_trained(result, "mpft", rows, np.array([label for label, _ in used]), 30)
    assert app.told("prototypes") == {"a": 2, "b": 2, "t": 2}
    assert app.evaluated[0]["config"]["distillation"] == 0.5


@pytest.mark.parametrize(
    ("strategy", "made", "bad"),
    [
        (FedPFT, with_mixtures, with_mixtures("b", counts=np.array([10**12, 0]))),
        (FedPFT, with_mixtures, with_mixtures("b", weights=np.zeros((2, 1), np.float32))),
        (FedPFT, with_mixtures, with_mixtures("b", variances=np.full((2, 1, 2), -1, np.float32))),
        (FedPFT, with_mixtures, with_mixtures("b", means=np.zeros((2, 2, 2), np.float32))),
        (lambda: MPFT(prototypes=2), with_prototypes, with_prototypes("b", np.zeros((2, 2)))),
        (PFedFDA, with_gaussians, with_gaussians("b", ([[1.0, 0.0], [0.0, 1.0]], -100 * EYE))),
        (PFedFDA, with_gaussians, with_gaussians("b", ([[1.0, 0.0]], EYE))),
        (PFedFDA, with_gaussians, with_gaussians("b", ([[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0]]))),
        (PFedFDA, with_gaussians, with_gaussians("b", ([[np.nan, 0.0], [0.0, 1.0]], EYE))),
    ],
)
def test_a_source_whose_statistics_are_none_is_dropped(strategy, made, bad):
    (record,), result, _, _ = start(strategy(), {"a": made("a"), "b": bad, "t": made("t")})
    assert ([each["domain"] for each in record["dropped"]], record["held"]) == (["b"], None)
    assert bits(result.arrays) == bits(start(strategy(), {"a": made("a"), "t": made("t")})[1].arrays)


def mean(index):
    return sum(EXAMPLES[domain] / 50 * np.asarray(GAUSSIANS[domain][index]) for domain in EXAMPLES)


def test_pfedfda_makes_the_layer_of_the_mean_which_all_get_in_the_next_round():
    sites = {domain: with_gaussians(domain) for domain in "abt"}
    history, result, app, received = start(PFedFDA(), sites, rounds=2)
    weight, bias = ClassGaussians(mean(0), mean(1)).discriminant(np.full(2, 0.5))
    np.testing.assert_allclose(result.arrays["matrix"].numpy(), weight, rtol=1e-5)
    np.testing.assert_allclose(result.arrays["w"].numpy(), bias, rtol=1e-5)
    assert received[:3] == [{}] * 3
    for sent in (*received[3:], to_layers(app.evaluated[0]["gaussians"])):
        np.testing.assert_allclose(sent["means"], mean(0), rtol=1e-6)
        np.testing.assert_allclose(sent["covariance"], mean(1), rtol=1e-6)
    config, record = app.evaluated[0]["config"], history[-1]
    assert (config["gaussians"], config["ridge"], len(received)) == (2, 1.0, 6)
    assert [each["own-share"] for each in (record["target"], *record["sources"].values())] == [0.25] * 3


def test_without_gaussians_the_target_evaluates_the_model_alone():
    sites = {"a": with_gaussians("a"), "b": with_gaussians("b"), "t": with_gaussians("t", ([[1.0]], [[1.0]]))}
    history, _, app, _ = start(PFedFDA(), sites)
    assert history[0]["held"] is not None
    assert "gaussians" not in app.evaluated[0]["config"]


def test_a_model_that_is_no_linear_layer_and_a_limit_of_updates_are_refused():
    app = HandMade([("target", "t", moves(0.0, "target", "t")), ("source", "a", moves(0.0))])
    with pytest.raises(ConfigError, check=names("model", "PFedFDA", remedy="--train head")):
        PFedFDA().start(app.grid(), to_record({"w": np.zeros((2, 2, 2))}), 1)
    assert app.configs == []
    with pytest.raises(ConfigError, check=names("max_update_norm", 1.0)):
        PFedFDA(max_update_norm=1.0)
    with pytest.raises(ConfigError, check=names("folds", 1)):
        PFedFDA(folds=1)
