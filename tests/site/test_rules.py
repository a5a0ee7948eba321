"""The rules of a site, each by itself, and its gate around whole apps: what is refused, and what is noted."""

import os
import stat
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.common import ndarray_to_bytes
from naming import names
from sites import run_sites
from whole_runs import same_bits

from fda_flower import RunConfig
from fda_flower.aggregation import CountSketch, Sums, to_rows, to_targets
from fda_flower.client_app import make_client_app
from fda_flower.clients import serve
from fda_flower.errors import ConfigError, RunError
from fda_flower.site import Asked, Rules, Site, SiteGate, read_log
from fda_flower.site.batches import LEVELS
from fda_flower.site.words import KeptError
from fda_flower.wire.internals import error_reply, numbered
from fda_flower.wire.protocol import to_record


@pytest.fixture(autouse=True)
def _always_in_a_run(in_a_run):
    """Every test here makes messages."""


ENTRY = "entry of the node configuration"
METHODS = ("fedavg", "fedgp", "fedgp-auto")
MODEL = to_record({"w": np.zeros((10, 10), np.float32), "seen": np.zeros(50, np.int64)})
STEPS = 4
SKETCH: dict[str, Any] = {"server-round": 1, "sketch-seed": 1, "sketch-size": 12}
NORMS: dict[str, Any] = {"norms": np.ones(STEPS)}
RECORDS: dict[str, dict[str, Any]] = {
    "norms": NORMS,
    "sketch": {**NORMS, "sketch": np.ones((STEPS, 12))},
    "full": {**NORMS, "full": np.ones((STEPS, 100))},
}


def asked_of(message, node, run=None, **known):
    context = Context(1, 2, node, RecordDict(), run or {})
    return Asked(message, context, Site.of(context), **known)


def asked(kind="train", role="target", method="fedgp-auto", model=MODEL, folder=None, **records):
    content = RecordDict({name: ConfigRecord(record) for name, record in records.items()})
    if kind != "query.role":
        content["arrays"] = model
    message = Message(content, 2, kind)
    node: dict[str, Any] = {} if folder is None else {"state-dir": str(folder)}
    return asked_of(message, node, method=method, role=role)


def reply(batches=None, name="batch-updates", **metrics):
    numbers = {"num-examples": 8, "num-steps": STEPS, **metrics}
    content = RecordDict({"arrays": MODEL, "metrics": MetricRecord(numbers)})
    if batches is not None:
        content[name] = to_record(batches)
    return content


def rules_of(node, methods=METHODS):
    rules = Site.read(node).rules
    rules.check_methods(methods)
    return rules


def rule(name, value):
    return rules_of({name: value})


def test_a_node_without_rules_allows_all_but_open_sums():
    rules = rules_of({"domain": "north", "role": "source", "state-dir": "/s", "partition-id": 3})
    assert rules == Rules(require_secure=True, as_target=False, allow_batch_updates="norms")
    assert rules_of({"partition-id": 3}) == Rules()
    target = rules_of({"domain": "north", "role": "target"})
    assert target == Rules(require_secure=True)
    for own, refuses in ((rules, True), (target, False)):
        assert (own.refuses_message(asked(config={"batch-updates": "full"})) is not None) == refuses
    told = RecordDict({"arrays": MODEL, "x": ConfigRecord({"rows": b"1" * 9000})})
    assert rules.refuses_reply(asked(), told) is None


@pytest.mark.parametrize(
    ("node", "thing", "value"),
    [
        ({"allow-methods": "fedavg, fedpg"}, "method", "fedpg"),
        ({"allow-methods": ""}, "allow-methods", ""),
        ({"allow-methods": "all,fedavg"}, "allow-methods", "all,fedavg"),
        ({"allow-questions": "none,train.distil"}, "allow-questions", "none,train.distil"),
        ({"state-dir": ""}, "state-dir", ""),
        ({"resident": "yes"}, "the node configuration's resident", "yes"),
        ({"dp-clip": 1.0, "dp-noise": -1}, "dp-noise", -1.0),
        ({"min-samples": "\u0661"}, "min-samples", "\u0661"),
        ({"require-secure": "yes"}, "require-secure", "yes"),
        ({"min-per-class": -1}, "min-per-class", -1),
        ({"min-cell": 0}, "min-cell", 0),
        ({"min-cell": "few"}, "min-cell", "few"),
        ({"allow-questions": "train.blend, evaluate.mixtures"}, "question", "evaluate.mixtures"),
        ({"allow-batch-updates": "sketches"}, "allow-batch-updates", "sketches"),
        ({"min-samples": "many"}, "min-samples", "many"),
        ({"min-samples": -1}, "min-samples", -1),
        *(
            ({name: 3}, ENTRY, name)
            for name in (
                *("allow-method", "allow_methods", "methods", "batch-updates", "minsamples", "MIN-SAMPLES"),
                *("minimum-samples", "max-updates", "secure", "require-secur", "app", "Role", "doman"),
                *("dp_clip", "DP-clip", "dpclip", "d-clip", "clip", "dp\u2011clip", "dp.clip", "dp.unit"),
                *("dp-nose", "epsilon", "privacy.noise", "site.dp-clip", "state_dir", "data-directory"),
            )
        ),
    ],
)
def test_what_is_misspelt_or_invalid_is_an_error(node, thing, value):
    with pytest.raises(ConfigError, check=names(thing, value)):
        rules_of(node)


