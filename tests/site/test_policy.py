"""The rules of a site, each by itself: what a node configuration means, and what it refuses."""

import stat
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from fda_flower.errors import ConfigError
from fda_flower.site import Asked, Rules
from fda_flower.site.rules import LEVELS
from fda_flower.wire.internals import task_identity
from fda_flower.wire.protocol import to_record

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


def asked(
    kind: str = "train",
    role: str | None = "target",
    method: str | None = "fedgp-auto",
    model: ArrayRecord = MODEL,
    folder: Path | None = None,
    **records: Any,
) -> Any:
    content = RecordDict({name: ConfigRecord(record) for name, record in records.items()})
    if kind != "query.role":
        content["arrays"] = model
    with task_identity():
        message = Message(content, 2, kind)
    node: dict[str, Any] = {} if folder is None else {"state-dir": str(folder)}
    return Asked(message, Context(1, 2, node, RecordDict(), {}), method, role)


def reply(batches: dict[str, Any] | None = None, name: str = "batch-updates", **metrics: Any) -> RecordDict:
    numbers = {"num-examples": 8, "num-steps": STEPS, **metrics}
    content = RecordDict({"arrays": MODEL, "metrics": MetricRecord(numbers)})
    if batches is not None:
        content[name] = to_record(batches)
    return content


def rule(name: str, value: Any) -> Rules:
    return Rules.read({name: value}, METHODS)


def test_a_node_without_rules_allows_all() -> None:
    rules = Rules.read({"domain": "north", "role": "source", "state-dir": "/s", "partition-id": 3}, METHODS)
    assert rules == Rules()
    assert rules.refuses_message(asked(config={"batch-updates": "full"})) is None
    told = RecordDict({"arrays": MODEL, "x": ConfigRecord({"rows": b"1" * 9000})})
    assert rules.refuses_reply(asked(), told) is None


