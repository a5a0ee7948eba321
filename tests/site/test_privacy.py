"""The mod in runs: the same bits when it is off, noise that repeats, a budget that ends the run."""

import json
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from handmade import HandMade, initial, moves, weights
from naming import names

from fda_flower import run
from fda_flower.client_app import make_client_app
from fda_flower.errors import ConfigError, RunError
from fda_flower.files import checksum, derive_seed
from fda_flower.records.folder import RunFolder
from fda_flower.runs.config import RunConfig
from fda_flower.runs.methods import METHODS
from fda_flower.site import DifferentialPrivacy, Ledger, PrivacySettings, PrivateSite, epsilon
from fda_flower.site.noise import Entry, gaussian
from fda_flower.strategies import FedAvg
from fda_flower.wire.internals import error_reply, numbered
from fda_flower.wire.protocol import BUDGET_CODE, to_layers, to_record

SMALL: dict[str, Any] = {"model": "logistic", "rounds": 2, "sources": 2, "device": "cpu"}
NOISY: dict[str, Any] = {"dp_clip": 1.0, "dp_noise": 2.0}
DELTA = 1e-5


def private(**settings):
    site = PrivateSite("all", PrivacySettings(**{"dp_clip": 1.0, **settings}))
    return DifferentialPrivacy(lambda context: site)


def spent(records, domain):
    return [record["privacy"][domain]["epsilon"] for record in records]


def test_noise_repeats_with_the_seed_and_epsilon_is_the_accountants(tmp_path):
    first = run(**SMALL, **NOISY, method="fedda-auto", output=tmp_path / "a")
    again = run(**SMALL, **NOISY, method="fedda-auto")
    plain = run(**SMALL, method="fedda-auto")
    for name, array in first.model.items():
        np.testing.assert_array_equal(array, again.model[name])
    assert not np.array_equal(first.model[name], plain.model[name])
    sources = [epsilon([(2.0, n)], DELTA) for n in (1, 2)]
    target = [epsilon([(2.0, 2 * n)], DELTA) for n in (1, 2)]
    assert spent(first.history, "source-1") == spent(again.history, "source-1") == sources
    assert spent(first.history, "target") == target
    assert first.history[0]["privacy"]["target"]["uncovered"] == ["evaluation"]
    assert "uncovered" not in first.history[0]["privacy"]["source-1"]
    assert all("privacy" not in record for record in plain.history)
    summary = json.loads((tmp_path / "a" / "summary.json").read_text())
    assert summary["privacy"]["target"]["epsilon"] == target[-1]
    assert (tmp_path / "a" / "clients" / "target" / "privacy.json").exists()


def test_clipping_alone_has_no_epsilon():
    result = run(**SMALL, dp_clip=0.1, method="fedda")
    assert result.history[0]["target"]["norm"] == pytest.approx(0.1, rel=1e-4)
    assert "privacy" not in result.history[0]
    assert "privacy" not in result.summary


def test_mixtures_target_sends_nothing_that_costs():
    options = {"report": "none"}
    result = run(**SMALL, **NOISY, method="mixture", method_options=options, dp_report="none")
    last = result.history[-1]["privacy"]
    assert last["target"] == {"epsilon": 0.0, "delta": DELTA}
    assert last["source-1"]["epsilon"] == epsilon([(2.0, 2)], DELTA)
    assert "accuracy" not in result.history[-1]


def test_a_run_stops_before_the_budget_with_its_checkpoint_and_goes_on_with_a_larger_one(tmp_path):
    budget = epsilon([(2.0, 1)], DELTA) + 0.1
    settings = {**SMALL, **NOISY, "method": "fedda"}
    with pytest.raises(RunError, match=r"round 2 .*'source-1' sends nothing: the privacy budget .* max-eps"):
        run(**settings, max_epsilon=budget, output=tmp_path / "a")
    assert RunFolder(tmp_path / "a").load_checkpoint().round == 1
    resumed = run(**settings, max_epsilon=100.0, output=tmp_path / "a", resume=True)
    whole = run(**settings, output=tmp_path / "b")
    assert [r["privacy"] for r in resumed.history] == [r["privacy"] for r in whole.history]
    for name, array in whole.model.items():
        np.testing.assert_array_equal(array, resumed.model[name])


