"""The list of Flower's private names: it is whole, and a missing one is named before anything starts."""

import ast
import importlib
from pathlib import Path

import pytest
from flwr.supernode import start_client_internal
from test_architecture import PUBLIC

from fda_flower.errors import RunError
from fda_flower.wire import border, internals, private

LISTED = {
    name.partition("(")[0].replace(":", ".") for part in private.NAMES for name in private.NAMES[part].split()
}


def test_each_private_name_that_is_imported_is_in_the_list_and_there():
    imported = set()
    for module in (border, internals):
        for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and not PUBLIC.fullmatch(str(node.module)):
                imported |= {f"{node.module}.{alias.name}" for alias in node.names}
    flowers = {name for name in imported if name.startswith("flwr.")}
    assert {
        name for name in flowers if not any(f"{each}.".startswith(f"{name}.") for each in LISTED)
    } == set()
    private.check()


def test_a_missing_name_is_told_with_what_fails_without_it(monkeypatch):
    monkeypatch.delattr(start_client_internal, border.PUSH)
    with pytest.raises(RunError, match=f"_push_messages.*, without which {private.GATE} fails.*1.42"):
        private.check()
    private.check([private.MASKS])


def test_a_parameter_of_another_name_is_missing(monkeypatch):
    monkeypatch.setattr(start_client_internal, border.PULL, lambda state, store: None)
    assert [name.partition("(")[0] for name in private.missing(private.GATE)] == [
        f"flwr.supernode.start_client_internal:{border.PULL}"
    ]


def test_the_import_says_what_is_missing(monkeypatch):
    shamir = importlib.import_module("flwr.common.secure_aggregation.crypto.shamir")
    monkeypatch.delattr(shamir, "combine_shares")
    with pytest.raises(RunError, match="combine_shares, without which masked sums"):
        exec(
            compile(Path(internals.__file__).read_text(encoding="utf-8"), "internals", "exec"),
            {"__name__": "x"},
        )
