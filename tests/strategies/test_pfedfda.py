"""pFedFDA on the server: the clients' mean of Gaussians, the layer of it, and what it sends and refuses."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from handmade import HandMade, initial, moves
from naming import names

from fda_flower.aggregation import ClassGaussians
from fda_flower.errors import ConfigError
from fda_flower.strategies import PFedFDA
from fda_flower.wire.protocol import to_layers, to_record

pytestmark = pytest.mark.usefixtures("bare_replies")
EYE = np.eye(2)
GAUSSIANS = {
    "a": ([[1.0, 0.0], [0.0, 1.0]], EYE),
    "b": ([[2.0, 1.0], [0.0, 1.0]], 2 * EYE),
    "t": ([[0.0, 3.0], [2.0, 0.0]], [[3.0, 1.0], [1.0, 2.0]]),
}
EXAMPLES = {"a": 30, "b": 10, "t": 10}


class Site:
    """Replies with its Gaussians, and keeps what it is sent."""

    def __init__(self, domain, gaussians=None):
        self.domain, self.told = domain, GAUSSIANS[domain] if gaussians is None else gaussians
        self.received: list = []

    def __call__(self, model, message):
        self.received.append(to_layers(message.content["gaussians"]))
        role = "target" if self.domain == "t" else "source"
        content = moves(0.0, role, self.domain, examples=EXAMPLES[self.domain])(model, message)
        means, covariance = (np.asarray(each, np.float32) for each in self.told)
        content["gaussians"] = ArrayRecord({"means": Array(means), "covariance": Array(covariance)})
        content["metrics"]["own-share"] = 0.25
        return content


def start(sites, rounds=2, **options):
    nodes = [("target" if site.domain == "t" else "source", site.domain, site) for site in sites]
    strategy, app = PFedFDA(**options), HandMade(nodes)
    return strategy, strategy.start(app.grid(), initial(method="pfedfda"), rounds), app


def mean(index):
    shares = {domain: n / sum(EXAMPLES.values()) for domain, n in EXAMPLES.items()}
    return sum(shares[domain] * np.asarray(GAUSSIANS[domain][index]) for domain in EXAMPLES)


def test_the_model_is_the_linear_layer_of_the_mean_and_goes_to_all_in_the_next_round():
    sites = [Site(domain) for domain in "abt"]
    strategy, result, app = start(sites)
    weight, bias = ClassGaussians(mean(0), mean(1)).discriminant(np.full(2, 0.5))
    np.testing.assert_allclose(result.arrays["matrix"].numpy(), weight, rtol=1e-5)
    np.testing.assert_allclose(result.arrays["w"].numpy(), bias, rtol=1e-5)
    for site in sites:
        first, second = site.received
        assert first == {}
        np.testing.assert_allclose(second["means"], mean(0), rtol=1e-6)
        np.testing.assert_allclose(second["covariance"], mean(1), rtol=1e-6)
    asked = app.evaluated[0]
    assert (asked["config"]["gaussians"], asked["config"]["ridge"]) == (2, 1.0)
    np.testing.assert_allclose(to_layers(asked["gaussians"])["means"], mean(0), rtol=1e-6)
    record = strategy.history[-1]
    shares = [entry["own-share"] for entry in (record["target"], *record["sources"].values())]
    assert shares == [0.25] * 3


@pytest.mark.parametrize(
    "bad",
    [
        ([[1.0, 0.0], [0.0, 1.0]], -100 * EYE),
        ([[1.0, 0.0]], EYE),
        ([[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0]]),
        ([[np.nan, 0.0], [0.0, 1.0]], EYE),
    ],
)
def test_a_source_whose_gaussians_are_none_is_dropped(bad):
    strategy, result, _ = start([Site("a"), Site("b", bad), Site("t")], rounds=1)
    (record,) = strategy.history
    assert ([each["domain"] for each in record["dropped"]], record["held"]) == (["b"], None)
    assert np.isfinite(result.arrays["matrix"].numpy()).all()


def test_without_gaussians_the_target_evaluates_the_model_alone():
    strategy, _, app = start([Site("a"), Site("b"), Site("t", ([[1.0]], [[1.0]]))], rounds=1)
    assert strategy.history[0]["held"] is not None
    assert "gaussians" not in app.evaluated[0]["config"]


def test_a_model_that_is_no_linear_layer_and_a_limit_of_updates_are_refused():
    app = HandMade([("target", "t", Site("t")), ("source", "a", Site("a"))])
    with pytest.raises(ConfigError, check=names("model", "PFedFDA", remedy="--train head")):
        PFedFDA().start(app.grid(), to_record({"w": np.zeros((2, 2, 2))}), 1)
    assert app.configs == []
    with pytest.raises(ConfigError, check=names("max_update_norm", 1.0)):
        PFedFDA(max_update_norm=1.0)
    with pytest.raises(ConfigError, check=names("folds", 1)):
        PFedFDA(folds=1)
