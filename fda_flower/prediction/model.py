"""A loaded model: the inputs it makes of new samples, and its predictions."""

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation import Calibration, Layers, labels_for, sets_of
from fda_flower.aggregation.conformal import exact
from fda_flower.aggregation.mixture import log_softmax
from fda_flower.aggregation.survival import curves_of
from fda_flower.datasets import Samples
from fda_flower.datasets.preparation import Preparation, TablePreparation
from fda_flower.errors import ConfigError, RunError, invalid
from fda_flower.files import MODEL, check_same_network, version_changes, versions
from fda_flower.metrics import ASKED
from fda_flower.metrics.labels import probabilities_of_labels
from fda_flower.models import reads_text
from fda_flower.models.devices import check_device
from fda_flower.models.own import is_reference
from fda_flower.models.probe import answers
from fda_flower.names.tasks import NUMBERS, Task
from fda_flower.names.words import count_of
from fda_flower.own_data.followed import read_horizons
from fda_flower.prediction.files import About, read_body, read_model
from fda_flower.prediction.flags import Confidence, Flags, find_flags
from fda_flower.prediction.inputs import Inputs, read_as_in_training
from fda_flower.prediction.networks import ModelNetwork, network_of
from fda_flower.prediction.passes import Drawing, seeded
from fda_flower.prediction.predictors import Predictor
from fda_flower.prediction.sets import UNPROMISED, metrics_of_sets

if TYPE_CHECKING:
    from torch import nn

    from fda_flower.prediction.torch_network import TorchNetwork

Array = NDArray[Any]


def load(run: str | Path, device: str = "cpu", *, trust: bool = False) -> "LoadedModel":
    """Load the model that a run's target uses.

    Parameters
    ----------
    run : str or Path
        The run's folder; at a deployed target, the node's folder.
    device : {"cpu", "auto", "cuda", "mps", "xpu"}
        The device of predictions by PyTorch.
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
    check_device(device)
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
        check_device(device)
        self._device = device
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
        self.network.check(self.predictor.parts.networks.values())
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
    def network(self) -> ModelNetwork:
        """The network, without the predictor's arrays."""
        return network_of(self.about, self._device, self.body)

    @cached_property
    def module(self) -> "nn.Module":
        """PyTorch's module from inputs to outputs, in evaluation mode."""
        return self.of_torch.module(self.predictor)

    @cached_property
    def of_torch(self) -> "TorchNetwork":
        """The network of PyTorch, also where NumPy computes `outputs`."""
        from fda_flower.prediction.torch_network import TorchNetwork

        known = self.network
        return known if isinstance(known, TorchNetwork) else TorchNetwork(self.about, self._device, self.body)

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
        with read_as_in_training():
            return self.predictor.outputs(self.network.passes(samples, drawing))

    def samples(self, raw: Any) -> Samples:
        """Check raw samples and return them as inputs, with meaningless labels; see `predict`."""
        if isinstance(raw, Samples):
            return raw
        x = Inputs(self.about.shape, self.preparation).of(raw)
        return Samples(x, np.full(len(x), -1))


def probabilities(outputs: Array, task: Task = "classes") -> Array:
    """Return the probabilities of classes, or of several labels, from `LoadedModel.outputs`, float64."""
    return SHARES[task](outputs)


def _of_classes(outputs: Array) -> NDArray[np.float64]:
    with np.errstate(invalid="ignore"):  # of what is not finite
        return np.exp(log_softmax(outputs))


SHARES: Mapping[Task, Callable[[Array], NDArray[np.float64]]] = {
    "classes": _of_classes,
    "multilabel": probabilities_of_labels,
}
"""By task, the probabilities that outputs stand for."""
