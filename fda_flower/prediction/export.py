"""Models in formats for other programs."""

import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor, nn

from fda_flower.errors import ConfigError, unknown
from fda_flower.prediction.model import LoadedModel


class Probabilities(nn.Module):
    """A model's module, with probabilities in place of scores, and a regression's numbers in their own unit.

    Parameters
    ----------
    model : LoadedModel
        The model.
    """

    def __init__(self, model: LoadedModel) -> None:
        super().__init__()
        self.model, self.regression = model.module, model.about.regression
        self.mean, self.deviation = model.label_scale

    def forward(self, samples: Tensor) -> Tensor:
        """Return probabilities or numbers, float32, shape ``(n, C)``."""
        outputs: Tensor = self.model(samples)
        if self.regression:
            return (outputs.double() * self.deviation + self.mean).float()
        return outputs.double().softmax(dim=1).float()


def export(model: LoadedModel, path: Path, kind: str) -> None:
    """Write a model for other programs.

    ``onnx`` and ``torchscript`` are one graph, also of several networks: from inputs, float32, of shape
    ``(n, *shape)`` to probabilities or, for a regression, numbers. A table's rows
    have to be standardised before, as ``preparation`` in ``model.json`` says; images are in [0, 1].

    Parameters
    ----------
    model : LoadedModel
        The model.
    path : Path
        The file.
    kind : {"onnx", "torchscript", "state-dict"}
        The format; ``state-dict`` holds the arrays of `LoadedModel.module`: as safetensors if the file's name
        ends so, else as ``torch.save`` writes them.

    Raises
    ------
    ConfigError
        If the format is unknown, or the file cannot be written.
    """
    if kind not in FORMATS:
        raise unknown("format", kind, FORMATS)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        FORMATS[kind](model, part)
        part.replace(path)
    except OSError as error:
        raise ConfigError(f"'{path}' cannot be written ({error}): choose another --output") from error
    finally:
        part.unlink(missing_ok=True)


def _onnx(model: LoadedModel, path: Path) -> None:
    import onnx  # noqa: F401 - torch's own error does not say that it is missing
    import onnxscript  # noqa: F401

    torch.onnx.export(
        Probabilities(model).eval(),
        (_example(model),),
        str(path),
        input_names=["samples"],
        output_names=["values" if model.about.regression else "probabilities"],
        dynamic_shapes=({0: "n"},),
        dynamo=True,
        external_data=False,
        verbose=False,
    )


def _torchscript(model: LoadedModel, path: Path) -> None:
    with warnings.catch_warnings():
        # torch.export replaces TorchScript, but programs that load it are still many.
        warnings.filterwarnings("ignore", r"`torch\.jit\.trace", Warning)
        traced = torch.jit.trace(  # type: ignore[no-untyped-call]
            Probabilities(model).eval(), (_example(model),), check_trace=False
        )
        traced.save(str(path))


def _state_dict(model: LoadedModel, path: Path) -> None:
    state = {name: tensor.contiguous() for name, tensor in model.module.state_dict().items()}
    if path.name.removesuffix(".part").endswith(".safetensors"):
        path.write_bytes(save({name: tensor.clone() for name, tensor in state.items()}))
    else:
        torch.save(state, path)


def _example(model: LoadedModel) -> Tensor:
    # A graph that is traced with a single sample may hold for a single sample only.
    return torch.zeros(2, *model.about.shape)


SUFFIXES = {"onnx": ".onnx", "torchscript": ".ts", "state-dict": ".pt"}
"""The usual suffix of a file, by format."""

FORMATS: dict[str, Callable[[LoadedModel, Path], None]] = {
    "onnx": _onnx,
    "torchscript": _torchscript,
    "state-dict": _state_dict,
}
"""The formats by name."""
