import ast
import sys
from pathlib import Path

import pytest

from fda_flower import aggregation

FILES = sorted(Path(aggregation.__file__).parent.glob("*.py"))
ALLOWED = {"numpy", *sys.stdlib_module_names}


def imported_modules(file):
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file.name} has a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_aggregation_imports_only_numpy_and_itself(file):
    for name in imported_modules(file):
        own = f"{name}.".startswith(("fda_flower.aggregation.", "fda_flower.errors."))
        assert own or name.split(".")[0] in ALLOWED, f"{file.name} imports {name}"


def test_all_holds_every_public_name_that_the_package_imports():
    tree = ast.parse(Path(aggregation.__file__).read_text("utf-8"))
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert set(aggregation.__all__) == {name for name in imported if not name.startswith("_")}