@pytest.mark.parametrize("spends", ["before the training", "meanwhile, by another run"])
def test_a_spent_budget_has_an_error_code_of_its_own(spends, in_a_run, tmp_path):
    ledger = Ledger(tmp_path / "privacy.json", RecordDict())
    site = PrivateSite("a", PrivacySettings(**NOISY, max_epsilon=epsilon([(2.0, 1)], DELTA) + 0.1), ledger)

    def spend():
        ledger.spend(Entry(1, "another", 2.0, 1), DELTA, None)

    def app(message, context):
        spend()
        return Message(RecordDict({"arrays": initial()}), reply_to=message)

    if spends == "before the training":
        spend()
    (message,) = numbered([Message(RecordDict({"arrays": initial()}), 5, "train")])
    context = Context(run_id=1, node_id=5, node_config={}, state=RecordDict(), run_config={})
    assert DifferentialPrivacy(lambda context: site)(message, context, app).error.code == BUDGET_CODE


def test_a_round_that_is_done_again_in_a_simulation_is_the_same_release(tmp_path):
    settings = {**SMALL, **NOISY, "method": "fedda", "output": tmp_path / "a"}
    first = run(**settings)
    folder = RunFolder(tmp_path / "a")
    for file in ("checkpoint", "rounds.jsonl", "config.json"):
        (folder.path / file).unlink()
    again = run(**settings)
    assert spent(first.history, "target") == [epsilon([(2.0, n)], DELTA) for n in (1, 2)]
    assert spent(again.history, "target") == [epsilon([(2.0, 2)], DELTA)] * 2
    np.testing.assert_array_equal(first.accuracies, again.accuracies)


def test_each_method_works_or_is_refused_with_a_reason(method_of_each):
    method, refused = method_of_each
    strategy = METHODS[method].build(warmup_rounds=0)
    federation = [
        ("source", "a", moves([0.5, 0.25], domain="a", examples=30)),
        ("source", "b", moves([0.1, -0.7], domain="b", examples=7)),
        ("target", "t", moves([0.5, 0.4], "target", "t", examples=5, steps=2, rate=0.1)),
    ]
    hand = HandMade(federation, mods=[private(dp_noise=0.01)])
    result = strategy.start(hand.grid(), initial(), 1)
    (record,) = strategy.history
    if refused is None:
        assert record["held"] is None
        assert record["dropped"] == []
        assert np.isfinite(weights(result)).all()
    else:
        assert {refused in each["reason"] for each in record["dropped"]} == {True}


REFUSED = {
    "feddaf": "record 'adapted' has no known sensitivity",
    "ditto": "metric 'distance'",
    "irm": "metric 'penalty'",
    "vrex": "metric 'loss-at-start'",
    "kd3a": "metric '",
    "apfl": "metric 'alpha'",
    "groupdro": "it has no 'train-loss'",
}


@pytest.fixture(params=METHODS)
def method_of_each(request, in_a_run):
    return request.param, REFUSED.get(request.param)


def test_allowed_metrics_let_a_method_work_and_are_named(in_a_run):
    strategy = METHODS["vrex"].build()
    nodes = [("source", n, moves([0.1, 0.2], domain=n)) for n in "ab"] + [("target", "t", moves([0, 0]))]
    app = private(dp_noise=1.0, dp_allow="loss-at-start")
    strategy.start(HandMade(nodes, mods=[app]).grid(), initial(), 1)
    (record,) = strategy.history
    assert record["dropped"] == []
    assert record["privacy"]["a"]["uncovered"] == ["loss-at-start"]


def test_aggregation_on_the_target_sees_what_would_have_left():
    settings = {**SMALL, **NOISY, "method": "fedda-auto", "rounds": 1}
    server = run(**settings)
    target = run(**settings, method_options={"aggregate_on": "target"})
    for name, array in server.model.items():
        np.testing.assert_array_equal(array, target.model[name])
    assert spent(target.history, "target") == spent(server.history, "target")


