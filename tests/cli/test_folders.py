"""The folders that runs, comparisons and searches write to where no option names one."""

import shutil
from pathlib import Path

import pytest
from sites import write_sites, write_table

from fda_flower.cli.folders import data_name, folder_of, folder_of_run

RIDGE = ["run", "--dataset", "table", "--method", "ridge", "--device", "cpu"]


@pytest.fixture
def data():
    """Two folders of one name with other tables."""
    folders = [Path("first/hospitals"), Path("second/hospitals")]
    for seed, folder in enumerate(folders):
        write_sites(write_table, folder, ("north", "south", f"west-{seed}"))
    return folders


@pytest.mark.parametrize(
    "change",
    [
        {"data_dir": "other/my hospitals"},
        {"data_dir": "hospitals"},
        {"dataset_options": {"label": "ill"}},
        {"target": "north"},
        {"dataset": "images"},
    ],
)
def test_other_data_have_other_folders_and_the_same_data_the_same(change):
    own = {"dataset": "table", "data_dir": "my hospitals", "dataset_options": {"missing": "mean"}}
    assert data_name({**own, **change}) != data_name(own)
    again = {"data_dir": Path("my hospitals").absolute(), "dataset_options": (("missing", "mean"),)}
    assert data_name({**own, **again}) == data_name(own)
    assert data_name(own).startswith("table-my_hospitals-")


@pytest.mark.parametrize(
    ("settings", "folder"),
    [
        ({}, "runs/compare"),
        ({"shift": "noise"}, "runs/compare-digits-noise"),
        ({"dataset": "hf"}, "runs/compare-hf"),
    ],
)
def test_a_comparison_of_other_data_has_its_own_folder(settings, folder):
    assert folder_of("compare", settings, resume=False) == Path(folder)


def test_a_second_data_set_is_run_without_an_output(fda, data):
    for folder in data:
        code, _, error = fda(*RIDGE, "--data-dir", folder)
        assert code == 0, error
    assert len([*Path("runs").iterdir()]) == 2
    code, _, error = fda(*RIDGE, "--data-dir", data[0])
    assert (code, "already holds a run: add --resume" in error) == (2, True)
    assert fda(*RIDGE, "--data-dir", data[0], "--resume")[0] == 0
    folder = next(Path("runs").glob("table-hospitals-*"))
    code, _, error = fda(*RIDGE, "--data-dir", data[0], "--target", "north", "--output", folder)
    assert (code, "holds another run (target: 'west-" in error) == (2, True)


def test_a_folder_by_the_earlier_name_is_resumed_on_its_data_alone(fda, data):
    earlier = Path("runs/table-ridge-seed0")
    assert fda(*RIDGE, "--data-dir", data[0], "--output", earlier)[0] == 0
    for folder, name in ((data[0], str(earlier)), (data[1], "runs/table-hospitals-")):
        code, out, error = fda(*RIDGE, "--data-dir", folder, "--resume")
        assert (code, f"Written to {name}" in out) == (0, True), error
    settings = {"dataset": "table", "data_dir": str(data[0])}
    shutil.copytree(earlier, "runs/compare/runs/ridge-seed0")
    for folder, name in ((data[0], "compare"), (data[1], "compare-table-hospitals")):
        found = folder_of("compare", settings | {"data_dir": str(folder)}, resume=True)
        assert found.name.startswith(name)
        assert (found.name == "compare") == (name == "compare")
    found = folder_of_run(settings, "ridge", 0, resume=False, repeats=False)
    assert found.name.startswith("table-hospitals-")
