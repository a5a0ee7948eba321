"""The folders of runs whose models the tests use; the data of own files lie beside them."""

import sys
from pathlib import Path
from types import ModuleType

import pytest
from sites import write_images, write_table

from fda_flower import load, run

OWN = {"rounds": 2, "target": "c", "target_samples": 8, "model": "logistic"}
PATIENTS = {"label": "risk", "task": "regression", "decimal": "comma", "encoding": "cp1252"}
PATIENTS |= {"missing": "mean", "categorical": "onehot", "group": "patient", "ignore": "note"}


@pytest.fixture(scope="session")
def run_in(tmp_path_factory):
    """Run with settings, on files that `write` writes for each domain, if given; return the run's folder."""

    def build(write=None, **settings):
        folder = tmp_path_factory.mktemp("run")
        if write is not None:
            for i, name in enumerate("abc"):
                write(folder / name, i)
            settings |= {"data_dir": str(folder)}
        run(device="cpu", **settings, output=folder / "run")
        return folder / "run"

    return build


@pytest.fixture(scope="session")
def table_run(run_in):
    options = {"domains": "a,b,c"}
    return run_in(
        lambda path, i: write_table(path.with_suffix(".csv"), i),
        **{**OWN, "dataset": "table", "dataset_options": options, "method": "target-only"},
    )


@pytest.fixture(scope="session", params=["auto", "logistic+hinges+fourier"])
def rows_run(request, run_in):
    options = {"domains": "a,b,c"}
    settings = OWN | {"model": request.param, "rounds": 1, "method": "ridge", "dataset_options": options}
    return run_in(lambda path, i: write_table(path.with_suffix(".csv"), i), dataset="table", **settings)


@pytest.fixture(scope="session")
def image_run(run_in):
    options = {"domains": "a,b,c", "image_size": 8}
    return run_in(write_images, **OWN, dataset="images", dataset_options=options, method="fedavg")


@pytest.fixture(scope="session")
def digits_run(run_in):
    """Noise is drawn at every access."""
    return run_in(rounds=2, shift="noise", model="mlp", method="fedavg")


@pytest.fixture(scope="session")
def regression_run(run_in):
    return run_in(rounds=1, dataset="rbf", model="sigmoid", method="mixture", target_samples=12)


@pytest.fixture(scope="session")
def patients_run(run_in):
    """A regression on tables with words, gaps, commas and patients."""

    def write(path, _):
        rows = [
            f"P{i // 2};{'' if i % 7 == 3 else f'{i},5'};{'fm'[i % 2]};x;{1000 + 10 * i},5" for i in range(40)
        ]
        text = "\n".join(["patient;größe;sex;note;risk", *rows])
        path.with_suffix(".csv").write_text(text, encoding="cp1252")

    settings = OWN | {"rounds": 20, "target_samples": "all", "method": "fedavg", "learning_rate": 0.1}
    return run_in(write, **settings, dataset="table", dataset_options=PATIENTS)


@pytest.fixture
def table(table_run):
    return load(table_run)


@pytest.fixture
def quick_export(monkeypatch):
    """Exports write an empty file at once."""
    for name in ("onnx", "onnxscript"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr("torch.onnx.export", lambda model, inputs, path, **settings: Path(path).touch())
