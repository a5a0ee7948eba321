"""The rules of a site, each by itself: what a node configuration means, and what it refuses."""

from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from fda_flower.errors import ConfigError
from fda_flower.flower_internals import task_identity
from fda_flower.protocol import to_record
from fda_flower.site import Asked, Rule, read_rules
from fda_flower.site.policy import LEVELS, count

METHODS = ("fedavg", "fedgp", "fedgp-auto")
MODEL = to_record({"w": np.zeros((10, 10), np.float32), "seen": np.zeros(50, np.int64)})
STEPS = 4
NORMS: dict[str, Any] = {"norms": np.ones(STEPS)}
RECORDS: dict[str, dict[str, Any]] = {
    "norms": NORMS,
    "sketch": {**NORMS, "sketch": np.ones((STEPS, 16))},
    "full": {**NORMS, "full": np.ones((STEPS, 100))},
}


def asked(
    kind: str = "train", role: str | None = "target", method: str | None = "fedgp-auto", **records: Any
) -> Any:
    content = RecordDict({name: ConfigRecord(record) for name, record in records.items()})
    if kind != "query.role":
        content["arrays"] = MODEL
    with task_identity():
        message = Message(content, 2, kind)
    return Asked(message, Context(1, 2, {}, RecordDict(), {}), method, role)


def reply(batches: dict[str, Any] | None = None, name: str = "batch-updates", **metrics: Any) -> RecordDict:
    numbers = {"num-examples": 8, "num-steps": STEPS, **metrics}
    content = RecordDict({"arrays": MODEL, "metrics": MetricRecord(numbers)})
    if batches is not None:
        content[name] = to_record(batches)
    return content


def rule(name: str, value: Any) -> Rule:
    return read_rules({name: value}, METHODS)[name]


def test_a_node_without_rules_has_none() -> None:
    assert read_rules({"domain": "north", "role": "source", "state-dir": "/s", "partition-id": 3}) == {}


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
        read_rules(node, METHODS)


def test_without_a_list_of_methods_any_name_can_be_allowed() -> None:
    [mine] = read_rules({"allow-methods": "mine"}).values()
    assert mine.before(asked(method="mine")) is None


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
    found = rule("allow-methods", allowed).before(asked(method=method))
    assert found is None if reason is None else reason in str(found)


@pytest.mark.parametrize("allowed", LEVELS)
@pytest.mark.parametrize("wanted", LEVELS)
@pytest.mark.parametrize("name", ["batch-updates", "gradients"])
def test_each_level_allows_those_before_it_and_no_others(allowed: str, wanted: str, name: str) -> None:
    told, fits = rule("allow-batch-updates", allowed), LEVELS.index(wanted) <= LEVELS.index(allowed)
    config = {} if wanted == "none" else {name: wanted}
    assert (told.before(asked(config=config)) is None) == fits
    assert (told.before(asked("query.role", asks={"target": wanted})) is None) == fits
    assert (told.after(asked(), reply(RECORDS.get(wanted), name)) is None) == fits


def test_the_role_query_asks_each_role_for_its_own() -> None:
    norms = rule("allow-batch-updates", "norms")
    asks = {"target": "sketch"}
    assert "asks for 'sketch'" in str(norms.before(asked("query.role", "target", asks=asks)))
    assert norms.before(asked("query.role", "source", asks=asks)) is None
    assert norms.before(asked("query.role", None, asks=asks)) is None, "its first train message tells"
    assert norms.before(asked("query.role", "target")) is None


def test_an_encoding_that_is_unknown_counts_as_full() -> None:
    assert "asks for 'full'" in str(
        rule("allow-batch-updates", "sketch").before(asked(config={"gradients": "raw"}))
    )


def test_a_target_that_aggregates_itself_sends_no_batch_updates() -> None:
    none = rule("allow-batch-updates", "none")
    config = {"batch-updates": "sketch"}
    assert none.before(asked(config=config, aggregate={"betas": [0.5]})) is None
    assert none.before(asked(config=config)) is not None


@pytest.mark.parametrize(
    ("batches", "level"),
    [
        ({"norms": np.ones(STEPS + 1)}, "full"),
        ({"norms": np.ones((STEPS, 100))}, "full"),
        ({**NORMS, "sketch": np.ones((STEPS, 100))}, "full"),
        ({**NORMS, "sketch": np.ones((2, STEPS, 16))}, "full"),
        ({**NORMS, "steps": np.ones(9)}, "full"),
        ({"sketch": np.ones(16), "norm": np.array(1.0), "batches": np.array(4)}, "sketch"),
    ],
)
def test_what_leaves_is_known_by_its_form_not_by_its_name(batches: dict[str, Any], level: str) -> None:
    found = rule("allow-batch-updates", "norms").after(asked(), reply(batches))
    assert f"the record 'batch-updates' has '{level}'" in str(found)
    assert rule("allow-batch-updates", "full").after(asked(), reply(batches)) is None


def test_batch_updates_do_not_leave_under_another_name() -> None:
    sketch = rule("allow-batch-updates", "sketch")
    assert sketch.after(asked(), reply({"w": np.ones((10, 10))}, "personal")) is None
    hidden = reply({"w": np.ones((STEPS, 10, 10))}, "personal")
    assert "the record 'personal' has 400 numbers, more than the model's 100" in str(
        sketch.after(asked(), hidden)
    )
    listed = reply(trace=[0.0] * 101)
    assert "the record 'metrics' has 101 numbers" in str(sketch.after(asked(), listed))
    assert rule("allow-batch-updates", "full").after(asked(), hidden) is None
    text = reply()
    text["batch-updates"] = ConfigRecord({"rows": b"123"})
    assert "has 'full'" in str(sketch.after(asked(), text))


def test_integers_that_count_are_no_numbers_of_the_model() -> None:
    assert count(MODEL) == asked().numbers == 100
    assert count(ConfigRecord({"a": [1.0]})) == 0


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
    reason = rule("min-samples", "10").after(asked(kind), content)
    assert (reason is not None) == refused
    assert not refused or f"trained on {told} labelled samples, the site wants at least 10" in str(reason)


def test_a_client_that_tells_no_samples_may_take_part_but_not_send_what_it_trained() -> None:
    wants = rule("min-samples", 1)
    assert wants.after(asked("query.role"), RecordDict({"info": ConfigRecord({"domain": "a"})})) is None
    assert "trained on 0" in str(wants.after(asked(), RecordDict({"arrays": ArrayRecord()})))


def test_a_rule_that_defines_nothing_takes_any_value_and_allows_all() -> None:
    any_rule = Rule.read("x", METHODS)
    assert (any_rule.before(asked()), any_rule.after(asked(), reply())) == (None, None)
