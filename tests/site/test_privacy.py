"""Each record of a reply, worked by hand, and the mod in runs: noise that repeats, a budget that ends one."""

import json
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from handmade import HandMade, initial, moves, weights
from naming import names
from whole_runs import same_bits

from fda_flower import run
from fda_flower.aggregation import (
    BatchUpdates,
    CountSketch,
    PrivateSums,
    change_of_patient,
    multipliers,
    to_targets,
)
from fda_flower.aggregation.gradients import MeanGradient
from fda_flower.client_app import make_client, make_client_app
from fda_flower.clients import ridge_reply
from fda_flower.errors import ConfigError, RunError
from fda_flower.files import checksum, derive_seed
from fda_flower.names.packages import missing_extra
from fda_flower.records.folder import RunFolder
from fda_flower.runs.config import RunConfig
from fda_flower.runs.methods import METHODS
from fda_flower.site import (
    DifferentialPrivacy,
    Ledger,
    Mechanism,
    PrivacyError,
    PrivacySettings,
    PrivateSite,
    epsilon,
    epsilon_of_steps,
)
from fda_flower.site.ledger import BudgetError, Entry
from fda_flower.site.noise import gaussian
from fda_flower.site.sensitivities import (
    PrivateExchange,
    batch_updates,
    gradients,
    planned,
    protect_evaluation,
    protect_training,
    trained_model,
)
from fda_flower.wire.asked.personal import Guided
from fda_flower.wire.asked.ridge import FitHead, SumRows
from fda_flower.wire.internals import error_reply, numbered
from fda_flower.wire.protocol import BUDGET_CODE, to_layers, to_record

SMALL: dict[str, Any] = {"model": "logistic", "rounds": 2, "sources": 2, "device": "cpu"}
NOISY: dict[str, Any] = {"dp_clip": 1.0, "dp_noise": 2.0}
DELTA = 1e-5


def private(**settings):
    site = PrivateSite("all", PrivacySettings(**{"dp_clip": 1.0, **settings}))
    return DifferentialPrivacy(lambda context: site)


def asking(kind="train", **records):
    (message,) = numbered([Message(RecordDict(records), 5, kind)])
    return message


def context(node=None, settings=None):
    return Context(1, 5, node or {}, RecordDict(), settings or {})


def spent(records, domain):
    return [record["privacy"][domain]["epsilon"] for record in records]


def test_noise_repeats_with_the_seed_and_epsilon_is_the_accountants(tmp_path):
    first = run(**SMALL, **NOISY, method="fedda-auto", output=tmp_path / "a")
    again = run(**SMALL, **NOISY, method="fedda-auto")
    plain = run(**SMALL, method="fedda-auto")
    assert same_bits(first.model, again.model)
    assert not same_bits(first.model, plain.model)
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
    assert result.history[-1]["test-examples"] == result.history[0]["sizes"]["target"]["test"] > 0


def test_a_run_stops_before_the_budget_with_its_checkpoint_and_goes_on_with_a_larger_one(tmp_path):
    budget = epsilon([(2.0, 1)], DELTA) + 0.1
    settings = {**SMALL, **NOISY, "method": "fedda"}
    with pytest.raises(RunError, match=r"round 2 .*'source-1'.*max-eps"):
        run(**settings, max_epsilon=budget, output=tmp_path / "a")
    assert RunFolder(tmp_path / "a").load_checkpoint().round == 1
    resumed = run(**settings, max_epsilon=100.0, output=tmp_path / "a", resume=True)
    whole = run(**settings, output=tmp_path / "b")
    assert [r["privacy"] for r in resumed.history] == [r["privacy"] for r in whole.history]
    assert same_bits(whole.model, resumed.model)


def test_a_spent_budget_has_an_error_code_of_its_own(in_a_run, tmp_path):
    ledger = Ledger(tmp_path / "privacy.json", RecordDict())
    most = epsilon([(2.0, 1)], DELTA) + 0.1
    site = PrivateSite("a", PrivacySettings(**NOISY, max_epsilon=most), ledger)

    def app(message, context):
        with pytest.raises(BudgetError):  # another run of the site, at the same time
            ledger.spend(Entry(1, "another", 2.0, 1), DELTA, most)
        return Message(RecordDict({"arrays": initial()}), reply_to=message)

    replies = [
        DifferentialPrivacy(lambda context: site)(asking(arrays=initial()), context(), app) for _ in "ab"
    ]
    assert not replies[0].has_error()
    assert replies[1].error.code == BUDGET_CODE


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


