"""A loaded model as one ONNX graph, for other programs."""

import copy
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from fda_flower.datasets.preparation import TablePreparation
from fda_flower.errors import ConfigError
from fda_flower.files import writing
from fda_flower.models.text import SCALE
from fda_flower.models.tokens import NUMBERS
from fda_flower.prediction.model import Array, LoadedModel


class Probabilities(nn.Module):
    """A model's module from a table's own features to probabilities, or numbers in the label's unit.

    With `thresholds`, shape ``(C,)``, also to sets, or the ends of intervals.
    """

    def __init__(self, model: LoadedModel, thresholds: Array | None = None) -> None:
        super().__init__()
        self.with_sets = thresholds is not None
        self.register_buffer(
            "thresholds", torch.from_numpy(np.zeros(1) if thresholds is None else thresholds)
        )
        self.regression, self.shape = model.about.regression, model.about.shape
        self.mean, self.deviation = model.label_scale
        fitted = model.preparation
        self.prepared = not isinstance(fitted, TablePreparation)
        with_text = isinstance(fitted, TablePreparation) and bool(fitted.text)
        if with_text and not model.has_backbone:
            what = "an ONNX file cannot read text, so it can only hold a trained head"
            raise ConfigError(what, thing="model", value=model.about.network, remedy="train only the head")
        self.model = model.after_backbone if with_text else model.module
        if isinstance(fitted, TablePreparation):
            scale = [fitted.fill or fitted.mean, fitted.mean, fitted.deviation]
            if with_text:
                text = 0.0, 0.0, 1 / SCALE
                scale = [(*row, *NUMBERS * [each]) for row, each in zip(scale, text, strict=True)]
                self.shape = (len(scale[0]),)
            self.register_buffer("scale", torch.tensor(scale, dtype=torch.float64))

    @property
    def names(self) -> list[str]:
        """The names of the outputs."""
        if self.regression:
            return ["values", "low", "high"] if self.with_sets else ["values"]
        return ["probabilities", "set"] if self.with_sets else ["probabilities"]

    def forward(self, samples: Tensor) -> tuple[Tensor, ...]:
        """Return probabilities or numbers, float32, and each class's being in the set, or both ends."""
        outputs = self.model(samples if self.prepared else self._standardised(samples)).double()
        assert isinstance(self.thresholds, Tensor)
        if not self.regression:
            share = outputs.softmax(dim=1)
            return (share.float(), 1 - share <= self.thresholds)[: len(self.names)]
        ends = (outputs, outputs - self.thresholds, outputs + self.thresholds)[: len(self.names)]
        return tuple((end * self.deviation + self.mean).float() for end in ends)

    def _standardised(self, features: Tensor) -> Tensor:
        assert isinstance(self.scale, Tensor)
        fill, mean, deviation = self.scale.unbind()
        filled = torch.where(features.isnan(), fill, features.double())
        return ((filled - mean) / deviation).float()


def export(model: LoadedModel, path: Path, coverage: float | None = None) -> None:
    """Write a model as an ONNX file, for other programs; raise a `ConfigError` if it cannot be written.

    It is one graph, even of several networks, from inputs, float32, shape ``(n, *shape)``, to probabilities
    or, for a regression, numbers. A table's features are in its own units, NaN if missing, and 1 or 0 for a
    category: the graph fills them in and standardises them. They are followed by the encoder's features of a
    text, of unit length. Images are in [0, 1]. With a `coverage` there are further outputs: ``set``, bool, as
    of `LoadedModel.predict_set`, or ``low`` and ``high``.
    """
    import onnx  # noqa: F401 - torch's own error does not say that it is missing
    import onnxscript  # noqa: F401

    thresholds = None if coverage is None else model.thresholds(coverage)
    # A copy, since the model stays on its device.
    graph = copy.deepcopy(Probabilities(model, thresholds)).cpu().eval()
    part = path.with_name(f".{path.name}.part")
    with writing("file", path):
        try:
            torch.onnx.export(
                graph,
                # A graph traced with one sample may work for one sample only.
                (torch.zeros(2, *graph.shape),),
                str(part),
                input_names=["samples"],
                output_names=graph.names,
                dynamic_shapes=({0: "n"},),
                dynamo=True,
                external_data=False,
                verbose=False,
            )
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
