"""A server without data, and sites that have only their own."""

import logging
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from flwr.app import Context, RecordDict
from handmade import HandMade
from naming import names
from sites import Site, run_sites, write_images, write_table
from whole_runs import check_same, same_bits

from fda_flower import RunConfig, server_app
from fda_flower.errors import ConfigError, RunError
from fda_flower.records.folder import RunFolder
from fda_flower.running.processes import Task, run_task
from fda_flower.running.run import Execution, run_config
from fda_flower.server_app import check_data, evaluation_interval, run_server
from fda_flower.strategies.nodes import Node
from fda_flower.wire.internals import task_identity

DOMAINS = ("north", "south", "west")
TARGET = "west"
COMMON: dict[str, Any] = {"rounds": 2, "target": TARGET, "target_samples": 12, "device": "cpu", "threads": 1}


def table_config(**settings: Any) -> RunConfig:
    options = {"domains": ",".join(DOMAINS), "classes": "0,1", **settings.pop("options", {})}
    return RunConfig(dataset="table", dataset_options=options, model="logistic", **{**COMMON, **settings})


def image_config(**options: str) -> RunConfig:
    given = {"domains": ",".join(DOMAINS), "image_size": 8, "classes": "ant,bee", **options}
    return RunConfig(dataset="images", dataset_options=given, model="mlp", **COMMON)


def nodes(root: Path) -> list[Site]:
    """Each site's folder is its own; they are not in the order of their domains."""
    roles = {"west": "target", "north": "source", "south": "source"}
    return [{"domain": name, "role": role, "data-dir": str(root / name)} for name, role in roles.items()]


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    for i, name in enumerate(DOMAINS):
        write_table(tmp_path / name / f"{name}.csv", i)
    return tmp_path


@pytest.fixture
def images(tmp_path: Path) -> Path:
    for i, name in enumerate(DOMAINS):
        write_images(tmp_path / name / name, i)
    return tmp_path


