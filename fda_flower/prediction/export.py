"""A loaded model as one ONNX graph, for other programs."""

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from fda_flower.aggregation.survival import SCALE as SCALED
from fda_flower.datasets.preparation import TablePreparation
from fda_flower.errors import ConfigError
from fda_flower.files import writing
from fda_flower.models.text import SCALE
from fda_flower.models.tokens import NUMBERS
from fda_flower.names.tasks import Task
from fda_flower.prediction.model import Array, LoadedModel

SHARES: Mapping[Task, Callable[[Tensor], Tensor]] = {
    "classes": partial(torch.softmax, dim=1),
    "multilabel": torch.sigmoid,
}
"""By task, the probabilities that outputs stand for."""

LOST = 1e-5
"""The largest rounding error of an input in float32, in standard deviations."""


def _type_for(mean: Sequence[float], deviation: Sequence[float]) -> torch.dtype:
    """Return float32 or, where numbers are so large that it would lose how they differ, float64."""
    lost = (
        abs(one) / spread * torch.finfo(torch.float32).eps
        for one, spread in zip(mean, deviation, strict=True)
    )
    return torch.float64 if any(each > LOST for each in lost) else torch.float32


class TableInput(nn.Module):
    """A table's own features to a network's inputs, and whether `LoadedModel.predict` refuses a row.

    It refuses missing numbers without ``missing=mean``, infinite ones, and those too far from training; and
    what is no category: numbers but 0 and 1, two categories, or none where none may be missing.
    """

    scale: Tensor
    is_word: Tensor
    of_word: Tensor
    may_lack: Tensor
    is_bound: Tensor

    def __init__(self, fitted: TablePreparation) -> None:
        super().__init__()
        words, baseline = dict(fitted.categories), dict(fitted.baseline)
        kinds = [name in words for name in fitted.columns for _ in words.get(name, (name,))]
        is_word = torch.tensor(kinds, dtype=torch.bool)
        fill = fitted.fill or (torch.nan,) * len(kinds)
        scale = torch.tensor([fill, fitted.mean, fitted.deviation], dtype=torch.float64)
        if fitted.fill:
            scale[0, is_word] = 0.0  # a missing category has no feature
        if fitted.text:
            encoded = torch.tensor([torch.nan, 0.0, 1 / SCALE], dtype=torch.float64)
            scale = torch.cat([scale, encoded[:, None].expand(-1, NUMBERS)], dim=1)
        self.farthest = fitted.farthest or 0.0
        bound = torch.arange(scale.shape[1]) < (len(kinds) if fitted.farthest else 0)
        self.register_buffer("is_bound", bound)
        listed = [name for name in fitted.columns if name in words]
        may_lack = [bool(fitted.fill) or name in baseline for name in listed]
        self.dtype, self.width = _type_for(fitted.mean, fitted.deviation), scale.shape[1]
        self.register_buffer("scale", scale)
        self.register_buffer("is_word", is_word)
        self.register_buffer(
            "of_word",
            torch.block_diag(*(torch.ones(len(words[n]), 1) for n in listed)).double(),  # type: ignore[no-untyped-call]
        )
        self.register_buffer("may_lack", torch.tensor(may_lack, dtype=torch.bool))

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return inputs, float32, shape ``(n, width)``, 0 in refused rows, and these rows, bool, ``(n,)``."""
        fill, mean, deviation = self.scale.unbind()
        filled = torch.where(features.isnan(), fill, features.double())
        inputs = ((filled - mean) / deviation).float()
        fits = inputs.isfinite().all(dim=1)
        inputs = torch.where(self.is_bound, inputs.clamp(-self.farthest, self.farthest), inputs)
        if len(self.may_lack):
            words = filled[:, : len(self.is_word)][:, self.is_word]
            counts = words @ self.of_word
            is_one = (counts == 1) | (self.may_lack & (counts == 0))
            fits = fits & (words * (1 - words) == 0).all(dim=1) & is_one.all(dim=1)
        return torch.where(fits[:, None], inputs, 0.0), ~fits


class Probabilities(nn.Module):
    """A model's module from a table's own features to probabilities, or numbers in the label's unit.

    With `thresholds`, shape ``(C,)``, also to sets, or the ends of intervals. Rows that the model's `predict`
    refuses have NaN.
    """

    scale: Tensor

    def __init__(self, model: LoadedModel, thresholds: Array | None = None) -> None:
        super().__init__()
        self.with_sets = thresholds is not None
        self.register_buffer(
            "thresholds", torch.from_numpy(np.zeros(1) if thresholds is None else thresholds)
        )
        self.task, self.shape = model.about.task, model.about.shape
        mean, deviation = model.label_scale
        self.result = _type_for([mean], [deviation])
        # A number that is no tensor has 32 bits in ONNX.
        self.register_buffer("scale", torch.tensor([mean, deviation], dtype=torch.float64))
        fitted = model.preparation
        with_text = isinstance(fitted, TablePreparation) and bool(fitted.text)
        if with_text and not model.of_torch.has_backbone:
            what = "an ONNX file cannot read text, so it can only hold a trained head"
            raise ConfigError(what, thing="model", value=model.about.network, remedy="train only the head")
        self.model = model.of_torch.after_backbone(model.predictor) if with_text else model.module
        self.prepare = TableInput(fitted) if isinstance(fitted, TablePreparation) else None
        if self.prepare is not None:
            self.shape = (self.prepare.width,)

    @property
    def names(self) -> list[str]:
        """The names of the outputs."""
        if self.task == "survival":
            return ["survival"]
        if self.task == "regression":
            return ["values", "low", "high"] if self.with_sets else ["values"]
        return ["probabilities", "set"] if self.with_sets else ["probabilities"]

    @property
    def dtype(self) -> torch.dtype:
        """The type of the inputs; see `TableInput`."""
        return torch.float32 if self.prepare is None else self.prepare.dtype

    def forward(self, samples: Tensor) -> tuple[Tensor, ...]:
        """Return probabilities or numbers, and each class's being in the set, or both ends."""
        if self.prepare is None:
            outputs = self.model(samples).double()
        else:
            inputs, refused = self.prepare(samples)
            outputs = self.model(inputs).double().masked_fill(refused[:, None], torch.nan)
        assert isinstance(self.thresholds, Tensor)
        if self.task == "survival":
            shares = (SCALED + SCALED * outputs).clamp(0, 1)
            return (torch.stack([each.amin(dim=1) for each in _beginnings(shares)], dim=1).float(),)
        if self.task != "regression":
            share = SHARES[self.task](outputs)
            return (share.float(), 1 - share <= self.thresholds)[: len(self.names)]
        ends = (outputs, outputs - self.thresholds, outputs + self.thresholds)[: len(self.names)]
        mean, deviation = self.scale.unbind()
        return tuple((end * deviation + mean).to(self.result) for end in ends)


