"""A loaded model: the inputs it makes of new samples, and its predictions."""

import copy
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fda_flower.aggregation import Calibration, Layers, labels_for, sets_of
from fda_flower.aggregation.conformal import exact
from fda_flower.aggregation.survival import curves_of
from fda_flower.datasets import Samples
from fda_flower.datasets.preparation import ImagePreparation, Preparation, TablePreparation
from fda_flower.errors import ConfigError, RunError, invalid
from fda_flower.files import MODEL, check_same_network, version_changes, versions
from fda_flower.metrics import ASKED
from fda_flower.models import Train, build_architecture, build_model, reads_text
from fda_flower.models.devices import find_device
from fda_flower.models.own import is_reference
from fda_flower.models.parts import replace_head
from fda_flower.models.probe import answers
from fda_flower.models.split import SplitNetwork, split
from fda_flower.names.tasks import NUMBERS, Task
from fda_flower.names.words import count_of
from fda_flower.own_data.followed import read_horizons
from fda_flower.prediction.columns import far_from_training, plain, read_columns
from fda_flower.prediction.features import digest_of, features_as_in
from fda_flower.prediction.files import About, read_body, read_model
from fda_flower.prediction.flags import Confidence, Flags, find_flags
from fda_flower.prediction.network_passes import load_layers, seeded
from fda_flower.prediction.passes import Drawing, passes_of
from fda_flower.prediction.predictors import Predictor
from fda_flower.prediction.sets import UNPROMISED, metrics_of_sets

Array = NDArray[Any]


def load(run: str | Path, device: str = "cpu", *, trust: bool = False) -> "LoadedModel":
    """Load the model that a run's target uses.

    Parameters
    ----------
    run : str or Path
        The run's folder; at a deployed target, the node's folder.
    device : {"cpu", "auto", "cuda", "mps", "xpu"}
        The device of predictions.
    trust : bool
        Run the code of a user's network. The model file names a function; Python imports whatever module it
        finds by that name, also in the current folder.

    Raises
    ------
    ConfigError
        If the folder holds no model, one of a newer version, or one whose code is not trusted.
    RunError
        If the model is damaged.

    Examples
    --------
    >>> import tempfile
    >>> from fda_flower import run
    >>> folder = tempfile.mkdtemp()
    >>> _ = run(method="target-only", model="mlp", rounds=1, output=folder)
    >>> load(folder).predict_proba(np.zeros((2, 1, 8, 8))).shape
    (2, 10)
    """
    path = Path(run).expanduser() / MODEL
    about, predictor, calibration = read_model(path.parent)
    if is_reference(about.network) and not trust:
        raise ConfigError(
            f"the model '{path}' names the function '{about.network}' as its network, whose code "
            "would be run: if you trust it, and the module by that name here, give --trust (trust=True)",
            thing="model",
            value=path,
        )
    find_device(device)
    body = read_body(path.parent, about.body) if about.body and not reads_text(about.network) else {}
    try:
        model = LoadedModel(about, predictor, device, body, calibration)
        model.check()
    except Exception as error:  # A description may hold anything.
        raise RunError(
            f"the model '{path}' cannot be used ({error}): restore it from a copy, or install the "
            "package that has its network",
            thing="model",
            value=path,
        ) from error
    if about.answers:
        now = answers(about.network, about.shape, about.classes, about.network_options)
        changes = version_changes(about.versions, versions())
        since = f"it was trained{', with ' if changes else ''}{changes}"
        remedy = "restore its code, or its package's version, or train again"
        check_same_network(about.network, about.answers, now, since, remedy)
    return model


@contextmanager
def _read_as_in_training() -> Iterator[None]:
    """Say of images that an option would help to read that they are not like the run's, which set it."""
    try:
        yield
    except ConfigError as error:
        if error.thing != "image" or "--dataset-option" not in error.remedy:
            raise
        what = str(error).removesuffix(f": {error.remedy}")
        remedy = "save it as the run's images are, since it is read by their options"
        raise ConfigError(what, thing=error.thing, value=error.value, remedy=remedy) from error


