"""Questions and answers: what is written is read, whole, and nothing else is."""

import dataclasses
import re
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from naming import names

from fda_flower.aggregation import Layers
from fda_flower.errors import ConfigError
from fda_flower.names.options import Count, Natural, NotNegative, Positive, Share
from fda_flower.wire import asked, questions
from fda_flower.wire.asked import QUESTIONS
from fda_flower.wire.protocol import ARRAYS, CONFIG, Keys, TrainRequest, read_request, to_record
from fda_flower.wire.questions import Answer, InRecord, Like, Question
from fda_flower.wire.releases import Release

MODEL = {"w": np.ones((2, 3), np.float32), "running_mean": np.zeros(3, np.float32)}
PARAMETERS = {"w": MODEL["w"]}


class Told(Answer):
    """An answer with every kind of field."""

    flag: bool
    number: Count
    share: Share
    word: Literal["a", "b"]
    text: str | None = None
    names: tuple[str, ...] = ()
    by_domain: Mapping[str, Share]
    arrays: Annotated[Layers, Like("parameters")]
    models: Mapping[str, Annotated[Layers, Like("model")]]
    sums: Annotated[Layers, Like(lambda model: {"sum": model["w"].sum(axis=0)})] | None = None


GOOD: dict[str, Any] = {
    "flag": False,
    "number": 3,
    "share": 1.0,
    "word": "a",
    "names": ("x", "y"),
    "by_domain": {"north/1": 0.5, "": 1.0},
    "arrays": {"w": np.full((2, 3), 2, np.float32)},
    "models": {"a/b": MODEL, "a": MODEL},
}


def content_of(**changes):
    return RecordDict({**Told(**{**GOOD, **changes}).records()})


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"text": "ä"},
        {"names": ()},
        {"by_domain": {}},
        {"models": {}},
        {"sums": {"sum": np.zeros(3, "f4")}},
    ],
)
def test_what_is_written_is_read(changes):
    expected = {"text": None, "sums": None, **GOOD, **changes}
    answer = Told.read(content_of(**changes))
    answer.in_form(MODEL, PARAMETERS)
    for name, value in expected.items():
        np.testing.assert_equal(getattr(answer, name), value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("flag", 1),
        ("number", True),
        ("number", 2.0),
        ("number", 0),
        ("share", 1.5),
        ("share", float("nan")),
        ("share", "1"),
        ("share", True),
        ("word", "c"),
        ("text", 3),
        ("names", "xy"),
        ("names", [1]),
    ],
)
def test_a_value_of_another_type_or_out_of_bounds_is_named(field, value):
    content = content_of()
    content["answer"][field] = value
    with pytest.raises(ConfigError, match=field if field != "word" else "answer word"):
        Told.read(content)


@pytest.mark.parametrize("field", ["flag", "number", "share", "word", "by_domain", "arrays"])
def test_a_field_that_is_missing_is_named(field):
    content = content_of()
    place, name = (content, f"answer/{field}") if f"answer/{field}" in content else (content["answer"], field)
    del place[name]
    with pytest.raises(ConfigError, check=names(field)):
        Told.read(content)


@pytest.mark.parametrize(("field", "other"), [("by_domain", ArrayRecord()), ("arrays", ConfigRecord())])
def test_a_record_of_another_kind_is_named(field, other):
    content = content_of()
    content[f"answer/{field}"] = other
    with pytest.raises(ConfigError, check=names(f"answer {field}")):
        Told.read(content)


@pytest.mark.parametrize("part", ["answer/other", "answer/arrays/x", "other"])
def test_a_part_that_is_unknown_is_named(part):
    content = content_of()
    if part == "other":
        content["answer"][part] = 1
    else:
        content[part] = to_record(PARAMETERS)
    with pytest.raises(ConfigError, check=names("part of its answer", part.removeprefix("answer/"))):
        Told.read(content)


