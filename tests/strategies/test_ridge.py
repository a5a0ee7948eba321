"""Ridge on the server: sums that are added, what a target or every site gets, and what is made of replies."""

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, RecordDict
from handmade import HandMade, bits, failing, reply_of
from naming import names

from fda_flower import run
from fda_flower.aggregation import CentredSums, PrivateSums, Sums, names_of_heads, to_rows, to_targets
from fda_flower.aggregation.ridge import PATHS
from fda_flower.clients.private_state import PrivateState
from fda_flower.clients.secure_sums import SecureSums
from fda_flower.errors import ConfigError, RunError, unknown
from fda_flower.metrics import METRICS
from fda_flower.records.folder import RunFolder
from fda_flower.strategies import Ridge, RidgeEverySite
from fda_flower.strategies.nodes import Node
from fda_flower.wire.asked.ridge import FitHead, FitSiteHead, HeadFitted, SiteFitted, Summed, SumRows
from fda_flower.wire.asked.secure_sums import MaskSums
from fda_flower.wire.secure_sums import encode

pytestmark = pytest.mark.usefixtures("bare_replies")
WIDTH, CLASSES = 5, 3
FITTED = {"weight": np.full((CLASSES, WIDTH - 1), 2.0, np.float32), "bias": np.ones(CLASSES, np.float32)}
TOLD = HeadFitted(
    temperature=7.0, held_out=0.75, held_out_target=0.5, share=0.25, weights={"shrunk-0.1": 1.0}
)


def initial(**more):
    model = {"power": np.array(0.5, np.float32), "weight": np.zeros((3, 4), np.float32), **more}
    model["bias"] = np.zeros(CLASSES, np.float32)
    return ArrayRecord({name: Array(array) for name, array in model.items()})


def sums_of(domain, regression=False):
    rng = np.random.default_rng(ord(domain))
    n = 20 + ord(domain) % 5
    targets = rng.normal(50, 7, (n, CLASSES)) if regression else to_targets(rng.integers(0, 3, n), CLASSES)
    return Sums.of(to_rows(rng.normal(size=(n, WIDTH - 1))), targets)


class Site:
    """Replies with sums, as they are or changed, or as a target with a head; keeps what it is sent."""

    def __init__(self, domain, change=None, regression=False, told=TOLD, examples=None, sums=None, **changed):
        self.domain, self.change, self.told, self.examples = domain, change, told, examples
        self.sums, self.changed = sums or sums_of(domain, regression), changed
        self.received: list = []
        self.masks = SecureSums(PrivateState(RecordDict()))

    def __call__(self, model, message):
        self.received.append(message.content)
        kind, arrays = message.metadata.message_type, {**self.sums.to_arrays(), **self.changed}
        if self.domain == "t":
            new = {name: FITTED.get(name, array + 1) for name, array in model.items()}
            return with_answer(reply_of(new, 8, role="target", domain="t"), self.told)
        content = reply_of(model, self.examples or int(self.sums.rows), domain=self.domain)
        if kind == MaskSums.message_type():
            sums = Sums.from_arrays(arrays, WIDTH, CLASSES)
            return with_answer(
                content, self.masks.answer(MaskSums.read(message.content), 1, lambda: encode(sums.vector))
            )
        return with_answer(content, Summed(sums=arrays))

    @property
    def asked(self):
        """What the target is asked."""
        return FitHead.read(self.received[0])

    def sent(self):
        """What the target was sent, by name."""
        return dict(self.asked.start)


def with_answer(content, answer):
    """A reply that answers a question."""
    if answer is not None:
        content.update(answer.records())
    return content


def start(order="abct", info=None, sites=None, model=None, rounds=1, **options):
    found = {domain: Site(domain) for domain in {*order}} | (sites or {})
    nodes = [("target" if name == "t" else "source", name, found[name]) for name in order]
    strategy = Ridge(buffer_names={"power"}, **options)
    app = HandMade(nodes, info=info or {})
    result = strategy.start(app.grid(), model or initial(), rounds)
    return found, result.arrays, strategy