def test_gradients_at_the_start_are_released_by_all():
    options = {"estimate_at": "start"}
    result = run(**SMALL, **NOISY, method="fedgp-auto", method_options=options)
    assert result.history[0]["dropped"] == []
    assert spent(result.history, "source-2") == [epsilon([(2.0, 3 * n)], DELTA) for n in (1, 2)]
    assert result.history[0]["sources"]["source-1"]["fallback"] is None


@pytest.mark.parametrize("method", ["fedda-auto", "fedgp-auto"])
def test_estimates_do_without_the_fallback(method):
    result = run(**SMALL, **NOISY, method=method)
    for record in result.history:
        assert [each["fallback"] for each in record["sources"].values()] == [None, None]


# a site's node

AS_FLOWERS_PAGES_SAY: dict[str, Any] = {"partition-id": 2, "num-partitions": 3}


def answer_of(node, asked, **engine):
    """The reply of the package's app to the first train message, with its noise and without."""
    config = RunConfig(**{**SMALL, **asked})
    content = RecordDict({"arrays": to_record(FIRST_MODEL), "config": ConfigRecord({"server-round": 1})})
    (message,) = numbered([Message(content, 5, "train")])
    context = Context(1, 5, node, RecordDict(), config.to_flower())
    return make_client_app(**engine)(message, context).content


FIRST_MODEL = {"0.weight": np.zeros((10, 64), np.float32), "0.bias": np.zeros(10, np.float32)}


def update_in(reply):
    return np.concatenate([layer.reshape(-1) for layer in to_layers(reply["arrays"]).values()])


def seeded_noise():
    """The noise that a server can make from what it knows: the run's seed, the domain and its own request."""
    request = checksum({"server-round": "1"}, FIRST_MODEL)[:16]
    draw = np.random.default_rng(derive_seed(0, "privacy", "target", request)).bytes
    return 2 * 2.0 * 1.0 * np.concatenate([gaussian(layer.size, draw) for layer in FIRST_MODEL.values()])


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


WORDS = {"dp-clip": 1.0, "dp-noise": 2.0}


@pytest.mark.parametrize(("words", "asked"), [(WORDS, {}), ({}, NOISY)], ids=["of the node", "of the run"])
def test_a_server_cannot_subtract_the_noise_of_a_node_that_looks_simulated(words, asked, in_a_run, tmp_path):
    node = AS_FLOWERS_PAGES_SAY | words
    with pytest.raises(ConfigError, check=names("target", None)):
        answer_of(node, asked)
    true = update_in(answer_of(AS_FLOWERS_PAGES_SAY, {}))
    reply = answer_of({**node, "state-dir": str(tmp_path)}, asked)
    assert abs(cosine(update_in(reply) - seeded_noise(), true)) < 0.3
    simulated = answer_of(AS_FLOWERS_PAGES_SAY, NOISY, simulated=True)
    assert cosine(update_in(simulated) - seeded_noise(), true) > 0.99, (
        "the attack works where noise is seeded"
    )
    with pytest.raises(ConfigError, check=names("target", None)):
        answer_of(AS_FLOWERS_PAGES_SAY | WORDS, asked, simulated=True)


def test_what_a_node_has_spent_lasts_over_runs_that_name_its_domain_otherwise(in_a_run, tmp_path):
    node = {**AS_FLOWERS_PAGES_SAY, "dp-clip": 1.0, "dp-noise": 2.0, "state-dir": str(tmp_path)}
    told = [answer_of(node, {"sources": sources})["info"] for sources in (2, 3)]
    assert [info["domain"] for info in told] == ["target", "source-3"]
    assert [info["epsilon"] for info in told] == [epsilon([(2.0, n)], DELTA) for n in (1, 2)]


def at_node(node, **state):
    context = Context(run_id=1, node_id=5, node_config=node, state=RecordDict(), run_config={})
    return PrivateSite.of(context, **state)


