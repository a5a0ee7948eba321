import doctest
import importlib
import inspect
import pkgutil

import pytest

from fda_flower import aggregation

MODULES = sorted(m.name for m in pkgutil.iter_modules(aggregation.__path__, f"{aggregation.__name__}."))
EXAMPLES = [n for n in MODULES if ">>> " in inspect.getsource(importlib.import_module(n))]


def test_some_modules_have_examples():
    assert len(EXAMPLES) >= 4


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_in_docstrings_hold(name):
    failed, attempted = doctest.testmod(importlib.import_module(name))
    assert attempted > 0
    assert failed == 0