def test_another_projects_entries_are_none_of_ours():
    own = ("main", "hospital", "gpu", "data", "dataset-path", "model.layers", "label-noise", "samples", "id")
    assert rules_of(dict.fromkeys(own, 1)) == Rules()


@pytest.mark.parametrize(
    ("allowed", "known", "method", "reason"),
    [
        ("fedavg,fedgp-auto", METHODS, "fedgp-auto", None),
        ("mine", (), "mine", None),
        ("all", METHODS, "fedgp-auto", None),
        ("all", METHODS, None, None),
        ("fedavg", METHODS, "fedgp-auto", "allows the methods fedavg, not 'fedgp-auto'"),
        ("fedavg", METHODS, None, "the run names none"),
    ],
)
def test_methods_are_allowed_by_name(allowed, known, method, reason):
    found = rules_of({"allow-methods": allowed}, known).refuses_message(asked(method=method))
    assert found is None if reason is None else reason in str(found)


@pytest.mark.parametrize(
    ("allowed", "kind", "is_refused"),
    [
        ("all", "train.blend", False),
        ("none", "train.blend", True),
        ("none", "train", False),
        ("none", "evaluate", False),
        ("none", "query.role", False),
        ("train.blend", "train.blend", False),
        ("train.blend", "evaluate.mixture", True),
        ("train.blend", "train.of_another_app", True),
    ],
)
def test_questions_are_allowed_by_the_type_of_their_messages(allowed, kind, is_refused):
    rules = rule("allow-questions", allowed)
    found = rules.refuses_message(asked(kind=kind))
    assert (found is not None) == is_refused
    assert found is None or kind in found
    messages = {kind, "train.describe_columns"} - {"query.role"}
    before = rules.refuses_message(replace(asked("query.role"), messages=messages))
    assert before == found, "at the role query, before anything is trained"


@pytest.mark.parametrize("required", [True, False])
@pytest.mark.parametrize("secure", [True, False])
def test_open_sums_stay_where_the_site_or_the_run_masks_them(required, secure):
    rules = replace(rule("require-secure", required), secure_with={} if required else None)
    masked, open_sums = (
        replace(asked(kind=kind, role="source", question={"stage": "keys"}), secure=secure)
        for kind in ("train.mask_sums", "train.sum_rows")
    )
    assert rules.refuses_message(masked) is None
    asks = {"source": "sums"}
    assert rules.refuses_message(asked("query.role", asks=asks)) is None, "another role"
    found = (
        rules.refuses_message(open_sums),
        rules.refuses_message(replace(asked("query.role", asks=asks, role="source"), secure=secure)),
        rules.refuses_reply(open_sums, reply({"gram": np.ones(2)}, "answer/sums")),
    )
    assert {reason is not None for reason in found} == {required or secure}


@pytest.mark.parametrize(
    ("node", "run", "refused"),
    [
        ({}, {}, False),
        ({"domain": "north"}, {}, True),
        ({"state-dir": "x"}, {}, True),
        ({"domain": "north", "require-secure": False}, {}, False),
        ({"domain": "north", "dp-unit": "patient", "dp-group": "row", "dp-noise": 1.0}, {}, False),
        ({"domain": "north"}, {"dp-unit": "patient", "dp-group": "row", "dp-noise": 1e-9}, True),
        ({"domain": "north", "dp-unit": "site", "dp-clip": 1.0}, {"dp-unit": "patient"}, True),
    ],
)
def test_a_site_sends_open_sums_only_if_it_says_so(node, run, refused):
    message = asked(kind="train.sum_rows").message
    reason = Site.read(node).rules.refuses_message(asked_of(message, node, run))
    assert (reason is not None) == refused


@pytest.mark.parametrize(
    ("labels", "refused"), [([0, 0, 1, 1], False), ([0, 0, 0, 1], True), ([0, 0], False)]
)
def test_a_site_sends_no_open_sums_of_a_rare_class(labels, refused):
    rows = to_rows(np.random.default_rng(0).normal(size=(len(labels), 3)))
    sums = Sums.of(rows, to_targets(np.array(labels), 3)).to_arrays()
    node: dict[str, Any] = {"min-per-class": 2}
    of = asked_of(asked(kind="train.sum_rows").message, node)
    reason = Site.read(node).rules.refuses_reply(of, reply(sums, "answer/sums"))
    assert (reason is not None) == refused
    assert reason is None or "min-per-class" in reason


