"""Extras of the package that are missing, and how to install them."""

from importlib.util import find_spec

EXTRAS = {
    "torch": ("PIL", "joblib", "sklearn", "torch", "torchvision"),
    "cli": ("matplotlib", "rich", "scipy", "typer"),
    "simulation": ("ray",),
    "deploy": ("cryptography", "psutil", "tomli_w"),
    "hf": ("datasets", "flwr_datasets"),
    "html": ("jinja2", "plotly"),
    "tensorboard": ("tensorboard",),
    "export": ("onnx", "onnxscript"),
    "tune": ("optuna",),
    "mlflow": ("mlflow",),
    "wandb": ("wandb",),
}
"""By extra of this package, the packages that it installs, by the names that import them."""


def require(package: str) -> None:
    """Raise a `ModuleNotFoundError` if a package is not installed, without loading it.

    It is for what is loaded only at the end, when much would be lost.
    """
    if find_spec(package) is None:
        raise ModuleNotFoundError(f"No module named '{package}'", name=package)


def missing_extra(error: BaseException | None) -> str | None:
    """Return which missing package an error is about and what to type; None for any other error.

    Examples
    --------
    >>> missing_extra(ModuleNotFoundError("No module named 'ray'", name="ray"))
    "ray, which is not installed: pip install 'fda-flower[simulation]'"
    """
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and error.name:
            package = error.name.partition(".")[0]
            for extra, packages in EXTRAS.items():
                if package in packages:
                    return f"{package}, which is not installed: pip install 'fda-flower[{extra}]'"
        error = error.__cause__
    return None