@pytest.mark.parametrize("kind", ["tables", "images"])
def test_sites_with_only_their_own_data_give_the_bits_of_one_machine_with_all(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    root: Path = request.getfixturevalue(kind)
    config = table_config() if kind == "tables" else image_config()
    no_data = AssertionError("the server has read data")
    with patch("fda_flower.server_app.load_federation", side_effect=no_data):
        model, history = run_sites(config, [{**node, "require-secure": False} for node in nodes(root)])

    together = tmp_path / "together"
    for name in DOMAINS:
        shutil.copytree(root / name, together, dirs_exist_ok=True)
    whole = run_config(replace(config, data_dir=str(together)))
    assert [record["accuracy"] for record in history] == [record["accuracy"] for record in whole.history]
    assert history[-1]["missing"] == []
    assert same_bits(model, whole.model)


def test_a_source_without_its_data_is_left_out_and_the_records_say_why(
    tables: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tables / "south/south.csv").unlink()
    with caplog.at_level(logging.WARNING, "flwr"):
        _, history = run_sites(table_config(), nodes(tables))
    for record in history:
        assert list(record["sources"]) == ["north"]
        (left_out,) = record["missing"]
        assert left_out["domain"] == "south"
        assert "its own log" in left_out["reason"]
    assert "south does not take part" in caplog.text


def test_a_site_with_other_classes_takes_no_part_until_all_are_listed(images: Path) -> None:
    shutil.move(images / "south/south/bee", images / "south/south/cat")
    _, history = run_sites(image_config(), nodes(images))
    assert [each["domain"] for each in history[-1]["missing"]] == ["south"]
    _, history = run_sites(image_config(classes="ant,bee,cat"), nodes(images))
    assert sorted(history[-1]["sources"]) == ["north", "south"]


def test_too_few_samples_for_an_estimate_are_an_error_before_training(tables: Path) -> None:
    config = table_config(target_samples=None, target_batch_size=30, method="fedgp-auto")
    with pytest.raises(ConfigError, check=names("'west'", 32, "a smaller batch size")):
        run_sites(config, nodes(tables))
    write_table(tables / "south" / "south.csv", 1, rows=20)
    options = {"estimate_at": "start"}
    config = table_config(method="fedda-joint", method_options=options, batch_size=10)
    too_few = names("'south'", 16, "estimate_at=training")
    with pytest.raises(ConfigError, check=too_few):
        run_sites(config, [{**node, "require-secure": False} for node in nodes(tables)])
    for name in DOMAINS:
        shutil.copy(tables / name / f"{name}.csv", tables)
    with pytest.raises(ConfigError, check=too_few):
        check_data(replace(config, data_dir=str(tables)))
    _, history = run_sites(table_config(method="fedda-joint", batch_size=10), nodes(tables))
    assert history[-1]["held"] is None


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_on_one_machine_missing_data_are_an_error_before_anything_runs(
    engine: str, tables: Path, tmp_path: Path
) -> None:
    config = table_config(data_dir=str(tables))
    with pytest.raises(ConfigError, check=names("data file", tables / "north.csv")):
        run_config(config, Execution(engine=engine, output=tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("told", "thing", "value"),
    [
        ({}, "shape and classes", None),
        ({"shape": "big", "classes": 2}, "target", "t"),
        ({"shape": [2], "classes": 2, "examples": "x"}, "target", "t"),
    ],
)
def test_without_a_node_that_reports_the_form_of_its_data_there_is_no_model(
    told: dict[str, Any], thing: str, value: str | None
) -> None:
    app = HandMade([("target", "t", None), ("source", "a", None)], info={"t": told})
    config = RunConfig(method="fedgp", sources=1)
    with task_identity(), pytest.raises(RunError, check=names(thing, value)):
        run_server(app.grid(), config)


# How often the target evaluates by default


@pytest.mark.parametrize(
    ("labelled", "tests", "epochs", "interval"),
    [
        # One evaluation in N rounds takes tests / N of tests / N + 3 * trained.
        ([100, 100, 100], 100, {"source": 1, "target": 1}, 1),
        ([100, 100, 99], 100, {"source": 1, "target": 1}, 2),
        ([100, 300, 500], 10_000, {"source": 1}, 38),
        ([100, 300, 500], 10_000, {"source": 5, "target": 20}, 5),
        ([50, 300, 500], 450, {"target": 1}, 27),
        ([0, 300, 500], 450, {"target": 1}, 1),
        ([100, None, 500], 10_000, {"source": 1}, None),
    ],
)
def test_evaluations_take_a_tenth_of_the_time_at_most(
    labelled: list[int | None], tests: int, epochs: dict[str, int], interval: int | None
) -> None:
    told = [{} if each is None else {"examples": each, "test-examples": tests} for each in labelled]
    sites = [Node(i, str(i), i == 0, info) for i, info in enumerate(told)]
    assert evaluation_interval(sites, epochs) == interval


TINY: dict[str, Any] = {"method": "fedavg", "model": "mlp", "device": "cpu", "target_samples": 20}
TINY |= {"source_samples": 20, "test_samples": 40}  # 3 * (3 * 20 + 20) to train on


def evaluated(history: list[dict[str, Any]]) -> list[int]:
    return [record["round"] for record in history if "accuracy" in record]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [2, 4, 5, 6, 7, 8]),
        ({"evaluate_every": 3}, [3, 4, 5, 6, 7, 8]),
        ({"evaluate_every": 1}, [*range(1, 9)]),
        ({"validation": 0.5}, [*range(1, 9)]),
        ({"method": "mixture", "method_options": {"every": 4}}, [4, 8]),
        ({"method": "central:erm"}, [*range(1, 9)]),
    ],
)
def test_the_rounds_that_are_evaluated(
    settings: dict[str, Any], expected: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "flwr.costs"):
        result = run_config(RunConfig(**{**TINY, "rounds": 8, **settings}))
    assert evaluated(result.history) == expected
    assert ("every 2 rounds" in caplog.text) == (not settings)


def test_a_resumed_run_evaluates_in_the_same_rounds_and_a_cell_of_a_table_in_each(tmp_path: Path) -> None:
    def stop(record: dict[str, Any]) -> None:
        if record["round"] == 3:
            raise KeyboardInterrupt

    config = RunConfig(**TINY, rounds=8)
    with pytest.raises(KeyboardInterrupt):
        run_config(config, Execution(output=tmp_path / "run", on_round=stop))
    resumed, whole = run_config(config, Execution(output=tmp_path / "run", resume=True)), run_config(config)
    check_same(resumed, whole)
    task = Task(("", "fedavg", ""), config, tmp_path, Execution())
    run_task(task)
    assert evaluated(RunFolder(task.run_folder).read_rounds()) == [*range(1, 9)]


@pytest.mark.parametrize("sends", [False, True])
def test_a_run_of_flower_without_a_new_model_fails_unless_its_submitter_judges_it(
    sends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = [{"round": 1, "held": "no usable reply of the target", "dropped": []}]
    monkeypatch.setattr(server_app, "run_server", lambda *_: (SimpleNamespace(arrays={}), held))
    monkeypatch.setattr(server_app, "is_deployed", lambda _: False)
    monkeypatch.setattr(server_app, "sending", lambda *_: nullcontext())
    settings = {**RunConfig(method="fedavg").to_flower(), "send-results": sends}
    context = Context(0, 0, {}, RecordDict(), settings)
    grid: Any = SimpleNamespace()
    if sends:
        server_app.main(grid, context)
        return
    with pytest.raises(RunError, check=names("new model", "no usable reply of the target")):
        server_app.main(grid, context)