@pytest.mark.parametrize("outputs", [1, 2, 3])
@pytest.mark.parametrize("centred", [False, True])
def test_sums_of_numbers_have_no_rare_class(outputs, centred):
    """Their sum of labels may well lie between 0 and the least number of a class."""
    rng = np.random.default_rng(0)
    numbers = rng.normal(0.05, 1, size=(30, outputs))
    numbers -= numbers.mean(axis=1, keepdims=True) if centred else 0
    sums = Sums.of(to_rows(rng.normal(size=(30, 3))), numbers).to_arrays()
    node: dict[str, Any] = {"min-per-class": 40}
    of, rules = asked_of(asked(kind="train.sum_rows").message, node), Site.read(node).rules
    assert rules.refuses_reply(of, reply(sums, "answer/sums")) is None
    unknown = rules.refuses_reply(of, reply({**sums, "squares": np.ones(9)}, "answer/sums"))
    assert "unknown form" in str(unknown)


@pytest.mark.parametrize("how", ["raises", "replies", "has a problem"])
def test_of_an_error_only_its_beginning_leaves(how, tmp_path, in_a_run):
    text, kind = "x" * 67_600, "query.role" if how == "has a problem" else "train"
    (message,) = numbered([Message(RecordDict({"arrays": MODEL}), 2, kind)])

    def app(message, context):
        if how == "raises":
            raise KeyError(text)
        if how == "replies":
            return error_reply(message, text)
        return Message(RecordDict({"info": ConfigRecord({"problem": text})}), reply_to=message)

    def told():
        reply = SiteGate()(message, Context(1, 2, {"state-dir": str(tmp_path)}, RecordDict(), {}), app)
        return reply.error.reason if reply.has_error() else str(reply.content["info"]["problem"])

    if how == "raises":
        with pytest.raises(KeptError, match="this site cannot answer"):
            told()
    else:
        assert 900 < len(told()) < 1100
    assert len((tmp_path / "sent.jsonl").read_text()) < 2000


def test_a_server_that_asks_for_open_sums_in_a_secure_run_gets_none():
    config = RunConfig(method="ridge", method_options={"secure": True}, model="logistic", sources=3)
    node = {"domain": "source-1", "require-secure": False}
    reply = ask(make_client_app(config), node, "train.sum_rows")
    assert "does not ask 'train.sum_rows' of a source" in reply.error.reason


@pytest.mark.parametrize("allowed", LEVELS)
@pytest.mark.parametrize("wanted", LEVELS)
@pytest.mark.parametrize("name", ["batch-updates", "gradients"])
def test_each_level_allows_those_before_it_and_no_others(allowed, wanted, name, tmp_path):
    told, fits = rule("allow-batch-updates", allowed), LEVELS.index(wanted) <= LEVELS.index(allowed)
    config = {} if wanted == "none" else {name: wanted, **SKETCH}
    assert (told.refuses_message(asked(config=config, folder=tmp_path)) is None) == fits
    asks = {"target": wanted}
    assert (told.refuses_message(asked("query.role", asks=asks, folder=tmp_path)) is None) == fits
    assert (told.refuses_reply(asked(), reply(RECORDS.get(wanted), name)) is None) == fits


def test_the_role_query_asks_each_role_for_its_own():
    norms = rule("allow-batch-updates", "norms")
    asks = {"target": "sketch"}
    assert "requested 'sketch'" in str(norms.refuses_message(asked("query.role", "target", asks=asks)))
    assert norms.refuses_message(asked("query.role", "source", asks=asks)) is None
    assert norms.refuses_message(asked("query.role", None, asks=asks)) is None, (
        "its first train message tells"
    )
    assert norms.refuses_message(asked("query.role", "target")) is None


def test_a_target_that_aggregates_itself_sends_no_batch_updates():
    none = rule("allow-batch-updates", "none")
    config = {"batch-updates": "sketch"}
    assert none.refuses_message(asked(config=config, aggregate={"betas": [0.5]})) is None
    assert none.refuses_message(asked(config=config)) is not None


