"""Whether files agree on the version, Flower, Python, and the repository's address."""

import re
import tomllib
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]


def project(root: Path = ROOT) -> dict[str, Any]:
    """Return the contents of pyproject.toml."""
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))


def pythons(root: Path = ROOT) -> list[str]:
    """Return the versions of Python that the package is for, by its classifiers."""
    words = (line.split(" :: ")[-1] for line in project(root)["project"]["classifiers"])
    return [word for word in words if re.fullmatch(r"3\.\d+", word)]


def differences(root: Path = ROOT) -> list[str]:
    """Return a line for each thing on which files disagree, and for each pin out of its range."""
    lines = []
    for thing, values in statements(root).items():
        if len({*values.values()}) > 1:
            lines.append(f"{thing}: " + ", ".join(f"{value} in {place}" for place, value in values.items()))
    return lines + pins_out_of_range(root)


def statements(root: Path) -> dict[str, dict[str, str]]:
    """Return by thing the value in each place; an empty text where there is none."""

    def text(name: str) -> str:
        return (root / name).read_text(encoding="utf-8")

    def first(pattern: str, name: str) -> str:
        match = re.search(pattern, text(name), flags=re.MULTILINE)
        return match[1] if match else ""

    package = project(root)
    metadata, tool = package["project"], package["tool"]
    version, target = metadata["version"], tool["flwr"]["app"]["flwr-version-target"]
    repository = tool["hatch"]["metadata"]["hooks"]["custom"]["repository"]
    heading = first(r"^## \[(.+?)\]", "CHANGELOG.md")
    low, high = (f"3.{number}" for number in re.findall(r"3\.(\d+)", metadata["requires-python"]))
    listed = pythons(root)
    return {
        "version": {
            "pyproject.toml": version,
            "CITATION.cff": first(r"^version: (\S+)$", "CITATION.cff"),
            "CHANGELOG.md": version if heading == "Unreleased" else heading,
        },
        "Flower": {
            "pyproject.toml": target,
            "constraints.txt": first(r"^flwr==(.+)$", "constraints.txt"),
        },
        "range of Flower": {
            f"{path.relative_to(root)}: {line}": re.sub(r"^flwr(\[\w+\])?", "", line)
            for path in (root / "pyproject.toml", *sorted(root.glob("examples/*/pyproject.toml")))
            for line in re.findall(r'"(flwr(?:\[\w+\])?[<>=][^"]+)"', path.read_text(encoding="utf-8"))
        },
        "first Python": {
            "the classifiers": listed[0],
            "requires-python": low,
            "README.md": first(r"Python (3\.\d+) to", "README.md"),
            "docs/install.md": first(r"Python (3\.\d+) to", "docs/install.md"),
            "ruff": tool["ruff"]["target-version"].replace("py3", "3."),
            "mypy": tool["mypy"]["python_version"],
        },
        "last Python": {
            "the classifiers": listed[-1],
            "requires-python": f"3.{int(high.removeprefix('3.')) - 1}",
            "README.md": first(r"Python 3\.\d+ to (3\.\d+)", "README.md"),
            "docs/install.md": first(r"Python 3\.\d+ to (3\.\d+)", "docs/install.md"),
        },
        "Pythons": {
            "the classifiers": ", ".join(listed),
            "ci.yml": first(r"python: \[(.+)\]", ".github/workflows/ci.yml").replace('"', ""),
        },
        "address": {
            "pyproject.toml": repository,
            "CITATION.cff": first(r"^repository-code: \"?([^\s\"]+)", "CITATION.cff"),
        },
    }


def pins_out_of_range(root: Path) -> list[str]:
    """Return a line for each version of constraints.txt that pyproject.toml does not allow."""
    metadata = project(root)["project"]
    lines = metadata["dependencies"] + [
        line for extra in metadata["optional-dependencies"].values() for line in extra
    ]
    needs = [Requirement(line) for line in lines]
    text = (root / "constraints.txt").read_text(encoding="utf-8")
    pins = {name.lower(): pin for name, pin in re.findall(r"^([\w.-]+)==(\S+)$", text, flags=re.MULTILINE)}
    return [
        f"{need.name}: {pins[need.name.lower()]} in constraints.txt, {need.specifier} in pyproject.toml"
        for need in needs
        if need.name.lower() in pins and pins[need.name.lower()] not in need.specifier
    ]
