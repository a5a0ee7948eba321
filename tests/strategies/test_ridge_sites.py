"""Ridge where every site is a target, on the server: what each gets, and what is made of its figures."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, MetricRecord
from handmade import HandMade, bits, failing, reply_of
from naming import names

from fda_flower.aggregation import Sums, to_rows, to_targets
from fda_flower.errors import ConfigError, RunError
from fda_flower.strategies import RidgeEverySite

pytestmark = pytest.mark.usefixtures("bare_replies")
WIDTH, CLASSES = 5, 3
TOLD = {"alone": 0.5, "with-others": 0.75, "gain-low": 0.125, "gain-high": 0.375, "share": 0.25}
TESTED = {"eval-num-examples": 40, "eval-accuracy": 0.75, "eval-auroc": 0.5}


def initial():
    model = {"power": np.array(0.5, np.float32), "weight": np.zeros((CLASSES, WIDTH - 1), np.float32)}
    model["bias"] = np.zeros(CLASSES, np.float32)
    return ArrayRecord({name: Array(array) for name, array in model.items()})


class Site:
    """Sends sums, as they are or changed, and then figures; keeps the total that it gets."""

    def __init__(self, domain, told=TOLD | TESTED, **changed):
        self.domain, self.told, self.changed = domain, told, changed
        rng = np.random.default_rng(ord(domain))
        n = 20 + ord(domain) % 5
        rows, labels = to_rows(rng.normal(size=(n, WIDTH - 1))), rng.integers(0, CLASSES, n)
        self.sums = Sums.of(rows, to_targets(labels, CLASSES))
        self.total: Sums | None = None

    def __call__(self, model, message):
        if message.content["config"].get("sums"):
            content = reply_of(model, int(self.sums.rows), domain=self.domain)
            arrays = {**self.sums.to_arrays(), **self.changed}
            content["sums"] = ArrayRecord({name: Array(np.asarray(array)) for name, array in arrays.items()})
            return content
        arrays = {name: array.numpy() for name, array in message.content["total"].items()}
        assert {array.dtype.name for array in arrays.values()} == {"float64"}
        self.total = Sums.from_arrays(arrays, WIDTH, CLASSES)
        return reply_of(model, int(self.sums.rows), domain=self.domain, kept=1.0, **self.told)


def start(order="abcd", sites=None, **options):
    found = {domain: Site(domain) for domain in order} | (sites or {})
    strategy = RidgeEverySite(buffer_names={"power"}, **options)
    app = HandMade([("source", name, found[name]) for name in order])
    result = strategy.start(app.grid(), initial(), 1)
    return found, {name: array.numpy() for name, array in result.arrays.items()}, strategy.history[0]


def test_every_site_can_tell_the_sum_of_the_others_and_the_server_has_the_head_of_all():
    found, model, record = start()
    for domain, site in found.items():
        assert site.total is not None
        others = site.total - site.sums.rounded()
        sums = Sums.total((each.sums for name, each in found.items() if name != domain), WIDTH, CLASSES)
        for name in ("gram", "products", "squares"):
            expected = getattr(sums, name)
            tolerance = 1e-6 * np.abs(expected).max()
            np.testing.assert_allclose(getattr(others, name), expected, rtol=1e-6, atol=tolerance)
    whole = Sums.total((site.sums for site in found.values()), WIDTH, CLASSES)
    head = np.vstack([model["weight"].T, model["bias"]])
    np.testing.assert_allclose(head, 8 * whole.solution(), atol=1e-4)
    assert (record["held"], record["dropped"], record["target"]) == (None, [], None)
    assert record["sites"]["b"] == {
        **{"labels": int(found["b"].sums.rows), "test-examples": 40, "judged-by": "test"},
        **{"alone": 0.5, "with-others": 0.75, "gain": 0.25, "interval": [0.125, 0.375], "share": 0.25},
    }


def test_the_order_of_the_replies_changes_no_bit():
    ways = [start(order) for order in ("abcd", "dbca")]
    totals = [{domain: bits(site.total.to_arrays(np.float64)) for domain, site in w[0].items()} for w in ways]
    assert totals[0] == totals[1]
    assert bits(ways[0][1]) == bits(ways[1][1])
    assert list(ways[1][2]["sites"]) == ["a", "b", "c", "d"]


def test_the_headline_is_the_mean_over_sites():
    held_out = {name: TOLD[name] for name in ("alone", "with-others")} | {"with-others": 0.25}
    sites = {"a": Site("a", told=TOLD | TESTED | {"with-others": 1.0}), "b": Site("b", told=held_out)}
    _, _, record = start("abc", sites)
    assert record["accuracy"] == pytest.approx((1 + 0.25 + 0.75) / 3)
    assert record["auroc"] == 0.5, "of the sites with test samples"
    assert "test-examples" not in record
    assert record["sites"]["b"] == {
        **{"labels": record["sites"]["b"]["labels"], "judged-by": "held-out"},
        **{"alone": 0.5, "with-others": 0.25, "gain": -0.25},
    }


def indefinite():
    gram = np.zeros(15, np.float32)
    gram[[0, 5, 9, 12, 14]], gram[1] = 23, 23
    gram[[0, 5]] = 0
    return gram


@pytest.mark.parametrize("changed", [{"gram": -np.ones(15, np.float32)}, {"gram": indefinite()}], ids=str)
def test_a_site_with_impossible_sums_is_left_out_and_gets_nothing(changed):
    found, model, record = start(sites={"b": Site("b", **changed)})
    assert [each["domain"] for each in record["dropped"]] == ["b"]
    assert list(record["sites"]) == ["a", "c", "d"]
    assert found["b"].total is None
    without, same, _ = start("acd")
    assert bits(model) == bits(same)
    assert bits(found["a"].total.to_arrays(np.float64)) == bits(without["a"].total.to_arrays(np.float64))


def test_a_lost_site_is_not_in_the_total_and_one_lost_later_only_has_no_figures():
    found, _, record = start(sites={"b": failing(Site("b"))})
    assert list(record["sites"]) == ["a", "c", "d"]
    assert found["a"].total.rows == sum(found[domain].sums.rows for domain in "acd")

    def leaves(model, message):
        if "total" in message.content:
            raise OSError("off")
        return whole(model, message)

    whole = Site("b")
    found, _, record = start(sites={"b": leaves})
    assert list(record["sites"]) == ["a", "c", "d"]
    assert found["a"].total.rows == sum(found[d].sums.rows for d in "acd") + whole.sums.rows
    assert [each["domain"] for each in record["dropped"]] == ["b"]


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"with-others": 3.0}, "with-others"),
        ({"alone": -1.0}, "alone"),
        ({"eval-accuracy": 2.0}, "accuracy"),
        ({"kept": None}, "RidgeSite"),
    ],
)
def test_figures_that_cannot_be_are_dropped(told, why):
    site = Site("b")

    def lies(model, message):
        content = site(model, message)
        if "total" in message.content:
            metrics = {**content["metrics"], **told}
            content["metrics"] = MetricRecord({n: v for n, v in metrics.items() if v is not None})
        return content

    _, _, record = start(sites={"b": lies})
    (dropped,) = record["dropped"]
    assert (dropped["domain"], why in dropped["reason"]) == ("b", True)
    assert list(record["sites"]) == ["a", "c", "d"]
    assert record["accuracy"] == 0.75


def test_sites_that_tell_nothing_have_no_figures():
    _, _, record = start("abc", {d: Site(d, told={}) for d in "abc"}, report="none")
    assert all(list(site) == ["labels"] for site in record["sites"].values())
    assert "accuracy" not in record


def test_of_two_sites_each_can_tell_the_others_sums_which_is_said(flower_log):
    start("ab")
    assert "two sites" in flower_log.text


def test_one_site_alone_and_heads_of_single_sources_are_refused():
    with pytest.raises(RunError, check=names("sources", 1)):
        start("a", wait_seconds=0.1)
    with pytest.raises(ConfigError, check=names("per_source", True)):
        RidgeEverySite(per_source=True)
    with pytest.raises(ConfigError, check=names("secure", True)):
        RidgeEverySite(secure=True)
    RidgeEverySite().check_samples("source", "a", 1, 4)


def test_a_run_ends_with_what_the_others_bring():
    _, _, record = start()
    (line,) = RidgeEverySite().conclusion(record)
    assert "+25.0 points" in line
    assert "above 0 at 4 of 4 sites" in line
    assert RidgeEverySite().conclusion({"held": "no site"}) == []
