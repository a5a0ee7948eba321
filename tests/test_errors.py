"""An error names its thing, value and remedy; no terminal obeys a text of a node, which is one line."""

import copy
import io
import logging
import pickle
from pathlib import Path

import pytest

from fda_flower.errors import FdaError, invalid, keep_to_one_line, near, printable, unknown


@pytest.mark.parametrize(
    ("error", "message", "named"),
    [
        (FdaError("it is full"), "it is full", ("", None, "")),
        (FdaError("'a: b' is full: make room"), "'a: b' is full: make room", ("", None, "make room")),
        (invalid("folder", Path("a"), "make it"), "folder is 'a': make it", ("folder", Path("a"), "make it")),
        (invalid("lam", -1.0, "at least 0"), "lam is -1.0: at least 0", ("lam", -1.0, "at least 0")),
        (invalid("n", [2], "label 5", "but 9"), "n is [2], but 9: label 5", ("n", [2], "label 5")),
        (
            unknown("method", "fedpg", ["fedgp", "ditto"]),
            "unknown method 'fedpg' (did you mean 'fedgp'?): choose one of ditto, fedgp",
            ("method", "fedpg", "choose one of ditto, fedgp"),
        ),
    ],
    ids=str,
)
def test_an_error_names_its_thing_value_and_remedy_also_after_it_was_sent(error, message, named):
    for each in (error, pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):
        assert type(each) is type(error)
        assert str(each) == message
        assert (each.thing, each.value, each.remedy) == named


@pytest.mark.parametrize(
    ("name", "valid", "found"),
    [
        ("Hungary", ["cleveland", "hungary"], "hungary"),
        ("bp", ["AGE", "BP"], "BP"),
        ("ZURICH", ["Zürich"], "Zürich"),
        ("Zu\u0308rich", ["Z\u00fcrich"], "Z\u00fcrich"),
        ("STRASSE", ["straße"], "straße"),
        ("ｗａｒｄ １", ["ward 1"], "ward 1"),
        ("fedpg", ["FedGP", "ditto"], "FedGP"),
        ("x", ["hungary"], ""),
    ],
)
def test_the_nearest_name_is_found_in_any_case_and_form(name, valid, found):
    assert near(name, valid) == (f" (did you mean {found!r}?)" if found else "")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Zürich, 東京\tΣ = 1.5", "Zürich, 東京\tΣ = 1.5"),
        ("x\nFDA-RESULT 5", r"x\nFDA-RESULT 5"),
        ("over\rwritten", r"over\rwritten"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x00 \x7f \x85 \x9b", r"\x00 \x7f \x85 \x9b"),
        ("a\u2028b\u2029c", r"a\u2028b\u2029c"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("\udc80", r"\udc80"),
        ("", ""),
    ],
)
def test_what_a_terminal_or_a_reader_of_lines_obeys_is_escaped(text, shown):
    assert printable(text) == shown
    assert printable(shown) == shown
    shown.encode()


@pytest.mark.parametrize("text", ["x" * 10_000_000, "\n" * 10_000_000, "東" * 1001])
def test_a_long_text_is_cut_off_after_its_escapes(text):
    shown = printable(text)
    assert (len(shown), shown[-1], len(shown.splitlines())) == (1000, "…", 1)
    assert printable("x" * 1000) == "x" * 1000
    assert printable("abcdef", 3) == "ab…"


@pytest.fixture
def logger():
    """A logger with the filter, and what it has written."""
    logger, written = logging.Logger("node's texts"), io.StringIO()
    logger.addFilter(keep_to_one_line)
    logger.addHandler(logging.StreamHandler(written))
    return logger, written


HOSTILE = "north\r\nFDA-RESULT 5\x1b[2J\u2028FDA-RESULT 6"


@pytest.mark.parametrize("message", [("%s is left out", HOSTILE), (HOSTILE,), (ValueError(HOSTILE),)])
def test_a_node_begins_no_line_of_the_log_nor_of_a_traceback(logger, message):
    log, written = logger
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        log.exception(*message)
    first, *trace = written.getvalue().splitlines()
    assert first.startswith(r"north\r\nFDA-RESULT 5\x1b[2J\u2028FDA-RESULT 6")
    assert "ValueError: north" in written.getvalue()
    assert all(line.startswith("  ") for line in trace)
    assert "\x1b" not in written.getvalue()


def test_values_that_do_not_fit_a_message_end_nothing(logger, monkeypatch):
    log, written = logger
    monkeypatch.setattr(logging, "raiseExceptions", False)
    log.warning("%d nodes", "no number")
    log.warning("100%")
    assert written.getvalue() == "100%\n"
