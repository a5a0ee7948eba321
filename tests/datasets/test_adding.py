"""The data set, the network and the reader that pages print work: in a copy of this package, in another."""

import json
import re
import runpy

import pytest
from installed import DOCS, copy_with, install, printed, python

from fda_flower.errors import ConfigError
from fda_flower.own_data import table_files

PAGE, HERE = "adding.md", "../CONTRIBUTING.md"
FDA = "from fda_flower.cli import main; main()"
SMALL = ["--dataset-option", "test_share=0.5", "--target-samples", "20%", "--rounds", "2", "--output", "out"]
FILE = printed(PAGE, "python", '"""scikit-learn')
COMMAND = printed(PAGE, "sh", "fda run --dataset tumours").split()[1:]
LINE = printed(HERE, "python", '        "tumours"')
DATASET = printed(PAGE, "python", "from fda_flower.datasets import Dataset")
(ENTRY,) = re.findall(r"`(SMALL = Model\(.*?\))`", (DOCS / PAGE).read_text(encoding="utf-8"))
READER = printed(HERE, "python", '"""Rows of JSON')
(SUFFIX,) = re.findall(r'"(.\w+)": json_rows.read', (DOCS / HERE).read_text(encoding="utf-8"))
NETWORK = printed(PAGE, "python", "from math import prod")
MODEL = f"{NETWORK}\n\nfrom fda_flower.models import Model\n\n{ENTRY}\n"
GROUPS = ("datasets", "models")
ENTRY_POINTS = "".join(printed(PAGE, "toml", f'[project.entry-points."fda_flower.{g}"]') for g in GROUPS)


def check_run(folder, model, *more):
    python(folder, "-c", FDA, *COMMAND, *SMALL, *more)
    rounds = [json.loads(line) for line in (folder / "out" / "rounds.jsonl").read_text().splitlines()]
    assert [record["held"] for record in rounds] == [None, None]
    assert list(rounds[0]["sources"]) == ["large"]
    assert rounds[0]["target"]["domain"] == "small"
    assert rounds[0]["target"]["examples"] == 28, "20% of the 142 of the 284 samples that are trained on"
    assert rounds[-1]["accuracy"] > 0.5
    config = json.loads((folder / "out" / "config.json").read_text(encoding="utf-8"))["run"]
    assert (config["model"], config["dataset_options"]) == (model, {"test_share": 0.5})


@pytest.mark.slow
def test_a_file_and_a_line_add_a_data_set(tmp_path):
    copy_with(tmp_path, {"datasets/tumours.py": FILE}, "datasets/registry.py", "fashion-mnist", LINE)
    check_run(tmp_path, "logistic")


@pytest.mark.slow
def test_a_package_adds_a_data_set_and_a_model_whose_names_are_listed(tmp_path):
    modules = {"tumours": f"{FILE}\n\n{DATASET}", "networks": MODEL}
    clinics = install(tmp_path, modules, ENTRY_POINTS)
    check_run(clinics, "small", "--model", "small")
    shown = python(clinics, "-c", FDA, "list").stdout
    assert re.search(r"^  tumours +breast cancer by the size of tumours$", shown, re.MULTILINE)
    assert re.search(r"^  small +a hidden layer$", shown, re.MULTILINE)


def test_a_function_reads_tables_of_another_suffix(tmp_path, monkeypatch):
    (tmp_path / "json_rows.py").write_text(READER, encoding="utf-8")
    monkeypatch.setattr(
        table_files, "READERS", {SUFFIX: runpy.run_path(str(tmp_path / "json_rows.py"))["read"]}
    )
    path = tmp_path / f"north{SUFFIX}"
    path.write_text('{"age": 63.0, "sex": "f"}\n{"age": null, "sex": "m"}\n')
    assert table_files.read_table(path).texts == {"age": ["63", ""], "sex": ["f", "m"]}
    for line in (
        "[" * 100_000,
        "{}",
        '{"age": 1}',
        '{"age": [1], "sex": "f"}',
        '{"sex": "f", "age": 1}',
        "1",
    ):
        path.write_text(f'{{"age": 63.0, "sex": "f"}}\n{line}\n')
        with pytest.raises(ConfigError, match="in line 2: correct that line"):
            table_files.read_table(path)
