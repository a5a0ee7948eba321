"""Projects that their authors wrote without us, changed as docs/plug-in.md says, beside Flower's FedAvg."""

import logging
import os
import re
import subprocess
import sys
from functools import partialmethod
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from flwr.app import Context, RecordDict
from flwr.server import Server, SimpleClientManager
from flwr.server.client_proxy import ClientProxy

from fda_flower.engines import LocalGrid
from fda_flower.wire.internals import task_identity

TESTS = Path(__file__).resolve().parent
PLAIN = TESTS / "flower_projects"


def after(line, more):
    return line, f"{line}\n{more}"


SERVER = [
    ("from flwr.serverapp.strategy import FedAvg", "from fda_flower.strategies import {method}"),
    ("FedAvg(", '{method}(target="3", {options}'),
]
USES = "from fda_flower.clients import answer_role_query, mix_on_target, record_updates"
CLIENT = [after("import ClientApp", USES), after("app = ClientApp()", "answer_role_query(app)")]
RECORDED = [*SERVER, *CLIENT, after("@app.train()", "@record_updates")]
CHANGES = {
    "from_template": RECORDED,
    "own_class": [*SERVER, *CLIENT],
    "adapters_alone": RECORDED,
    "keywords": [*SERVER, *CLIENT],
    "tree_of_settings": [
        ("flwr.serverapp.strategy.FedAvg", "fda_flower.strategies.{method}"),
        ('"fraction_train"', '"target": "3", "fraction_train"'),
    ],
    "started_server": [
        ("flwr.server.strategy import FedAvg", "fda_flower.strategies import {method}"),
        after("import ServerConfig, start_server", "from fda_flower.legacy import LegacyStrategy"),
        ("FedAvg(\n", 'LegacyStrategy({method}(target="3"), names=list(model.state_dict()),\n'),
        after(
            "class Client(NumPyClient):",
            "    get_properties = lambda s, config: {{'domain': str(s.partition)}}",
        ),
    ],
}
"""By project, the words that docs/plug-in.md changes."""
HALF = [("fraction_train=1.0", "fraction_train=0.5")]
TWO_STEPS = [("[(x, y)]", "list(zip(x.split(4), y.split(4)))")]
"""What auto-weighting needs; the sums are then not exact."""
MIXED = "    if msg.content['config']['server-round'] == ROUNDS:\n        net = mix_on_target("
MIXTURE = [
    after("received(msg, TextNet()), loader_of(context)", f"{MIXED}net, TextNet(), loader, train_net)")
]


def text_of(name, method="", options="", more=()):
    """The text of a project, unchanged or for a method."""
    text = (PLAIN / f"{name}.py").read_text(encoding="utf-8")
    for old, new in [*CHANGES[name], *more] if method else []:
        assert text.count(old) == 1, (name, old)
        text = text.replace(old, new.format(method=method, options=options))
    return text


def loaded(name, *change):
    module: Any = ModuleType(name)
    exec(compile(text_of(name, *change), name, "exec"), module.__dict__)
    return module


def passed_on(self, call, ins, timeout, group_id):
    return getattr(self.client, call)(ins)


CALLS = ("get_properties", "get_parameters", "fit", "evaluate", "reconnect")
Proxy: Any = type("Proxy", (ClientProxy,), {call: partialmethod(passed_on, call) for call in CALLS})
"""A connected client of the older API, in this process."""


def run(name, *change):
    """Run a project in this process, unchanged or for a method; return the model that it saves."""
    module = loaded(name, *change)
    with task_identity():
        if name == "started_server":
            manager = SimpleClientManager()
            for partition in range(4):
                proxy = Proxy(str(partition))
                proxy.client = module.Client(partition).to_client()
                manager.register(proxy)

            def start(config, strategy):
                return Server(client_manager=manager, strategy=strategy).fit(config.num_rounds, None)

            module.start_server = start
            module.main()
        else:
            app = module.app if hasattr(module, "app") else loaded("from_template", *change).app
            context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})
            module.server(LocalGrid(app, 4), context)
    saved = torch.load("final_model.pt")
    return saved if isinstance(saved, dict) else {str(i): tensor for i, tensor in enumerate(saved)}


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", CHANGES)
def test_our_fedavg_has_the_bits_of_flowers(name):
    theirs, ours = run(name), run(name, "FedAvg")
    assert all(torch.equal(ours[array], tensor) for array, tensor in theirs.items())
    more = {f"classifier.original_module.{part}" for part in ("weight", "bias")}
    assert ours.keys() - theirs.keys() == (more if name == "adapters_alone" else set())


AUTO, FIXED = r"; β \d [01]\.\d\d(, \d|$)", r"; β 0 0\.50"
"""Of a β that is not estimated the log says so after its number."""


@pytest.mark.parametrize(
    ("name", "change", "shown"),
    [
        ("from_template", ["FedGP", "auto=True, ", TWO_STEPS + HALF], AUTO),
        ("own_class", ["FedDA"], f", server accuracy [0-9.]+{FIXED}"),
        ("adapters_alone", ["FedGP", "auto=True, ", TWO_STEPS], AUTO),
        ("keywords", ["SourceOnly", "", MIXTURE], ""),
        ("tree_of_settings", ["FedGP"], FIXED),
        ("started_server", ["FedGP"], r"%, server loss 0\.5, accuracy 0\.5; β 0 0\.50"),
    ],
)
def test_a_method_of_ours_takes_its_place(name, change, shown, flower_log):
    theirs = run(name)
    flower_log.set_level(logging.INFO, "flwr")
    ours = run(name, *change)
    assert any(not torch.equal(ours[array], tensor) for array, tensor in theirs.items())
    line = rf"round {'[12]/' if name == 'tree_of_settings' else '2'}.*: target (eval_acc|accuracy) [0-9.]+"
    assert re.search(line + shown, flower_log.text, re.MULTILINE), flower_log.text


@pytest.mark.slow
@pytest.mark.smoke
def test_a_project_with_the_changes_runs_in_flowers_simulation(tmp_path):
    text = text_of("from_template", "FedGP", "auto=True, ", TWO_STEPS)
    (tmp_path / "project.py").write_text(text, encoding="utf-8")
    code = "from flwr.simulation import run_simulation; from project import app, server"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (TESTS.parent, TESTS, tmp_path)))}
    command = [sys.executable, "-c", f"{code}; run_simulation(server, app, 4)"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    shown = done.stdout + done.stderr
    assert re.search(f"round 2/2: target eval_acc [0-9.]+{AUTO}", shown, re.MULTILINE), shown
    assert (tmp_path / "final_model.pt").exists()
