"""Texts of nodes are shown in one line, without anything that a terminal obeys."""

import pytest

from fda_flower.texts import printable


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
    assert len(shown) == 1000
    assert shown.endswith("…")
    assert len(shown.splitlines()) == 1
    assert printable("x" * 1000) == "x" * 1000
    assert printable("abcdef", 3) == "ab…"
