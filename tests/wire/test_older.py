"""Flower's older API where its old modules are gone, and `flwr.compat` has what they had."""

import importlib
import sys
from pkgutil import resolve_name
from types import ModuleType

import pytest

from fda_flower.wire import older

MOVED = ("client_manager", "client_proxy", "strategy")
"""Modules of `flwr.server` that this Flower does not have in `flwr.compat.server` yet."""


@pytest.fixture
def moved(monkeypatch):
    """The modules have moved, and what has imported them is forgotten; what they had, by name."""
    names = {name: resolve_name(f"flwr.{homes[0]}:{name}") for name, homes in older.HOMES.items()}
    for name in MOVED:
        new = f"flwr.compat.server.{name}"
        assert new not in sys.modules
        module = ModuleType(new)
        vars(module).update({each: names[each] for each, homes in older.HOMES.items() if name in homes[0]})
        monkeypatch.setitem(sys.modules, new, module)
        monkeypatch.setitem(sys.modules, f"flwr.server.{name}", None)
    monkeypatch.setitem(sys.modules, "flwr.client", None)
    for name in names:
        monkeypatch.delitem(vars(older), name, raising=False)
        monkeypatch.delattr(f"flwr.common.{name}", raising=False)
    monkeypatch.delattr("fda_flower.legacy", raising=False)
    for name in [name for name in sys.modules if name.startswith("fda_flower.legacy")]:
        monkeypatch.delitem(sys.modules, name)
    return names


def test_all_of_it_is_found_where_it_has_moved(moved):
    assert {name: getattr(older, name) for name in older.HOMES} == moved
    legacy = importlib.import_module("fda_flower.legacy")
    assert issubclass(legacy.LegacyStrategy, moved["Strategy"])


def test_what_is_nowhere_is_an_error_that_names_the_old_module(moved, monkeypatch):
    monkeypatch.setitem(sys.modules, "flwr.compat.server.strategy", None)
    with pytest.raises(ImportError, match=r"flwr\.server\.strategy"):
        _ = older.Strategy
    with pytest.raises(AttributeError, match="Strategies"):
        _ = older.Strategies