def _beginnings(shares: Tensor) -> list[Tensor]:
    """Return the columns up to each, over which a curve is the least: ONNX has no running minimum."""
    return [shares[:, : end + 1] for end in range(shares.shape[1])]


def export(model: LoadedModel, path: Path, coverage: float | None = None) -> str:
    """Write a model as an ONNX file, for other programs, and return the type of its inputs.

    It is one graph, even of several networks, from inputs, shape ``(n, *shape)``, to probabilities or, for a
    regression, numbers, or ``survival``, shape ``(n, horizons)``. Both are float32; numbers of a table or its
    label that this would round too much are float64. A table's features are in its own units, NaN if missing,
    and 1 or 0 for a category: the graph fills them in and standardises them; for a row that
    `LoadedModel.predict` refuses, it returns NaN. They are followed by the encoder's features of a text, of
    unit length. Images are in [0, 1]. With a `coverage`
    there are further outputs: ``set``, bool, as of `LoadedModel.predict_set`, or ``low`` and ``high``. Raises
    a `ConfigError` if the file cannot be written.
    """
    if model.about.mask:
        what = (
            "the model predicts the pixels of a mask, and an ONNX file would call them the values of a label"
        )
        raise ConfigError(
            what, thing="model", value=model.about.network, remedy="predict here, by fda_flower.load"
        )
    import onnxscript  # noqa: F401, I001 - torch's own error does not say that it is missing
    import onnx  # noqa: F401

    thresholds = None if coverage is None else model.thresholds(coverage)
    # A copy, since the model stays on its device.
    graph = copy.deepcopy(Probabilities(model, thresholds)).cpu().eval()
    part = path.with_name(f".{path.name}.part")
    with writing("file", path):
        try:
            torch.onnx.export(
                graph,
                # A graph traced with one sample may work for one sample only.
                (torch.zeros(2, *graph.shape, dtype=graph.dtype),),
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
    return str(graph.dtype).removeprefix("torch.")