@pytest.mark.parametrize(
    "array",
    [
        Array(np.array([np.inf], np.float32)),
        Array(np.array(["text"])),
        Array(np.ones(1, np.complex64)),
        Array("float32", (1,), "numpy.ndarray", b"no array"),
    ],
)
def test_arrays_that_are_not_finite_numbers_are_refused(array):
    content = content_of()
    content["answer/arrays"] = ArrayRecord({"w": array})
    with pytest.raises(ConfigError, check=names("answer arrays")):
        Told.read(content)


ARRAYS_OF_ONE = to_record({"w": np.ones(2)})


@pytest.mark.parametrize(
    ("field", "name", "record"),
    [
        ("arrays", "answer", ConfigRecord({"arrays": 3.0})),
        ("sums", "answer", ConfigRecord({"sums": "none"})),
        ("by_domain", "answer", ConfigRecord({"by_domain": 0.5})),
        ("models", "answer", ConfigRecord({"models": 1})),
        ("share", "answer/share", ARRAYS_OF_ONE),
        ("text", "answer/text", ConfigRecord({"text": "a"})),
        ("names", "answer/names", ConfigRecord({"names": ["a"]})),
        ("models", "answer/models", ARRAYS_OF_ONE),
        ("by_domain", "answer/by_domain/a", ConfigRecord({"a": 0.5})),
        ("arrays", "answer/arrays/a", ARRAYS_OF_ONE),
        ("by_domain", "answer/by_domain", ARRAYS_OF_ONE),
        ("arrays", "answer/arrays", ConfigRecord({"w": [1.0]})),
        ("answer", "answer", ARRAYS_OF_ONE),
        ("answer", "answer", ArrayRecord()),
    ],
)
def test_a_field_in_the_place_of_one_of_another_kind_is_named(field, name, record):
    content = content_of()
    if name == "answer" and field != "answer":
        content["answer"].update(record)
    else:
        content[name] = record
    with pytest.raises(ConfigError, match=field):
        Told.read(content)


class Plain(Answer):
    """What the reply to a plain message holds, in a record of a name of its own."""

    steps: Annotated[Layers, InRecord("batch-updates")] | None = None


def test_an_answer_to_a_plain_message_is_in_the_record_that_its_field_names():
    records = Plain(steps={"norms": np.ones(3)}).records()
    assert set(records) == {"answer", "batch-updates"}
    content = RecordDict({"batch-updates": records["batch-updates"], "arrays": to_record(MODEL)})
    np.testing.assert_equal(Plain.read(content).steps, {"norms": np.ones(3)})
    assert Plain.read(RecordDict({"arrays": to_record(MODEL)})) == Plain()
    with pytest.raises(ConfigError, match="its batch-updates is no ArrayRecord"):
        Plain.read(RecordDict({"batch-updates": ConfigRecord()}))


@pytest.mark.parametrize(
    ("field", "arrays"),
    [
        ("arrays", {"w": np.ones((3, 2), np.float32)}),
        ("arrays", {"w": np.ones((2, 3))}),
        ("arrays", {}),
        ("arrays", MODEL),
        ("sums", {"sum": np.ones(2, np.float32)}),
    ],
)
def test_arrays_of_another_form_are_refused(field, arrays):
    answer = Told.read(content_of(**{field: arrays}))
    with pytest.raises(ConfigError, check=names(f"answer {field}")):
        answer.in_form(MODEL, PARAMETERS)


def test_a_method_s_questions_are_also_names_of_the_module_that_defines_what_a_question_is():
    module: Any = questions
    assert module.Penalise is QUESTIONS["train.penalise"]
    assert not hasattr(module, "Penalize")


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=list(QUESTIONS))
def test_a_question_says_who_answers_and_is_part_of_its_request(question):
    assert question.action.isidentifier()
    assert question.message_type() == f"{question.kind}.{question.action}"
    assert question.__doc__
    assert question.answer.__doc__


def test_a_request_is_read_with_its_question():
    class Ask(Question):
        """A question of this test."""

        action = "ask_of_a_test"
        answered_by = "none"

        share: Share

    del QUESTIONS[Ask.message_type()]
    sent = TrainRequest(to_record(MODEL), {"server-round": 2}, question=Ask(share=0.5))
    assert sent.message_type("train") == "train.ask_of_a_test"
    content = sent.content(Keys())
    assert {ARRAYS, CONFIG, "question"} == set(content)
    read = read_request(content, Ask)
    assert (read.question, read.config, read.records) == (Ask(share=0.5), {"server-round": 2}, {})