def test_the_target_gets_the_sources_solution_and_its_head_is_the_model():
    found, arrays, strategy = start()
    total = Sums.total((sums_of(domain) for domain in "abc"), WIDTH, CLASSES)
    sent = found["t"].sent()
    assert sent.keys() == {"gram", "solution"}
    np.testing.assert_allclose(sent["solution"], total.solution(), atol=1e-5)
    np.testing.assert_allclose(sent["gram"], total.gram, rtol=1e-6)
    assert {array.dtype.name for array in sent.values()} == {"float32"}
    assert found["t"].asked.paths == "both"
    assert [SumRows.read(found[d].received[0]).noise for d in "abc"] == [True] * 3
    model = {name: array.numpy() for name, array in arrays.items()}
    assert {name: model[name].tolist() for name in FITTED} == {n: a.tolist() for n, a in FITTED.items()}
    assert model["power"] == 0.5, "it is not the target's"
    (record,) = strategy.history
    ridge = record["ridge"]
    assert (ridge["held-out"], ridge["temperature"], ridge["share"]) == (0.75, 7, 0.25)
    assert len(ridge["weights"]) == 17
    assert (ridge["weights"]["shrunk-0.1"], ridge["weights"]["pooled-1"]) == (1, None)
    assert record["dropped"] == []


def test_the_order_of_the_sources_changes_no_bit():
    ways = [start(order)[0]["t"].sent() for order in ("abct", "tcab", "cbta")]
    assert bits(ways[0]) == bits(ways[1]) == bits(ways[2])


def test_one_path_and_the_rivals_send_less():
    assert start(paths="shrunk")[0]["t"].sent().keys() == {"solution"}
    assert start(paths="sources")[0]["t"].sent().keys() == {"solution"}
    assert start(paths="pooled")[0]["t"].sent().keys() == {"gram", "solution"}


TABLE = {"columns": 4, "shape": [4]}


@pytest.mark.parametrize(
    ("info", "options", "paths"),
    [
        (TABLE, {}, "logistic"),
        ({"columns": 4, "shape": [2, 2]}, {}, "logistic"),
        ({"columns": 4, "shape": [20]}, {}, "both"),  # with a text
        ({"shape": [4]}, {}, "both"),  # of an older client
        (TABLE | {"regression": True}, {}, "both"),
        (TABLE, {"paths": "both"}, "both"),
        (TABLE, {"paths": "shrunk"}, "shrunk"),
        ({}, {"paths": "logistic"}, "logistic"),
    ],
    ids=str,
)
def test_the_classes_of_a_table_have_logistic_heads_which_need_the_solution_alone(info, options, paths):
    regression = info.get("regression", False)
    sites = {domain: Site(domain, regression=regression) for domain in "abct"}
    found, _, strategy = start(info={"t": info}, sites=sites, **options)
    asked, sent = found["t"].asked, found["t"].sent()
    entry = strategy.history[0]["ridge"]
    assert (asked.paths, asked.unlabelled, entry["paths"]) == (paths, paths != "logistic", paths)
    assert list(entry["weights"]) == names_of_heads(paths)
    assert ("gram" in sent) == (paths == "both")
    if paths == "logistic":
        total = Sums.total((sums_of(domain) for domain in "abc"), WIDTH, CLASSES)
        np.testing.assert_allclose(sent["solution"], total.solution(), atol=1e-5)
        assert [SumRows.read(found[d].received[0]).noise for d in "abc"] == [not options] * 3


def test_logistic_heads_are_refused_for_numbers_and_where_noise_protects_patients():
    with pytest.raises(ConfigError, check=names("paths", "logistic", "leave it out")):
        start(info={"t": {"regression": True}}, paths="logistic")
    assert "logistic" in str(Ridge(paths="logistic").without_patients)
    assert Ridge().without_patients is None


