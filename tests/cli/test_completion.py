"""What the shell asks for when Tab is pressed, and names that are nearly right."""

import json
import os
import subprocess
import sys

import pytest

CODE = """
import json, sys
sys.argv = ["fda"]
from fda_flower.cli import main
try:
    main()
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("run --method fedgp", ["fedgp", "fedgp-auto"]),
        ("run --dataset office", ["office-home", "office-caltech10"]),
        ("run --shift ro", ["rotate"]),
        ("run --model resnet", ["resnet9", "resnet18", "resnet50"]),
        ("run --engine d", ["deploy"]),
        ("run --track m", ["mlflow"]),
        ("compare --methods fedavg,fedpr", ["fedavg,fedprox"]),
        ("comp", ["compare"]),
        ("run --target-sa", ["--target-samples"]),
    ],
)
def test_names_are_completed_and_nothing_heavy_is_loaded(words, offered):
    asked = {"COMP_WORDS": f"fda {words}", "COMP_CWORD": str(len(words.split()))}
    env = os.environ | asked | {"_FDA_COMPLETE": "complete_bash"}
    done = subprocess.run([sys.executable, "-c", CODE], env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == offered
    assert not {"torch", "flwr", "numpy", "ray"} & set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["rum"], "Did you mean 'run'?"),
        (["deploy", "reherse"], "Did you mean 'rehearse'?"),
        (["run", "--metod", "x"], "'--method'"),
        (["run", "--method", "fedpg"], "(did you mean 'fedgp'?)"),
        (["run", "--dataset", "digit"], "(did you mean 'digits'?)"),
        (["run", "--method-option", "magnitute=cosine"], "(did you mean 'magnitude'?)"),
        (["experiment", "fed_hart"], "(did you mean 'fed_heart'?)"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_name_that_is_nearly_right_is_offered_once(fda, monkeypatch, arguments, meant):
    assert "--install-completion" in fda("--help")[1]
    monkeypatch.setenv("COLUMNS", "400")
    code, _, err = fda(*arguments)
    assert code == 2
    assert err.count(meant) == 1
