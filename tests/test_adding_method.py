"""The methods of docs/adding.md work as printed: in a package of their own, and in a copy of this one."""

import json
import re

import pytest
from installed import copy_with, install, printed, python

from fda_flower.records.folder import RunFolder

pytestmark = pytest.mark.slow

PAGE = "adding.md"

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

FILE = printed(PAGE, "python", '"""The coordinate-wise median')
LINE = printed("../CONTRIBUTING.md", "python", '        "median"')
METHOD = printed(PAGE, "python", "from fda_flower.runs.methods import Method\n\nMEDIAN")
MODULES = {
    "median": f"{FILE}\n\n{METHOD}",
    "halfway": printed(PAGE, "python", '"""FedAvg, whose target'),
    "halfway_client": printed(PAGE, "python", '"""How a target answers'),
    "test_resume": printed(PAGE, "python", '"""A run that stops'),
}
SMALL = ["--model", "logistic", "--sources", "2"]
LIST, RUN = (
    line.replace("--rounds 10", "--rounds 2").split()[1:]
    for line in printed(PAGE, "sh", "fda list").splitlines()
    if line.startswith(("fda list", "fda run"))
)
"""The commands of the page, with fewer rounds."""
OUTPUT = "runs/digits-rotate-median-seed0"
"""The folder that `RUN` writes to."""


def fda(folder, *commands):
    return python(folder, "-c", FDA, json.dumps(commands))


def run(method, rounds, output, *more):
    return ["run", "--method", method, "--rounds", str(rounds), "--output", output, *SMALL, *more]


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A folder in which the page's package is installed, after some commands; what these printed."""
    folder = tmp_path_factory.mktemp("robust")
    install(folder, MODULES, printed(PAGE, "toml", "[project]"), name="robust_fl")
    done = fda(
        folder,
        LIST,
        [*RUN, *SMALL],
        run("fedavg", 2, "fedavg"),
        run("median", 2, "median"),
        run("median", 3, OUTPUT, "--resume"),
        run("median", 2, "wrong", "--method-option", "momentum=2"),
        run("median", 2, "wrong", "--method-option", "pace=1"),
        run("halfway", 2, "halfway"),
    )
    return folder, done


def model(folder):
    checkpoint = RunFolder(folder).load_checkpoint()
    return {name: array.tobytes() for name, array in checkpoint.model.items()}


def rounds(folder):
    return RunFolder(folder).read_rounds()


def test_the_package_does_what_the_page_says(package):
    folder, done = package
    assert done.stdout.splitlines()[-1] == "CODES [0, 0, 0, 0, 2, 2, 2, 0]"
    for name, line in {
        "median": "Median: the median of all updates",
        "halfway": "Halfway: FedAvg, the target begins near its own model",
    }.items():
        assert re.search(rf"^  {name} +{line}$", done.stdout, re.MULTILINE)
    assert [record["held"] for record in rounds(folder / OUTPUT)] == [None, None]


def test_its_own_test_passes(package):
    folder, _ = package
    done = python(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "robust_fl/test_resume.py")
    assert "2 passed" in done.stdout


def test_rule_option_and_records_are_its_own(package):
    folder, _ = package
    plain, median, other = (model(folder / name) for name in ("fedavg", "median", OUTPUT))
    assert plain != median != other != plain
    for record in rounds(folder / "median"):
        assert list(record["sources"]) == ["source-1", "source-2"]
        assert all(entry["norm"] > 0 for entry in record["sources"].values())
    assert "norm" not in rounds(folder / "fedavg")[0]["sources"]["source-1"]


def test_its_option_defines_the_run_and_is_checked(package):
    folder, done = package
    config = json.loads((folder / OUTPUT / "config.json").read_text(encoding="utf-8"))["run"]
    assert (config["method_options"], config["strategy"]["momentum"]) == ({"momentum": 0.5}, 0.5)
    refused = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    words = [
        "{'momentum': 0.5} there, {} asked for",
        "momentum must be a number in [0, 1], not 2.0",
        "option 'pace' of method 'median'",
    ]
    assert [word in line for word, line in zip(words, refused, strict=True)] == [True] * 3


def test_what_its_target_keeps_is_in_the_runs_folder_and_counts(package):
    folder, _ = package
    assert (folder / "halfway" / "clients" / "target" / "own.safetensors").exists()
    first, second = rounds(folder / "halfway")
    assert (first["target"]["own-round"], second["target"]["own-round"]) == (0, 1)
    plain, later = rounds(folder / "fedavg")
    assert first["accuracy"] == plain["accuracy"], "the first round is FedAvg's"
    assert second["loss"] != later["loss"]


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(["--workers", "2"], marks=pytest.mark.smoke),
        ["--engine", "ray", "--workers", "2"],
        ["deploy", "rehearse"],
    ],
    ids=["workers", "ray", "superlink"],
)
def test_its_question_is_answered_alike_by_every_engine(package, engine):
    folder, output = package[0], f"halfway{''.join(engine)}"
    command, *settings = run("halfway", 2, output)
    done = fda(folder, [*engine, *settings] if "deploy" in engine else [command, *settings, *engine])
    assert done.stdout.splitlines()[-1] == "CODES [0]"
    assert model(folder / output) == model(folder / "halfway")
    assert [record["target"]["own-round"] for record in rounds(folder / output)] == [0, 1]


def test_a_file_and_a_line_give_the_same_bits_in_this_package(package, tmp_path):
    copy_with(tmp_path, {"strategies/median.py": FILE}, "runs/methods.py", "target-only", LINE)
    done = fda(tmp_path, run("median", 2, "median"))
    assert done.stdout.splitlines()[-1] == "CODES [0]"
    assert model(tmp_path / "median") == model(package[0] / "median")
