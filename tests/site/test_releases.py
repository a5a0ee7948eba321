"""The two tables that a site's rules read: who asks what of whom, and what each answer releases."""

from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from fda_flower import RunConfig
from fda_flower.client_app import make_client, make_client_app
from fda_flower.errors import ConfigError
from fda_flower.runs.methods import find_method, method_names
from fda_flower.site.asked import Asked
from fda_flower.site.node import Site
from fda_flower.site.records import always_released, release_of, released_by, table
from fda_flower.site.rules import Rules
from fda_flower.site.words import KeptError
from fda_flower.wire import asked, protocol
from fda_flower.wire.asked import QUESTIONS
from fda_flower.wire.internals import numbered, task_identity
from fda_flower.wire.protocol import to_record
from fda_flower.wire.questions import Answer, Question
from fda_flower.wire.releases import Release

MODELS = {"pfedfda": "logistic", "ridge": "logistic", "fedbn": "cnn"}
OURS = {kind: each for kind, each in QUESTIONS.items() if each.__module__.startswith(asked.__name__)}
PLAIN = (protocol.TRAIN, protocol.EVALUATE)


def config_of(method: str, **options: Any) -> RunConfig:
    model = MODELS.get(method, "mlp")
    return RunConfig(method=method, model=model, sources=3, target_samples=40, device="cpu", **options)


def send(app: Any, node: dict[str, Any], kind: str, **config: Any) -> Message:
    model = ArrayRecord({"w": to_record({"w": np.zeros((2, 2), np.float32)})["w"]})
    content = RecordDict({"arrays": model, "config": ConfigRecord(config)})
    (message,) = numbered([Message(content, 2, kind)])
    return app(message, Context(1, 2, node, RecordDict(), {}))


def asking(kind: str, node: Any = None) -> Asked:
    with task_identity():
        context = Context(1, 2, node or {}, RecordDict(), {})
        return Asked(Message(RecordDict(), 2, kind), context, Site.of(context))


@pytest.fixture
def reads_no_data(monkeypatch):
    loads = Mock(side_effect=AssertionError("data were read"))
    monkeypatch.setattr("fda_flower.runs.network.load_domain", loads)


FEDERATED = [name for name in method_names() if not find_method(name).centralised]


@pytest.mark.usefixtures("reads_no_data", "in_a_run")
@pytest.mark.parametrize("method", FEDERATED)
def test_a_node_answers_what_the_runs_method_asks_of_its_role_and_nothing_else(method):
    """Without rules, and with the rule that allows all."""
    config = config_of(method)
    app = make_client_app(config)
    for name, role in (("source-1", "source"), ("target", "target")):
        asked = config.strategy.asked_of(role)
        for node in ({}, {"allow-methods": "all", "allow-questions": "all"}):
            own = {"domain": name, "require-secure": False, **node}
            for kind in (*OURS, *PLAIN):
                if kind in asked:  # it fails at the question, which is empty, or at data
                    with pytest.raises((ConfigError, KeptError)):
                        send(app, own, kind)
                else:
                    reason = str(send(app, own, kind).error.reason)
                    assert f"does not ask '{kind}' of a {role}" in reason


@pytest.mark.usefixtures("reads_no_data", "in_a_run")
@pytest.mark.parametrize("node", [{}, {"domain": "source-1", "require-secure": False}])
def test_a_question_among_the_settings_is_a_question(node):
    """As clients of Flower's older API receive it."""
    reply = send(
        make_client_app(config_of("fedavg")), {"domain": "source-1", **node}, "train", question="train.blend"
    )
    assert "does not ask 'train.blend' of a source" in str(reply.error.reason)


@pytest.mark.parametrize("role", ["source", "target"])
@pytest.mark.parametrize("kind", OURS)
def test_a_node_whose_method_is_unknown_answers_questions_to_its_own_role(kind, role):
    asked = replace(asking(kind), role=role)
    assert (Rules().refuses_message(asked) is None) == (role in OURS[kind].roles)


def test_every_field_of_an_answer_says_what_it_releases():
    undeclared = {
        f"{kind} {name}"
        for kind, question in OURS.items()
        for name, release in question.answer.releases().items()
        if release is None
    }
    assert not undeclared
    assert all(None not in kinds for kinds in table().values())


