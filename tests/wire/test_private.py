"""The list of Flower's private names: it is whole, and a missing one is named before anything starts."""

import ast
import copy
import hashlib
import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from inspect import Signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from flwr.app import Array, ArrayRecord, Context, Error, Message, Metadata, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.superlink.grid import http_grid
from flwr.supernode import start_client_internal
from test_architecture import MODULES, PUBLIC

from fda_flower.engines import LocalGrid
from fda_flower.errors import RunError
from fda_flower.legacy import LegacyStrategy
from fda_flower.site.node import Site
from fda_flower.strategies import Ridge
from fda_flower.strategies.describe import Describe
from fda_flower.supernode.command import further_parts
from fda_flower.wire import border, internals, private

ROOT = Path(__file__).resolve().parents[2]
EVERY = [name for part in private.NAMES.values() for name in part.split()]
LISTED = {name.partition("(")[0].replace(":", ".") for name in EVERY}
WORDS = {*re.findall(r"\w+", " ".join(EVERY))}
"""All words of the list: modules, objects, attributes and parameters."""

SOURCES = {module: Path(str(module.__file__)).read_text(encoding="utf-8") for module in (border, internals)}
NODES = [node for source in SOURCES.values() for node in ast.walk(ast.parse(source))]
DOCUMENTED = (Array, ArrayRecord, ClientApp, Context, Error, Grid, Message, Metadata, RecordDict)
PYTHON = (
    *(copy, hashlib, json, math, re, sys, time, hashlib.sha256(), re.compile(""), re.match("", "")),
    *(
        Signature,
        str,
        bytes,
        dict,
        list,
        set,
        int,
        type,
        Path,
        SimpleNamespace,
        object.__init__,
        lambda: None,
    ),
)
"""Modules and objects of Python and, in `DOCUMENTED`, of Flower, all of whose attributes may be used."""


def test_each_private_name_that_is_imported_is_in_the_list_and_there():
    imports = [node for node in NODES if isinstance(node, ast.ImportFrom)]
    flowers = {
        f"{node.module}.{alias.name}"
        for node in imports
        if str(node.module).startswith("flwr.") and not PUBLIC.fullmatch(str(node.module))
        for alias in node.names
    }
    assert {
        name for name in flowers if not any(f"{each}.".startswith(f"{name}.") for each in LISTED)
    } == set()
    private.check(private.NAMES)


