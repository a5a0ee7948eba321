"""A run as a node sees it, by the node's configuration."""

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, Message, RecordDict
from naming import names

from fda_flower import RunConfig, client_app
from fda_flower.client_app import at_node, own_folder, simulation_folder
from fda_flower.errors import ConfigError
from fda_flower.names.options import join_options
from fda_flower.site import Site
from fda_flower.site.words import KEPT
from fda_flower.wire.internals import numbered

CONFIG = RunConfig(dataset="heart", model="logistic", target="va", data_dir="/of/the/run")


@pytest.mark.parametrize(
    ("node", "domain"),
    [
        ({"domain": "hungary"}, "hungary"),
        ({"domain": "hungary", "role": "source"}, "hungary"),
        ({"domain": "va", "role": "target"}, "va"),
        ({"partition-id": 3, "num-partitions": 4}, "va"),
        ({"partition-id": 3, "domain": "hungary", "role": "source"}, "hungary"),
    ],
)
def test_a_node_has_its_domain(node: dict[str, Any], domain: str) -> None:
    found, name = at_node(CONFIG, Site.read(node, 7))
    assert name == domain
    assert found == (replace(CONFIG, data_dir=None, site=domain) if "domain" in node else CONFIG)


def test_a_site_reads_its_own_folder_of_data_or_none() -> None:
    config, _ = at_node(CONFIG, Site.read({"domain": "va", "data-dir": "/of/the/site"}, 7))
    assert config.data.data_dir == "/of/the/site"
    assert config.fingerprint() == CONFIG.fingerprint()


@pytest.mark.parametrize(
    ("node", "thing", "value", "remedy"),
    [
        ({"role": "source"}, "domain", None, "one of cleveland, hungary, switzerland, va"),
        ({"role": "target", "partition-id": 3}, "domain", None, 'domain="..."'),
        ({}, "domain", None, 'domain="..."'),
        ({"domain": "va", "role": "source"}, "node of domain", "va", "target"),
        ({"domain": "hungary", "role": "target"}, "node of domain", "hungary", "target"),
        ({"partition-id": 4}, "partition-id", 4, "use 4"),
    ],
    ids=str,
)
def test_a_configuration_that_does_not_fit_the_run_is_refused(
    node: dict[str, Any], thing: str, value: object, remedy: str
) -> None:
    with pytest.raises(ConfigError, check=names(thing, value, remedy)):
        at_node(CONFIG, Site.read(node, 7))


SIMULATED: dict[str, Any] = {"partition-id": 3, "num-partitions": 4}


def folder_of(node: dict[str, Any], settings: dict[str, Any], config: RunConfig = CONFIG) -> Path | None:
    context = Context(1, 2, node, RecordDict(), settings)
    return own_folder(config, "va", context, simulation_folder(context))


@pytest.mark.usefixtures("in_a_run")
@pytest.mark.parametrize(
    ("simulated", "site", "named"),
    [(False, {}, False), (True, {}, True), (True, {"domain": "va", "role": "target"}, False)],
)
def test_a_server_names_no_folder_at_a_site(
    simulated: bool, site: dict[str, Any], named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A SuperNode may have the node configuration of a simulation: Flower's own pages start it so."""
    folders = []

    def client(*arguments: Any) -> Any:
        folders.append(arguments[3])
        raise ConfigError("it is enough")

    monkeypatch.setattr(client_app, "make_client", client)
    app = client_app.make_client_app(simulated=simulated)
    (message,) = numbered([Message(RecordDict(), 2, "query.role")])
    settings = {**CONFIG.to_flower(), "output": str(tmp_path)}
    app(message, Context(1, 2, SIMULATED | site, RecordDict(), settings))
    assert folders == [tmp_path / "clients" / "va" if named else None]


def test_a_simulated_client_keeps_its_own_in_the_runs_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """By `flwr run` the folder is in the run's configuration; one that is relative is of this process."""
    monkeypatch.chdir("/tmp")
    assert folder_of(SIMULATED, {"output": "/run"}) == Path("/run/clients/va")
    assert folder_of(SIMULATED, {"output": "run"}) == Path("/tmp/run/clients/va")
    for of_no_folder in ({}, {"output": ""}):
        assert folder_of(SIMULATED, of_no_folder) is None, "the context keeps it"


def test_clients_of_domains_of_any_name_keep_their_own_in_one_folder_each(tmp_path: Path) -> None:
    domains = ("a", "a/b", "a%2Fb", "/a", ".", "..", "../a", "")
    nodes: tuple[tuple[dict[str, Any], Path], ...] = (
        (SIMULATED, tmp_path / "clients"),
        ({"state-dir": str(tmp_path)}, tmp_path),
    )
    for node, place in nodes:
        context = Context(1, 2, node, RecordDict(), {})
        folders = {own_folder(CONFIG, domain, context, tmp_path) for domain in domains}
        assert len(folders) == len(domains)
        for folder in folders:
            assert folder is not None
            assert folder.resolve().parent == place


def test_a_site_keeps_its_own_below_its_state_dir_for_each_run_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/site")
    node = {"domain": "va", "state-dir": "~/state"}
    found = folder_of(node, {"output": "/of/the/server"})
    assert found is not None
    assert found.parent == Path("/home/site/state")
    assert found.name.startswith("va-")
    longer = replace(CONFIG, rounds=60, data_dir=None, device="cpu")
    assert folder_of(node, {}, config=longer) == found, "the same run, longer and on other data folders"
    other = replace(CONFIG, seed=1)
    assert folder_of(node, {}, config=other) != found


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, []),
        ({"categories": "city:Bern|Chur"}, ["city=Bern", "city=Chur"]),
        ({"categories": "town:Bern"}, []),
    ],
)
def test_words_of_a_sites_data_leave_it_only_if_it_names_them(
    options: dict[str, str], told: list[str], tmp_path: Path, in_a_run: None
) -> None:
    for name in ("north", "south"):
        rows = [f"{i % 7},{'Bern' if i % 2 else 'Chur'},{i % 3 % 2}" for i in range(30)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["age,city,label", *rows]))
    table = {"domains": "north,south", "classes": "0,1", "categorical": "onehot", **options}
    own = [f'{name} = "{value}"' for name, value in table.items() if name.startswith("categor")]
    (tmp_path / "fda.toml").write_text("\n".join(own))
    config = RunConfig(dataset="table", dataset_options=table, data_dir=str(tmp_path), model="logistic")
    (query,) = numbered([Message(RecordDict(), 2, "query.role")])
    node: dict[str, Any] = {"domain": "north", "data-dir": str(tmp_path)}
    app = client_app.make_client_app(config)
    info: Any = app(query, Context(1, 2, node, RecordDict(), {})).content["info"]
    if "city" in options.get("categories", ""):
        assert set(told) <= {*info["features"]}
    else:
        assert info["problem"] == KEPT
        assert not {"Bern", "city"} & {*re.findall(r"\w+", str(dict(info)))}
        aloud = Context(1, 2, {**node, "checks-itself": True}, RecordDict(), {})
        itself: Any = app(query, aloud).content["info"]
        assert all(word in str(itself["problem"]) for word in ("categories", "city"))
    simulated = app(query, Context(1, 2, {"partition-id": 0, "num-partitions": 2}, RecordDict(), {}))
    assert ("problem" in simulated.content["info"]) == ("town" in str(options))


