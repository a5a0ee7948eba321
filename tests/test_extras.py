"""The extras that errors name are those of the package, and bring what errors say is missing."""

import re
import tomllib
from pathlib import Path

import pytest

from fda_flower.extras import EXTRAS, missing_extra

PROJECT = tomllib.loads(
    (Path(__file__).resolve().parent.parent / "pyproject.toml").read_text(encoding="utf-8")
)["project"]
DISTRIBUTIONS = {
    "PIL": "pillow",
    "click": "typer",
    "ray": "flwr[simulation]",
    "sklearn": "scikit-learn",
    "tomli_w": "tomli-w",
}
"""By the name under which it is imported, what is installed, where the two differ."""


def names(requirements):
    return {re.match(r"[\w-]+(\[.*?\])?", requirement)[0] for requirement in requirements}


@pytest.mark.parametrize(
    ("extra", "package"), [(extra, package) for extra, packages in EXTRAS.items() for package in packages]
)
def test_an_extra_brings_the_package_for_which_an_error_names_it(extra, package):
    assert DISTRIBUTIONS.get(package, package) in names(PROJECT["optional-dependencies"][extra])
    error = ModuleNotFoundError(f"No module named '{package}'", name=f"{package}.part")
    assert missing_extra(error) == f"{package}, which is not installed: pip install 'fda-flower[{extra}]'"


def test_an_error_about_another_package_names_no_extra():
    assert missing_extra(ModuleNotFoundError("No module named 'mine'", name="mine")) is None
    assert missing_extra(ImportError("broken")) is None


def test_the_core_needs_nothing_but_flower_and_numpy_and_safetensors():
    assert names(PROJECT["dependencies"]) == {"flwr", "numpy", "safetensors"}
