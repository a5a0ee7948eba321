"""Statistics of sites before training: open, masked, at sites with rules, and what is refused."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from sites import write_sites, write_texts

from fda_flower import RunConfig, run
from fda_flower.aggregation.apart import shares_of
from fda_flower.aggregation.describing import Statistics
from fda_flower.client_app import make_client_app
from fda_flower.clients.describe import rows_at_site
from fda_flower.datasets import load_federation
from fda_flower.errors import ConfigError
from fda_flower.experiments.pages import single_page, write_card
from fda_flower.records.alike import MEASURED
from fda_flower.strategies.describe import REST
from fda_flower.wire.asked.describe import DescribeRows
from fda_flower.wire.internals import numbered

SETTINGS: dict[str, Any] = {"dataset": "table", "method": "describe", "target": "all", "device": "cpu"}
NAMES = ("east", "north", "south", "west")


@pytest.fixture
def tables(tmp_path):
    """Hospitals whose patients have two rows: north has another unit, south a code, west missing values."""
    rows, folder = {}, tmp_path / "data"
    folder.mkdir()
    for i, name in enumerate(NAMES):
        draw, size = np.random.default_rng(i), 120 + 20 * i
        table = pd.DataFrame({"age": draw.normal(60, 9, size), "chol": draw.normal(230, 40, size)})
        table["sex"] = draw.integers(0, 2, size)
        table["patient"] = [f"{name}{j // 2}" for j in range(size)]
        table["label"] = np.where(np.arange(size) // 2 % 3 == 0, "ill", "well")
        if name == "north":
            table["chol"] /= 38.67
        if name == "south":
            table.loc[: size // 3, "chol"] = 0.0
        if name == "west":
            table.loc[: size // 2, "age"] = np.nan
        rows[name] = table
        table.to_csv(folder / f"{name}.csv", index=False)
    return folder, rows


def settings_of(folder, **more):
    options = {"missing": "mean", "group": "patient"}
    return {**SETTINGS, "data_dir": str(folder), "dataset_options": options, **more}


def described(folder, **more):
    (record,) = run(**settings_of(folder, **more)).history
    return record["described"]


def test_sites_say_what_pandas_says_and_the_sentences_name_what_was_changed(tables, tmp_path):
    folder, rows = tables
    result = run(**settings_of(folder), output=tmp_path / "run")
    said = json.loads((tmp_path / "run" / "describe.json").read_text())
    assert said == result.history[-1]["described"]
    whole = pd.concat(rows.values())
    for name, error in (("chol", 1e-9), ("sex", 0.03)):
        assert said["all"][name]["mean"] == pytest.approx(whole[name].mean(), rel=error)
        assert said["all"][name]["deviation"] == pytest.approx(whole[name].std(ddof=0), rel=error)
    for name, table in rows.items():
        site = said["sites"][name]
        assert (site["rows"], site["units"]) == (len(table), len(table) // 2)
        assert site["classes"]["ill"] == pytest.approx(len(table) / 6, abs=2.5)
        assert site["columns"]["age"]["mean"] == pytest.approx(table["age"].mean(), abs=0.005)
    sentences = {tuple(pair["sites"]): pair["sentence"] for pair in said["pairs"]}
    assert len(sentences) == 6
    assert "chol 225 against 5.801 (7.4 deviations): another unit?" in sentences["east", "north"]
    assert "are exactly 0: a code for missing?" in sentences["east", "south"]
    assert "missing 0% against 50%" in sentences["east", "west"]
    assert sentences["east", "west"].startswith("east (120 of 60 patients) against west (180 of 90 patients)")
    assert (tmp_path / "run" / "sites-alike.png").exists()
    text = write_card(tmp_path / "run").read_text()
    titles = [section.title for section in single_page(tmp_path / "run").sections]
    assert "Who has what" in titles
    assert "## Who has what" in text
    assert MEASURED in text
    assert result.config.strategy.conclusion(result.history[-1])[-1] == MEASURED


def test_with_masks_the_server_has_the_same_totals_and_no_site(tables, tmp_path):
    folder, _ = tables
    said = described(folder)
    masked = described(folder, method_options={"secure": True, "report": "full"})
    assert masked["all"] == said["all"]
    assert [*masked["sites"]] == ["all sites"]
    counts = [site["classes"]["ill"] for site in said["sites"].values()]
    assert masked["sites"]["all sites"]["classes"]["ill"] == sum(counts)
    assert [pair["sites"] for pair in masked["pairs"]] == [[name, REST] for name in NAMES]
    assert masked["pairs"][1]["distances"]["chol"] > 1
    quiet = run(**settings_of(folder, method_options={"secure": True}), output=tmp_path / "run")
    assert quiet.history[-1]["described"]["pairs"] == []
    assert (tmp_path / "run" / "sites-alike.png").exists()


def test_with_a_target_each_other_site_is_compared_with_it(tables):
    pairs = described(tables[0], target="south")["pairs"]
    assert [pair["sites"] for pair in pairs] == [[name, "south"] for name in ("east", "north", "west")]


@pytest.mark.usefixtures("in_a_run")
@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ({"require-secure": False}, None),
        ({}, "(the site's require-secure)"),
        ({"require-secure": False, "min-samples": 1000}, "(the site's min-samples)"),
        ({"require-secure": False, "dp-clip": 1.0, "dp-noise": 1.0}, "no known sensitivity"),
    ],
)
@pytest.mark.parametrize("role", ["source", "target"])
def test_at_a_site_its_own_rules_hold_and_counts_are_multiples_of_its_cell(
    tables, tmp_path, rules, reason, role
):
    name = "west" if role == "target" else "east"
    node = {"domain": name, "role": role, "state-dir": str(tmp_path), "data-dir": str(tables[0])}
    options = {"missing": "mean", "domains": ",".join(NAMES), "classes": "ill,well", "ignore": "patient"}
    config = RunConfig(**settings_of(tables[0], target="west", dataset_options=options))
    content: Any = {"arrays": ArrayRecord(), "config": ConfigRecord(), **DescribeRows(classes=2).records()}
    (message,) = numbered([Message(RecordDict(content), 2, DescribeRows.message_type())])
    reply = make_client_app(config)(
        message, Context(1, 2, {**node, "min-cell": 7, **rules}, RecordDict(), {})
    )
    if reason is not None:
        assert reason in str(reply.error.reason)
        return
    counts = reply.content.array_records["answer/counts"]
    assert all((array.numpy() % 7 == 0).all() for array in counts.values())
    (line,) = [json.loads(each) for each in (tmp_path / "sent.jsonl").read_text().splitlines()]
    assert line["releases"]["sums"] == ["answer/moments"]
    assert "answer/counts" in line["releases"]["counts"]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"dataset": "digits"}, "for images choose a pretrained network, whose features are compared"),
        ({"dp_clip": 1.0}, "which have no noise"),
        ({"dp_unit": "patient", "dp_noise": 1.0, "dp_group": "row"}, "statistics have no noise"),
    ],
)
def test_what_cannot_be_described_is_refused_before_anything_is_asked(settings, why):
    with pytest.raises(ConfigError, match=why):
        run(**{"method": "describe", "dataset": "digits", "device": "cpu", **settings})


def test_too_few_sites_for_masks_and_texts_are_refused(tables, tmp_path):
    two = {"domains": "east,north", "group": "patient"}
    with pytest.raises(ConfigError, match="masked sums need 3 to 256"):
        described(tables[0], method_options={"secure": True}, dataset_options=two)
    (tmp_path / "texts").mkdir()
    write_sites(write_texts, tmp_path / "texts", "ab")
    with pytest.raises(ConfigError, match="a table without texts"):
        described(tmp_path / "texts", dataset_options={"text": "note"})


def test_several_labels_have_a_share_each(tables):
    folder, rows = tables
    for name, table in rows.items():
        table["second"] = (np.arange(len(table)) // 2 % 2 == 0).astype(int)
        table["first"] = (table.pop("label") == "ill").astype(int)
        table.to_csv(folder / f"{name}.csv", index=False)
    options = {"missing": "mean", "group": "patient", "task": "multilabel", "label": "first,second"}
    config = RunConfig(**settings_of(folder, dataset_options=options))
    own = Statistics.of(rows_at_site(load_federation(config.data).domains["east"], 2), 5)
    assert own.classes.tolist() == [20, 30]
    assert shares_of(own, several=True).tolist() == [20 / 60, 30 / 60]


def test_survival_has_the_share_of_events_by_each_horizon(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    for seed, name in enumerate(NAMES):
        draw = np.random.default_rng(seed)
        table = pd.DataFrame({"age": draw.normal(60, 9, 100), "time": 1 + np.arange(100) // 10, "dead": 1})
        table.loc[table["time"] == 1, "dead"] = int(name == "east")
        table.to_csv(folder / f"{name}.csv", index=False)
    options = {"task": "survival", "label": "time", "event": "dead", "horizons": "1.5,5.5"}
    said = described(folder, dataset_options=options)
    shares = {name: [*site["classes"].items()] for name, site in said["sites"].items()}
    assert shares["east"] == [("event by 1.5", 10), ("event by 5.5", 50)]
    assert shares["north"] == [("event by 5.5", 45)] or shares["north"][1] == ("event by 5.5", 45)
    assert "event by" not in said["pairs"][3]["sentence"]