@pytest.mark.parametrize(
    ("batches", "level"),
    [
        ({"norms": np.ones(STEPS + 1)}, "full"),
        ({"norms": np.ones((STEPS, 100))}, "full"),
        ({**NORMS, "sketch": np.ones((STEPS, 13))}, "full"),
        ({**NORMS, "sketch": np.ones((STEPS + 1, 12))}, "full"),
        ({**NORMS, "sketch": np.ones((2, STEPS, 12))}, "full"),
        ({**NORMS, "steps": np.ones(9)}, "full"),
        ({**NORMS, "more": np.ones(STEPS)}, "full"),
        ({"norm": np.array("x" * 400)}, "full"),
        ({"sketch": np.ones((2, 12)), "norm": np.array(1.0)}, "full"),
        ({"sketch": np.ones(12), "norm": np.array(1.0), "batches": np.array(4)}, "sketch"),
    ],
)
def test_what_leaves_is_known_by_its_form_not_by_its_name(batches, level):
    found = rule("allow-batch-updates", "norms").refuses_reply(asked(), reply(batches))
    assert f"the record 'batch-updates' has '{level}'" in str(found)
    assert rule("allow-batch-updates", "full").refuses_reply(asked(), reply(batches)) is None


LARGER = to_record({"w": np.zeros(10_000, np.float32)})
STOLEN = np.random.default_rng(0).normal(size=(8, 10_000)).astype(np.float32)
"""Eight batch updates."""


def npy(array):
    file = BytesIO()
    np.save(file, array)
    return file.getvalue()


HIDING: dict[str, Callable[[], dict[str, Any]]] = {
    "numbers": lambda: {"personal": to_record({"w": STOLEN})},
    "the model's record": lambda: {"arrays": to_record({"w": STOLEN})},
    "integers": lambda: {"personal": to_record({"w": STOLEN.view(np.int32)})},
    "bytes of integers": lambda: {"personal": to_record({"w": STOLEN.view(np.uint8)})},
    "a declared shape": lambda: {
        "x": ArrayRecord({"w": Array("float32", (1,), "numpy.ndarray", npy(STOLEN))})
    },
    "a declared type": lambda: {"x": ArrayRecord({"w": Array("print", (1,), "numpy.ndarray", npy(STOLEN))})},
    "a format": lambda: {"x": ArrayRecord({"w": Array("float32", (1,), "of its own", STOLEN.tobytes())})},
    "a type's text": lambda: {"x": ArrayRecord({"w": Array(STOLEN.tobytes().hex(), (1,), "int", b"")})},
    "names of arrays": lambda: {"x": ArrayRecord({STOLEN.tobytes().hex(): Array(np.ones(1))})},
    "names of records": lambda: {STOLEN.tobytes().hex(): ConfigRecord()},
    "bytes of settings": lambda: {"info": ConfigRecord({"domain": "a", "rows": STOLEN.tobytes()})},
    "texts of settings": lambda: {"info": ConfigRecord({"domain": STOLEN.tobytes().hex()})},
    "lists of settings": lambda: {"x": ConfigRecord({"rows": STOLEN.reshape(-1).tolist()})},
    "many records": lambda: {f"personal-{i}": to_record({"w": row}) for i, row in enumerate(STOLEN)},
    "settings": lambda: {"batch-updates": ConfigRecord({"rows": STOLEN.tobytes()})},
}


@pytest.mark.parametrize("level", ["norms", "sketch"])
@pytest.mark.parametrize("form", HIDING)
def test_batch_updates_leave_in_no_other_form(form, level):
    content = RecordDict({"arrays": LARGER, "metrics": MetricRecord({"num-examples": 8, "num-steps": 8})})
    content.update(HIDING[form]())
    for kind in ("train", "evaluate"):
        reason = rule("allow-batch-updates", level).refuses_reply(asked(kind, model=LARGER), content)
        assert "has 'full'" in str(reason)
    assert rule("allow-batch-updates", "full").refuses_reply(asked(model=LARGER), content) is None


def test_of_what_is_not_declared_a_site_that_names_no_level_sends_all():
    second = RecordDict({"arrays": MODEL, "personal": LARGER, "info": ConfigRecord({"hospital": "north"})})
    assert Site.read({"domain": "north"}).rules.refuses_reply(asked(), second) is None
    none = rule("allow-batch-updates", "none")
    assert "the record 'personal' has 'full'" in str(none.refuses_reply(asked(), second))
    about = RecordDict({"info": ConfigRecord({"class-names": [f"class {i}" for i in range(2000)]})})
    assert none.refuses_reply(asked("query.role"), about) is None


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ({}, None),
        ({"sketch-size": 13}, "add up to 12, an eighth of the model's numbers"),
        ({"sketch-size": 0}, "asks for a sketch of 0 numbers"),
        ({"sketch-seed": 2}, "of size 12 with the seed 2 in round 1"),
        ({"sketch-size": "12"}, "of size None"),
    ],
)
def test_a_server_chooses_neither_a_long_sketch_nor_its_map(settings, refused, tmp_path):
    config = {"batch-updates": "sketch", **SKETCH, **settings}
    found = rule("allow-batch-updates", "sketch").refuses_message(asked(config=config, folder=tmp_path))
    assert found is None if refused is None else refused in str(found)