def test_a_target_of_an_older_version_is_named_with_the_heads_that_it_does_not_know():
    def older(model, message):
        raise unknown("word for its question paths", FitHead.read(message.content).paths, PATHS)

    _, arrays, strategy = start(info={"t": TABLE}, sites={"t": older})
    (record,) = strategy.history
    (dropped,) = record["dropped"]
    assert (dropped["domain"], "'logistic'" in dropped["reason"]) == ("t", True)
    assert record["held"] == "no usable reply of the target"
    assert bits(arrays) == bits(initial())


def private_sums(domain):
    rng = np.random.default_rng(ord(domain))
    n = int(sums_of(domain).rows)
    rows, targets = to_rows(rng.normal(size=(n, WIDTH - 1))), to_targets(rng.integers(0, 3, n), CLASSES)
    return PrivateSums.of(rows, targets, None, np.zeros(WIDTH)).noisy(rng.standard_normal(30), 2.0)


@pytest.mark.parametrize(("noisy", "info"), [("abc", {}), ("b", TABLE)])
def test_noisy_sums_have_several_solutions_without_the_heads_that_take_them_as_they_are(noisy, info):
    sums = {domain: private_sums(domain) if domain in noisy else sums_of(domain) for domain in "abc"}
    sites = {domain: Site(domain, sums=each) for domain, each in sums.items()}
    found, _, strategy = start(sites=sites, info={"t": info})
    sent = found["t"].sent()
    assert {name: array.shape for name, array in sent.items()} == {"solution": (3, WIDTH, CLASSES)}
    np.testing.assert_allclose(sent["solution"], CentredSums.total(sums.values()).solution(), atol=1e-5)
    assert found["t"].asked.paths == "shrunk"
    assert strategy.history[0]["ridge"]["paths"] == "shrunk"
    assert len(strategy.history[0]["ridge"]["weights"]) == 10


def test_a_source_that_claims_far_more_noise_than_most_is_dropped():
    sums = {domain: private_sums(domain) for domain in "abc"}
    sites = {domain: Site(domain, sums=each) for domain, each in sums.items()}
    sites["b"] = Site("b", sums=replace(sums["b"], deviation=17.0))
    found, _, strategy = start(sites=sites)
    expected = CentredSums.total([sums["a"], sums["c"]]).solution()
    np.testing.assert_allclose(found["t"].sent()["solution"], expected, atol=1e-5)
    (dropped,) = strategy.history[0]["dropped"]
    assert dropped["domain"] == "b"
    assert "its noise has the deviation 17" in dropped["reason"]


def test_the_labels_of_a_regression_are_scaled_by_all_sources():
    sites = {domain: Site(domain, regression=True) for domain in "abct"}
    found, _, _ = start(info={"t": {"regression": True}}, sites=sites)
    sent = found["t"].sent()
    total = Sums.total((sums_of(domain, True) for domain in "abc"), WIDTH, CLASSES)
    mean, deviation = total.scale
    np.testing.assert_allclose(sent["mean"], mean, rtol=1e-5)
    np.testing.assert_allclose(sent["deviation"], deviation, rtol=1e-3)
    assert (np.abs(mean - 50) < 5).all()
    assert (np.abs(deviation - 7) < 2).all()
    np.testing.assert_allclose(sent["solution"], total.scaled(mean, deviation).solution(), atol=1e-3)


SENT = sums_of("b").to_arrays()


def indefinite(size):
    """Sums whose numbers each are possible, but not all of them together."""
    gram = np.zeros(15, np.float32)
    gram[[0, 5, 9, 12, 14]], gram[1] = SENT["gram"][-1], size * SENT["gram"][-1]
    gram[[0, 5]] = 0
    return gram


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"gram": SENT["gram"][:-3]}, "rows of 5 numbers"),
        ({"gram": SENT["gram"] * 2}, "examples"),
        ({"gram": indefinite(1.0)}, "positive definite"),
    ],
)
def test_sums_that_cannot_be_are_dropped_and_change_nothing(changed, says):
    found, _, strategy = start(sites={"b": Site("b", **changed)})
    (record,) = strategy.history
    (dropped,) = record["dropped"]
    assert (dropped["domain"], says in dropped["reason"], record["held"]) == ("b", True, None)
    assert list(record["sources"]) == ["a", "c"]
    assert bits(found["t"].sent()) == bits(start("act")[0]["t"].sent())