REFUSED = {
    "feddaf": "replies to 'train.blend' have no known sensitivity",
    "ditto": "'distance' of its answer",
    "irm": "'penalty' of its answer",
    "vrex": "'loss-at-start' of its answer",
    "kd3a": "of its answer",
    "fada": "replies to 'train.disentangle' have no known sensitivity",
    "ridge": "replies to 'train.sum_rows' have no known sensitivity",
    "apfl": "'alpha' of its answer",
    "pfedfda": "replies to 'train.mix_gaussians' have no known sensitivity",
    "groupdro": "it has no 'train-loss'",
}


@pytest.mark.parametrize("method", METHODS)
def test_each_method_works_or_is_refused_with_a_reason(method, in_a_run):
    refused = REFUSED.get(method)
    strategy = METHODS[method].build(warmup_rounds=0)
    federation = [
        ("source", "a", moves([0.5, 0.25], domain="a", examples=30)),
        ("source", "b", moves([0.1, -0.7], domain="b", examples=7)),
        ("target", "t", moves([0.5, 0.4], "target", "t", examples=5, steps=2, rate=0.1)),
    ]
    hand = HandMade(federation, mods=[private(dp_noise=0.01)])
    try:
        result = strategy.start(hand.grid(), initial(method=method), 1)
        reasons = [each["reason"] for each in strategy.history[0]["dropped"]]
    except RunError as error:  # all sites that were asked refuse alike
        reasons = [str(error)]
    if refused is None:
        assert reasons == []
        assert strategy.history[0]["held"] is None
        assert np.isfinite(weights(result)).all()
    else:
        assert {refused in reason for reason in reasons} == {True}
    assert works(method, NOISY) == (refused is None), "a run says so before it begins"


def works(method, settings):
    try:
        return bool(RunConfig(method=method, **settings))
    except ConfigError as error:
        return error.thing not in ("dp-clip", "dp-allow")


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
    assert same_bits(server.model, target.model)
    assert spent(target.history, "target") == spent(server.history, "target")


@pytest.mark.parametrize(
    ("method", "options", "releases"),
    [("fedgp-auto", {}, 1), ("fedgp-auto", {"estimate_at": "start"}, 3)],
)
def test_estimates_do_without_the_fallback(method, options, releases):
    result = run(**SMALL, **NOISY, method=method, method_options=options)
    for record in result.history:
        assert record["dropped"] == []
        assert [each["fallback"] for each in record["sources"].values()] == [None, None]
    assert spent(result.history, "source-2") == [epsilon([(2.0, releases * n)], DELTA) for n in (1, 2)]


# a patient


PATIENTS: dict[str, Any] = {"dp_unit": "patient", "dp_group": "row", "dp_noise": 2.0}
ROWS_OF_PATIENTS = np.hstack([np.eye(4)[[0, 1, 2, 3, 0, 0]] * 3, np.ones((6, 1))])


def sums_sent(settings, ledger=None, config=None, records=None, kind="train.sum_rows", **answer):
    """The reply of a node with rows to Ridge's question, behind the mod."""
    ledger = ledger or Ledger(None, RecordDict())
    site = PrivateSite("a", PrivacySettings(**settings), ledger, 0) if settings else None
    model = to_record({"weight": np.zeros((3, 4), np.float32), "bias": np.zeros(3, np.float32)})

    def app(message, context):
        return ridge_reply(
            message, ROWS_OF_PATIENTS, **{"labels": [0, 1, 2, 2, 0, 0], "classes": 3, **answer}
        )

    config = ConfigRecord({"server-round": 1, **(config or {})})
    question = SumRows(noise=True).records() | (records or {})
    message = asking(kind, arrays=model, config=config, **question)
    return DifferentialPrivacy(lambda context: site)(message, context(), app)


