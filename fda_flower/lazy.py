"""Packages whose names are imported on first use, so that a name costs no more than its own module."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_exports(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make ``__getattr__`` and ``__dir__`` of a package (PEP 562).

    Parameters
    ----------
    package : str
        The package's ``__name__``.
    modules : Mapping
        By public name, the module of the package that defines it. No name may be that of a module of the
        package, since Python sets an imported module as an attribute of its package.

    Examples
    --------
    In the package's ``__init__.py``, where the first branch is for type checkers::

        if TYPE_CHECKING:
            from my_package.samples import Samples
        else:
            __getattr__, __dir__ = lazy_exports(__name__, {"Samples": "samples"})

        __all__ = ["Samples"]
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        value = getattr(import_module(f"{package}.{modules[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return get, names
