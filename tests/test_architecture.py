"""Who may import whom, at the top of a module or inside a function: read from the source."""

import ast
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fda_flower

ROOT = Path(fda_flower.__file__).parent
SELF = "fda_flower"


def name_of(path):
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(ROOT.rglob("*.py"))}
PACKAGES = sorted(name for name, path in MODULES.items() if path.name == "__init__.py")


def read(name):
    return ast.parse(MODULES[name].read_text(encoding="utf-8"))


def imports_of(name):
    """The modules that a module imports anywhere in its source, by their full names."""
    found = set()
    for node in ast.walk(read(name)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively in line {node.lineno}"
            assert node.module is not None
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                found.add(submodule if submodule in MODULES else node.module)
    return found


IMPORTS = {name: imports_of(name) for name in MODULES}


def part_of(module):
    """The part of the package that one of its modules belongs to, such as ``aggregation`` or ``cli``."""
    return module.split(".")[1] if "." in module else SELF


def modules_of(part):
    found = [name for name in MODULES if part_of(name) == part]
    assert found, f"there is no {part}"
    return found


def own_imports(module):
    """The parts of this package that a module imports."""
    return {part_of(name) for name in IMPORTS[module] if name.split(".")[0] == SELF}


def foreign_imports(module):
    """The other packages that a module imports."""
    return {name.split(".")[0] for name in IMPORTS[module]} - {SELF}


def reached_from(part):
    """The parts that a part imports, and those that these import, and so on."""
    seen, waiting = set(), [part]
    while waiting:
        for module in modules_of(waiting.pop()):
            for other in own_imports(module) - seen - {part}:
                seen.add(other)
                waiting.append(other)
    return seen


FLOORS = (
    {"cli"},
    {"experiments"},
    {"server_app"},
    {"deployment"},
    {"reporting", "client_app"},
    {"runs", "legacy"},
    {"clients", "strategies"},
    {"prediction", "records", "engines", "site"},
    {"datasets", "models", "wire"},
    {"aggregation", "metrics", "names"},
    {"files"},
    {"errors"},
)
"""The parts of the package, from top to bottom: each imports only parts below it."""

PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"

PARTS = sorted({part_of(name) for name in MODULES} - {SELF})


def test_the_page_shows_the_floors():
    rows = re.findall(r"^\| (\d+) \| `(\w+)(?:/|\.py)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    shown = [{part for floor, part in rows if int(floor) == number} for number in range(len(FLOORS), 0, -1)]
    assert tuple(shown) == FLOORS


@pytest.mark.parametrize("part", PARTS)
def test_a_part_imports_only_what_is_below_it(part):
    (floor,) = (i for i, parts in enumerate(FLOORS) if part in parts)
    below = set().union(*FLOORS[floor + 1 :]) | {part}
    for module in modules_of(part):
        assert own_imports(module) <= below, module


@pytest.mark.parametrize(
    ("part", "forbidden"),
    [
        ("aggregation", {"flwr", "torch"}),
        ("strategies", {"torch", "torchvision"}),
        ("datasets", {"flwr"}),
        ("models", {"flwr"}),
        ("site", {"torch"}),
        ("errors", {"flwr", "torch"}),
        ("names", {"flwr", "torch"}),
        ("reporting", {"flwr", "torch"}),
    ],
)
def test_a_part_does_without_the_packages_it_is_not_made_for(part, forbidden):
    for module in modules_of(part):
        assert not foreign_imports(module) & forbidden, module


@pytest.mark.parametrize(
    ("part", "forbidden"),
    [
        ("strategies", {"datasets", "models", "prediction"}),
        ("records", {"datasets", "models"}),
        ("engines", {"datasets", "models"}),
        ("site", {"datasets", "models"}),
    ],
)
def test_a_part_does_not_reach_these_by_way_of_others_either(part, forbidden):
    assert not reached_from(part) & forbidden


PUBLIC = re.compile(r"flwr\.(common|(app|client|clientapp|server|serverapp|simulation)(\..+)?)")
"""What Flower documents for apps; ``flwr.supercore``, ``flwr.proto`` and so on are not among it."""
WITHOUT_INTERNALS = [name for name in MODULES if name != f"{SELF}.wire.internals"]


@pytest.mark.parametrize("module", WITHOUT_INTERNALS)
def test_only_internals_imports_what_is_private_in_flower(module):
    flower = {name for name in IMPORTS[module] if name.split(".")[0] == "flwr"}
    assert {name for name in flower if not PUBLIC.fullmatch(name)} == set()


@pytest.mark.parametrize("module", WITHOUT_INTERNALS)
def test_only_internals_uses_private_attributes_of_objects_of_others(module):
    tree = read(module)
    own = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and is_own(node.value)}
    own |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    foreign = {
        f"{ast.unparse(node)} in line {node.lineno}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and not is_own(node.value)
        and node.attr not in own
    }
    assert {use for use in foreign if not use.startswith(("torch._foreach_", "os._exit "))} == set()


def is_own(value):
    """Whether an attribute is taken from ``self``, ``cls`` or ``super()``."""
    return ast.unparse(value) in ("self", "cls", "super()")


def test_nothing_imports_the_package_itself_but_its_parts():
    assert [module for module in MODULES if SELF in own_imports(module)] == []


def order(name):
    """Constants, then classes, then functions, each by the alphabet, as ruff sorts them."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2
    return kind, name


@pytest.mark.parametrize("package", PACKAGES)
def test_all_of_a_package_is_sorted_and_can_be_imported(package):
    module = importlib.import_module(package)
    names = module.__all__
    assert names == sorted(set(names), key=order)
    assert [name for name in names if not hasattr(module, name)] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_all_of_a_package_has_what_its_init_imports_for_others(package):
    tree = read(package)
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == SELF
        if node.module != f"{SELF}.names"
        for alias in node.names
    }
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert imported - used <= set(importlib.import_module(package).__all__)


@pytest.mark.parametrize("package", PACKAGES)
def test_all_of_a_package_has_no_private_name(package):
    assert not [name for name in importlib.import_module(package).__all__ if name.startswith("_")]


def test_to_import_the_package_loads_neither_ray_nor_pyplot():
    code = f"import json, sys, {SELF}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    loaded = set(json.loads(done.stdout))
    assert SELF in loaded
    assert not loaded & {"ray", "matplotlib.pyplot", "torchvision", f"{SELF}.cli", "typer.testing"}
    assert done.stderr == ""