def test_a_patients_sums_leave_with_noise_and_their_deviation(in_a_run, monkeypatch):
    made = PrivateSite.randomness
    requests = []

    def randomness(self, request):
        requests.append(request)
        return made(self, request)

    monkeypatch.setattr(PrivateSite, "randomness", randomness)
    groups = np.array([1, 2, 3, 4, 5, 5])
    content = sums_sent(PATIENTS, groups=groups).content
    assert "mean-noise" not in content
    sent = to_layers(content["answer/sums"])
    of_mean, of_sums = multipliers(2.0)
    assert sent.keys() == {"gram", "products", "centre", "radius", "deviation"}
    assert {array.dtype.name for array in sent.values()} == {"float32"}
    assert sent["deviation"] == pytest.approx(of_sums * change_of_patient(3))
    draw = made(PrivateSite("a", PrivacySettings(**PATIENTS), seed=0), requests[0])
    noise = np.append(of_mean * gaussian(4, draw), of_mean)
    targets = to_targets(np.array([0, 1, 2, 2, 0, 0]), 3)
    exact = PrivateSums.of(ROWS_OF_PATIENTS, targets, groups, noise)
    found = PrivateSums.from_arrays(sent, 5, 3)
    assert found.rows == 5
    np.testing.assert_allclose(found.centre, exact.centre, rtol=1e-6)
    expected = exact.noisy(gaussian(30, draw), found.deviation)
    np.testing.assert_allclose(found.gram, expected.gram, rtol=1e-5)
    np.testing.assert_allclose(found.products, expected.products, rtol=1e-5)
    info = dict(content["info"])
    assert (info["epsilon"], info["of-patients"]) == (epsilon([(2.0, 1)], DELTA), True)
    assert "uncovered" not in info


@pytest.mark.parametrize("told", [True, False, 0, ""])
def test_what_a_site_asks_of_its_client_is_not_the_servers_to_ask(told, in_a_run):
    lies: dict[str, Any] = {
        "records": {"mean-noise": to_record({"noise": np.zeros(5)})},
        "config": {"of-patients": told, "of-patients-noise": 0.0},
    }
    plain = to_layers(sums_sent({}, **lies).content["answer/sums"])
    assert (plain["gram"][-1], "centre" in plain) == (6, False)
    noisy = (to_layers(sums_sent(PATIENTS, **each).content["answer/sums"]) for each in ({}, lies))
    assert all(
        np.array_equal(array, other) for array, other in zip(*(n.values() for n in noisy), strict=True)
    )
    assert "no known sensitivity" in reason_of(sums_sent({"dp_clip": 1.0}, **lies))


def reason_of(reply):
    return str(reply.error.reason)


def test_numbers_as_labels_have_no_limit(in_a_run):
    assert "one patient changes them" in reason_of(sums_sent(PATIENTS, labels=np.arange(6.0), classes=None))


def test_another_release_would_exceed_the_budget(in_a_run):
    ledger = Ledger(None, RecordDict())
    settings = {**PATIENTS, "max_epsilon": epsilon([(2.0, 1)], DELTA) + 0.1}
    assert not sums_sent(settings, ledger).has_error()
    assert not sums_sent(settings, ledger).has_error(), "it is the same release, by the seed"
    assert sums_sent(settings, ledger, config={"server-round": 2}).error.code == BUDGET_CODE
    assert "no finite ε" in reason_of(sums_sent({"dp_clip": 1.0, "dp_noise": 1.0}, ledger, kind="train"))


@pytest.mark.parametrize("allowed", [{"dp_allow": "*"}, {"dp_open_target": True}])
def test_a_trained_model_leaves_only_an_open_target(allowed, in_a_run):
    site = PrivateSite("a", PrivacySettings(**PATIENTS, **allowed))

    def app(message, context):
        return Message(RecordDict({"arrays": to_record(weights_of(1.0))}), reply_to=message)

    reply = DifferentialPrivacy(lambda context: site)(
        asking(arrays=to_record(weights_of(0.0))), context(), app
    )
    if "dp_allow" in allowed:
        assert "a trained model" in reason_of(reply)
    else:
        assert reply.content["info"]["uncovered"] == ["arrays"]


