"""What becomes of each record and metric of a reply; one that is not known is refused."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import MetricRecord, RecordDict
from numpy.typing import NDArray

from fda_flower import protocol
from fda_flower.aggregation import CountSketch, Layers, find_buffers
from fda_flower.metrics import METRICS
from fda_flower.privacy.mechanism import Mechanism, PrivacyError, factor_to, norm_of
from fda_flower.protocol import to_layers, to_record
from fda_flower.site.config import FULL, NOISE, NONE, PrivacySettings

Arrays = dict[str, NDArray[Any]]

SMALLEST_VARIANCE = 1e-3
"""What a running variance with noise is at least."""

COUNTS = frozenset(
    {
        *(protocol.NUM_EXAMPLES, protocol.NUM_STEPS, protocol.LEARNING_RATE, protocol.BATCH_SIZE),
        *(protocol.LOCAL_PART, protocol.FRESH_START, f"{protocol.EVAL}{protocol.NUM_EXAMPLES}"),
    }
)
"""Metrics that leave as they are: numbers of samples, which the role query tells, and settings."""

INFO = frozenset({"domain", "role", protocol.AGGREGATED_ON})
"""What a reply's record ``info`` may hold."""


@dataclass
class Exchange:
    """One train message and what its reply releases.

    Attributes
    ----------
    settings : PrivacySettings
        The site's.
    mechanism : Mechanism
        Adds the noise.
    model : Layers
        The model that the site was sent.
    config : Mapping
        The message's settings.
    update : dict
        The change of the parameters as it is sent, with its noise.
    """

    settings: PrivacySettings
    mechanism: Mechanism
    model: Layers
    config: Mapping[str, Any]
    update: Arrays = field(default_factory=dict)

    def moved(self, arrays: Layers) -> Arrays:
        """Release the change of some of the model's arrays; return the arrays with it."""
        before = {name: self.model[name].astype(np.float64) for name in arrays}
        change = self.mechanism.vectors({name: arrays[name] - before[name] for name in arrays})
        return {name: (before[name] + change[name]).astype(self.model[name].dtype) for name in arrays}


def trained_model(exchange: Exchange, arrays: Arrays) -> Arrays:
    """Return a trained model: the update of its parameters is released, buffers stay at the site.

    Of the buffers, BatchNorm's counters leave as they are, and floating-point ones with noise where the site
    asks for it. All others are those of the message.
    """
    model = exchange.model
    if _forms(arrays) != _forms(model):
        raise PrivacyError("its arrays are not those of the message, so that there is no update to clip")
    buffers = find_buffers(model)
    sent = {name: array.copy() for name, array in model.items()}
    sent |= exchange.moved({name: array for name, array in arrays.items() if name not in buffers})
    exchange.update = {name: sent[name] - model[name] for name in model if name not in buffers}
    for name in buffers:
        if name.endswith("num_batches_tracked") and model[name].ndim == 0 and model[name].dtype.kind in "iu":
            sent[name] = arrays[name]
    statistics = {name: arrays[name] for name in sorted(buffers) if arrays[name].dtype.kind == "f"}
    if statistics and exchange.settings.dp_buffers == NOISE:
        for name, array in exchange.moved(statistics).items():
            is_variance = name.endswith("running_var")
            sent[name] = np.maximum(array, array.dtype.type(SMALLEST_VARIANCE)) if is_variance else array
    return sent


def guidance(exchange: Exchange, arrays: Arrays) -> Arrays:
    """Return FedDWA's guidance: its distance from the model received is released."""
    own = {name: exchange.model[name] for name in arrays if name in exchange.model}
    if _forms(arrays) != _forms(own):
        raise PrivacyError(f"its '{protocol.GUIDANCE}' has other arrays than the message's model")
    return exchange.moved(arrays)


def batch_updates(exchange: Exchange, arrays: Arrays) -> Arrays:
    """Return the target's batch updates as they fit the update with its noise.

    Of sketches or full steps, all rows are released as one vector. Their sum is then put right, since the
    server checks it: it is that of the update, and the norms are the rows'. Norms alone are released as they
    are; of the update's noise, each step bears its part.
    """
    encoding = _asked(exchange, protocol.BATCH_UPDATES, arrays)
    known, steps = {"norms", encoding}, max(len(arrays.get("norms", ())), 1)
    if set(arrays) != known:
        raise PrivacyError(f"its '{protocol.BATCH_UPDATES}' hold {_names(arrays)}, not {_names(known)}")
    mechanism = exchange.mechanism
    if encoding == "norms":
        length = sum(layer.size for layer in exchange.update.values())
        return {"norms": mechanism.parts(arrays["norms"]) + length * mechanism.deviation**2 / steps}
    rows = mechanism.vectors({encoding: arrays[encoding]})[encoding]
    total = (
        CountSketch(int(exchange.config[protocol.SKETCH_SIZE]), int(exchange.config[protocol.SKETCH_SEED]))(
            exchange.update
        )
        if encoding == "sketch"
        else np.concatenate([layer.reshape(-1) for layer in exchange.update.values()])
    )
    rows = (rows + (total - rows.sum(axis=0)) / steps).astype(arrays[encoding].dtype)
    return {"norms": np.square(rows, dtype=np.float64).sum(axis=1), encoding: rows}