def test_two_questions_of_one_name_are_refused():
    with pytest.raises(ConfigError, check=names("action", "distil")):

        class Other(Question):
            """A question with the name of another."""

            action = "distil"
            answered_by = "none"


NUMBERS = {
    Share: "Share",
    Natural: "Natural",
    NotNegative: "NotNegative",
    Count: "Count",
    Positive: "Positive",
}


def shown(hint):
    """A field's type as people write it."""
    if hint in NUMBERS:
        return NUMBERS[hint]
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(
            "None" if part is types.NoneType else shown(part) for part in typing.get_args(hint)
        )
    if typing.get_origin(hint) is Annotated:
        plain, *notes = typing.get_args(hint)
        notes = [note for note in notes if not isinstance(note, Release)]
        if len(notes) < len(typing.get_args(hint)) - 1:
            return shown(Annotated[plain, *notes] if notes else plain)
        (note,) = notes
        if not isinstance(note, Like):
            return f"{plain.__name__}, {note.words}"
        return f"{shown(plain)} like the {note.form}" if isinstance(note.form, str) else shown(plain)
    if hint == Layers:
        return "Layers"
    if typing.get_origin(hint) is tuple:
        return f"list of {shown(typing.get_args(hint)[0])}"
    if typing.get_origin(hint) is Mapping:
        return f"{shown(typing.get_args(hint)[1])} by name"
    return (
        re.sub(r"\b(typing|collections\.abc)\.", "", str(hint)) if typing.get_origin(hint) else hint.__name__
    )


def fields_in_words(cls):
    hints = typing.get_type_hints(cls, include_extras=True)
    released = cls.releases() if issubclass(cls, Answer) else {}
    kinds = {name: f" (*{kind}*)" for name, kind in released.items() if kind != Release.NOTHING}
    own = (
        f"`{each.name}`: {shown(hints[each.name])}{kinds.get(each.name, '')}"
        for each in dataclasses.fields(cls)
    )
    return "; ".join(own) or "nothing"


def table_of_questions():
    lines = ["| message | to | question | answer | purpose |", "| --- | --- | --- | --- | --- |"]
    for kind, question in QUESTIONS.items():
        if question.__module__.startswith(asked.__name__):
            purpose = " ".join(question.__doc__.split("\n\n")[0].split()).replace("``", "`")
            fields = [fields_in_words(question), fields_in_words(question.answer)]
            cells = [f"`{kind}`", ", ".join(question.roles), *fields, purpose]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def test_the_wire_reference_lists_all_questions():
    page, table = Path(__file__).parents[2] / "docs" / "wire.md", table_of_questions()
    assert table in page.read_text(encoding="utf-8"), f"docs/wire.md needs this table:\n{table}"


# Settings of a plain message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", 0),
        ("epochs", 10_001),
        ("epochs", 2.0),
        ("epochs", True),
        ("rate-factor", float("inf")),
        ("rate-factor", -1.0),
        ("sketch-size", 1 << 25),
        ("sketch-seed", -1),
        ("proximal", "0.1"),
        ("batch-updates", "all"),
        ("tune", False),
        ("outcomes", 1),
        ("server-round", -1),
    ],
)
def test_a_setting_that_is_not_of_its_type_is_refused_before_anything_is_done_by_it(name, value):
    content = RecordDict({CONFIG: ConfigRecord({name: value}), ARRAYS: to_record({})})
    with pytest.raises(ConfigError, match=name) as refused:
        read_request(content)
    assert name in refused.value.thing


def test_settings_of_others_are_theirs():
    content = RecordDict({CONFIG: ConfigRecord({"lr": "x", "epochs": 3}), ARRAYS: to_record({})})
    assert read_request(content).config == {"lr": "x", "epochs": 3}
