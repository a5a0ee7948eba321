"""Whole runs in which every site is a target: each has what a run with it as the target gives."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from naming import names
from sites import run_sites, write_sites, write_table
from typer.testing import CliRunner
from whole_runs import check_same

from fda_flower import RunConfig, load, run
from fda_flower.cli.app import app
from fda_flower.datasets import load_federation
from fda_flower.errors import ConfigError
from fda_flower.experiments.pages import draw, write_html
from fda_flower.prediction.files import read_model
from fda_flower.reporting import sites_table
from fda_flower.runs.methods import METHODS

ALL: dict[str, Any] = {"method": "ridge", "target": "all", "device": "cpu"}
OPEN: dict[str, Any] = {"require-secure": False}
TABLE: dict[str, Any] = {"dataset": "table", "dataset_options": {"domains": "a,b,c", "classes": "0,1"}}


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    for seed, domain in enumerate("abc"):
        write_table(folder / f"{domain}.csv", seed, rows=40 + 10 * seed)
    return folder


@pytest.fixture(scope="module")
def whole(tables, tmp_path_factory):
    return run(**ALL, **TABLE, data_dir=str(tables), output=tmp_path_factory.mktemp("whole") / "run")


def layers(folder):
    _, predictor, _ = read_model(folder)
    (arrays,) = predictor.parts.networks.values()
    return arrays


@pytest.mark.parametrize("paths", ["both", "shrunk", "auto"])
def test_every_site_has_what_a_run_with_it_as_the_target_gives(paths, tables, tmp_path):
    settings = {**TABLE, "data_dir": str(tables), "method_options": {"paths": paths}, "columns": "own"}
    whole = run(**ALL, **settings, output=tmp_path / "all")
    assert whole.path is not None
    (record,) = whole.history
    assert not any("metrics" in entry for entry in record["sources"].values())
    for domain in "abc":
        one = run(**{**ALL, "target": domain}, **settings, target_samples="all", output=tmp_path / domain)
        site = record["sites"][domain]
        assert site["labels"] == one.history[0]["target"]["examples"]
        assert site["with-others"] == pytest.approx(one.history[0]["accuracy"], abs=0.05)
        own, same = layers(whole.path / "clients" / domain), layers(one.path)
        assert own.keys() == same.keys()
        for name, array in own.items():
            np.testing.assert_allclose(array, same[name], rtol=1e-3, atol=1e-3)
        assert one.history[0]["ridge"]["paths"] == ("logistic" if paths == "auto" else paths)
        if paths == "auto":  # no run has the logistic heads of the target alone
            continue
        alone = run(**{**ALL, "target": domain}, **{**settings, "method_options": {"paths": "target"}},
                    target_samples="all")  # fmt: skip
        assert site["alone"] == pytest.approx(alone.history[0]["accuracy"], abs=0.05)
    means = np.mean([site["with-others"] for site in record["sites"].values()])
    assert whole.accuracies == [pytest.approx(100 * means)]


def test_workers_and_sites_of_their_own_give_the_same(whole, tables, tmp_path):
    again = run(**ALL, **TABLE, data_dir=str(tables), workers=2, output=tmp_path / "run")
    check_same(whole, again)
    nodes: list[dict[str, Any]] = [
        {"domain": name, "data-dir": str(tables), "state-dir": str(tmp_path / name), "role": role, **OPEN}
        for name, role in zip("abc", ("source", "source", "target"), strict=True)
    ]
    _, history = run_sites(RunConfig(**ALL, **TABLE), nodes)
    assert history[0]["sites"] == whole.history[0]["sites"]
    for name in "abc":
        (kept,) = (tmp_path / name).rglob("model.safetensors")
        there = whole.path / "clients" / name
        assert kept.read_bytes() == (there / kept.name).read_bytes()
        assert load(kept.parent).about.domain == name
    del nodes[0]["state-dir"]
    _, history = run_sites(RunConfig(**ALL, **TABLE), nodes)
    assert (list(history[0]["sites"]), "state-dir" in history[0]["missing"][0]["reason"]) == (
        ["b", "c"],
        True,
    )


def test_a_site_predicts_with_its_head_on_its_own_test_set(whole):
    for name, site in whole.history[0]["sites"].items():
        folder = whole.path / "clients" / name
        said = CliRunner().invoke(app, ["predict", str(folder), "--output", str(folder / "p.csv")])
        assert said.exit_code == 0, said.output
        rows = [line.split(",") for line in (folder / "p.csv").read_text().splitlines()]
        assert len(rows) == site["test-examples"] + 1


def test_one_label_is_too_few_for_a_head_alone_and_gets_the_others(tmp_path):
    write_sites(write_table, tmp_path, "abc")
    settings = {**TABLE, "data_dir": str(tmp_path), "target_samples": 1}
    result = run(**ALL, **settings)
    for site in result.history[0]["sites"].values():
        assert (site["labels"], site["share"]) == (1, 1)
        assert not {"alone", "gain", "interval"} & site.keys()
        assert 0 <= site["with-others"] <= 1
    table = sites_table(result.history)
    assert table.rows[0][table.header.index("alone (%)")] == ""


def test_a_site_without_test_samples_is_judged_by_its_labels(whole, tables, monkeypatch):
    from fda_flower.datasets import federation

    cut = federation._cut

    def without(*given):
        whole = cut(*given)
        return replace(whole, test=whole.test.take(whole.test.order(given[2])[:0]))

    monkeypatch.setattr(federation, "_cut", without)
    federation.forget()
    result = run(**ALL, **TABLE, data_dir=str(tables), seed=5)
    federation.forget()
    sites = result.history[0]["sites"]
    assert {site["judged-by"] for site in sites.values()} == {"held-out"}
    assert all({"alone", "gain", "interval"} <= site.keys() for site in sites.values())
    assert result.accuracies == [pytest.approx(100 * np.mean([s["with-others"] for s in sites.values()]))]


def test_numbers_are_judged_by_r2():
    result = run(**ALL, dataset="rbf", target_samples=16)
    (record,) = result.history
    for site in record["sites"].values():
        low, high = site["interval"]
        assert low <= site["gain"] <= high
    assert record["r2"] == pytest.approx(np.mean([s["with-others"] for s in record["sites"].values()]))


def test_a_run_ends_with_the_table_and_is_reported(whole, tables, tmp_path):
    table = sites_table(whole.history)
    assert [row[0] for row in table.rows] == ["a", "b", "c"]
    assert whole.summary["sites"] == whole.history[0]["sites"]
    assert draw(whole.path).name == "sites.png"
    assert "| a |" in (whole.path / "sites.md").read_text()
    write_html([whole.path], tmp_path / "page.html")
    assert "What the others bring to each site" in (tmp_path / "page.html").read_text()
    options = ["--method", "ridge", "--target", "all", "--dataset", "table", "--data-dir", str(tables)]
    options += ["--dataset-option", "domains=a,b,c", "--output", str(tmp_path / "run")]
    said = CliRunner().invoke(app, ["run", *options])
    assert said.exit_code == 0, said.output
    for word in ("with the others", "The others bring", "Sites of table"):
        assert word in said.output


@pytest.mark.parametrize("method", ["mixture", "fedgp-auto", "central:erm"])
def test_other_methods_refuse_and_say_which_can(method):
    with pytest.raises(ConfigError, check=names("target", "all", "ridge")):
        RunConfig(method=method, target="all")
    assert [name for name, each in METHODS.items() if each.every_site] == ["ridge"]


@pytest.mark.parametrize(
    ("settings", "thing"),
    [
        ({"target_samples": 20, "source_samples": 20}, "source-samples"),
        ({"validation": 0.2}, "validation"),
    ],
)
def test_what_cannot_be_with_every_site_is_refused(settings, thing):
    with pytest.raises(ConfigError, check=names(thing)):
        RunConfig(**ALL, **settings)


def test_a_site_has_all_its_labels_unless_a_setting_cuts_them():
    assert RunConfig(**ALL).target_samples is None
    assert RunConfig.from_flower(RunConfig(**ALL).to_flower()) == RunConfig(**ALL)
    for name in ("target_samples", "source_samples"):
        data = load_federation(RunConfig(**{**ALL, name: 20}, test_samples=30).data)
        assert {(len(each.train), len(each.test)) for each in data.domains.values()} == {(20, 30)}


def test_the_run_itself_has_no_model_and_names_those_of_the_sites(whole):
    with pytest.raises(ConfigError, match="clients/: a, b, c", check=names("folder", whole.path)):
        read_model(whole.path)
