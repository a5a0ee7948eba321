"""MPFT on the server: a head trained on prototypes, which the target is asked to adapt."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from handmade import HandMade, initial, moves

from fda_flower.aggregation import train_head
from fda_flower.files import derive_seed
from fda_flower.strategies import MPFT
from fda_flower.wire.protocol import to_layers

pytestmark = pytest.mark.usefixtures("bare_replies")
USED = {"a": [[1, 1], [1, 0]], "b": [[1, 0], [1, 0]], "t": [[0, 0], [1, 1]]}
CENTRES = np.arange(8.0).reshape(2, 2, 2)


def site(domain, used=None):
    used = np.array(USED[domain] if used is None else used, np.uint8)

    def answer(model, message):
        content = moves(0.0, "target" if domain == "t" else "source", domain)(model, message)
        told = {"used": used, "centres": (CENTRES + len(domain)).astype(np.float32)}
        content["prototypes"] = ArrayRecord({name: Array(array) for name, array in told.items()})
        return content

    return ("target" if domain == "t" else "source", domain, answer)


def start(nodes, **options):
    strategy, app = MPFT(prototypes=2, **options), HandMade(nodes)
    return strategy, strategy.start(app.grid(), initial(method="mpft"), 1), app


def test_the_head_is_trained_on_all_prototypes_that_are_used():
    _, result, app = start([site(domain) for domain in "bta"], epochs=30, distillation=0.5)
    rows, labels = [], []
    for domain in "tab":
        for label, row in enumerate(USED[domain]):
            for place, used in enumerate(row):
                if used:
                    rows.append(CENTRES[label, place] + 1)
                    labels.append(label)
    begun, seed = to_layers(initial(method="mpft")), derive_seed(0, "head", 1)
    weight, bias = train_head(begun["matrix"], begun["w"], np.array(rows), np.array(labels), 30, seed)
    np.testing.assert_allclose(result.arrays["matrix"].numpy(), weight, rtol=1e-5)
    np.testing.assert_allclose(result.arrays["w"].numpy(), bias, rtol=1e-5)
    assert app.told("prototypes") == {"a": 2, "b": 2, "t": 2}
    assert app.evaluated[0]["config"]["distillation"] == 0.5


def test_a_source_without_prototypes_is_dropped():
    strategy, _, _ = start([site("a"), site("b", np.zeros((2, 2))), site("t")])
    (record,) = strategy.history
    assert ([each["domain"] for each in record["dropped"]], record["held"]) == (["b"], None)
