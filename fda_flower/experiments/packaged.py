"""Experiments' files: those that come with the package, by name, and any other by its path."""

from pathlib import Path

from fda_flower.errors import ConfigError

HERE = Path(__file__).parent
FOLDERS = (HERE / "tables", HERE.parents[1] / "experiments")
"""The folder of a package that is installed, and the one of a checkout; the first that exists counts."""


def find_experiment(file: str | Path) -> Path:
    """Return the file of an experiment that is given by its path or its name; a file that exists wins.

    Raises
    ------
    ConfigError
        If there is no experiment of this name; it lists the names.

    Examples
    --------
    >>> find_experiment("fashion_mnist_noise").name
    'fashion_mnist_noise.toml'
    """
    path = Path(file)
    if path.is_file() or path.parent != Path():
        return path
    known = packaged_experiments()
    name = path.name.removesuffix(".toml")
    if name not in known:
        raise ConfigError(
            f"unknown experiment '{file}': give the path of a TOML file, or choose one of {', '.join(known)}"
        )
    return known[name]


def packaged_experiments() -> dict[str, Path]:
    """Return the files of the experiments that come with the package, by name."""
    folder = next((folder for folder in FOLDERS if folder.is_dir()), FOLDERS[0])
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}