def gradients(exchange: Exchange, arrays: Arrays) -> Arrays:
    """Return the gradients at the global model: the mean gradient is released, and its variance.

    The norm is that of the vector with its noise, whose variance is added, so that estimates which subtract
    it stay unbiased.
    """
    encoding = _asked(exchange, protocol.GRADIENTS, arrays)
    counts = {"batches"} | ({protocol.SKETCH_SIZE, protocol.SKETCH_SEED} if encoding == "sketch" else set())
    known = {encoding, "norm", "variance"} | counts
    if set(arrays) != known:
        raise PrivacyError(f"its '{protocol.GRADIENTS}' hold {_names(arrays)}, not {_names(known)}")
    mechanism, vector = exchange.mechanism, {encoding: arrays[encoding]}
    factor = factor_to(mechanism.clip, norm_of(vector))
    values = mechanism.vectors(vector)[encoding].astype(arrays[encoding].dtype)
    variance = mechanism.number(factor**2 * float(arrays["variance"]))
    return {
        **{name: arrays[name] for name in counts},
        encoding: values,
        "norm": np.array(np.square(values, dtype=np.float64).sum()),
        "variance": np.array(variance + values.size * mechanism.deviation**2),
    }


RECORDS: dict[str, tuple[Callable[[Exchange, Arrays], Arrays], int]] = {
    protocol.ARRAYS: (trained_model, 1),
    protocol.GUIDANCE: (guidance, 1),
    protocol.BATCH_UPDATES: (batch_updates, 1),
    protocol.GRADIENTS: (gradients, 2),
}
"""What releases each record of arrays, the model first, and how many releases it takes."""


def planned(settings: PrivacySettings, model: Layers, config: Mapping[str, Any]) -> int:
    """Return how many releases the reply to a train message takes at most."""
    asked = [protocol.ARRAYS, *(name for name in RECORDS if config.get(name))]
    buffers = settings.dp_buffers == NOISE and any(
        model[name].dtype.kind == "f" for name in find_buffers(model)
    )
    return sum(RECORDS[name][1] for name in asked) + int(buffers)


def protect_training(content: RecordDict, exchange: Exchange) -> list[str]:
    """Make a train reply private in its place; return the names of metrics that leave without noise.

    Raises
    ------
    PrivacyError
        If it holds a record or a metric that is not known.
    """
    details = (protocol.OUTCOMES, protocol.CONFUSION)
    for name in details:
        if exchange.settings.dp_report != FULL:
            content.pop(name, None)
    known = {*RECORDS, protocol.METRICS, protocol.INFO, *details}
    if unknown := sorted(set(content) - known):
        raise PrivacyError(
            f"its record '{unknown[0]}' has no known sensitivity: choose a method that does without it"
        )
    uncovered = [name for name in details if name in content]
    uncovered += _protect_metrics(content, exchange.settings)
    _check_info(content)
    for name, (release, _) in RECORDS.items():
        if name in content.array_records:
            content[name] = to_record(release(exchange, to_layers(content.array_records[name])))
    if protocol.ARRAYS not in content.array_records:
        raise PrivacyError(f"it has no ArrayRecord '{protocol.ARRAYS}'")
    return uncovered


def protect_evaluation(content: RecordDict, settings: PrivacySettings) -> list[str]:
    """Leave in the reply to an evaluation what the site tells; return what leaves without noise."""
    if settings.dp_report == FULL:
        return ["evaluation"]
    told = {protocol.NUM_EXAMPLES: True}
    for name in list(content):
        if name != protocol.METRICS:
            content.pop(name)
    metrics = content.metric_records.get(protocol.METRICS, MetricRecord())
    kept = {
        name: value
        for name, value in metrics.items()
        if name in told or (settings.dp_report != NONE and _is_figure(name)) or settings.allows(name)
    }
    content[protocol.METRICS] = MetricRecord(kept)
    return ["evaluation"] if set(kept) - set(told) else []


def _protect_metrics(content: RecordDict, settings: PrivacySettings) -> list[str]:
    metrics = content.metric_records.get(protocol.METRICS, MetricRecord())
    kept, uncovered = {}, []
    for name, value in metrics.items():
        figure = name.startswith(protocol.EVAL) and _is_figure(name.removeprefix(protocol.EVAL))
        if name in COUNTS:
            kept[name] = value
        elif settings.allows(name) or (figure and settings.dp_report != NONE):
            kept[name] = value
            uncovered.append(name)
        elif figure:
            raise PrivacyError(
                f"the method has the site tell '{name}', but its dp-report is '{NONE}': let it be 'figures', "
                "or choose a method that evaluates the global model"
            )
        elif name != protocol.TRAIN_LOSS:
            raise PrivacyError(
                f"its metric '{name}' follows from the site's data: name it in the site's dp-allow, and it "
                "leaves without noise, or choose a method that does without it"
            )
    content[protocol.METRICS] = MetricRecord(kept)
    return sorted(uncovered)


def _check_info(content: RecordDict) -> None:
    info = protocol.settings_in(content, protocol.INFO)
    if unknown := sorted(set(info) - INFO):
        raise PrivacyError(
            f"its record '{protocol.INFO}' has '{unknown[0]}', which may follow from the site's data: "
            "leave it out"
        )


def _is_figure(name: str) -> bool:
    """Whether a metric is a figure of a test set or of samples held out, of whichever model."""
    own = name.removeprefix(f"{protocol.VALIDATION}-")
    endings = ("", f"-{protocol.GLOBAL}", f"-{protocol.FINAL_HEAD}")
    return any(own == f"{metric}{ending}" for metric in METRICS for ending in endings)


def _asked(exchange: Exchange, record: str, arrays: Arrays) -> str:
    encoding = exchange.config.get(record)
    if encoding is None:
        raise PrivacyError(f"it holds '{record}' ({_names(arrays)}), which nobody asked for")
    return str(encoding)


def _forms(arrays: Layers) -> dict[str, tuple[Any, ...]]:
    return {name: (array.shape, array.dtype) for name, array in arrays.items()}


def _names(names: Any) -> str:
    return ", ".join(sorted(names))
