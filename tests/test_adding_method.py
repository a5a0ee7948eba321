"""The methods of docs/adding.md work as printed: in a copy of this package, and in a package of its own."""

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
from fda_flower.records.folder import RunFolder

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[1] / "docs" / "adding.md").read_text(encoding="utf-8")

FDA = """
import json, sys
from fda_flower.cli import main

codes = []
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["fda", *arguments]
    try:
        main()
    except SystemExit as end:
        codes.append(end.code or 0)
print("CODES", codes)
"""
"""Calls the command several times in one process: it takes seconds to import PyTorch."""


def printed(language, start):
    """Return the block of the page that starts so."""
    blocks = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    (found,) = (block for block in blocks if block.startswith(start))
    return found


FILE = printed("python", '"""The coordinate-wise median')
LINE = printed("python", '        "median"')
METHOD = printed("python", "from fda_flower.runs.methods import Method\n\nMEDIAN")
PYPROJECT = printed("toml", "[build-system]")
HALFWAY = printed("python", '"""FedAvg, whose target')
HALFWAY_CLIENT = printed("python", '"""The target of')
HALFWAY_LINE = re.search(r'`(halfway = "robust_fl\.halfway:HALFWAY")`', PAGE)[1]  # type: ignore[index]
SMALL = ["--model", "logistic", "--sources", "2"]
LIST, RUN, RESUME = (
    line.replace("--rounds 10", "--rounds 1").replace("--rounds 20", "--rounds 2").split()[1:]
    for line in printed("sh", "pip install -e .").splitlines()
    if line.startswith(("fda list", "fda run"))
)
"""The commands of the page, with fewer rounds."""
OUTPUT = "runs/digits-rotate-median-seed0"
"""The folder that `RUN` writes to, and `RESUME` goes on with."""


def fda(folder, *commands):
    """Run `fda` commands in a process of their own, with `folder` first on the path."""
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", FDA, json.dumps(commands)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done


def run(method, rounds, output, *more):
    return ["run", "--method", method, "--rounds", str(rounds), "--output", output, *SMALL, *more]


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A folder in which the page's package is installed, after some commands; what these printed."""
    modules = {"median": f"{FILE}\n\n{METHOD}", "halfway": HALFWAY, "halfway_client": HALFWAY_CLIENT}
    folder = tmp_path_factory.mktemp("robust")
    install(folder, modules, f"{PYPROJECT}{HALFWAY_LINE}\n", name="robust_fl")
    done = fda(
        folder,
        LIST,
        [*RUN, *SMALL],
        [*RESUME, *SMALL],
        run("fedavg", 2, "fedavg"),
        run("median", 2, "half", "--method-option", "step=0.5"),
        run("median", 2, "median"),
        run("median", 2, "half", "--resume"),
        run("median", 2, "wrong", "--method-option", "step=0"),
        run("median", 2, "wrong", "--method-option", "pace=1"),
        run("halfway", 3, "halfway"),
        run("halfway", 1, "halfway-resumed"),
        run("halfway", 3, "halfway-resumed", "--resume"),
    )
    return folder, done


def model(folder):
    checkpoint = RunFolder(folder).load_checkpoint()
    return {name: array.tobytes() for name, array in checkpoint.model.items()}


def rounds(folder):
    return RunFolder(folder).read_rounds()


def test_the_package_does_what_the_page_says(package):
    folder, done = package
    assert done.stdout.splitlines()[-1] == "CODES [0, 0, 0, 0, 0, 0, 2, 2, 2, 0, 0, 0]"
    for name, line in {
        "median": "Median: the coordinate-wise median of all clients",
        "halfway": "Halfway: FedAvg, the target begins halfway to its own model",
    }.items():
        assert re.search(rf"^  {name} +{line}$", done.stdout, re.MULTILINE)
    assert [record["held"] for record in rounds(folder / "median")] == [None, None]


def test_its_rule_is_its_own(package):
    folder, _ = package
    models = [model(folder / name) for name in ("fedavg", "median", "half")]
    assert len({json.dumps({k: v.hex() for k, v in each.items()}) for each in models}) == 3


def test_what_it_records_is_in_the_rounds(package):
    folder, _ = package
    for record in rounds(folder / "median"):
        assert list(record["sources"]) == ["source-1", "source-2"]
        assert all(entry["norm"] > 0 for entry in record["sources"].values())
    assert "norm" not in rounds(folder / "fedavg")[0]["sources"]["source-1"]


def test_its_option_defines_the_run_and_is_checked(package):
    folder, done = package
    config = json.loads((folder / "half" / "config.json").read_text(encoding="utf-8"))["run"]
    assert (config["method_options"], config["strategy"]["step"]) == ({"step": 0.5}, 0.5)
    refused = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert "is of another run (method_options: {'step': 0.5} there, {} asked for" in refused[0]
    assert refused[1:] == [
        "Error: step is 0.0, it must be a number above 0",
        "Error: unknown option 'pace' of method 'median': choose one of step",
    ]


@pytest.mark.parametrize(("whole", "resumed"), [("half", OUTPUT), ("halfway", "halfway-resumed")])
def test_a_resumed_run_has_the_bits_of_a_whole_one(package, whole, resumed):
    folder, _ = package
    assert model(folder / whole) == model(folder / resumed)
    # The round that was the last had a confusion matrix in its reply.
    apart = {"seconds": None, "bytes-received": None}
    one, other = ([{**r, **apart} for r in rounds(folder / name)] for name in (whole, resumed))
    assert [record["round"] for record in one] == list(range(1, len(one) + 1))
    assert one == other


def test_what_its_target_keeps_is_in_the_runs_folder_and_counts(package):
    folder, _ = package
    assert (folder / "halfway" / "clients" / "target" / "own.safetensors").exists()
    first, second, _ = rounds(folder / "halfway")
    plain, later = rounds(folder / "fedavg")
    assert first["accuracy-global"] == plain["accuracy"], "the first round is FedAvg's"
    assert second["loss-global"] != later["loss"]


def test_a_file_and_a_line_give_the_same_bits_in_this_package(package, tmp_path):
    ignored = shutil.ignore_patterns("__pycache__")
    copy = shutil.copytree(Path(fda_flower.__file__).parent, tmp_path / "fda_flower", ignore=ignored)
    (copy / "strategies" / "median.py").write_text(FILE, encoding="utf-8")
    table = copy / "methods.py"
    before, after = re.split(r'(?m)^(?= +"target-only": )', table.read_text(encoding="utf-8"))
    table.write_text(before + LINE + after, encoding="utf-8")

    done = fda(tmp_path, run("median", 2, "median"))
    assert done.stdout.splitlines()[-1] == "CODES [0]"
    assert model(tmp_path / "median") == model(package[0] / "median")