@pytest.mark.parametrize("kind", ["train.keep_part", "train.personalise", "train.guide", "train.distil"])
@pytest.mark.parametrize("open_target", [False, True])
def test_a_training_that_may_have_no_noise_for_a_patient_is_not_begun(kind, open_target, in_a_run):
    site = PrivateSite("a", PrivacySettings(**PATIENTS, dp_open_target=open_target))
    message = asking(kind, arrays=to_record(weights_of(0.0)))
    reply = DifferentialPrivacy(lambda context: site)(
        message, context(), lambda *given: pytest.fail("it trains")
    )
    assert "no known sensitivity to one patient" in reason_of(reply)


def test_a_client_trains_without_noise_only_where_its_site_wants_none():
    client = make_client(RunConfig(**SMALL), "source-1")
    request = PrivateSite("a", PrivacySettings(**PATIENTS)).of_patients("request").settings()
    with pytest.raises(ConfigError, check=names("dp-unit", "patient")):
        client.train_on("head", request, part="head")
    assert client.train_on("head", {}, part="head")[0] > 0


@pytest.mark.parametrize(("name", "open"), [("target", True), ("source-1", False)])
def test_only_the_target_is_open(name, open, in_a_run, tmp_path):
    """Else a source that sets dp-open-target, or whose run does, would send a head without noise."""
    node: dict[str, Any] = {"domain": name, "state-dir": str(tmp_path)}
    node |= {"dp-unit": "patient", "dp-group": "row", "dp-noise": 2.0, "dp-open-target": True}
    question = FitHead(paths="target", start={"solution": np.zeros((65, 10)), "gram": np.eye(65)[TRIANGLE]})
    config = RunConfig(**{**SMALL, "method": "ridge"})
    model = to_record(make_client(config, name).layers())
    message = asking("train.fit_head", arrays=model, **question.records())
    reply = make_client_app(config)(message, context(node))
    assert reply.has_error() != open
    if open:
        assert "arrays" in str(reply.content["info"]["uncovered"])


TRIANGLE = np.triu_indices(65)


def weights_of(value):
    return {"weight": np.full(3, value, np.float32)}


def test_a_run_of_ridge_protects_each_patient_of_the_sources(tmp_path):
    settings: dict[str, Any] = {"method": "ridge", "device": "cpu", "target_samples": 30, "seed": 1}
    patients = {**PATIENTS, "dp_open_target": True}
    noisy = run(**settings, **patients, output=tmp_path / "a")
    told = noisy.history[0]["privacy"]
    assert told["source-1"] == {"epsilon": epsilon([(2.0, 1)], DELTA), "delta": DELTA, "unit": "patient"}
    assert told["target"]["epsilon"] == 0
    assert {"arrays", "evaluation", "temperature"} <= {*told["target"]["uncovered"]}
    assert sum(noisy.history[0]["ridge"]["weights"].values()) == pytest.approx(1)
    again, plain = run(**settings, **patients), run(**settings)
    assert same_bits(noisy.model, again.model)
    assert not same_bits(noisy.model, plain.model)


# a patient, by steps


STEPS_OF_PATIENTS: dict[str, Any] = {
    **SMALL,
    "dp_unit": "patient",
    "dp_group": "row",
    "max_epsilon": 4.0,
    "batch_size": 64,
}


