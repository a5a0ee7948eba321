"""Whole runs on tables: the common columns of every method, of masks, and of sites that say nothing."""

import gc
from typing import Any
from weakref import ref

import numpy as np
import pytest
from sites import run_sites, write_sites, write_table
from whole_runs import same_bits

from fda_flower import RunConfig, run
from fda_flower.aggregation import Moments
from fda_flower.clients import columns
from fda_flower.datasets import load_federation
from fda_flower.datasets.federation import forget
from fda_flower.errors import ConfigError
from fda_flower.prediction.model import load
from fda_flower.records.folder import RunFolder
from fda_flower.running.attacks import Attack
from fda_flower.running.run import Execution, run_config
from fda_flower.runs.model_folder import own_test_set
from fda_flower.strategies import round

SETTINGS: dict[str, Any] = {"dataset": "table", "target_samples": 12, "model": "logistic", "device": "cpu"}
ROUNDS: dict[str, Any] = {"fedavg": 2, "mixture": 1, "ridge": 1, "central:erm": 1}


def settings_of(folder, domains="abcd", method="fedavg", **more):
    options = {"domains": ",".join(domains), "classes": "0,1"}
    found = {**SETTINGS, "method": method, "rounds": ROUNDS[method], "target": domains[-1]}
    return {**found, "data_dir": str(folder), "dataset_options": options, **more}


def stacked(settings):
    """The values of the sources' training rows."""
    config = RunConfig(**settings)
    sites = load_federation(config.data).domains
    parts = []
    for name in config.data.source_names:
        fitted = sites[name].preparation
        parts.append(
            sites[name].train.x.astype(np.float64) * np.array(fitted.deviation) + np.array(fitted.mean)
        )
    return np.concatenate(parts)


def columns_in(folder):
    state = RunFolder(folder).load_checkpoint().state["columns"]
    return {name: state[name].tobytes() for name in ("means", "deviations")}


@pytest.mark.parametrize("method", ROUNDS)
def test_the_models_columns_are_standardised_by_the_rows_of_all_sources(method, tmp_path):
    write_sites(write_table, tmp_path / "data", "abcd", rows=60)
    settings = settings_of(tmp_path / "data", method=method)
    result = run(**settings, output=tmp_path / "run")
    values, model = stacked(settings), load(tmp_path / "run")
    assert model.preparation.mean == pytest.approx(values.mean(axis=0), abs=1e-6)
    assert model.preparation.deviation == pytest.approx(values.std(axis=0), rel=1e-6)
    lines = (tmp_path / "data" / "d.csv").read_text().split()
    header, *rows = (line.split(",")[:2] for line in lines)
    far = {name: [1000.0 * float(row[i]) for row in rows] for i, name in enumerate(header)}
    assert np.abs(model.preparation.apply(far)).max() == 3
    own = run(**settings, columns="own")
    assert own.config.columns == "own"
    assert not same_bits(own.model, result.model)


@pytest.mark.parametrize("method", ["fedavg", "ridge"])
@pytest.mark.parametrize("factor", ["1e9", "1e-9", "-1"])
def test_a_hospital_that_lies_about_its_columns_is_as_if_it_were_not_there(method, factor, tmp_path):
    write_sites(write_table, tmp_path, "abcde")
    four, five = (RunConfig(**settings_of(tmp_path, each, method)) for each in ("bcde", "abcde"))
    attacked = run_config(five, Execution(attack=Attack(f"columns:{factor}", ("a",))))
    for record in attacked.history:
        assert [each["domain"] for each in record["dropped"]] == ["a"]
        assert "column" in record["dropped"][0]["reason"]
    assert same_bits(attacked.model, run_config(four).model)
    assert not same_bits(attacked.model, run_config(five).model)


def test_a_target_in_another_unit_is_told_so(tmp_path, monkeypatch):
    said = list[str]()
    monkeypatch.setattr(columns, "log", lambda level, text, *args: said.append(text % args))
    write_sites(write_table, tmp_path, "abcd")
    columns.READ.clear()
    run(**settings_of(tmp_path))
    assert said == []
    header, *rows = (tmp_path / "d.csv").read_text().split()
    cells = [row.split(",") for row in rows]
    far = [",".join([age, str(40 * float(height)), label]) for age, height, label in cells]
    (tmp_path / "d.csv").write_text("\n".join([header, *far]))
    run(**settings_of(tmp_path))
    assert ["height" in line and "another unit" in line and "age" not in line for line in said] == [True]


def test_a_target_whose_rows_have_changed_since_the_run_is_refused(tmp_path):
    write_sites(write_table, tmp_path / "data", "abcd")
    run(**settings_of(tmp_path / "data"), output=tmp_path / "run")
    model, path = load(tmp_path / "run"), tmp_path / "data" / "d.csv"
    assert len(own_test_set(model, tmp_path / "run").samples) == 8
    header, *rows = path.read_text().split()
    cells = [row.split(",") for row in rows]
    path.write_text("\n".join([header, *(",".join([str(float(age) + 1), *rest]) for age, *rest in cells)]))
    forget()
    with pytest.raises(ConfigError, match="the data of 'd' have changed since the run"):
        own_test_set(model, tmp_path / "run")