def test_a_second_record_of_settings_hides_nothing(tmp_path):
    """A client reads one of them; an encoding that is unknown counts as full."""
    sketch, norms = rule("allow-batch-updates", "sketch"), rule("allow-batch-updates", "norms")
    assert "requested 'full'" in str(sketch.refuses_message(asked(config={"gradients": "raw"})))
    config = {"batch-updates": "sketch", **SKETCH}
    assert "of size None" in str(sketch.refuses_message(asked(config=config, other=SKETCH, folder=tmp_path)))
    assert "requested 'sketch'" in str(
        norms.refuses_message(asked(config=config, other={"batch-updates": "norms"}))
    )


def test_a_declared_shape_makes_no_model_larger(tmp_path):
    model = ArrayRecord({"w": Array("float32", (10_000,), "numpy.ndarray", npy(np.zeros(100, np.float32)))})
    config = {"batch-updates": "sketch", **SKETCH}
    found = rule("allow-batch-updates", "sketch").refuses_message(
        asked(config=config, model=model, folder=tmp_path)
    )
    assert "an array that is not of plain numbers" in str(found)


def test_sizes_of_sketches_add_up_over_all_runs(tmp_path):
    def refuses(size, model=LARGER, number=1):
        settings = {"sketch-size": size, "sketch-seed": number, "server-round": number}
        config = {"batch-updates": "sketch", **settings}
        own = rule("allow-batch-updates", "sketch")
        return own.refuses_message(asked(config=config, model=model, folder=tmp_path)) is not None

    sizes = [1000, 1000, 251, 250, 1000, 1]
    assert [refuses(size) for size in sizes] == [False, False, True, False, False, True]
    assert not refuses(1000), "a map that has left before"
    assert refuses(250, number=2), "another round has another map"
    as_integers = {"w": np.zeros(5000, np.float32), "b": np.zeros(5000, np.int32)}
    assert refuses(12, to_record(as_integers)), "the same model in other types"
    assert not refuses(12, MODEL)
    assert stat.S_IMODE((tmp_path / "sketches.json").stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["", "[]", '{"150": [[-12, 1]]}', '{"150": [12]}', '{"150": 12}'])
def test_a_site_without_its_memory_sends_no_sketch(text, tmp_path):
    sketch, config = rule("allow-batch-updates", "sketch"), {"batch-updates": "sketch", **SKETCH}
    assert "no state-dir" in str(sketch.refuses_message(asked(config=config)))
    assert "no state-dir" in str(sketch.refuses_message(asked("query.role", asks={"target": "sketch"})))
    (tmp_path / "sketches.json").write_text(text)
    assert "cannot record" in str(sketch.refuses_message(asked(config=config, folder=tmp_path)))
    assert (tmp_path / "sketches.json").read_text() == text


def test_the_model_is_the_largest_record_and_integers_are_none_of_its_numbers():
    for name in ("arrays", "weights"):
        message = asked()
        message.message.content[name] = message.message.content.pop("arrays")
        assert message.numbers == 100
    assert asked("query.role").numbers == 0


@pytest.mark.parametrize(
    ("kind", "told", "refused"),
    [
        *[("query.role", 9, True), ("query.role", 10, False), ("query.role", None, False)],
        *[("train", 9, True), ("train", 10, False), ("train", None, True), ("evaluate", 3, False)],
    ],
)
def test_a_site_wants_samples_enough(kind, told, refused):
    """A client that tells no number may take part, but not send what it trained."""
    told_as = "examples" if kind == "query.role" else "num-examples"
    numbers = {} if told is None else {told_as: told}
    content = RecordDict({"metrics": MetricRecord(numbers)})
    if kind == "query.role":
        content = RecordDict({"info": ConfigRecord({"domain": "a", **numbers})})
    reason = rule("min-samples", "10").refuses_reply(asked(kind), content)
    assert (reason is not None) == refused
    assert not refused or "on fewer labelled samples than the 10 that the site requires" in str(reason)


@pytest.mark.parametrize(("role", "refused"), [("target", True), ("source", False)])
def test_an_open_target_has_no_noise_that_hides_a_rare_class(role, refused):
    node = {"dp-unit": "patient", "dp-group": "row", "dp-noise": 1.0, "dp-open-target": True}
    rules = Site.read({**node, "min-per-class": 5}).rules
    assert (rules.refuses_rare(replace(asked("train"), role=role), 4) is not None) == refused