def test_without_enough_sums_or_the_target_the_round_is_held():
    bad = {domain: Site(domain, gram=-SENT["gram"]) for domain in "abc"}
    found, arrays, strategy = start(sites=bad)
    assert "0 usable replies of sources" in strategy.history[0]["held"]
    assert bits(arrays) == bits(initial())
    assert found["t"].received == []
    useless = Summed(sums={})
    _, arrays, strategy = start(sites={"t": Site("t", told=useless)})
    assert "temperature" in strategy.history[0]["dropped"][0]["reason"]
    assert bits(arrays) == bits(initial())


def test_a_model_that_is_no_linear_layer_or_too_wide_is_refused():
    with pytest.raises(ConfigError, check=names("model", "Ridge")):
        start(model=initial(hidden=np.zeros((4, 2), np.float32)))
    wide = initial(weight=np.zeros((3, 9000), np.float32))
    with pytest.raises(ConfigError, check=names("model", 9000, "pretrained")):
        start(model=wide)


def test_the_target_needs_two_labels():
    Ridge().check_samples("target", "t", 2, 4)
    Ridge().check_samples("source", "a", 1, 4)
    with pytest.raises(ConfigError, check=names("t", 1, "2")):
        Ridge().check_samples("target", "t", 1, 4)


def figures(whole, alone):
    return {"held-out": whole, "held-out-target": alone}


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ({"ridge": figures(0.774, 0.62)}, ["+15.4 points", "77.4% with", "62.0% without"]),
        ({"ridge": figures(0.5, 0.6) | {"fewest-labels": 2}}, ["-10.0 points", "optimistic"]),
        ({"ridge": figures(0.5, 0.25), "r2": 0.1}, ["+0.250 of R²", "0.500 with", "0.250 without"]),
    ],
)
def test_a_run_ends_with_what_the_sources_bring(record, says):
    (line,) = Ridge().conclusion(record)
    for word in says:
        assert word in line
    assert ("optimistic" in line) == ("optimistic" in says)


def test_a_run_ends_with_what_half_of_the_labels_were_worth():
    entry = figures(0.84, 0.77) | {"held-out-half": 0.8}
    record = {"ridge": entry, "judged-in": "auroc", "target": {"examples": 40}}
    assert Ridge().conclusion(record)[1] == (
        "Held out: AUROC 84.0% with all 40 labels, 80.0% with half of them; more labels: not forecast"
    )
    sites = {"a": {"gain": 0.1, "held-out": 0.8, "held-out-half": 0.7}, "b": {"gain": 0.3}}
    assert RidgeEverySite().conclusion({"sites": sites, "accuracy": 0.8})[1:] == [
        "Held out: 80.0% with all labels, 70.0% with half of them on average over 1 site; more labels: not "
        "forecast"
    ]


def test_the_target_is_asked_for_the_runs_metric_which_cannot_change_later(tmp_path):
    found, _, _ = start(info={"t": {"headline": "auroc"}})
    assert found["t"].asked.metric == "auroc", "which a rare class asks for"
    found, _, strategy = start(metric="auroc", output=RunFolder(tmp_path))
    assert found["t"].asked.metric == "auroc"
    (record,) = strategy.history
    assert record["judged-in"] == "auroc"
    assert "+25.0 points of AUROC" in strategy.conclusion(record)[0]
    for metric, refused in (("accuracy", True), (None, True), ("auroc", False)):
        with (
            pytest.raises(ConfigError, check=names("metric", "accuracy", "--metric auroc"))
            if refused
            else nullcontext()
        ):
            start(metric=metric, output=RunFolder(tmp_path, resume=True), rounds=2)


def test_a_round_that_is_held_says_nothing():
    assert Ridge().conclusion({"held": "no usable reply of the target"}) == []