def test_every_entry_of_an_honest_reply_is_in_the_table():
    known = {"train": protocol.METRICS, "evaluate": protocol.METRICS}
    for kind, record in known.items():
        assert release_of(kind, record, protocol.NUM_EXAMPLES) == Release.COUNTS
    for entry in protocol.PROPERTIES:
        assert release_of(protocol.ROLE_QUERY, protocol.INFO, entry) is not None, entry
    assert release_of("train", "rows") is None


def test_what_a_reply_releases_by_kind():
    reply = RecordDict(
        {"arrays": ArrayRecord(), "metrics": MetricRecord({"num-examples": 3, "train-loss": 0.5})}
    )
    reply["answer"] = ConfigRecord({"mask_share": 0.5, "head": ["a"]})
    reply["answer/contribution"] = ConfigRecord({"a": 0.5})
    assert released_by("train.distil", reply) == {
        Release.MODEL: ["arrays"],
        Release.COUNTS: ["metrics.num-examples", "answer.mask_share"],
        Release.FIGURES: ["metrics.train-loss", "answer/contribution.a"],
        Release.NOTHING: ["answer.head"],
    }


# Rules follow the content

SECURE, TARGET = {"domain": "north"}, {"domain": "north", "role": "target"}
EXPLICIT = {**TARGET, "require-secure": True}
NOISE = {"dp-clip": 1.0, "dp-noise": 2.0}


@pytest.mark.parametrize(
    ("kind", "node", "leaves"),
    [
        ("train.sum_rows", SECURE, False),
        ("train.mix_gaussians", SECURE, False),
        ("train.mix_gaussians", TARGET, False),
        ("train.mix_gaussians", {"domain": "north", "require-secure": False}, True),
        ("train.mask_sums", SECURE, False),
        ("train.fit_head", SECURE, False),
        ("train.fit_head", TARGET, True),
        ("train.fit_head", EXPLICIT, False),
        ("train.fit_head", {**EXPLICIT, **NOISE}, True),
        ("train.fit_site_head", SECURE, True),
        ("train.distil", SECURE, True),
        ("train.disentangle", SECURE, False),
        ("train.disentangle", {**SECURE, **NOISE}, False),
        ("train.disentangle", {**SECURE, "require-secure": False}, True),
        ("train.align", TARGET, True),
        ("train", SECURE, True),
    ],
)
def test_require_secure_holds_for_every_answer_that_follows_from_sums(kind, node, leaves):
    asked = asking(kind, node)
    reason = Site.read(node).rules.refuses_message(asked)
    assert (reason is None) == leaves, reason
    assert leaves or "(the site's require-secure)" in str(reason)


@pytest.mark.parametrize(("node", "leaves"), [(SECURE, False), ({**SECURE, "require-secure": False}, True)])
def test_a_run_that_will_ask_for_features_of_samples_is_refused_by_name_at_the_role_query(node, leaves):
    query = asking(protocol.ROLE_QUERY, node)
    query.message.content[protocol.ASKS] = ConfigRecord({"source": protocol.FEATURES})
    reason = Site.read(node).rules.refuses_message(replace(query, role="source"))
    assert (reason is None) == leaves
    assert leaves or "features of samples" in str(reason)


@pytest.mark.parametrize("kind", ["train", "train.distil", "train.sum_rows", "train.disentangle"])
def test_features_of_samples_are_in_no_answer_whatever_the_message(kind):
    message = asking(kind, SECURE)
    reply = RecordDict({"answer/features": to_record({"features": np.zeros((4, 3), np.float32)})})
    assert "require-secure" in str(message.site.rules.refuses_reply(message, reply))


class _Own(Answer):
    numbers: float


class _OfAnotherProject(Question):
    """A question whose author has not said what the answer releases."""

    action = "of_another_project"
    answer = _Own
    answered_by = "nobody:nothing"


OTHERS = QUESTIONS.pop(_OfAnotherProject.message_type())