@pytest.mark.parametrize(("least", "refused"), [(4, True), (3, False)])
def test_a_site_counts_patients_where_samples_are_of_one(least, refused, in_a_run):
    """Twenty samples of three patients; of each reply to a training the client says it to its own site."""
    told = RecordDict({"info": ConfigRecord({"domain": "a", "examples": 20, "groups": 3})})
    reasons = [Site.read({"min-samples": least}).rules.refuses_reply(asked("query.role"), told)]
    (message,) = numbered([Message(RecordDict({"arrays": MODEL}), 2, "train")])
    own = {"site-log": ConfigRecord({"samples": 20, "units": 3})}
    content = RecordDict({"arrays": MODEL, "metrics": MetricRecord({"num-examples": 20}), **own})
    node: dict[str, Any] = {"min-samples": least}
    answer = SiteGate()(
        message,
        Context(1, 2, node, RecordDict(), {}),
        lambda message, context: Message(content, reply_to=message),
    )
    reasons.append(answer.error.reason if answer.has_error() else None)
    assert {reason is not None for reason in reasons} == {refused}
    assert not refused or all("on fewer labelled patients than the 4" in str(reason) for reason in reasons)


# The gate

CONFIG = RunConfig(
    method="fedgp-auto", model="mlp", sources=2, rounds=1, device="cpu",
    target_samples=16, source_samples=20, test_samples=20, method_options={"sketch_size": 500},
)  # fmt: skip
SMALL = to_record({"w": np.zeros(40, np.float32)})


def nodes(target=None, source=None):
    return [
        {"domain": "source-1", "role": "source", **(source or {})},
        {"domain": "source-2", "role": "source"},
        {"domain": "target", "role": "target", **(target or {})},
    ]


def ask(app, node, kind, settings=None, **config):
    content = RecordDict(
        {"config": ConfigRecord({key.replace("_", "-"): value for key, value in config.items()})}
    )
    if kind != "query.role":
        content["arrays"] = ArrayRecord(dict(SMALL))
    return app(Message(content, 2, kind), Context(5, 2, node, RecordDict(), settings or {}))


@pytest.fixture
def no_data(monkeypatch):
    """Whoever reads data fails."""
    monkeypatch.setattr(
        "fda_flower.runs.network.load_domain", Mock(side_effect=AssertionError("data were read"))
    )


ASKS_SKETCH: dict[str, Any] = {"batch_updates": "sketch", "sketch_size": 8, "sketch_seed": 1}


@pytest.mark.parametrize("kind", ["query.role", "train", "evaluate"])
@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ({"allow-methods": "fedavg"}, "the site allows the methods fedavg, not 'fedgp-auto'"),
        ({"allow-methods": "fedagv"}, "unknown method 'fedagv'"),
        ({"allow-batch-update": "norms"}, "unknown entry 'allow-batch-update'"),
    ],
)
def test_each_message_of_a_run_that_is_not_allowed_is_refused_before_data_are_read(
    rules, says, kind, no_data
):
    reply = ask(make_client_app(CONFIG), nodes(rules)[2], kind)
    told = reply.content["info"]["problem"] if kind == "query.role" else reply.error.reason
    assert says in str(told)


def test_a_train_message_is_refused_before_data_are_read(no_data):
    """A server that asks for more than it told; a run whose method only its configuration tells."""
    reply = ask(make_client_app(CONFIG), nodes({"allow-batch-updates": "norms"})[2], "train", **ASKS_SKETCH)
    assert "the site allows 'norms' of each batch, not the requested 'sketch'" in reply.error.reason
    node = {"domain": "target", "allow-methods": "fedavg"}
    reply = ask(make_client_app(), node, "train", CONFIG.to_flower())
    assert "not 'fedgp-auto'" in reply.error.reason


@pytest.mark.parametrize(
    ("rules", "kind", "reason"),
    [
        ({}, "train", None),
        ({"allow-methods": "fedgp-auto"}, "train", None),
        ({"allow-methods": "feddaf"}, "train.blend", None),
        ({"allow-methods": "feddaf", "allow-questions": "train.blend"}, "train.blend", None),
        (
            {"allow-methods": "feddaf", "allow-questions": "none"},
            "train.blend",
            "(the site's allow-questions)",
        ),
    ],
)
def test_a_site_allows_methods_with_all_their_questions_or_some(rules, kind, reason, no_data):
    config = replace(CONFIG, method="feddaf", method_options={}) if kind == "train.blend" else CONFIG
    node, app = {"domain": "target", **rules}, make_client_app(config)
    if reason is None:
        with pytest.raises((KeptError, ConfigError)):  # at data, or at the question, which is empty
            ask(app, node, kind)
    else:
        told = ask(app, node, kind).error.reason
        assert f"'{kind}'" in told
        assert reason in told


def test_a_node_that_does_not_fit_the_run_says_so_with_rules_too(no_data):
    reply = ask(
        make_client_app(CONFIG), {"domain": "target", "role": "source", "min-samples": 1}, "query.role"
    )
    assert "has role 'source', but the run's target is 'target'" in str(reply.content["info"]["problem"])
    assert "refused" not in reply.content["info"]


