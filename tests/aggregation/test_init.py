"""The package as a whole: what it imports, and the examples in its docstrings."""

import ast
import doctest
import importlib
import sys
from pathlib import Path

import pytest

from fda_flower import aggregation

FILES = sorted(Path(aggregation.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_module_imports_numpy_and_the_package_alone(file):
    allowed = {"numpy", "fda_flower.aggregation", "fda_flower.errors", *sys.stdlib_module_names}
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
            for parts in (name.split(".") for name in names):
                assert {parts[0], ".".join(parts[:2])} & allowed, f"{file.name} imports {'.'.join(parts)}"


@pytest.mark.parametrize("file", [file for file in FILES if ">>> " in file.read_text("utf-8")], ids=str)
def test_examples_in_docstrings_hold(file):
    failed, attempted = doctest.testmod(importlib.import_module(f"{aggregation.__name__}.{file.stem}"))
    assert attempted > 0
    assert failed == 0