@pytest.mark.parametrize(
    ("node", "says"),
    [
        (
            {"allow-methods": "fedavg, fedpg"},
            r"unknown method 'fedpg' \(did you mean 'fedgp'\?\): choose one of all, f",
        ),
        ({"allow-methods": ""}, "unknown method '': choose one of all, fedavg, fedgp, fedgp-auto"),
        ({"allow-batch-updates": "sketches"}, "is 'sketches': choose none or norms or sketch or full"),
        ({"min-samples": "many"}, "min-samples is 'many': give a number of samples"),
        ({"min-samples": -1}, "min-samples is -1"),
        (
            {"allow-method": "fedavg"},
            "unknown rule of the node configuration 'allow-method' .did you mean 'allow-meth",
        ),
        ({"allow_methods": "fedavg"}, "unknown rule .*allow_methods"),
        ({"minsamples": 3}, "unknown rule .*minsamples"),
        ({"max-updates": 3}, "choose one of .*min-samples"),
    ],
)
def test_what_is_misspelt_is_an_error_that_lists_what_is_known(node: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Rules.read(node, METHODS)


def test_without_a_list_of_methods_any_name_can_be_allowed() -> None:
    mine = Rules.read({"allow-methods": "mine"})
    assert mine.refuses_message(asked(method="mine")) is None


@pytest.mark.parametrize(
    ("allowed", "method", "reason"),
    [
        ("fedavg,fedgp-auto", "fedgp-auto", None),
        ("all", "fedgp-auto", None),
        ("all", None, None),
        ("fedavg", "fedgp-auto", "the site allows the methods fedavg, not 'fedgp-auto'"),
        ("fedavg", None, "the run names none: set 'method' in the run's configuration"),
    ],
)
def test_methods_are_allowed_by_name(allowed: str, method: str | None, reason: str | None) -> None:
    found = rule("allow-methods", allowed).refuses_message(asked(method=method))
    assert found is None if reason is None else reason in str(found)


@pytest.mark.parametrize("allowed", LEVELS)
@pytest.mark.parametrize("wanted", LEVELS)
@pytest.mark.parametrize("name", ["batch-updates", "gradients"])
def test_each_level_allows_those_before_it_and_no_others(
    allowed: str, wanted: str, name: str, tmp_path: Path
) -> None:
    told, fits = rule("allow-batch-updates", allowed), LEVELS.index(wanted) <= LEVELS.index(allowed)
    config = {} if wanted == "none" else {name: wanted, **SKETCH}
    assert (told.refuses_message(asked(config=config, folder=tmp_path)) is None) == fits
    asks = {"target": wanted}
    assert (told.refuses_message(asked("query.role", asks=asks, folder=tmp_path)) is None) == fits
    assert (told.refuses_reply(asked(), reply(RECORDS.get(wanted), name)) is None) == fits


def test_the_role_query_asks_each_role_for_its_own() -> None:
    norms = rule("allow-batch-updates", "norms")
    asks = {"target": "sketch"}
    assert "asks for 'sketch'" in str(norms.refuses_message(asked("query.role", "target", asks=asks)))
    assert norms.refuses_message(asked("query.role", "source", asks=asks)) is None
    assert norms.refuses_message(asked("query.role", None, asks=asks)) is None, (
        "its first train message tells"
    )
    assert norms.refuses_message(asked("query.role", "target")) is None


def test_an_encoding_that_is_unknown_counts_as_full() -> None:
    assert "asks for 'full'" in str(
        rule("allow-batch-updates", "sketch").refuses_message(asked(config={"gradients": "raw"}))
    )


def test_a_target_that_aggregates_itself_sends_no_batch_updates() -> None:
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
def test_what_leaves_is_known_by_its_form_not_by_its_name(batches: dict[str, Any], level: str) -> None:
    found = rule("allow-batch-updates", "norms").refuses_reply(asked(), reply(batches))
    assert f"the record 'batch-updates' has '{level}'" in str(found)
    assert rule("allow-batch-updates", "full").refuses_reply(asked(), reply(batches)) is None


LARGER = to_record({"w": np.zeros(10_000, np.float32)})
STOLEN = np.random.default_rng(0).normal(size=(8, 10_000)).astype(np.float32)
"""Eight batch updates."""


def npy(array: Any) -> bytes:
    file = BytesIO()
    np.save(file, array)
    return file.getvalue()


def as_metrics() -> MetricRecord:
    return MetricRecord({f"{i}": value for i, value in enumerate(STOLEN.reshape(-1).tolist())})


HIDING: dict[str, Callable[[], dict[str, Any]]] = {
    "numbers": lambda: {"personal": to_record({"w": STOLEN})},
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
    "lists of metrics": lambda: {"metrics": MetricRecord({"loss": STOLEN.reshape(-1).tolist()})},
    "scalar metrics": lambda: {"metrics": as_metrics()},
    "many records": lambda: {f"personal-{i}": to_record({"w": row}) for i, row in enumerate(STOLEN)},
    "norms": lambda: {
        "batch-updates": to_record({"norms": STOLEN.reshape(-1)}),
        "metrics": MetricRecord({"num-examples": 8, "num-steps": STOLEN.size}),
    },
}


@pytest.mark.parametrize("level", ["norms", "sketch"])
@pytest.mark.parametrize("form", HIDING)
def test_batch_updates_leave_in_no_other_form(form: str, level: str) -> None:
    content = RecordDict({"arrays": LARGER, "metrics": MetricRecord({"num-examples": 8, "num-steps": 8})})
    content.update(HIDING[form]())
    for kind in ("train", "evaluate"):
        reason = rule("allow-batch-updates", level).refuses_reply(asked(kind, model=LARGER), content)
        assert "and may have" in str(reason)
    assert rule("allow-batch-updates", "full").refuses_reply(asked(model=LARGER), content) is None


def test_a_second_model_and_many_names_of_classes_leave() -> None:
    none = rule("allow-batch-updates", "none")
    second = RecordDict({"arrays": LARGER, "personal": LARGER, "metrics": MetricRecord({"num-examples": 8})})
    assert none.refuses_reply(asked(model=LARGER), second) is None
    assert "and may have" in str(none.refuses_reply(asked("evaluate", model=LARGER), second))
    about = RecordDict({"info": ConfigRecord({"class-names": [f"class {i}" for i in range(2000)]})})
    assert none.refuses_reply(asked("query.role"), about) is None
    assert "and may have" in str(none.refuses_reply(asked("query.role"), RecordDict({"arrays": LARGER})))


def test_batch_updates_are_arrays() -> None:
    text = reply()
    text["batch-updates"] = ConfigRecord({"rows": b"123"})
    assert "has 'full'" in str(rule("allow-batch-updates", "sketch").refuses_reply(asked(), text))


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ({}, None),
        ({"sketch-size": 13}, "add up to 12, an eighth of the model's numbers"),
        ({"sketch-size": 0}, "asks for sketches of 0 numbers"),
        ({"sketch-seed": 2}, "of size 12 with the seed 2 in round 1"),
        ({"sketch-size": "12"}, "of size None"),
    ],
)
def test_a_server_chooses_neither_a_long_sketch_nor_its_map(
    settings: dict[str, Any], refused: str | None, tmp_path: Path
) -> None:
    config = {"batch-updates": "sketch", **SKETCH, **settings}
    found = rule("allow-batch-updates", "sketch").refuses_message(asked(config=config, folder=tmp_path))
    assert found is None if refused is None else refused in str(found)