def test_a_site_refuses_an_answer_whose_author_has_not_said_what_it_releases(monkeypatch):
    monkeypatch.setitem(QUESTIONS, OTHERS.message_type(), OTHERS)
    asked = asking("train.of_another_project", SECURE)
    assert "nobody has declared" in str(Site.read(SECURE).rules.refuses_message(asked))
    assert Site.read({"partition-id": 1}).rules.refuses_message(asked) is None
    assert always_released("train.of_another_project") == {None, Release.MODEL}


def test_a_site_that_requires_masks_keeps_the_figures_of_its_own_head():
    """They follow from the total minus the site's own sums, and the server chooses the total."""
    asked = asking("train.fit_site_head", SECURE)
    reply = RecordDict({"answer": ConfigRecord({"kept": True, "share": 0.25, "test_examples": 8})})
    reply["answer/test"] = ConfigRecord({"accuracy": 0.5})
    rules = Site.read(SECURE).rules
    assert "require-secure" in str(rules.refuses_reply(asked, reply))
    assert rules.withhold(asked, reply) == ["share", "test"]
    assert (set(reply), dict(reply["answer"])) == ({"answer"}, {"kept": True, "test_examples": 8})
    assert rules.refuses_reply(asked, reply) is None


@pytest.mark.parametrize(("role", "level"), [(None, "norms"), ("source", "norms"), ("target", "full")])
def test_sketches_of_batches_are_sums_too(role, level):
    node = {"domain": "north", **({} if role is None else {"role": role})}
    assert Site.read(node).rules.allow_batch_updates == level
    assert Site.read({**node, "require-secure": True}).rules.allow_batch_updates == "norms"
    assert Site.read({**node, "allow-batch-updates": "sketch"}).rules.allow_batch_updates == "sketch"
    assert Site.read({**node, **NOISE, "state-dir": "x"}).rules.allow_batch_updates == "full"


@pytest.mark.parametrize(
    ("kind", "fewest", "noise", "leaves"),
    [
        ("train", 4, {}, False),
        ("train", 5, {}, True),
        ("train", None, {}, True),
        ("train", 4, NOISE, True),
        ("train.fit_head", 1, {}, False),
        ("train.mix_gaussians", 1, {}, False),
        ("train.mask_sums", 1, {}, True),
        ("evaluate", 1, {}, True),
    ],
)
def test_a_rare_class_is_in_nothing_that_follows_from_sums(kind, fewest, noise, leaves):
    """Neither in a model: with a tiny rate its update is a sum of gradients."""
    node = {"min-per-class": 5, "state-dir": "x", **noise}
    reason = Site.read(node).rules.refuses_rare(asking(kind, node), fewest)
    assert (reason is None) == leaves


@pytest.mark.usefixtures("in_a_run")
@pytest.mark.parametrize(("least", "leaves"), [(2, True), (1000, False)])
def test_the_client_counts_each_class_and_only_the_sites_own_rules_read_it(least, leaves):
    config = config_of("fedavg")
    app, model = make_client_app(config), to_record(make_client(config, "source-1").layers())
    (message,) = numbered([Message(RecordDict({"arrays": model, "config": ConfigRecord()}), 2, "train")])
    reply = app(message, Context(1, 2, {"domain": "source-1", "min-per-class": least}, RecordDict(), {}))
    assert reply.has_content() == leaves
    assert leaves or "(the site's min-per-class)" in str(reply.error.reason)
    assert not leaves or set(reply.content) == {"arrays", "metrics", "info"}


@pytest.mark.parametrize(
    ("cell", "counts", "leaves"),
    [
        ({}, [5, 10, 0], True),
        ({}, [5, 9, 0], False),
        ({"min-cell": 4}, [8, 9], False),
        ({"min-cell": 1}, [1, 2], True),
    ],
)
def test_an_array_of_counts_leaves_only_as_multiples_of_the_cell(cell, counts, leaves):
    reply = RecordDict({"answer/counts": to_record({"classes": np.array(counts, np.float64)})})
    asked = asking("train.describe_rows", {"require-secure": False, **cell})
    reason = asked.site.rules.refuses_reply(asked, reply)
    assert (reason is None) == leaves
    assert leaves or "(the site's min-cell)" in str(reason)