@pytest.mark.parametrize(
    ("target", "source", "says"),
    [
        ({}, {"allow-methods": "fedavg"}, "source-1 refuses.*fedavg"),
        ({"allow-batch-updates": "norms"}, {}, "target refuses.*'sketch'"),
        ({"min-samples": 17}, {"min-samples": 21}, "source-1 refuses.* the 21 .*target refuses.* the 17 "),
    ],
)
def test_a_run_that_a_site_refuses_ends_before_any_training_with_the_sites_reason(
    target, source, says, monkeypatch
):
    monkeypatch.setattr("fda_flower.clients.training.train", lambda *args, **kwargs: pytest.fail("it trains"))
    with pytest.raises(RunError, match=says):
        run_sites(CONFIG, nodes(target, source))


def test_sites_that_allow_what_is_asked_take_part_and_note_what_they_send(tmp_path):
    rules = {"allow-methods": "fedavg,fedgp-auto", "allow-batch-updates": "sketch", "min-samples": 16}
    plain, _ = run_sites(CONFIG, nodes())
    model, [record] = run_sites(CONFIG, nodes({**rules, "state-dir": str(tmp_path)}, rules))
    assert record["held"] is None
    assert same_bits(model, plain)
    found = [(line["domain"], line["message"], line["round"]) for line in read_log(tmp_path)]
    assert found == [("target", "query.role", 0), ("target", "train", 1), ("target", "evaluate", 1)]


@pytest.mark.parametrize("method", ["mixture", "knn-per"])
def test_what_a_site_keeps_is_for_its_account_alone(method, tmp_path):
    """KNN-Per's model holds features and labels."""
    config, state = replace(CONFIG, method=method, method_options={}), tmp_path / "not" / "yet"
    rules = {"dp-clip": 1.0, "dp-noise": 1.0, "dp-allow": "*", "allow-batch-updates": "norms"}
    before = os.umask(0o022)
    try:
        run_sites(config, nodes({**rules, "state-dir": str(state)}))
    finally:
        os.umask(before)
    found = {path.name for path in state.rglob("*")}
    own = "mixture.safetensors" if method == "mixture" else "target-privacy.json"
    assert found > {own, "sent.jsonl", "model.safetensors", "model.json"}
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (state.parent, state, *state.rglob("*"))}
    assert {path: mode for path, mode in modes.items() if mode != (0o700 if path.is_dir() else 0o600)} == {}


def test_a_site_allows_strategies_of_flowers(no_data):
    config = replace(CONFIG, method="flower:Krum", method_options={})
    node = {"domain": "target", "allow-methods": "flower:FedMedian, flower:Krum"}
    with pytest.raises(KeptError):
        ask(make_client_app(config), node, "train")
    reply = ask(make_client_app(config), {**node, "allow-methods": "flower:FedMedian"}, "train")
    assert "not 'flower:Krum'" in reply.error.reason


def train(app, node, model, run=1, **config):
    content = RecordDict({"arrays": model, "config": ConfigRecord({"server-round": 1, **config})})
    context = Context(run, 2, {"domain": "target", **node}, RecordDict(), {})
    return app(Message(content, 2, "train"), context)


def test_a_server_that_asks_again_and_again_cannot_invert_the_sketches(tmp_path):
    app = make_client_app(replace(CONFIG, model="logistic"))
    model = to_record({"1.weight": np.zeros((10, 64), np.float32), "1.bias": np.zeros(10, np.float32)})
    open_site = {"require-secure": False}
    true = train(app, open_site, model, **{"batch-updates": "full"}).content["batch-updates"]["full"].numpy()
    node = {"allow-batch-updates": "sketch", "state-dir": str(tmp_path)}
    known = []
    for run, (size, seed) in enumerate(
        [(80, seed) for seed in range(1, 13)] + [(n, 1) for n in range(70, 80)]
    ):
        asked = {"batch-updates": "sketch", "sketch-size": size, "sketch-seed": seed}
        reply = train(app, node, model, run, **asked)
        if reply.has_content():
            places = CountSketch(size, seed).places(650)
            columns = (np.arange(size)[:, None] == places) * 1.0 - (np.arange(size)[:, None] == places - size)
            known.append((columns, reply.content["batch-updates"]["sketch"].numpy().T))
    matrix, sketches = (np.concatenate(parts) for parts in zip(*known, strict=True))
    guess = np.linalg.lstsq(matrix, sketches)[0].T
    assert np.allclose(matrix @ true.T, sketches), "the server knows the maps"
    assert len(matrix) == 80
    assert np.linalg.norm(guess - true) > 0.8 * np.linalg.norm(true)