@pytest.mark.parametrize("regression", [False, True])
def test_masked_sums_give_the_target_the_same_up_to_fixed_point(regression):
    def sent(order, **options):
        sites = {domain: Site(domain, regression=regression) for domain in "abct"}
        found, _, strategy = start(order, {"t": {"regression": regression}}, sites, **options)
        return found["t"].sent(), strategy.history[0]

    masked, record = sent("abct", secure=True)
    plain, without = sent("abct")
    assert masked.keys() == plain.keys()
    for name, array in masked.items():
        np.testing.assert_allclose(array, plain[name], rtol=1e-5, atol=1e-5)
    assert bits(masked) == bits(sent("tcba", secure=True)[0])
    assert record["ridge"] == {**without["ridge"], "secure": True}
    assert record["sources"] == without["sources"]
    assert (record["held"], record["dropped"]) == (None, [])


def broken(domain):
    """A source that has lost its memory when it is asked for masked sums."""
    site = Site(domain)

    def answer(model, message):
        if MaskSums.read(message.content).stage == "masked":
            site.masks = SecureSums(PrivateState(RecordDict()))
        return site(model, message)

    return answer


def test_a_source_that_is_lost_is_not_in_the_sum():
    found, _, strategy = start("abcdeft", sites={"b": broken("b")}, secure=True)
    (record,) = strategy.history
    assert list(record["sources"]) == list("acdef")
    assert [each["domain"] for each in record["dropped"]] == ["b"]
    plain = start("acdeft")[0]["t"].sent()
    for name, array in found["t"].sent().items():
        np.testing.assert_allclose(array, plain[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("sites", "options", "says"),
    [
        ({"a": broken("a"), "b": broken("b")}, {}, "4 of 6 sources have usable 'masked', masked sums need 5"),
        ({"b": broken("b")}, {"min_sources": 6}, "masked sums need 6"),
        ({"b": Site("b", examples=99)}, {}, "sources report"),
    ],
)
def test_a_round_with_masks_is_held_without_enough_sources_or_with_rows_that_cannot_be(sites, options, says):
    found, arrays, strategy = start("abcdeft", sites=sites, secure=True, **options)
    assert says in strategy.history[0]["held"]
    assert found["t"].received == []
    assert bits(arrays) == bits(initial())


def test_what_masks_cannot_do_is_refused():
    with pytest.raises(ConfigError, check=names("warmup_rounds", 1)):
        Ridge(secure=True, warmup_rounds=1)
    with pytest.raises(ConfigError, check=names("secure", 2, "wait_for")):
        start("abt", secure=True)


# Where every site is a target

HELD_OUT = SiteFitted(kept=True, alone=0.5, with_others=0.75, gain_low=0.125, gain_high=0.375, share=0.25)
TESTED = replace(HELD_OUT, test_examples=40, test={"accuracy": 0.75, "auroc": 0.5})


class EverySite(Site):
    """Sends sums, perhaps changed, then figures; keeps the total that it gets."""

    def __init__(self, domain, told=TESTED, **changed):
        super().__init__(domain, told=told, **changed)
        self.total: Sums | None = None
        self.question: Any = None

    def __call__(self, model, message):
        if message.metadata.message_type == SumRows.message_type():
            assert not SumRows.read(message.content).noise
            return super().__call__(model, message)
        self.question = FitSiteHead.read(message.content)
        arrays = self.question.total
        assert {array.dtype.name for array in arrays.values()} == {"float64"}
        self.total = Sums.from_arrays(arrays, WIDTH, self.sums.products.shape[1])
        return with_answer(reply_of(model, int(self.sums.rows), domain=self.domain), self.told)


def start_all(order="abcd", sites=None, info=None, model=None, **options):
    found = {domain: EverySite(domain) for domain in order} | (sites or {})
    strategy = RidgeEverySite(buffer_names={"power"}, **options)
    app = HandMade([("source", name, found[name]) for name in order], info=info or {})
    result = strategy.start(app.grid(), model or initial(), 1)
    return found, {name: array.numpy() for name, array in result.arrays.items()}, strategy.history[0]


def test_every_site_can_tell_the_sum_of_the_others_and_the_server_has_the_head_of_all():
    found, model, record = start_all()
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


@pytest.mark.parametrize(("lacking", "paths", "factor"), [("", "logistic", 3), ("b", "both", 8)])
def test_sites_of_tables_fit_logistic_heads_and_a_new_one_has_their_usual_scale(lacking, paths, factor):
    found, model, _ = start_all(info={domain: TABLE for domain in "abcd" if domain not in lacking})
    asked = {(site.question.paths, site.question.unlabelled) for site in found.values()}
    assert asked == {(paths, paths != "logistic")}
    whole = Sums.total((site.sums for site in found.values()), WIDTH, CLASSES)
    head = np.vstack([model["weight"].T, model["bias"]])
    np.testing.assert_allclose(head, factor * whole.solution(), atol=1e-4)


def test_the_order_of_the_sites_replies_changes_no_bit():
    ways = [start_all(order) for order in ("abcd", "dbca")]
    totals = [{domain: bits(site.total.to_arrays(np.float64)) for domain, site in w[0].items()} for w in ways]
    assert totals[0] == totals[1]
    assert bits(ways[0][1]) == bits(ways[1][1])
    assert list(ways[1][2]["sites"]) == ["a", "b", "c", "d"]


def test_the_headline_is_the_mean_over_sites():
    sites = {
        "a": EverySite("a", told=replace(TESTED, with_others=1.0)),
        "b": EverySite("b", told=SiteFitted(kept=True, alone=0.5, with_others=0.25)),
    }
    _, _, record = start_all("abc", sites)
    assert record["accuracy"] == pytest.approx((1 + 0.25 + 0.75) / 3)
    assert record["auroc"] == 0.5, "of the sites with test samples"
    assert "test-examples" not in record
    assert record["sites"]["b"] == {
        **{"labels": record["sites"]["b"]["labels"], "judged-by": "held-out"},
        **{"alone": 0.5, "with-others": 0.25, "gain": -0.25},
    }


@pytest.mark.parametrize(
    ("options", "metric", "headline"),
    [
        ({}, "auroc", "auroc"),
        ({"metric": "accuracy"}, None, None),
        ({"metric": "macro-f1"}, "macro-f1", None),
    ],
)
def test_all_sites_are_judged_in_one_metric_where_a_class_is_rare_in_auroc(options, metric, headline):
    y = np.arange(40) % 20 == 0
    rows = to_rows(np.random.default_rng(0).normal(size=(40, WIDTH - 1)))
    sites = {d: EverySite(d, sums=Sums.of(rows, to_targets(y.astype(int), 2))) for d in "abc"}
    model = {"power": np.array(0.5, np.float32), "weight": np.zeros((2, 4)), "bias": np.zeros(2)}
    arrays = ArrayRecord({name: Array(np.asarray(array)) for name, array in model.items()})
    found, _, record = start_all("abc", sites, model=arrays, **options)
    assert {site.question.metric for site in found.values()} == {metric}
    assert (record["judged-in"], record.get("headline")) == (metric or "accuracy", headline)
    assert METRICS[metric or "accuracy"].title in RidgeEverySite().conclusion(record)[0]


@pytest.mark.parametrize("changed", [{"gram": -np.ones(15, np.float32)}, {"gram": indefinite(1.0)}], ids=str)
def test_a_site_with_impossible_sums_is_left_out_and_gets_nothing(changed):
    found, model, record = start_all(sites={"b": EverySite("b", **changed)})
    assert [each["domain"] for each in record["dropped"]] == ["b"]
    assert list(record["sites"]) == ["a", "c", "d"]
    assert found["b"].total is None
    without, same, _ = start_all("acd")
    assert bits(model) == bits(same)
    assert bits(found["a"].total.to_arrays(np.float64)) == bits(without["a"].total.to_arrays(np.float64))


def test_a_lost_site_is_not_in_the_total_and_one_lost_later_only_has_no_figures():
    found, _, record = start_all(sites={"b": failing(EverySite("b"))})
    assert list(record["sites"]) == ["a", "c", "d"]
    assert found["a"].total.rows == sum(found[domain].sums.rows for domain in "acd")

    def leaves(model, message):
        if message.metadata.message_type == FitSiteHead.message_type():
            raise OSError("off")
        return whole(model, message)

    whole = EverySite("b")
    found, _, record = start_all(sites={"b": leaves})
    assert list(record["sites"]) == ["a", "c", "d"]
    assert found["a"].total.rows == sum(found[d].sums.rows for d in "acd") + whole.sums.rows
    assert [each["domain"] for each in record["dropped"]] == ["b"]


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (replace(TESTED, with_others=3.0), "with-others"),
        (replace(TESTED, alone=-1.0), "alone"),
        (replace(TESTED, test={"accuracy": 2.0}), "accuracy"),
        (replace(TESTED, test={"beauty": 0.5}), "beauty"),
        (TOLD, "kept"),
    ],
)
def test_figures_that_cannot_be_are_dropped(told, why):
    _, _, record = start_all(sites={"b": EverySite("b", told=told)})
    (dropped,) = record["dropped"]
    assert (dropped["domain"], why in dropped["reason"]) == ("b", True)
    assert list(record["sites"]) == ["a", "c", "d"]
    assert record["accuracy"] == 0.75


