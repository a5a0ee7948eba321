"""FedPFT on the server: a head trained on features drawn from mixtures."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from handmade import HandMade, bits, initial, moves

from fda_flower.aggregation import ClassMixtures, train_head
from fda_flower.files import derive_seed
from fda_flower.strategies import FedPFT
from fda_flower.wire.protocol import to_layers

pytestmark = pytest.mark.usefixtures("bare_replies")
CENTRES = np.array([[3.0, 0.0], [-3.0, 0.0]])
MIXTURES = {
    domain: ClassMixtures(np.array(counts), np.ones((2, 1)), CENTRES[:, None], np.full((2, 1, 2), 0.25))
    for domain, counts in {"a": [12, 8], "b": [3, 7], "t": [1, 4]}.items()
}


def site(domain, **changed):
    def answer(model, message):
        counts = MIXTURES[domain].counts
        role = "target" if domain == "t" else "source"
        content = moves(0.0, role, domain, examples=int(counts.sum()))(model, message)
        told = {**MIXTURES[domain].layers(), **changed}
        content["mixtures"] = ArrayRecord({name: Array(array) for name, array in told.items()})
        return content

    return ("target" if domain == "t" else "source", domain, answer)


def start(nodes, **options):
    strategy, app = FedPFT(**options), HandMade(nodes)
    return strategy, strategy.start(app.grid(), initial(method="fedpft"), 1), app


def test_the_head_is_trained_on_features_of_all_clients():
    _, result, app = start([site(domain) for domain in "bta"], epochs=20)
    drawn = [MIXTURES[domain].drawn(derive_seed(0, "features", 1, domain)) for domain in "tab"]
    rows, labels = (np.concatenate(parts) for parts in zip(*drawn, strict=True))
    begun = to_layers(initial(method="fedpft"))
    seed = derive_seed(0, "head", 1)
    weight, bias = train_head(begun["matrix"], begun["w"], rows, labels, 20, seed)
    np.testing.assert_allclose(result.arrays["matrix"].numpy(), weight, rtol=1e-5)
    np.testing.assert_allclose(result.arrays["w"].numpy(), bias, rtol=1e-5)
    assert app.told("mixtures") == {"a": 1, "b": 1, "t": 1}


def test_enough_epochs_tell_the_classes_apart():
    _, result, _ = start([site(domain) for domain in "abt"], epochs=1000)
    outputs = CENTRES @ result.arrays["matrix"].numpy().T + result.arrays["w"].numpy()
    assert outputs.argmax(axis=1).tolist() == [0, 1]


@pytest.mark.parametrize(
    "changed",
    [
        {"counts": np.array([10**12, 0])},
        {"weights": np.zeros((2, 1), np.float32)},
        {"variances": np.full((2, 1, 2), -1, np.float32)},
        {"means": np.zeros((2, 2, 2), np.float32)},
    ],
)
def test_a_source_whose_mixtures_are_none_is_dropped(changed):
    strategy, result, _ = start([site("a"), site("b", **changed), site("t")])
    (record,) = strategy.history
    assert ([each["domain"] for each in record["dropped"]], record["held"]) == (["b"], None)
    assert bits(result.arrays) == bits(start([site("a"), site("t")])[1].arrays)
