"""A name costs no more than its own module, measured in new processes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import fda_flower
from fda_flower import datasets

HEAVY = {"PIL", "flwr", "matplotlib", "numpy", "sklearn", "torch", "torchvision"}

BARE = f"""
import json, sys, types
package = types.ModuleType("fda_flower")
package.__path__ = [{str(Path(fda_flower.__file__).parent)!r}]
sys.modules["fda_flower"] = package
"""
"""The package without its `__init__`, so that a module is measured by itself."""


LIGHT = [
    "from fda_flower.datasets.registry import DATASETS; [entry.summary for entry in DATASETS.values()]",
    "from fda_flower.models import MODELS; [entry.summary for entry in MODELS.values()]",
    "from fda_flower.datasets import PARTITIONS, SHIFTS, Domain, Split, summary",
    "from fda_flower.datasets import DataSpec; DataSpec('digits'); DataSpec('pacs', target='photo')",
    "from fda_flower.datasets import DataSpec\n"
    "shift, partition = (('std', '0.3'),), (('alpha', '2'),)\n"
    "DataSpec('digits', 'noise', shift, partition='dirichlet', partition_options=partition).domain_names",
]


def test_names_and_their_options_load_no_library_for_data_but_those_who_need_one():
    """One process runs one after the other, and notes what is loaded then."""
    codes = [*LIGHT, "from fda_flower.datasets import Samples"]
    code = f"{BARE}\nfor code in {codes!r}:\n    exec(code)\n    print(json.dumps([*sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = [HEAVY & set(json.loads(line)) for line in done.stdout.splitlines()]
    assert found == [set()] * len(LIGHT) + [{"numpy", "torch"}]


def test_a_name_is_loaded_once_and_a_wrong_one_is_named():
    assert datasets.Samples is sys.modules["fda_flower.datasets.samples"].Samples
    assert "Samples" in vars(datasets)
    assert set(datasets.__all__) <= set(dir(datasets))
    with pytest.raises(AttributeError, match=r"module 'fda_flower\.datasets' has no attribute 'nothing'"):
        _ = datasets.nothing  # type: ignore[attr-defined]


def test_no_name_is_that_of_a_module_which_would_hide_it():
    modules = {path.stem for path in Path(datasets.__file__).parent.iterdir()}
    assert not modules & set(datasets.__all__)