def test_a_second_record_of_settings_hides_nothing(tmp_path: Path) -> None:
    """A client reads one of them."""
    sketch, norms = rule("allow-batch-updates", "sketch"), rule("allow-batch-updates", "norms")
    config = {"batch-updates": "sketch", **SKETCH}
    assert "of size None" in str(sketch.refuses_message(asked(config=config, other=SKETCH, folder=tmp_path)))
    assert "asks for 'sketch'" in str(
        norms.refuses_message(asked(config=config, other={"batch-updates": "norms"}))
    )


def test_a_declared_shape_makes_no_model_larger(tmp_path: Path) -> None:
    model = ArrayRecord({"w": Array("float32", (10_000,), "numpy.ndarray", npy(np.zeros(100, np.float32)))})
    config = {"batch-updates": "sketch", **SKETCH}
    found = rule("allow-batch-updates", "sketch").refuses_message(
        asked(config=config, model=model, folder=tmp_path)
    )
    assert "an eighth of the model's numbers" in str(found)


def test_sizes_of_sketches_add_up_over_all_runs(tmp_path: Path) -> None:
    def refuses(size: int, model: ArrayRecord = LARGER, number: int = 1) -> bool:
        settings = {"sketch-size": size, "sketch-seed": number, "server-round": number}
        config = {"batch-updates": "sketch", **settings}
        own = rule("allow-batch-updates", "sketch")
        return own.refuses_message(asked(config=config, model=model, folder=tmp_path)) is not None

    sizes = [1000, 1000, 251, 250, 1000, 1]
    assert [refuses(size) for size in sizes] == [False, False, True, False, False, True]
    assert not refuses(250, number=2)
    assert not refuses(12, MODEL)
    assert stat.S_IMODE((tmp_path / "sketches.json").stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["", "[]", '{"100": [-12]}', '{"100": 12}'])
def test_a_site_without_its_memory_sends_no_sketch(text: str, tmp_path: Path) -> None:
    sketch, config = rule("allow-batch-updates", "sketch"), {"batch-updates": "sketch", **SKETCH}
    assert "no state-dir" in str(sketch.refuses_message(asked(config=config)))
    assert "no state-dir" in str(sketch.refuses_message(asked("query.role", asks={"target": "sketch"})))
    (tmp_path / "sketches.json").write_text(text)
    assert "cannot remember" in str(sketch.refuses_message(asked(config=config, folder=tmp_path)))
    assert (tmp_path / "sketches.json").read_text() == text


def test_integers_are_no_numbers_of_the_model() -> None:
    assert asked().numbers == 100


def test_the_model_is_the_largest_record_where_no_record_is_called_arrays() -> None:
    message = asked()
    message.message.content["weights"] = message.message.content.pop("arrays")
    assert message.numbers == 100
    assert asked("query.role").numbers == 0


@pytest.mark.parametrize(
    ("kind", "told", "refused"),
    [
        ("query.role", 9, True),
        ("query.role", 10, False),
        ("train", 9, True),
        ("train", 10, False),
        ("evaluate", 3, False),
    ],
)
def test_a_site_wants_samples_enough(kind: str, told: int, refused: bool) -> None:
    content = RecordDict({"metrics": MetricRecord({"num-examples": told})})
    if kind == "query.role":
        content = RecordDict({"info": ConfigRecord({"domain": "a", "examples": told})})
    reason = rule("min-samples", "10").refuses_reply(asked(kind), content)
    assert (reason is not None) == refused
    assert not refused or f"trained on {told} labelled samples, the site wants at least 10" in str(reason)


def test_a_client_that_tells_no_samples_may_take_part_but_not_send_what_it_trained() -> None:
    wants = rule("min-samples", 1)
    assert (
        wants.refuses_reply(asked("query.role"), RecordDict({"info": ConfigRecord({"domain": "a"})})) is None
    )
    assert "trained on 0" in str(wants.refuses_reply(asked(), RecordDict({"arrays": ArrayRecord()})))