def test_masks_give_the_same_columns_to_the_bit(tmp_path):
    write_sites(write_table, tmp_path / "data", "abcd")
    settings = settings_of(tmp_path / "data", method="ridge")
    plain = run(**settings, output=tmp_path / "plain")
    masked = run(**settings, output=tmp_path / "masked", method_options={"secure": True})
    assert columns_in(tmp_path / "masked") == columns_in(tmp_path / "plain")
    for name, array in plain.model.items():
        np.testing.assert_allclose(np.float64(masked.model[name]), np.float64(array), atol=1e-4)


def test_masked_sums_that_are_of_other_rows_are_not_used(tmp_path, monkeypatch):
    write_sites(write_table, tmp_path, "abcd")
    honest = Moments.of
    monkeypatch.setattr(Moments, "of", lambda values, rows: honest(values, 10**9 * rows))
    (record,) = run(**settings_of(tmp_path, method="ridge"), method_options={"secure": True}).history
    assert record["held"] is None
    assert "columns" not in record


def test_a_run_that_is_resumed_keeps_its_columns(tmp_path):
    write_sites(write_table, tmp_path / "data", "abcd")
    settings = settings_of(tmp_path / "data")
    whole = run(**settings)
    run(**{**settings, "rounds": 1}, output=tmp_path / "run")
    (tmp_path / "data" / "a.csv").touch()
    resumed = run(**settings, output=tmp_path / "run", resume=True)
    assert same_bits(resumed.model, whole.model)


def test_a_site_that_says_nothing_has_the_others_columns(tmp_path, monkeypatch):
    said = list[str]()
    monkeypatch.setattr(round, "log", lambda level, text, *args: said.append(text % args))
    write_sites(write_table, tmp_path / "data", "abcd")
    config = RunConfig(**settings_of(tmp_path / "data"))
    nodes: list[dict[str, Any]] = [
        {
            "domain": name,
            "data-dir": str(tmp_path / "data"),
            "state-dir": str(tmp_path / name),
            "require-secure": name == "a",
        }
        for name in "abcd"
    ]
    _, history = run_sites(config, nodes)
    assert history[0]["columns"] == ["b", "c"]
    assert [sorted(record["sources"]) for record in history] == [["a", "b", "c"]] * 2
    assert any("columns are standardised without the rows" in line for line in said)
    closed: list[dict[str, Any]] = [{**node, "require-secure": True} for node in nodes]
    _, history = run_sites(config, closed)
    assert "columns" not in history[0]
    assert sorted(history[0]["sources"]) == ["a", "b", "c"]


def test_a_domain_that_nobody_uses_is_freed(tmp_path):
    write_sites(write_table, tmp_path, "abcd")
    data = load_federation(RunConfig(**settings_of(tmp_path)).data)
    read = [columns.read_domain(domain, None) for domain in data.domains.values()]
    assert [columns.read_domain(domain, None) for domain in data.domains.values()] == read
    alive = [ref(domain) for domain in [*data.domains.values(), *read]]
    del data, read
    forget()
    gc.collect()
    assert [each() for each in alive] == [None] * 8


@pytest.mark.parametrize("rule", [{"allow-questions": "none"}, {"dp-clip": 1.0, "dp-noise": 1.0}])
def test_a_site_that_may_not_say_its_columns_names_the_option_that_does_not_ask(rule, tmp_path, monkeypatch):
    said = list[str]()
    monkeypatch.setattr(round, "log", lambda level, text, *args: said.append(text % args))
    write_sites(write_table, tmp_path / "data", "abcd")
    of: dict[str, Any] = {"data-dir": str(tmp_path / "data"), "require-secure": False}
    nodes: list[dict[str, Any]] = [
        {"domain": each, "state-dir": str(tmp_path / each), **of} for each in "abcd"
    ]
    _, history = run_sites(RunConfig(**settings_of(tmp_path / "data")), [{**nodes[0], **rule}, *nodes[1:]])
    assert history[0]["columns"] == ["b", "c"]
    assert ["columns = own" in line for line in said if "columns are" in line] == [True]


def test_a_source_that_is_not_in_the_masked_columns_is_dropped_once_with_the_cause(tmp_path):
    write_sites(write_table, tmp_path / "data", "abcde")
    of: dict[str, Any] = {"data-dir": str(tmp_path / "data"), "require-secure": False}
    nodes: list[dict[str, Any]] = [{"domain": each, **of} for each in "abcde"]
    nodes[0]["allow-questions"] = "train.sum_rows"
    config = settings_of(tmp_path / "data", "abcde", "ridge", method_options={"secure": True})
    _, (record,) = run_sites(RunConfig(**config), nodes)
    (dropped,) = record["dropped"]
    assert (dropped["domain"], record["columns"]) == ("a", ["b", "c", "d"])
    assert "a second sum needs the same sources" in dropped["reason"]
    assert "allow-questions" in dropped["reason"]
