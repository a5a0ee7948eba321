"""The projects of `examples/`, cut down."""

import difflib
import importlib
import tomllib
from functools import partial
from pathlib import Path

import pytest
from flwr.app import Context, RecordDict

from fda_flower.engines import LocalGrid
from fda_flower.strategies import DomainAdaptationStrategy
from fda_flower.wire.internals import task_identity

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = {
    "plugin-message-api": "plugin_message_api",
    "plugin-numpyclient": "plugin_numpyclient",
    "plugin-scikit-learn": "plugin_sklearn",
}


@pytest.fixture
def load(monkeypatch):
    """Import a module of an example."""
    for folder in EXAMPLES:
        monkeypatch.syspath_prepend(str(ROOT / "examples" / folder))
    return importlib.import_module


def run_app(load, package, folder, rounds=2):
    """Run an example's two apps in this process."""
    project = tomllib.loads((ROOT / "examples" / folder / "pyproject.toml").read_text(encoding="utf-8"))
    config = project["tool"]["flwr"]["app"]["config"] | {"num-server-rounds": rounds}
    clients = load(f"{package}.client_app").app

    def with_config(message, context):
        context.run_config = config
        return clients(message, context)

    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=config)
    with task_identity():
        load(f"{package}.server_app").app(LocalGrid(with_config, 4), context)  # type: ignore[arg-type]


@pytest.fixture
def histories(monkeypatch):
    """The records of the rounds of each strategy that is started."""
    found = []
    start = DomainAdaptationStrategy.start

    def recorded(self, *args, **kwargs):
        found.append(self.history)
        return start(self, *args, **kwargs)

    monkeypatch.setattr(DomainAdaptationStrategy, "start", recorded)
    return found


@pytest.mark.parametrize("folder", EXAMPLES)
def test_an_example_runs_and_the_one_on_the_message_api_estimates_beta(load, histories, capsys, folder):
    run_app(load, EXAMPLES[folder], folder)
    (history,) = histories
    assert [(record["held"], record["dropped"]) for record in history] == [(None, [])] * 2
    assert all(list(record["sources"]) == ["0", "1", "2"] for record in history)
    assert history[-1]["target"]["domain"] == "3"
    assert "evaluation-failed" not in history[-1]
    if folder == "plugin-message-api":
        entries = history[-1]["sources"].values()
        assert [entry["fallback"] for entry in entries] == [None] * 3
        assert all(0 <= entry["beta"] <= 1 for entry in entries)
        assert {entry["beta"] for entry in entries} != {0.5}
        assert capsys.readouterr().out.startswith("Last round: {'eval_loss'")


def test_the_example_on_the_message_api_ran_before_it_was_changed(load, capsys):
    run_app(load, "plugin_message_api.before", "plugin-message-api", rounds=1)
    assert capsys.readouterr().out.startswith("Last round: {'eval_loss'")


def test_the_example_of_adapters_sends_them_and_the_head_alone_by_pefts_names(load, histories):
    pytest.importorskip("peft")
    run_app(load, "plugin_message_api.adapters", "plugin-message-api")
    ((_, last),) = histories
    models, sketches = 4 * 4 * (4 * 16 * 9 + 32 * 4 + 10 * 128 + 10), 20 * 1024 * 8
    assert models + sketches < last["bytes-received"] < models + sketches + 4000, "and the headers of arrays"
    assert [entry["fallback"] for entry in last["sources"].values()] == [None] * 3


@pytest.mark.parametrize("secure", [False, True])
def test_the_example_of_ridge_needs_one_round_and_can_mask_its_sums(secure, load, histories, monkeypatch):
    server = load("plugin_sklearn.ridge.server_app")
    monkeypatch.setattr(server, "Ridge", partial(server.Ridge, secure=secure))
    run_app(load, "plugin_sklearn.ridge", "plugin-scikit-learn")
    ((record,),) = histories
    assert (record["held"], record["dropped"], list(record["sources"])) == (None, [], ["0", "1", "2"])
    assert record["accuracy"] > 0.6
    assert record["ridge"].get("secure", False) is secure
    assert record["ridge"]["held-out"] >= record["ridge"]["held-out-target"]


@pytest.mark.slow
def test_the_example_of_mixture_is_better_than_the_sources_model(load, histories):
    run_app(load, "plugin_message_api.mixture", "plugin-message-api")
    ((first, last),) = histories
    assert [(record["held"], record["dropped"]) for record in (first, last)] == [(None, [])] * 2
    assert list(last["sources"]) == ["0", "1", "2"]
    assert "mixture_acc" not in first["metrics"], "only the last round pays for a mixture"
    assert last["metrics"]["eval_acc"] < 0.3
    assert last["metrics"]["mixture_acc"] > 0.6


@pytest.mark.slow
def test_the_example_of_mixture_with_the_strategy_and_our_clients(load, histories, capsys):
    run_app(load, "plugin_message_api.mixture_strategy", "plugin-message-api")
    ((_, last),) = histories
    assert (last["held"], last["dropped"]) == (None, [])
    assert last["accuracy"] > 0.6
    members = list(last["mixture"]["members"])
    assert members == ["sources", "target", "tuned-1", "tuned-30", "prior"]
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in printed] == ["Mixture", *members]


@pytest.mark.parametrize(
    ("folder", "original", "changed", "name", "lines"),
    [
        ("plugin-message-api", "before", "", "client_app.py", 3),
        ("plugin-message-api", "before", "", "server_app.py", 2),
        ("plugin-message-api", "before", "mixture", "client_app.py", 7),
        ("plugin-message-api", "before", "mixture", "server_app.py", 2),
        ("plugin-message-api", "", "adapters", "client_app.py", 9),
        ("plugin-message-api", "", "adapters", "server_app.py", 3),
        ("plugin-numpyclient", "before", "", "client_app.py", 2),
    ],
)
def test_only_the_lines_that_the_documentation_shows_were_changed(folder, original, changed, name, lines):
    package = ROOT / "examples" / folder / EXAMPLES[folder]
    before, after = (
        (package / path / name).read_text(encoding="utf-8").splitlines() for path in (original, changed)
    )
    diff = [line for line in difflib.ndiff(before, after) if line[0] in "-+" and line[2:].strip()]
    assert sum(line[0] == "+" for line in diff) == lines
    assert sum(line[0] == "-" for line in diff) <= lines
    if folder == "plugin-message-api":
        pages = (ROOT / "docs" / "plug-in.md", ROOT / "examples" / folder / "README.md")
        text = "".join(page.read_text(encoding="utf-8") for page in pages)
        assert [line for line in diff if f"\n{line[0]}{line[2:]}\n" not in text] == []