def test_each_attribute_that_is_used_is_documented_or_in_the_list():
    public = {name for each in DOCUMENTED for name in dir(each) if not name.startswith("_")}
    ours = {node.name for node in NODES if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    ours |= {name for module in (*SOURCES, private) for name in vars(module)}
    ours |= {ast.unparse(node.target) for node in NODES if isinstance(node, ast.AnnAssign)}
    used = {ast.unparse(node): node.attr for node in NODES if isinstance(node, ast.Attribute)}
    ours |= {name for use, name in used.items() if use == f"self.{name}"} | {"survives"}
    known = public | ours | {name for each in PYTHON for name in dir(each)}
    others = {use: name for use, name in used.items() if name not in known and not use.startswith("ray.")}
    assert {use for use, name in others.items() if not {name, f"_{name}"} & WORDS} == set()


def test_each_name_in_a_text_is_in_the_list():
    texts = {node.value for node in NODES if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    subscripts = [node for node in NODES if isinstance(node, ast.Subscript)]
    given = {
        node.slice.value
        for node in subscripts
        if ast.unparse(node.value) == "given" and isinstance(node.slice, ast.Constant)
    }
    assert {"_message_id", "_runtime_client"} <= texts
    assert {"get_fab", "confirm_message_received"} <= given
    private_ones = {text for text in texts if re.fullmatch(r"_[a-z][a-z_]*", text)}
    assert (private_ones | given) - WORDS == set()


def test_no_other_module_names_what_is_private_in_flower():
    pattern = re.compile(r"flwr\.(supercore|superlink|supernode|proto|cli)\b")
    places = {name for name, path in MODULES.items() if pattern.search(path.read_text(encoding="utf-8"))}
    assert places == {f"fda_flower.wire.{name}" for name in ("border", "internals", "private")}


def test_a_missing_name_is_told_with_what_fails_without_it(monkeypatch):
    monkeypatch.delattr(start_client_internal, border.PUSH)
    with pytest.raises(RunError, match=f"_push_messages.*, without which {private.GATE} fails.*1.42"):
        private.check([private.GATE])
    private.check([private.MASKS])


@pytest.mark.parametrize(
    ("name", "function", "lost"),
    [
        (border.PULL, lambda state, store: None, ["_pull_and_store_message"] * 2),
        (border.INSERT, lambda msg, state, store, reply_to: None, []),
        (border.INSERT, lambda msg, state, store, sender: None, ["_insert_message"]),
        (border.INSERT, lambda msg, store: None, ["_insert_message"]),
    ],
)
def test_a_parameter_of_another_name_is_missing_and_another_one_too_many(name, function, lost, monkeypatch):
    monkeypatch.setattr(start_client_internal, name, function)
    missing = private.missing(private.GATE)
    assert [each.partition("(")[0].partition(":")[2] for each in missing] == lost


IMPORTS = {
    "the server": "from fda_flower.strategies import FedGP",
    "the client": "from fda_flower.clients import answer_role_query",
    "a run in Python": "import fda_flower; fda_flower.run(method='target-only', rounds=1, output='out')",
    "the command": "sys.argv = ['fda', 'run', '--output', 'out']; from fda_flower.cli import main; main()",
    "the site": "import fda_flower.supernode.command",
}


def test_what_every_run_needs_is_missed_at_import_by_name_and_the_rest_is_not(tmp_path):
    code = f"""
from flwr.clientapp import ClientApp
from flwr.common.secure_aggregation.crypto import shamir
from flwr.supercore.run import Run
del shamir.create_shares
import fda_flower.strategies.ridge, fda_flower.clients.ridge
import contextlib, io, sys
for name in [name for name in sys.modules if name.startswith("fda_flower")]:
    del sys.modules[name]
del Run.create_empty
for statement in {list(IMPORTS.values())!r}:
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            exec(statement)
        except RuntimeError as error:
            print("raised", error)
        except SystemExit as end:
            print("exit", end.code, said.getvalue().replace("\\n", " "))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(IMPORTS), done.stdout
    name = "flwr.supercore.run:Run.create_empty(run_id)"
    message = f"flwr {version('flwr')} has no {name}, without which every run fails"
    assert {line.partition(message)[0] for line in lines} == {"raised ", "exit 1 Error: "}
    assert list(tmp_path.iterdir()) == []


def at_a_site(**node: Any) -> None:
    private.check(further_parts(Site.read({"domain": "a", **node})))


def over(name: str) -> None:
    internals.check_grid(type(name, (LocalGrid,), {"__module__": "flwr.grids"})(ClientApp(), 1))


INTERNAL = "flwr.supernode.start_client_internal"
MISSED: list[tuple[str, Callable[[], Any], str]] = [
    (
        "flwr.common.secure_aggregation.crypto.shamir:combine_shares",
        lambda: Ridge(secure=True),
        private.MASKS,
    ),
    (
        "flwr.common.secure_aggregation.crypto.shamir:create_shares",
        lambda: Describe(secure=True),
        private.MASKS,
    ),
    (
        "flwr.common.secure_aggregation.crypto.symmetric_encryption:encrypt",
        lambda: at_a_site(**{"secure-with": "any"}),
        private.MASKS,
    ),
    (f"{INTERNAL}:{border.PUSH}", lambda: border.run_supernode(0.1, 0.1, Mock()), private.GATE),
    ("flwr.common.serde:context_to_proto", lambda: at_a_site(resident=True), private.RESIDENT),
    ("flwr.cli.build:build_fab_from_disk", lambda: internals.app_digest(ROOT), private.APPS),
    ("flwr.superlink.grid.http_grid:inflate_object_from_contents", lambda: over("Other"), private.SUPERLINK),
    ("flwr.superlink.grid.inmemory_grid:InMemoryGrid", lambda: over("Other"), private.SIMULATION),
    ("flwr.server.compat.grid_client_proxy:GridClientProxy", lambda: LegacyStrategy(Ridge()), private.OLDER),
]
"""Names that are taken away, what then begins, and the part that fails."""


@pytest.mark.parametrize(("name", "begin", "part"), MISSED, ids=[part for *_, part in MISSED])
def test_a_part_asks_for_its_names_as_it_begins_and_no_other_does(name, begin, part, monkeypatch):
    module, _, attribute = name.partition(":")
    monkeypatch.delattr(import_module(module), attribute)
    with pytest.raises(RunError, match=rf"{attribute}.*, without which {re.escape(part)} fails"):
        begin()
    Ridge()
    Describe()
    at_a_site()


def test_a_deployed_run_asks_for_no_simulation(monkeypatch):
    monkeypatch.delattr("flwr.superlink.grid.inmemory_grid.InMemoryGrid")
    internals.check_grid(http_grid.HttpGrid(token="none"))
    internals.check_grid(LocalGrid(ClientApp(), 1))
