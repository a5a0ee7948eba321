"""Models in formats for other programs."""

from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor, nn

from fda_flower.datasets.preparation import TablePreparation
from fda_flower.errors import ConfigError, unknown
from fda_flower.prediction.model import LoadedModel


class Probabilities(nn.Module):
    """A model's module from a table's own features to probabilities, or a regression's numbers in their unit.

    Parameters
    ----------
    model : LoadedModel
        The model.
    """

    def __init__(self, model: LoadedModel) -> None:
        super().__init__()
        self.model, self.regression = model.module, model.about.regression
        self.mean, self.deviation = model.label_scale
        self.prepared = not isinstance(model.preparation, TablePreparation)
        if isinstance(model.preparation, TablePreparation):
            fitted = model.preparation
            scale = torch.tensor(
                [fitted.fill or fitted.mean, fitted.mean, fitted.deviation], dtype=torch.float64
            )
            self.register_buffer("scale", scale)

    def forward(self, samples: Tensor) -> Tensor:
        """Return probabilities or numbers, float32, shape ``(n, C)``."""
        outputs: Tensor = self.model(samples if self.prepared else self._standardised(samples))
        if self.regression:
            return (outputs.double() * self.deviation + self.mean).float()
        return outputs.double().softmax(dim=1).float()

    def _standardised(self, features: Tensor) -> Tensor:
        assert isinstance(self.scale, Tensor)
        fill, mean, deviation = self.scale.unbind()
        filled = torch.where(features.isnan(), fill, features.double())
        return ((filled - mean) / deviation).float()


def export(model: LoadedModel, path: Path, kind: str) -> None:
    """Write a model for other programs.

    ``onnx`` is one graph, also of several networks: from inputs, float32, of shape ``(n, *shape)``, to
    probabilities or, for a regression, numbers. A table's features are as the table has them, NaN where one
    is missing, and 1 or 0 for a category: the graph fills them in and standardises them. Images are in
    [0, 1].

    Parameters
    ----------
    model : LoadedModel
        The model.
    path : Path
        The file.
    kind : {"onnx", "state-dict"}
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


def _state_dict(model: LoadedModel, path: Path) -> None:
    state = {name: tensor.contiguous() for name, tensor in model.module.state_dict().items()}
    if path.name.removesuffix(".part").endswith(".safetensors"):
        path.write_bytes(save({name: tensor.clone() for name, tensor in state.items()}))
    else:
        torch.save(state, path)


def _example(model: LoadedModel) -> Tensor:
    # A graph that is traced with a single sample may hold for a single sample only.
    return torch.zeros(2, *model.about.shape)


SUFFIXES = {"onnx": ".onnx", "state-dict": ".pt"}
"""The usual suffix of a file, by format."""

FORMATS: dict[str, Callable[[LoadedModel, Path], None]] = {
    "onnx": _onnx,
    "state-dict": _state_dict,
}
"""The formats by name."""