class LoadedModel:
    """A model that predicts raw samples.

    Attributes
    ----------
    about : About
        Its description, such as the ``round`` of the model and the ``rounds`` of its run.
    predictor : Predictor
        Its networks, and the rule that combines their outputs.
    preparation : Preparation or None
        The transform from raw samples to inputs; None if they are the same.
    body : Layers
        Arrays of the frozen backbone; empty if there is none, or a package holds them.
    calibration : Calibration or None
        The scores of the target's labels, from which sets and intervals follow; None if the file has none.
    """

    def __init__(
        self,
        about: About,
        predictor: Predictor,
        device: str = "cpu",
        body: Layers | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        self._device = find_device(device)
        self.body, self.calibration = body or {}, calibration
        self.about, self.predictor = about, predictor
        preparation = about.preparation
        self.preparation = None if preparation is None else Preparation.from_json(preparation)

    def __repr__(self) -> str:
        about = self.about
        return (
            f"LoadedModel(method={about.method!r}, domain={about.domain!r}, network={about.network!r}, "
            f"shape={about.shape}, classes={about.classes}, round={about.round})"
        )

    def labels(self, outputs: Array) -> Array:
        """Return a regression's outputs or scaled labels in the labels' own unit, float64."""
        mean, deviation = self.label_scale
        return np.asarray(outputs.astype(np.float64) * deviation + mean)

    @property
    def label_scale(self) -> tuple[float, float]:
        """Mean and deviation by which a regression's labels are scaled for the network."""
        scale = self.about.preparation or self.about.dataset_options
        return float(scale.get("label_mean", 0.0)), float(scale.get("label_deviation", 1.0))

    def check(self) -> None:
        """Raise an exception unless the network can be built and has the predictor's arrays."""
        wanted = _shapes(_without_memory(self.about))
        if any(layers.keys() != wanted.keys() for layers in self.predictor.parts.networks.values()):
            wanted = _shapes(_without_memory(self.about, cut=False))  # some networks cannot be cut
        for layers in self.predictor.parts.networks.values():
            shapes = {name: array.shape for name, array in layers.items()}
            if wrong := {name for name in {*wanted, *shapes} if wanted.get(name) != shapes.get(name)}:
                name = min(wrong)
                raise ValueError(
                    f"the network '{self.about.network}' has '{name}' of shape {wanted.get(name)}, the file "
                    f"{shapes.get(name)}"
                )
        if len(self.about.class_names) not in (0, self.about.classes):
            named = len(self.about.class_names)
            raise ValueError(f"it has {self.about.classes} classes, and names for {named}")
        _ = self.label_scale

    @property
    def classes_(self) -> Array:
        """The classes by number: names or, if they have none, numbers; a regression has none."""
        if self.about.task in NUMBERS:
            raise AttributeError("the model predicts numbers and has no classes_")
        return np.array(self.about.class_names) if self.about.class_names else np.arange(self.about.classes)

    @property
    def horizons(self) -> tuple[float, ...]:
        """The times at which a survival is predicted; empty for other tasks."""
        return read_horizons(str(self.about.dataset_options.get("horizons", "")))

    @property
    def feature_names_in_(self) -> Array:
        """The columns of a table that a prediction needs, in order; other models have none."""
        if not isinstance(self.preparation, TablePreparation):
            raise AttributeError("the model takes no named columns and has no feature_names_in_")
        return np.array(self.preparation.raw)

    @cached_property
    def module(self) -> nn.Module:
        """The module from inputs to outputs, in evaluation mode."""
        backbone = self._parts.backbone
        module = self.after_backbone if backbone is None else nn.Sequential(backbone, self.after_backbone)
        return module.to(self._device).eval().requires_grad_(False)

    @cached_property
    def after_backbone(self) -> nn.Module:
        """The module from features to outputs, in evaluation mode; without a backbone, from inputs."""
        return self.predictor.module(self._build).to(self._device).eval().requires_grad_(False)

    @property
    def has_backbone(self) -> bool:
        """Whether a frozen backbone computes features of the inputs."""
        return self._parts.backbone is not None

    @cached_property
    def _parts(self) -> SplitNetwork:
        """The frozen backbone, if any, and a network whose arrays are to be replaced."""
        from_package = bool(self.about.body) and reads_text(self.about.network)
        parts = build(self.about, from_package)
        if parts.backbone is None:
            return parts
        if not from_package:
            load_layers(parts.backbone, self.body)
        elif digest_of(parts.backbone) != self.about.body:
            message = (
                f"the installed encoder '{self.about.network}' is not the one that the model was trained with"
            )
            remedy = "install the versions that model.json lists"
            raise RunError(message, thing="body", value=self.about.network, remedy=remedy)
        return parts

    def predict(self, samples: Any) -> Array:
        """Return each sample's class, one of `classes_`, or a regression's numbers, ``(n,)`` or ``(n, C)``.

        Of a survival it is the share without the event until each of `horizons`, shape ``(n, K)``.

        Parameters
        ----------
        samples : array, mapping or sequence
            Raw samples, ``(n, *shape)``: a table's columns in the order of `feature_names_in_`; images in
            [0, 1] or, as uint8, in [0, 255]. A table may also be a mapping of columns by name, such as a data
            frame, and images may be files. Categories are text. NaN or None is a missing value, if the run
            fills them in.

        Raises
        ------
        ConfigError
            If the samples do not fit the model.
        """
        return self.predictions(self.outputs(self.samples(samples)))

    def predict_proba(self, samples: Any) -> Array:
        """Return the probability of each class or of several labels, float64, ``(n, C)``; see `predict`."""
        if self.about.task in NUMBERS:
            message = "the model predicts numbers, not probabilities: call predict"
            raise ConfigError(message, thing="model")
        return probabilities(self.outputs(self.samples(samples)), self.about.task)

    def predict_set(self, samples: Any, coverage: float = ASKED) -> Array:
        """Return which of `classes_` are in the set of each sample, bool, shape ``(n, classes)``.

        In a share `coverage` of cases the set holds the sample's class, if samples come as the target's
        labelled ones did, each of a new patient if those were several of a patient's; see
        `fda_flower.aggregation.conformal`. It can be empty: then no class fits.

        Raises
        ------
        ConfigError
            As `predict`; for a regression; if the model has no held-out scores; or if its labels, or their
            patients, are too few for the coverage.
        """
        if self.about.task == "regression":
            raise ConfigError("the model predicts numbers: call predict_interval", thing="model")
        thresholds = self.thresholds(coverage)
        return sets_of(self.predict_proba(samples), thresholds)

    def predict_interval(self, samples: Any, coverage: float = ASKED) -> tuple[Array, Array]:
        """Return the lower and upper ends of intervals for a regression, each of the shape of `predict`.

        They hold each number in a share `coverage` of cases; see `predict_set`.
        """
        if self.about.task not in NUMBERS:
            raise ConfigError("the model predicts classes: call predict_set", thing="model")
        thresholds = self.thresholds(coverage)
        outputs = self.outputs(self.samples(samples)).astype(np.float64)
        return self.predictions(outputs - thresholds), self.predictions(outputs + thresholds)

    def predict_flag(
        self,
        samples: Any,
        sensitivity: float = ASKED,
        positive: str | None = None,
        confidence: Confidence = 0.9,
    ) -> Array:
        """Return which samples are flagged as the class `positive`, bool, shape ``(n,)``.

        Of new patients of the class that come as the target's labelled ones did, a share `sensitivity` is
        flagged, with a `confidence`, or on ``"average"``; see `fda_flower.aggregation.sensitivity`. The
        default class is the one with fewer labelled patients.

        Raises
        ------
        ConfigError
            As `predict`; unless there are two classes; if the model has no held-out scores, or too few of the
            class for the promise; or if both classes are as frequent, and none is named.
        """
        return self.flags(sensitivity, positive, confidence).of(self.predict_proba(samples))

    def flags(
        self, sensitivity: float = ASKED, positive: str | None = None, confidence: Confidence = 0.9
    ) -> Flags:
        """Return the threshold of `predict_flag`, and what left-out labels tell of it."""
        return find_flags(self, sensitivity, positive, confidence)

    def metrics_of_sets(
        self, outputs: Array, y: Array, coverage: float, units: Array | None = None
    ) -> dict[str, float]:
        """Return the metrics of sets on samples with labels `y`; see `fda_flower.prediction.sets`."""
        return metrics_of_sets(self.thresholds(coverage), outputs, y, self.labels, units)

    def thresholds(self, coverage: float) -> Array:
        """Return the largest score of each class in a set, or half the width of each interval, ``(C,)``.

        The width is in the unit of `outputs`. Raises a `ConfigError` as `predict_set` does.
        """
        if not 0 < coverage < 1:
            raise invalid("coverage", coverage, "give a share between 0 and 1, such as 0.9")
        if what := UNPROMISED.get("mask" if self.about.mask else self.about.task):
            raise ConfigError(what, thing="coverage", value=coverage, remedy="leave the coverage out")
        if self.calibration is None:
            what = "the model has no scores of held-out labels, from which its sets would follow"
            remedy = "take the target's model of a run of ridge or mixture by this version"
            raise ConfigError(what, thing="coverage", value=coverage, remedy=remedy)
        labels, units, most = self.calibration.labels, self.calibration.units, self.calibration.most
        if exact(coverage) > most:
            percent, known = math.floor(1000 * most) / 10, count_of(labels, units, "label")
            what = f"the coverage is {coverage:g}, but with {known} at most {most} "
            what += f"({percent:g}%) can be promised"
            enough = "labels" if units == labels else "patients"
            remedy = f"ask for less, or train with at least {labels_for(coverage)} {enough}"
            raise ConfigError(what, thing="coverage", value=coverage, remedy=remedy)
        return self.calibration.thresholds(coverage, self.about.classes)

    def predictions(self, outputs: Array) -> Array:
        """Return the predictions of `outputs`; see `predict`."""
        if self.about.task == "multilabel":
            message = "the model predicts the probability of each of several labels"
            remedy = "call predict_proba, and choose a threshold for each label"
            raise ConfigError(message, thing="model", remedy=remedy)
        if self.about.task == "survival":
            return curves_of(outputs)
        if self.about.task == "regression":
            labels = self.labels(outputs)
            return labels[:, 0] if labels.shape[1] == 1 else labels
        return np.asarray(self.classes_[outputs.argmax(axis=1)])

    def outputs(self, samples: Samples, drawing: Drawing = seeded) -> Array:
        """Return scores, whose softmax is the probabilities, or a regression's numbers, for `labels`.

        They equal the outputs in the target's evaluation. Raise a `ConfigError` if an image cannot be read.
        """
        with _read_as_in_training():
            return self._outputs(samples, drawing)

    def _outputs(self, samples: Samples, drawing: Drawing) -> Array:
        if (backbone := self._parts.backbone) is not None:
            samples = features_as_in(self.about.versions, backbone.to(self._device), samples, self._device)
        network = copy.deepcopy(self._parts.trainable).to(self._device)
        return self.predictor.outputs(passes_of(network, samples, drawing))

    def samples(self, raw: Any) -> Samples:
        """Check raw samples and return them as inputs, with meaningless labels; see `predict`."""
        if isinstance(raw, Samples):
            return raw
        x = self._inputs(raw)
        return Samples(x, np.full(len(x), -1))

    def _inputs(self, raw: Any) -> Any:
        preparation = self.preparation
        if hasattr(raw, "keys"):
            return self._from_columns(raw)
        if isinstance(raw, Sequence) and raw and all(isinstance(item, str | Path) for item in raw):
            if not isinstance(preparation, ImagePreparation):
                raise ConfigError(f"the model takes no image files: give {self._wanted}", thing="image files")
            return preparation.apply([Path(item) for item in raw])
        if isinstance(preparation, TablePreparation):
            columns = preparation.raw
            rows = _rows(raw)
            if rows.ndim != 2 or rows.shape[1] != len(columns):
                raise self._not_of(rows.shape)
            return self._from_columns(dict(zip(columns, rows.T, strict=True)))
        x = _array(raw)
        if x.shape[1:] != self.about.shape:
            raise self._not_of(x.shape)
        return x if x.dtype == np.uint8 else x.astype(np.float32)

    def _from_columns(self, raw: Mapping[str, Any]) -> Array:
        if not isinstance(self.preparation, TablePreparation):
            raise ConfigError(f"the model takes no named columns: give {self._wanted}", thing="columns")
        columns = read_columns(raw, self.preparation)
        for note in far_from_training(columns, self.preparation):
            logging.getLogger("fda_flower").warning("%s", note)
        return self.preparation.apply(columns)

    def _build(self, layers: Layers) -> nn.Module:
        network = copy.deepcopy(self._parts.trainable)
        load_layers(network, layers)
        return network.eval()

    def _not_of(self, shape: tuple[int, ...]) -> ConfigError:
        message = f"the samples have shape {shape}"
        return ConfigError(message, thing="samples", value=shape, remedy=f"give {self._wanted}")

    @property
    def _wanted(self) -> str:
        if isinstance(self.preparation, TablePreparation):
            columns = self.preparation.raw
            return f"an array of shape (samples, {len(columns)}) or the columns {', '.join(columns)}"
        shape = ", ".join(map(str, self.about.shape))
        return f"an array of shape (samples, {shape})" + (
            " or image files" if isinstance(self.preparation, ImagePreparation) else ""
        )


def probabilities(outputs: Array, task: Task = "classes") -> Array:
    """Return the probabilities of classes, or of several labels, from `LoadedModel.outputs`, float64."""
    return np.asarray(SHARES[task](torch.from_numpy(outputs).double()).numpy())


SHARES: Mapping[Task, Callable[[Tensor], Tensor]] = {
    "classes": partial(torch.softmax, dim=1),
    "multilabel": torch.sigmoid,
}
"""By task, the probabilities that outputs stand for."""


def _without_memory(about: About, cut: bool = True) -> SplitNetwork:
    """Return a network whose arrays are only shapes, if it can be built so: a forged size takes no memory."""
    scaled = about.body and len(about.shape) == 3 and about.train in ("head", "linear")  # by real photos
    if not (is_reference(about.network) or scaled):
        with suppress(Exception), torch.device("meta"):
            return build(about, cut=cut)
    return build(about)  # some networks of other packages cannot be built that way


def _shapes(parts: SplitNetwork) -> dict[str, tuple[int, ...]]:
    return {name: tuple(array.shape) for name, array in parts.trainable.state_dict().items()}


def build(about: About, with_weights: bool = False, cut: bool = True) -> SplitNetwork:
    """Return a network of a model's architecture, cut as in training, whose arrays are to be replaced.

    With `with_weights` the frozen part already has its weights. For `cut` see
    `fda_flower.models.split.split`.
    """
    given = about.shape, about.classes
    if with_weights:
        network = build_model(about.network, *given, 0, about.network_options)
    else:
        network = build_architecture(about.network, *given, about.network_options)
    with torch.random.fork_rng([]):
        parts = split(network, Train.read(about.train), about.shape, about.network, cut)
        if about.prototypes is not None:
            x = torch.zeros(1, *about.shape)
            with torch.no_grad():
                x = x if parts.backbone is None else parts.backbone(x)
            replace_head(parts.trainable, x, about.prototypes)
    return parts


def _rows(raw: Any) -> Array:
    """Return rows as an array; the values in a list keep their types."""
    raw = plain(raw)
    rows = np.asarray(raw) if hasattr(raw, "__array__") else np.array(raw, dtype=object)
    if not rows.size:
        raise _none()
    return rows


def _none() -> ConfigError:
    return ConfigError("there are no samples: give at least one", thing="samples", value=0)


def _array(raw: Any) -> Array:
    try:
        array = np.asarray(plain(raw))
    except (TypeError, ValueError) as error:
        message = f"the samples are no array of numbers ({error}): give one"
        raise ConfigError(message, thing="samples") from error
    if array.dtype.kind not in "biuf":
        raise ConfigError(f"the samples are no array of numbers ({array.dtype}): give one", thing="samples")
    if not array.ndim or not len(array):
        raise _none()
    return array
