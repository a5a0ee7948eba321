"""What docs/own-data.md adds works: in a copy of this package, in a package of its own."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from installed import install

import fda_flower

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[2] / "docs"
PAGES = (DOCS / "own-data.md").read_text(encoding="utf-8")
FDA = "from fda_flower.cli import main; main()"
SMALL = ["--dataset-option", "test_share=0.5", "--target-samples", "20%", "--rounds", "2", "--output", "out"]


def printed(language, start):
    """The block of the pages that starts so."""
    blocks = re.findall(rf"```{language}\n(.*?)```", PAGES, re.DOTALL)
    (found,) = (block for block in blocks if block.startswith(start))
    return found


FILE = printed("python", '"""scikit-learn')
COMMAND = printed("sh", "fda run --dataset tumours").split()[1:]
LINE = printed("python", '        "tumours"')
DATASET = printed("python", "from fda_flower.datasets import Dataset")
(ENTRY,) = re.findall(r"`(SMALL = Model\(.*?\))`", PAGES)
MODEL = printed("python", "from math import prod") + f"\n\nfrom fda_flower.models import Model\n\n{ENTRY}\n"
ENTRY_POINTS = printed("toml", '[project.entry-points."fda_flower.datasets"]') + printed(
    "toml", '[project.entry-points."fda_flower.models"]'
)


def fda(folder, *arguments):
    """Run `fda` in a process of its own in which `folder` comes first."""
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-c", FDA, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=300,
    )


def check_run(done, folder, model):
    assert done.returncode == 0, done.stderr
    rounds = [json.loads(line) for line in (folder / "out" / "rounds.jsonl").read_text().splitlines()]
    assert [record["held"] for record in rounds] == [None, None]
    assert list(rounds[0]["sources"]) == ["large"]
    assert rounds[0]["target"]["domain"] == "small"
    assert rounds[0]["target"]["examples"] == 28, "20% of the 142 of the 284 samples that are trained on"
    assert rounds[-1]["accuracy"] > 0.5
    config = json.loads((folder / "out" / "config.json").read_text(encoding="utf-8"))["run"]
    assert (config["model"], config["dataset_options"]) == (model, {"test_share": 0.5})


def test_a_file_and_a_line_add_a_data_set(tmp_path):
    ignored = shutil.ignore_patterns("__pycache__")
    copy = shutil.copytree(Path(fda_flower.__file__).parent, tmp_path / "fda_flower", ignore=ignored)
    (copy / "datasets" / "tumours.py").write_text(FILE, encoding="utf-8")
    registry = copy / "datasets" / "registry.py"
    before, after = re.split(r'(?m)^(?= +"fashion-mnist": )', registry.read_text(encoding="utf-8"))
    registry.write_text(before + LINE + after, encoding="utf-8")

    check_run(fda(tmp_path, *COMMAND, *SMALL), tmp_path, "logistic")


def test_a_package_adds_a_data_set_and_a_model_whose_names_are_listed(tmp_path):
    modules = {"tumours": f"{FILE}\n\n{DATASET}", "networks": MODEL}
    clinics = install(tmp_path, modules, ENTRY_POINTS)
    check_run(fda(clinics, *COMMAND, *SMALL, "--model", "small"), clinics, "small")
    shown = fda(clinics, "list").stdout
    assert re.search(r"^  tumours +breast cancer by the size of tumours$", shown, re.MULTILINE)
    assert re.search(r"^  small +a hidden layer$", shown, re.MULTILINE)