def test_a_sites_noise_is_the_operating_systems_and_its_total_is_in_its_state_dir(tmp_path):
    node = {"domain": "a", "state-dir": str(tmp_path), "dp-clip": 1.0, "dp-noise": 1.0}
    site = at_node(node, run=PrivacySettings(), seed=3, folder=tmp_path / "run")
    assert site.seed is None
    assert site.ledger.path == tmp_path / "a-privacy.json"
    draw = site.randomness("same")
    assert draw(16) != draw(16)
    assert site.settings.dp_noise == 1.0


def test_a_run_decides_where_the_node_says_nothing(tmp_path):
    asked = PrivacySettings(dp_clip=3.0, dp_noise=1.0)
    node = {"domain": "a", "state-dir": str(tmp_path)}
    assert at_node(node, run=asked).settings == asked
    assert at_node({**node, "dp-clip": 1.0}, run=asked).settings == PrivacySettings(dp_clip=1.0)
    assert at_node({**node, "dp-clip": 1.0}).ledger.path is None
    assert at_node(node) is None


def test_a_simulations_noise_follows_from_the_seed():
    node = {"partition-id": 1, "num-partitions": 3}
    sites = [at_node(node, domain="a", run=PrivacySettings(**NOISY), seed=seed) for seed in (0, 0, 1)]
    first, same, other = (site.randomness("request")(8) for site in sites)
    assert first == same != other
    assert sites[0].randomness("another")(8) != first


def test_a_site_without_a_state_dir_cannot_add_noise():
    with pytest.raises(ConfigError, check=names("a", None)):
        at_node({"domain": "a", "dp-clip": 1.0, "dp-noise": 1.0})


def test_the_node_says_in_its_answer_to_the_role_query_why_it_cannot_take_part(in_a_run):
    app = make_client_app(RunConfig(**SMALL))
    node: dict[str, Any] = {"domain": "target", "dp-clip": 1.0, "dp-noise": 1.0}
    (message,) = numbered([Message(RecordDict(), 5, "query.role")])
    context = Context(run_id=1, node_id=5, node_config=node, state=RecordDict(), run_config={})
    assert "no state-dir" in str(app(message, context).content["info"]["problem"])


def test_a_message_of_an_unknown_kind_is_refused(in_a_run):
    app = ClientApp(mods=[private()])

    @app.query("statistics")
    def statistics(message, context):
        return Message(RecordDict(), reply_to=message)

    (message,) = numbered([Message(RecordDict(), 5, "query.statistics")])
    context = Context(run_id=1, node_id=5, node_config={}, state=RecordDict(), run_config={})
    assert "'query.statistics' have no known sensitivity" in str(app(message, context).error.reason)


def test_an_error_of_the_app_passes(in_a_run):
    """The mod adds nothing to an error reply; what an app says in it is the app's."""

    def fails(message, context):
        return error_reply(message, "the disk is full")

    hand = HandMade([])
    content = RecordDict({"arrays": initial()})
    for kind in ("train", "evaluate"):
        (message,) = numbered([Message(content, 5, kind)])
        context = Context(run_id=1, node_id=5, node_config={}, state=RecordDict(), run_config={})
        assert private()(message, context, fails).error.reason == "the disk is full"
    assert hand.configs == []


def test_a_site_that_tells_nonsense_of_its_privacy_is_not_recorded(in_a_run):
    def odd(value):
        def mod(message, context, call_next):
            reply = call_next(message, context)
            if "info" in reply.content and message.metadata.message_type == "train":
                reply.content["info"]["epsilon"] = value
                reply.content["info"]["delta"] = 1e-5
            return reply

        return mod

    for value in (float("nan"), "much"):
        strategy = FedAvg()
        nodes = [("source", "a", moves([0.1, 0.2])), ("target", "t", moves([0.1, 0.1], "target", "t"))]
        strategy.start(HandMade(nodes, mods=[odd(value)]).grid(), initial(), 1)
        assert "privacy" not in strategy.history[0]
