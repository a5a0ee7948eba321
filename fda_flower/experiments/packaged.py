"""Files of experiments: those that come with the package, by name, and any other by its path."""

from pathlib import Path

from fda_flower.errors import ConfigError, near

HERE = Path(__file__).parent
FOLDERS = (HERE / "tables", HERE.parents[1] / "experiments")
"""The folder in an installed package, and the one in a checkout; the first that exists is used."""


def find_experiment(file: str | Path) -> Path:
    """Return the file of an experiment, given its path or its name; an existing file takes precedence.

    Raises
    ------
    ConfigError
        If there is no experiment of this name; the message lists the names.

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
            f"unknown experiment '{file}'{near(name, known)}: give the path of a TOML file, or choose one of "
            f"{', '.join(known)}"
        )
    return known[name]


def packaged_experiments() -> dict[str, Path]:
    """Return the files of the experiments that come with the package, by name."""
    folder = next((folder for folder in FOLDERS if folder.is_dir()), FOLDERS[0])
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}
