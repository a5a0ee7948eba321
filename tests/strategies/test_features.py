"""pFedFDA on the server: the linear layer that it makes of clients' statistics."""

import numpy as np
import pytest
from handmade import HandMade, bits, initial, moves
from naming import names

from fda_flower.aggregation import ClassGaussians
from fda_flower.errors import ConfigError
from fda_flower.strategies import PFedFDA
from fda_flower.wire.asked.features import GaussiansMixed, MixGaussians
from fda_flower.wire.protocol import to_record

pytestmark = pytest.mark.usefixtures("bare_replies")
EYE = np.eye(2)
GAUSSIANS = {
    "a": ([[1.0, 0.0], [0.0, 1.0]], EYE),
    "b": ([[2.0, 1.0], [0.0, 1.0]], 2 * EYE),
    "t": ([[0.0, 3.0], [2.0, 0.0]], [[3.0, 1.0], [1.0, 2.0]]),
}
EXAMPLES = {"a": 30, "b": 10, "t": 10}


def with_gaussians(domain, gaussians=None):
    means, covariance = (np.asarray(each, np.float32) for each in gaussians or GAUSSIANS[domain])
    return {"means": means, "covariance": covariance}, EXAMPLES[domain]


def start(strategy, sites, rounds=1):
    """Run over sites that reply with Gaussians; return history, result, app and those they were sent."""
    received, nodes = [], []
    for domain, (gaussians, examples) in sites.items():
        role = "target" if domain == "t" else "source"

        def answer(model, message, role=role, domain=domain, gaussians=gaussians, examples=examples):
            received.append(MixGaussians.read(message.content))
            content = moves(0.0, role, domain, examples=examples)(model, message)
            content.update(GaussiansMixed(gaussians=gaussians, own_share=0.25).records())
            return content

        nodes.append((role, domain, answer))
    app = HandMade(nodes)
    result = strategy.start(app.grid(), initial(method="pfedfda"), rounds)
    return strategy.history, result, app, received


@pytest.mark.parametrize(
    "bad",
    [
        ([[1.0, 0.0], [0.0, 1.0]], -100 * EYE),
        ([[1.0, 0.0]], EYE),
        ([[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0]]),
        ([[np.nan, 0.0], [0.0, 1.0]], EYE),
    ],
)
def test_a_source_whose_statistics_are_none_is_dropped(bad):
    sites = {domain: with_gaussians(domain) for domain in "at"}
    (record,), result, _, _ = start(PFedFDA(), {**sites, "b": with_gaussians("b", bad)})
    assert ([each["domain"] for each in record["dropped"]], record["held"]) == (["b"], None)
    assert bits(result.arrays) == bits(start(PFedFDA(), sites)[1].arrays)


def mean(index):
    return sum(EXAMPLES[domain] / 50 * np.asarray(GAUSSIANS[domain][index]) for domain in EXAMPLES)


def test_pfedfda_makes_the_layer_of_the_mean_which_all_get_in_the_next_round():
    sites = {domain: with_gaussians(domain) for domain in "abt"}
    history, result, app, received = start(PFedFDA(), sites, rounds=2)
    weight, bias = ClassGaussians(mean(0), mean(1)).discriminant(np.full(2, 0.5))
    np.testing.assert_allclose(result.arrays["matrix"].numpy(), weight, rtol=1e-5)
    np.testing.assert_allclose(result.arrays["w"].numpy(), bias, rtol=1e-5)
    assert [asked.gaussians for asked in received[:3]] == [None] * 3
    evaluation, record = app.evaluations[0]["question"], history[-1]
    for asked in (*received[3:], evaluation):
        np.testing.assert_allclose(asked.gaussians["means"], mean(0), rtol=1e-6)
        np.testing.assert_allclose(asked.gaussians["covariance"], mean(1), rtol=1e-6)
    assert (evaluation.folds, evaluation.ridge, len(received)) == (2, 1.0, 6)
    assert [each["own-share"] for each in (record["target"], *record["sources"].values())] == [0.25] * 3


def test_without_gaussians_the_target_evaluates_the_model_alone():
    sites = {"a": with_gaussians("a"), "b": with_gaussians("b"), "t": with_gaussians("t", ([[1.0]], [[1.0]]))}
    history, _, app, _ = start(PFedFDA(), sites)
    assert history[0]["held"] is not None
    assert "question" not in app.evaluations[0]


def test_a_model_that_is_no_linear_layer_and_a_limit_of_updates_are_refused():
    app = HandMade([("target", "t", moves(0.0, "target", "t")), ("source", "a", moves(0.0))])
    with pytest.raises(ConfigError, check=names("model", "PFedFDA", remedy="--train head")):
        PFedFDA().start(app.grid(), to_record({"w": np.zeros((2, 2, 2))}), 1)
    assert app.configs == []
    with pytest.raises(ConfigError, check=names("max_update_norm", 1.0)):
        PFedFDA(max_update_norm=1.0)
    with pytest.raises(ConfigError, check=names("folds", 1)):
        PFedFDA(folds=1)