def test_noise_is_chosen_so_that_a_run_spends_each_sites_budget_and_no_more(tmp_path):
    pytest.importorskip("opacus")
    result = run(**STEPS_OF_PATIENTS, method="fedavg", output=tmp_path / "a")
    first, last = (record["privacy"] for record in result.history)
    for domain in ("source-1", "source-2", "target"):
        assert first[domain]["epsilon"] < 4
        assert 3.98 < last[domain]["epsilon"] <= 4
        assert last[domain]["unit"] == "patient"
    assert "uncovered" not in last["source-1"]
    assert last["target"]["uncovered"] == ["evaluation"]
    # The ledger has all steps; they cost what the accountant says.
    ledger = json.loads((tmp_path / "a" / "clients" / "source-1" / "privacy.json").read_text())["released"]
    steps = [(each["noise"], each["rate"], each["releases"]) for each in ledger]
    samples = result.history[0]["sources"]["source-1"]["examples"]
    assert steps == [(steps[0][0], 64 / samples, -(-samples // 64))] * 2
    assert last["source-1"]["epsilon"] == epsilon_of_steps(steps, DELTA)


def test_training_needs_opacus_and_reading_its_results_does_not(monkeypatch):
    monkeypatch.setitem(sys.modules, "opacus", None)
    settings: dict[str, Any] = {**STEPS_OF_PATIENTS, "method": "fedavg"}
    assert RunConfig(**settings).dp_unit == "patient"
    with pytest.raises(ModuleNotFoundError) as raised:
        run(**settings)
    assert raised.value.name == "opacus"
    assert "fda-flower[patients]" in (missing_extra(raised.value) or "")


@pytest.mark.parametrize("method", ["fedavg-ft", "fedgp-auto", "mixture", "fedomg", "fedprox"])
@pytest.mark.parametrize("open_target", [False, True])
def test_methods_work_with_steps_that_protect_patients(method, open_target):
    pytest.importorskip("opacus")
    allow: dict[str, Any] = {"dp_open_target": True} if open_target else {}
    result = run(**STEPS_OF_PATIENTS, **allow, method=method)
    for record in result.history:
        assert (record["held"], record["dropped"]) == (None, [])
        assert all("uncovered" not in record["privacy"][source] for source in ("source-1", "source-2"))
    target = result.history[-1]["privacy"]["target"]
    trains = method not in ("mixture", "fedomg")
    assert (target["epsilon"] > 0) == (trains and not open_target)
    assert ({"arrays"} <= {*target["uncovered"]}) == (trains and open_target)
    assert ({"batch-updates"} <= {*target["uncovered"]}) == (method == "fedgp-auto" and open_target)


@pytest.mark.parametrize(
    "engine", [{"workers": 2}, pytest.param({"engine": "ray"}, marks=pytest.mark.slow)], ids=str
)
def test_steps_have_the_same_bits_with_the_same_seed_in_every_engine(engine):
    pytest.importorskip("opacus")
    one, another = (run(**STEPS_OF_PATIENTS, **more, method="fedda-auto") for more in ({}, engine))
    assert same_bits(one.model, another.model)
    assert spent(one.history, "target") == spent(another.history, "target")
    other = run(**{**STEPS_OF_PATIENTS, "seed": 1}, method="fedda-auto")
    assert not same_bits(one.model, other.model)


def test_a_site_ends_a_run_whose_noise_is_too_small_for_its_budget(tmp_path):
    pytest.importorskip("opacus")
    settings = {**STEPS_OF_PATIENTS, "method": "fedavg", "dp_noise": 1.5, "output": tmp_path / "a"}
    plain = run(**{**settings, "max_epsilon": None, "output": None})
    budget = max(each["epsilon"] for each in plain.history[0]["privacy"].values()) + 0.01
    with pytest.raises(RunError, match="round 2"):
        run(**{**settings, "max_epsilon": budget})


@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_networks_that_train_more_than_a_head_cannot_protect_patients(model):
    pytest.importorskip("opacus")
    with pytest.raises(ConfigError, check=names("dp-unit", "patient")):
        run(**{**STEPS_OF_PATIENTS, "model": model}, method="fedavg")


def test_a_server_cannot_say_how_a_site_protects_its_patients(in_a_run, tmp_path):
    pytest.importorskip("opacus")
    lies = {f"of-patients-{name}": 1e-9 for name in ("noise", "clip")} | {"of-patients-seed": 7}
    node: dict[str, Any] = {"domain": "source-1", "role": "source", "state-dir": str(tmp_path)}
    node |= {"dp-unit": "patient", "dp-group": "row", "dp-noise": 2.0}
    config = RunConfig(**SMALL)

    def answer():
        asked = ConfigRecord({"server-round": 1, **lies})
        message = asking(arrays=to_record(FIRST_MODEL), config=asked)
        return make_client_app()(message, context(node, config.to_flower())).content

    replies = [answer() for _ in range(2)]
    assert not np.array_equal(*(update_in(reply) for reply in replies)), "the seed is not the server's"
    (first, second) = json.loads((tmp_path / "source-1-privacy.json").read_text())["released"]
    assert first["noise"] == second["noise"] == 2.0
    assert "private-steps" not in replies[0]
    assert "train-loss" not in replies[0]["metrics"]


# a site's node

AS_FLOWERS_PAGES_SAY: dict[str, Any] = {"partition-id": 2, "num-partitions": 3}


def answer_of(node, asked, **engine):
    """The reply of the package's app to the first train message, with its noise and without."""
    config = RunConfig(**{**SMALL, **asked})
    message = asking(arrays=to_record(FIRST_MODEL), config=ConfigRecord({"server-round": 1}))
    return make_client_app(**engine)(message, context(node, config.to_flower())).content


FIRST_MODEL = {"1.weight": np.zeros((10, 64), np.float32), "1.bias": np.zeros(10, np.float32)}


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
    return PrivateSite.of(context(node), **state)


def test_a_run_decides_where_the_node_says_nothing(tmp_path):
    asked = PrivacySettings(dp_clip=3.0, dp_noise=1.0)
    node = {"domain": "a", "state-dir": str(tmp_path)}
    assert at_node(node, run=asked).settings == asked
    assert at_node({**node, "dp-clip": 1.0}, run=asked).settings == PrivacySettings(dp_clip=1.0)
    assert at_node({**node, "dp-clip": 1.0}).ledger.path is None
    assert at_node(node) is None


def test_the_node_says_in_its_answer_to_the_role_query_why_it_cannot_take_part(in_a_run):
    app = make_client_app(RunConfig(**SMALL))
    node: dict[str, Any] = {"domain": "target", "dp-clip": 1.0, "dp-noise": 1.0}
    reply = app(asking("query.role"), context(node))
    assert "no state-dir" in str(reply.content["info"]["problem"])


def test_a_site_with_noise_does_not_tell_that_a_class_is_rare(in_a_run):
    def app(message, context):
        info = ConfigRecord({"domain": "t", "examples": 400, "headline": "auroc", "few-events": True})
        return Message(RecordDict({"info": info}), reply_to=message)

    noisy = PrivateSite("t", PrivacySettings(**NOISY))
    silent = {"domain": "t", "examples": 400}
    for mod, said in (
        (DifferentialPrivacy(lambda _: noisy), silent),
        (DifferentialPrivacy(lambda _: None), {**silent, "headline": "auroc", "few-events": True}),
    ):
        reply = mod(asking("query.role"), context(), app)
        assert dict(reply.content["info"]) == said


def test_a_message_of_an_unknown_kind_is_refused(in_a_run):
    reply = private()(asking("query.statistics"), context(), lambda *given: pytest.fail("it answers"))
    assert "'query.statistics' have no known sensitivity" in str(reply.error.reason)


def failing_app(failure):
    """An app that raises an error, or replies with one."""

    def app(message, context):
        if isinstance(failure, Exception):
            raise failure
        return error_reply(message, failure)

    return app


@pytest.mark.parametrize("failure", [ValueError("row 7 is 'Muster'"), ConfigError("y", thing="labels"), "no"])
@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_why_an_app_fails_at_data_stays_at_the_site_and_costs_a_release(kind, failure, in_a_run):
    ledger = Ledger(None, RecordDict())
    mod = DifferentialPrivacy(lambda context: PrivateSite("a", PrivacySettings(**NOISY), ledger))
    replies = [
        mod(asking(kind, arrays=initial()), context(), failing_app(each)) for each in (failure, KeyError("x"))
    ]
    assert len({reason_of(reply) for reply in replies}) == 1
    assert [entry.releases for entry in ledger.entries()] == ([1, 1] if kind == "train" else [])


def test_a_setting_that_an_app_cannot_work_with_is_told_and_costs_nothing(in_a_run):
    ledger = Ledger(None, RecordDict())
    mod = DifferentialPrivacy(lambda context: PrivateSite("a", PrivacySettings(**NOISY), ledger))
    error = ConfigError("class-weights is balanced", thing="class-weights")
    assert "balanced" in reason_of(mod(asking(arrays=initial()), context(), failing_app(error)))
    assert ledger.entries() == []


def test_weights_that_overflow_at_some_data_get_a_reply_of_the_same_form_and_cost_a_release(in_a_run):
    """Otherwise refusals tell exactly where a feature lies."""
    ledger = Ledger(None, RecordDict())
    site = PrivateSite("a", PrivacySettings(**NOISY), ledger)

    def training_to(value):
        def app(message, context):
            new = {name: np.full_like(array.numpy(), value) for name, array in initial().items()}
            metrics = MetricRecord({"num-examples": 5, "train-loss": value})
            return Message(RecordDict({"arrays": to_record(new), "metrics": metrics}), reply_to=message)

        return app

    replies = [
        DifferentialPrivacy(lambda context: site)(asking(arrays=initial()), context(), training_to(value))
        for value in (0.5, np.nan, np.inf)
    ]
    kinds = [{n: [*record] for n, record in reply.content.items()} for reply in replies]
    assert kinds[0] == kinds[1] == kinds[2]
    assert all(
        np.isfinite(a).all() for r in replies for a in to_layers(r.content.array_records["arrays"]).values()
    )
    assert len(ledger.entries()) == 3


# What of a reply leaves, with how much noise

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
    return PrivateExchange(found, mechanism, MODEL if model is None else model, config or {})


def reply(metrics=None, info=None, **arrays):
    content = RecordDict({"arrays": to_record(TRAINED), "metrics": MetricRecord(metrics or {})})
    content["info"] = ConfigRecord({"domain": "a", "role": "source", **(info or {})})
    for name, layers in arrays.items():
        content[name.replace("_", "-")] = to_record(layers)
    return content


# the model


def test_the_update_of_the_parameters_is_clipped_with_noise_and_of_the_rest_only_a_counter_leaves():
    one = exchange(noise=0.5)
    sent = trained_model(one, TRAINED)
    update = np.array([0.6, 0.8]) + 2 * 0.5 * gaussian(2, np.random.default_rng(0).bytes)
    np.testing.assert_array_equal(sent["w"], (MODEL["w"] + update).astype(np.float32))
    assert {name: array.dtype for name, array in sent.items()} == {n: a.dtype for n, a in MODEL.items()}
    for name in ("bn.running_mean", "bn.running_var", "seen"):
        np.testing.assert_array_equal(sent[name], MODEL[name])
    assert sent["bn.num_batches_tracked"] == 5
    assert one.mechanism.releases == 1


@pytest.mark.parametrize(
    "arrays",
    [{"w": TRAINED["w"]}, {**TRAINED, "v": TRAINED["w"]}, {**TRAINED, "w": np.zeros(2)}],
    ids=["fewer", "more", "another type"],
)
def test_a_model_of_another_form_has_no_update_to_clip(arrays):
    with pytest.raises(PrivacyError, match="arrays"):
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
    assert one.mechanism.releases == planned(one.settings, one.config) == 2


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_norms_are_clipped_together_and_each_step_bears_its_part_of_the_updates_noise(noise):
    _, sent, arrays = with_updates("norms", noise)
    clipped = arrays["norms"] * 4.0 / arrays["norms"].sum()
    draw = np.random.default_rng(0).bytes
    gaussian(6, draw)
    own = np.maximum(clipped + np.sqrt(2) * noise * 4.0 * gaussian(4, draw), 0)
    np.testing.assert_allclose(sent.squared_norms, own + 6 * (2 * noise * 2.0) ** 2 / 4)


@pytest.mark.parametrize(
    ("release", "config", "names", "says"),
    [
        (batch_updates, {}, ["norms"], "batch-updates.*norms"),
        (batch_updates, {"batch-updates": "norms"}, ["norms", "x"], "norms, x"),
        (batch_updates, {"batch-updates": "full"}, ["norms"], "full, norms"),
        (gradients, {}, ["sketch"], "gradients.*sketch"),
        (gradients, {"gradients": "sketch"}, ["sketch"], "batches, norm, sketch, sketch-seed"),
    ],
)
def test_arrays_that_were_not_asked_for_are_refused(release, config, names, says):
    with pytest.raises(PrivacyError, match=says):
        release(exchange(config=config), {name: np.ones(2) for name in names})


# gradients at the global model


def test_gradients_have_the_norm_and_the_variance_of_what_is_sent():
    config = {"gradients": "sketch", "sketch-size": 8, "sketch-seed": 3}
    values, numbers = np.ones(8), {"norm": 8.0, "variance": 0.5, "batches": 4}
    sizes = {"sketch-size": np.array(8), "sketch-seed": np.array(3)}
    arrays = {"sketch": values, **{name: np.array(number) for name, number in numbers.items()}, **sizes}
    one = exchange(noise=0.25, clip=2.0, config=config, model=PLAIN)
    sent = gradients(one, arrays)
    draw = np.random.default_rng(0).bytes
    expected = values * 2.0 / np.sqrt(8) + gaussian(8, draw)
    np.testing.assert_allclose(sent["sketch"], expected, rtol=1e-6)
    variance = max(0.5 * 4 / 8 + 0.25 * 4.0 * float(gaussian(1, draw)[0]), 0.0)
    assert float(sent["variance"]) == pytest.approx(variance + 8 * 1.0**2)
    assert one.mechanism.releases == 2
    assert planned(one.settings, config) == 3
    read = MeanGradient.from_arrays(sent, CountSketch(8, 3))
    assert read.squared_norm == pytest.approx(np.square(sent["sketch"]).sum())


def test_guidance_is_released_like_the_update():
    one = replace(exchange(model={"w": MODEL["w"]}), kind="train.guide")
    content = RecordDict({"arrays": to_record({"w": TRAINED["w"]}), "metrics": MetricRecord()})
    content.update(Guided(guidance={"w": np.array([1.0, 12.0], np.float32)}).records())
    assert protect_training(content, one) == []
    np.testing.assert_allclose(to_layers(content.array_records["answer/guidance"])["w"], [1.0, 3.0])
    assert one.mechanism.releases == planned(one.settings, one.config, "train.guide") == 2
    content.update(Guided(guidance={"v": MODEL["w"]}).records())
    with pytest.raises(PrivacyError, match="guidance"):
        protect_training(content, one)


# what is not known


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (reply(adapted=MODEL), "adapted"),
        (reply(something=MODEL), "something"),
        (reply(info={"mean-age": 71.0}), "mean-age"),
        (RecordDict({"metrics": MetricRecord(), "info": ConfigRecord()}), "'arrays'"),
    ],
)
def test_what_has_no_known_sensitivity_or_no_model_is_refused(content, says):
    with pytest.raises(PrivacyError, match=says):
        protect_training(content, exchange())


@pytest.mark.parametrize(
    ("allow", "leaves"), [("pen*", ["penalty"]), ("penalty, train-loss", ["penalty", "train-loss"])]
)
def test_a_metric_is_refused_and_the_training_loss_left_out_unless_the_site_allows_it(allow, leaves):
    counts = {"num-examples": 5, "num-steps": 2, "learning-rate": 0.1}
    metrics = {**counts, "train-loss": 0.3}
    content = reply(metrics)
    assert protect_training(content, exchange()) == []
    assert dict(content["metrics"]) == counts
    metrics["penalty"] = 0.1
    with pytest.raises(PrivacyError, match=r"penalty.*dp-allow"):
        protect_training(reply(metrics), exchange())
    content = reply(metrics)
    assert protect_training(content, exchange(dp_allow=allow)) == leaves
    assert dict(content["metrics"]) == {name: metrics[name] for name in (*counts, *leaves)}


# evaluations


@pytest.mark.parametrize("unit", [NOISY, PATIENTS], ids=["site", "patient"])
def test_without_a_report_a_failed_evaluation_is_answered_like_another(unit, in_a_run):
    """Else each failure, which a server can bring about, tells something of the data for no ε."""
    mod = DifferentialPrivacy(lambda context: PrivateSite("a", PrivacySettings(**unit, dp_report="none")))

    def role(message, context):
        return Message(RecordDict({"info": ConfigRecord({"test-examples": 9})}), reply_to=message)

    def success(message, context):
        records = {"metrics": MetricRecord({"num-examples": 9, "accuracy": 0.5})}
        answer = {"answer": ConfigRecord({"alone": 3}), "answer/weights": ConfigRecord({"x": 0.5})}
        return Message(RecordDict({**records, **answer}), reply_to=message)

    replies = []
    for evaluate in (success, failing_app(ValueError("row 7")), failing_app("no")):
        mod(asking("query.role"), node := context(), role)
        replies.append(mod(asking("evaluate", arrays=initial(), config=ConfigRecord()), node, evaluate))
    contents = [{name: dict(record) for name, record in reply.content.items()} for reply in replies]
    assert contents[0] == contents[1] == contents[2]
    assert contents[0]["metrics"] == {"num-examples": 9}


FIGURES = {"accuracy": 0.5, "loss": 1.0, "validation-auroc": 0.6, "test-units": 3, "test-effective": 2.5}


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
