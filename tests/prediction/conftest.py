"""Runs whose models the tests use."""

from pathlib import Path
from typing import Any

import pytest
from sites import write_images, write_table

from fda_flower import load, run
from fda_flower.prediction.model import LoadedModel

SMALL: dict[str, Any] = {"device": "cpu", "rounds": 2, "target": "c", "target_samples": 8}


@pytest.fixture(scope="session")
def table_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run on tables, whose data are beside it."""
    folder = tmp_path_factory.mktemp("table")
    for i, name in enumerate("abc"):
        write_table(folder / f"{name}.csv", i)
    options = {"domains": "a,b,c"}
    run(
        **SMALL,
        dataset="table",
        dataset_options=options,
        data_dir=str(folder),
        model="logistic",
        method="target-only",
        output=folder / "run",
    )
    return folder / "run"


@pytest.fixture(scope="session")
def image_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run on images, whose data are beside it."""
    folder = tmp_path_factory.mktemp("images")
    for i, name in enumerate("abc"):
        write_images(folder / name, i)
    options = {"domains": "a,b,c", "image_size": 8}
    run(
        **SMALL,
        dataset="images",
        dataset_options=options,
        data_dir=str(folder),
        model="logistic",
        method="fedavg",
        output=folder / "run",
    )
    return folder / "run"


@pytest.fixture(scope="session")
def digits_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run on digits with noise that is drawn at every access."""
    folder = tmp_path_factory.mktemp("digits") / "run"
    run(device="cpu", rounds=2, shift="noise", model="mlp", method="fedavg", output=folder)
    return folder


@pytest.fixture(scope="session")
def regression_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that predicts numbers."""
    folder = tmp_path_factory.mktemp("rbf") / "run"
    run(
        device="cpu",
        rounds=1,
        dataset="rbf",
        model="sigmoid",
        method="mixture",
        target_samples=12,
        output=folder,
    )
    return folder


PATIENTS = {"label": "risk", "task": "regression", "decimal": "comma", "encoding": "cp1252"}
PATIENTS |= {"missing": "mean", "categorical": "onehot", "group": "patient", "ignore": "note"}


@pytest.fixture(scope="session")
def patients_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a regression on tables with words, gaps, commas and patients; its data are beside it."""
    folder = tmp_path_factory.mktemp("patients")
    for name in "abc":
        rows = [
            f"P{i // 2};{'' if i % 7 == 3 else f'{i},5'};{'fm'[i % 2]};x;{1000 + 10 * i},5" for i in range(40)
        ]
        text = "\n".join(["patient;größe;sex;note;risk", *rows])
        (folder / f"{name}.csv").write_text(text, encoding="cp1252")
    run(
        **SMALL | {"rounds": 20, "target_samples": "all"},
        dataset="table",
        dataset_options=PATIENTS,
        data_dir=str(folder),
        model="logistic",
        method="fedavg",
        learning_rate=0.1,
        output=folder / "run",
    )
    return folder / "run"


@pytest.fixture
def table(table_run: Path) -> LoadedModel:
    return load(table_run)
