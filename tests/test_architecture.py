"""Who may import whom, at the top of a module or inside a function: read from the source."""

import ast
import importlib
import re
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


PARTS: dict[str, dict[str, set[str]]] = {}
"""By part of the package, such as ``aggregation`` or ``cli``, its modules and what each imports."""
for module in MODULES:
    if "." in module:
        PARTS.setdefault(module.split(".")[1], {})[module] = IMPORTS[module]


def parts_imported(part):
    """The other parts that a part imports, by module."""
    own = {
        name: {each for each in found if each.startswith(f"{SELF}.")} for name, found in PARTS[part].items()
    }
    return {name: {each.split(".")[1] for each in found} - {part} for name, found in own.items()}


def reached_from(part):
    """The parts that a part imports, and those that these import, and so on."""
    seen, waiting = set(), [part]
    while waiting:
        found = set().union(*parts_imported(waiting.pop()).values()) - seen - {part}
        seen |= found
        waiting += found
    return seen


FLOORS = (
    {"cli"},
    {"experiments"},
    {"running"},
    {"server_app"},
    {"deployment"},
    {"reporting", "references", "client_app"},
    {"runs", "legacy"},
    {"clients", "strategies", "supernode"},
    {"prediction", "records", "engines", "site"},
    {"own_data"},
    {"datasets"},
    {"models", "wire"},
    {"metrics"},
    {"aggregation", "names"},
    {"files"},
    {"errors"},
)
"""The parts of the package, from top to bottom: each imports only parts below it."""

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"


def test_the_page_shows_the_floors():
    rows = re.findall(r"^\| (\d+) \| `(\w+)(?:/|\.py)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    shown = [{part for floor, part in rows if int(floor) == number} for number in range(len(FLOORS), 0, -1)]
    assert tuple(shown) == FLOORS


@pytest.mark.parametrize("part", PARTS)
def test_a_part_imports_only_what_is_below_it(part):
    (floor,) = (i for i, parts in enumerate(FLOORS) if part in parts)
    below = set().union(*FLOORS[floor + 1 :])
    assert {name: up for name, parts in parts_imported(part).items() if (up := parts - below)} == {}


@pytest.mark.parametrize(
    ("part", "forbidden"),
    [
        ("aggregation", {"flwr", "pandas", "scipy", "sklearn", "torch"}),
        ("strategies", {"torch", "torchvision"}),
        ("datasets", {"flwr"}),
        ("own_data", {"flwr"}),
        ("models", {"flwr"}),
        ("site", {"torch"}),
        ("supernode", {"torch"}),
        ("errors", {"flwr", "torch"}),
        ("names", {"flwr", "torch"}),
        ("reporting", {"flwr", "torch"}),
    ],
)
def test_a_part_does_without_the_packages_it_is_not_made_for(part, forbidden):
    for module, imports in PARTS[part].items():
        assert not {name.split(".")[0] for name in imports} & forbidden, module


@pytest.mark.parametrize("part", ["strategies", "records", "engines", "site"])
def test_a_part_does_not_reach_data_and_models_by_way_of_others_either(part):
    assert not reached_from(part) & {"datasets", "models", "own_data", "prediction"}


PUBLIC = re.compile(
    r"flwr\.(app|common|simulation|(client|clientapp)(\.mod)?|serverapp(\.strategy)?"
    r"|server(\.(client_manager|client_proxy|strategy|workflow))?)"
)
"""What Flower documents for apps; ``flwr.supercore``, ``flwr.proto`` and so on are not among it."""
ALLOWED = ("torch._foreach_", "torch._fused_adam_ ", "torch._log_softmax_backward_data ", "os._exit ")
"""Operators of PyTorch, and how Python ends a process."""
WITHOUT_INTERNALS = [
    name for name in MODULES if name not in (f"{SELF}.wire.internals", f"{SELF}.wire.border")
]


def test_nothing_assigns_to_a_frozen_object():
    assert [name for name, path in MODULES.items() if "object.__setattr__" in path.read_text("utf-8")] == []


def test_only_internals_and_border_import_what_is_private_in_flower():
    flower = {(m, name) for m in WITHOUT_INTERNALS for name in IMPORTS[m] if name.split(".")[0] == "flwr"}
    assert {each for each in flower if not PUBLIC.fullmatch(each[1])} == set()


@pytest.mark.parametrize("module", WITHOUT_INTERNALS)
def test_only_internals_and_border_use_private_attributes_of_objects_of_others(module):
    nodes = list(ast.walk(read(module)))
    attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
    own = {node.attr for node in attributes if is_own(node.value)}
    own |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    foreign = {
        f"{ast.unparse(node)} in line {node.lineno}"
        for node in attributes
        if re.match("_(?!_)", node.attr) and not is_own(node.value) and node.attr not in own
    }
    assert {use for use in foreign if not use.startswith(ALLOWED)} == set()


def is_own(value):
    """Whether an attribute is taken from ``self``, ``cls`` or ``super()``."""
    return ast.unparse(value) in ("self", "cls", "super()")


def test_nothing_imports_the_package_itself_but_its_parts():
    assert [module for module in MODULES if SELF in IMPORTS[module]] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_all_of_a_package_is_public_and_what_its_init_imports_for_others(package):
    module = importlib.import_module(package)
    names = module.__all__
    assert [name for name in names if name.startswith("_") or not hasattr(module, name)] == []
    nodes = list(ast.walk(read(package)))
    imported = {
        alias.asname or alias.name
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == SELF
        if node.module != f"{SELF}.names"
        for alias in node.names
    }
    assert imported - {node.id for node in nodes if isinstance(node, ast.Name)} <= set(names)