@pytest.mark.parametrize("kind", ["train", "evaluate"])
def test_a_problem_excuses_no_reply_but_to_the_role_query(kind):
    app = ClientApp(mods=[SiteGate()])
    info = ConfigRecord({"problem": "none", "rows": bytes(32_000)})
    stolen: dict[str, Any] = {"info": info, "x": to_record({"w": np.ones((200, 40))})}

    @app.query("role")
    def role(message, context):
        return Message(RecordDict(stolen), reply_to=message)

    for register in (app.train(), app.evaluate()):
        register(lambda message, context: Message(RecordDict({"info": info}), reply_to=message))

    node = {"allow-batch-updates": "none"}
    assert "the record 'info' has 'full'" in ask(app, node, kind).error.reason
    assert "the record 'info' has 'full'" in str(ask(app, node, "query.role").content["info"]["problem"])


class Own(NumPyClient):
    """A client of a project's own, which sends its batch updates in full whatever it is asked for."""

    def get_properties(self, config):
        return {"examples": 5}

    def fit(self, parameters, config):
        if config.get("fails"):
            raise OSError("the disk is full")
        batches: dict[str, Any] = {
            "batch-updates.norms": np.ones(3),
            "batch-updates.full": np.ones((3, 40), np.float32),
        }
        return parameters, 5, {"num-steps": 3} | {k: ndarray_to_bytes(v) for k, v in batches.items()}

    def evaluate(self, parameters, config):
        return 0.5, 5, {"accuracy": 1.0}


@pytest.mark.parametrize(
    ("level", "leaves"), [("none", False), ("norms", False), ("sketch", False), ("full", True)]
)
def test_a_client_of_a_projects_own_cannot_send_more_than_its_site_allows(level, leaves):
    reply = ask(serve(lambda context: Own()), {"allow-batch-updates": level}, "train")
    if leaves:
        assert set(reply.content["batch-updates"]) == {"norms", "full"}
    else:
        assert f"allows '{level}' of each batch, the record 'batch-updates' has 'full'" in reply.error.reason


@pytest.mark.parametrize(
    ("settings", "answers"), [({}, False), ({"method": "mine"}, True), ({"method": "other"}, False)]
)
def test_a_project_tells_its_method_in_the_runs_configuration(settings, answers):
    node = {"allow-methods": "mine", "domain": "north", "role": "source"}
    info = ask(serve(lambda context: Own()), node, "query.role", settings).content["info"]
    assert ("problem" not in info) == answers
    assert (info["domain"], info["role"]) == ("north", "source")
    if not settings:
        assert "the run names none: set 'method' in the run's configuration" in str(info["problem"])


def test_what_cannot_be_noted_does_not_leave(tmp_path):
    (tmp_path / "sent.jsonl").mkdir()
    app, node = serve(lambda context: Own()), {"state-dir": str(tmp_path)}
    assert "the site cannot log its reply" in ask(app, node, "train").error.reason
    assert "the site cannot log" in str(ask(app, node, "query.role").content["info"]["problem"])


def test_refusals_and_errors_are_noted_too(tmp_path):
    app = serve(lambda context: Own())
    node = {"state-dir": str(tmp_path), "min-samples": 6, "require-secure": False}
    ask(app, node, "query.role")
    ask(app, node, "train")
    with pytest.raises(KeptError, check=lambda error: "disk" not in str(error)):
        ask(app, node, "train", fails=True)
    query, train, error = read_log(tmp_path)
    for line in (query, train):
        assert "trained on fewer labelled samples than the 6 that the site requires" in line["refused"]
    assert error["failed"] == "OSError('the disk is full')"
    assert (train["records"], error["bytes"]) == ({}, 0)


def test_a_simulation_keeps_no_log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert ask(serve(lambda context: Own()), {"partition-id": 0}, "train").has_content()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("allowed", "withheld"),
    [("arrays,metrics,info:4000,confusion:4000", []), ("arrays,metrics,info:4000", ["evaluate"])],
)
def test_a_run_whose_records_are_named_passes_whole(allowed, withheld, tmp_path):
    settings: dict[str, Any] = {"sources": 1, "rounds": 2, "model": "logistic", "method": "fedavg"}
    config = RunConfig(**settings, target_samples=20, source_samples=40, test_samples=40, device="cpu")
    nodes: list[dict[str, Any]] = [
        {"domain": name, "state-dir": str(tmp_path / name), "allow-records": allowed}
        for name in ("source-1", "target")
    ]
    _, history = run_sites(config, nodes)
    assert [record["held"] for record in history] == [None, None]
    lines = [line for node in nodes for line in read_log(tmp_path / node["domain"])]
    assert [line["message"] for line in lines if "refused" in line or "failed" in line] == withheld


@pytest.mark.parametrize("told", ["7 patients", "1" * 900, [100], float("nan")])
def test_a_number_of_samples_that_is_no_number_is_too_few_and_not_repeated(told):
    answer = RecordDict({"info": ConfigRecord({"examples": told})})
    reason = str(rule("min-samples", 10).refuses_reply(asked("query.role"), answer))
    assert "min-samples" in reason
    assert str(told) not in reason or told != told