SITES_OWN: dict[str, dict[str, Any]] = {
    "another column is the label": {"label": "city"},
    "numbers to predict": {"task": "regression", "label_mean": 0, "label_deviation": 1},
    "categories of another column": {"categorical": "onehot", "categories": "city:Bern|Chur"},
    "a column as a text": {"text": "city"},
    "classes that are guessed": {"label": "city", "classes": "Bern,Chur,Dole"},
    "no classes": {"classes": ""},
    "another kind of data set": {"domain": "city", "path": "/"},
}


@pytest.mark.parametrize("kind", SITES_OWN)
def test_no_option_of_a_run_has_words_or_numbers_of_a_sites_data_leave(
    kind: str, tmp_path: Path, in_a_run: None
) -> None:
    """The run is honest in all else, and what it hears is the same for other data."""
    options = {"domains": "north,south", "classes": "0,1", "ignore": "city", **SITES_OWN[kind]}
    told = []
    for number, words in enumerate(("Bern Chur", "Genf Lausanne")):
        site = tmp_path / str(number) / "site"
        site.mkdir(parents=True)
        for place in (site / "north.csv", site / "south.csv"):
            rows = [f"{i % (7 + number)},{words.split()[i % 2]},{i % 3 % 2}" for i in range(30 + number)]
            place.write_text("\n".join(["age,city,label", *rows]))
        run = {**RunConfig(model="logistic", method="fedavg").to_flower(), "dataset": "table", "shift": ""}
        run |= {"dataset-options": join_options(options.items()), "target": "south", "data-dir": "/"}
        run |= {"dataset": "hf"} if "path" in options else {}
        (query,) = numbered([Message(RecordDict(), 2, "query.role")])
        node: dict[str, Any] = {"domain": "north", "data-dir": str(site), "state-dir": str(site / "s")}
        reply = client_app.make_client_app()(query, Context(1, 2, node, RecordDict(), run))
        told.append(dict(reply.content["info"]))
    assert told[0] == told[1]
    assert "option" in str(told[0]["problem"])


def test_a_run_imports_and_reads_nothing_at_a_site_that_has_not_named_it(
    tmp_path: Path, in_a_run: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names of a module and of a file of weights are the run's, which is no part of an approved app."""
    (tmp_path / "spied.py").write_text("raise SystemExit")
    monkeypatch.syspath_prepend(tmp_path)
    (there := tmp_path / "there.pth").write_text("no weights")
    run = RunConfig(method="fedavg", model="logistic").to_flower()

    def problem(model: str, weights: str = "", **node: str) -> str:
        (query,) = numbered([Message(RecordDict(), 2, "query.role")])
        settings = {**run, "model": model, "model-options": f"weights={weights}" if weights else ""}
        context = Context(1, 2, {"domain": "target", "gated": True, **node}, RecordDict(), settings)
        return str(client_app.make_client_app()(query, context).content["info"].get("problem"))

    approved = {"apps": f"sha256:{'0' * 64}"}
    refused = problem("spied:network", **approved)
    assert "allow-models" in refused
    assert refused == problem("not_there:network", **approved)
    assert "spied" not in sys.modules
    unread = problem("resnet18", str(there))
    assert "allow-models" in unread
    assert unread == problem("resnet18", str(tmp_path / "not there.pth"))
    assert "allow-models" not in problem("resnet18", str(there), **{"allow-models": f"nets, {there}"})
    pinned = f"sha256:{'0' * 64}"
    assert "allow-models" in problem("timm:test_vit", pinned)
    assert f"no file of weights with the digest {pinned}" in problem(
        "timm:test_vit", pinned, **{"allow-models": pinned}
    )
    for named in ("blocks_net", "blocks_net:net"):
        assert "allow-models" not in problem("blocks_net:net", **approved, **{"allow-models": named})
