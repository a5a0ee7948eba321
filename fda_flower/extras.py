"""What of the package is missing, and how to install it."""

EXTRAS = {
    "torch": ("PIL", "sklearn", "torch", "torchvision"),
    "cli": ("matplotlib", "rich", "typer"),
    "simulation": ("ray",),
    "deploy": ("cryptography", "psutil", "tomli_w"),
    "tensorboard": ("tensorboard",),
}
"""By extra of this package, the packages that it brings, as they are imported."""


def missing_extra(error: BaseException | None) -> str | None:
    """Return which package an error is about and what to type; None if it is about something else.

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