def test_masked_sums_bring_every_site_the_same_as_open_ones():
    settings: dict[str, Any] = {"shift": "rotate", "sources": 3, "target": "all", "target_samples": 30}
    settings |= {"method": "ridge", "model": "logistic", "device": "cpu", "engine": "local"}
    plain, masked = (run(**settings, method_options={"secure": on}) for on in (False, True))
    for name, array in plain.model.items():
        assert np.allclose(masked.model[name].astype(float), array.astype(float), atol=1e-4)
    (record,), (same,) = plain.history, masked.history
    assert list(record["sites"]) == list(same["sites"])
    assert len(same["sites"]) == 4
    for domain, site in record["sites"].items():
        assert same["sites"][domain]["alone"] == site["alone"]
        assert same["sites"][domain]["with-others"] == pytest.approx(site["with-others"], abs=0.01)


def test_sites_that_tell_nothing_have_no_figures():
    sites = {domain: EverySite(domain, told=SiteFitted(kept=True)) for domain in "abc"}
    _, _, record = start_all("abc", sites, report="none")
    assert "report=none" in str(RidgeEverySite(report="none").conclusion(record))
    assert all(list(site) == ["labels"] for site in record["sites"].values())
    assert "accuracy" not in record


def test_of_two_sites_each_can_tell_the_others_sums_which_is_said(flower_log):
    start_all("ab")
    assert "two sites" in flower_log.text


def test_one_site_alone_is_refused():
    with pytest.raises(RunError, check=names("sources", 1)):
        start_all("a", wait_seconds=0.1)
    with pytest.raises(ConfigError, check=names("secure", 2, "wait_for")):
        start_all("ab", secure=True)
    RidgeEverySite().check_samples("source", "a", 1, 4)


def test_a_run_of_all_sites_ends_with_what_the_others_bring():
    _, _, record = start_all()
    (line,) = RidgeEverySite().conclusion(record)
    assert "+25.0 points" in line
    assert "above 0 at 4 of 4 sites" in line
    assert RidgeEverySite().conclusion({"held": "no site"}) == []


def test_a_fit_to_samples_without_labels_is_the_default_and_is_refused_where_there_is_none():
    assert Ridge().unlabelled is Ridge(unlabelled=True).unlabelled is True, "earlier folders resume"
    target = Node(1, "t", True)
    Ridge(paths="logistic").validate_nodes([target])
    with pytest.raises(ConfigError, check=names("unlabelled", "true", remedy="paths=both")):
        Ridge(paths="logistic", unlabelled=True).validate_nodes([target])
