"""The rules for each record of a reply: its noise, by its sensitivity, and what leaves without."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from fda_flower.aggregation import Layers, PrivateSums, find_buffers, multipliers, widths_of
from fda_flower.metrics import EFFECTIVE, LIMITS, METRICS, UNITS
from fda_flower.site.accountant import Steps
from fda_flower.site.config import FULL, NONE, PATIENT, SITE, PrivacySettings
from fda_flower.site.ledger import PrivacyError
from fda_flower.site.noise import Mechanism, factor_to, gaussian, norm_of
from fda_flower.wire import protocol
from fda_flower.wire.asked import QUESTIONS
from fda_flower.wire.asked.personal import FineTune
from fda_flower.wire.asked.ridge import FitHead, SumRows
from fda_flower.wire.protocol import to_layers, to_record
from fda_flower.wire.questions import Answer, Question
from fda_flower.wire.releases import Release as Kind

Arrays = dict[str, NDArray[Any]]


COUNTS = frozenset({protocol.NUM_EXAMPLES, protocol.NUM_STEPS, protocol.LEARNING_RATE, protocol.BATCH_SIZE})
"""Metrics that leave unchanged: numbers of samples, which the role query reports, and settings."""

HARMLESS = frozenset({"domain", "role", protocol.AGGREGATED_ON})
"""Allowed entries of a reply's record ``info``."""


@dataclass
class PrivateExchange:
    """One train message's model and settings, and the releases in its reply.

    `update` is the parameters' change as sent, with its noise; `uncovered` names records that leave without
    noise; `steps` are the steps of a training with noise for each patient; `kind` is the message's type.
    """

    settings: PrivacySettings
    mechanism: Mechanism
    model: Layers
    config: Mapping[str, Any]
    update: Arrays = field(default_factory=dict)
    uncovered: list[str] = field(default_factory=list)
    steps: Steps | None = None
    kind: str = protocol.TRAIN

    def moved(self, arrays: Layers) -> Arrays:
        """Release the change of some of the model's arrays; return these arrays with noise."""
        before = {name: self.model[name].astype(np.float64) for name in arrays}
        change = self.mechanism.vectors({name: arrays[name] - before[name] for name in arrays})
        return {name: (before[name] + change[name]).astype(self.model[name].dtype) for name in arrays}


def trained_model(exchange: PrivateExchange, arrays: Arrays) -> Arrays:
    """Return a trained model: release the update of its parameters, and restore the message's buffers.

    BatchNorm's counters leave unchanged, and its statistics with noise if the site's settings say so.
    """
    model = exchange.model
    if _forms(arrays) != _forms(model):
        raise PrivacyError("its arrays differ from the message's, so there is no update to clip")
    buffers = find_buffers(model)
    sent = {name: array.copy() for name, array in model.items()}
    sent |= exchange.moved({name: array for name, array in arrays.items() if name not in buffers})
    exchange.update = {name: sent[name] - model[name] for name in model if name not in buffers}
    for name in buffers:
        if name.endswith("num_batches_tracked") and model[name].ndim == 0 and model[name].dtype.kind in "iu":
            sent[name] = arrays[name]
    return sent


def guidance(exchange: PrivateExchange, arrays: Arrays) -> Arrays:
    """Return FedDWA's guidance, releasing its distance from the received model."""
    own = {name: exchange.model[name] for name in arrays if name in exchange.model}
    if _forms(arrays) != _forms(own):
        raise PrivacyError("its 'guidance' has other arrays than the message's model")
    return exchange.moved(arrays)


def batch_updates(exchange: PrivateExchange, arrays: Arrays) -> Arrays:
    """Return the target's batch updates, consistent with the update and its noise.

    All rows of sketches or full steps are released as one vector, and then sum to the update, as the server
    checks. Norms alone are released directly, and each step bears its part of the update's noise.
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
        protocol.sketch_in(exchange.config, sum(layer.size for layer in exchange.update.values()))(
            exchange.update
        )
        if encoding == "sketch"
        else np.concatenate([layer.reshape(-1) for layer in exchange.update.values()])
    )
    rows = (rows + (total - rows.sum(axis=0)) / steps).astype(arrays[encoding].dtype)
    return {"norms": np.square(rows, dtype=np.float64).sum(axis=1), encoding: rows}


def gradients(exchange: PrivateExchange, arrays: Arrays) -> Arrays:
    """Release the mean gradient at the global model, and its variance.

    The norm is computed from the noisy vector. The noise's variance is added, so that estimates that subtract
    it stay unbiased.
    """
    encoding = _asked(exchange, protocol.GRADIENTS, arrays)
    counts = {"batches", protocol.SKETCH_SIZE, protocol.SKETCH_SEED}
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


def patients_model(exchange: PrivateExchange, arrays: Arrays) -> Arrays:
    """Return the message's own model or one trained with noise; another needs the site's permission."""
    if exchange.steps is not None:
        return arrays
    same = _forms(arrays) == _forms(exchange.model)
    if same and all(np.array_equal(array, exchange.model[name]) for name, array in arrays.items()):
        return arrays
    if not exchange.settings.dp_open_target:
        raise PrivacyError(
            "it holds a trained model without noise for each patient: choose a method whose training adds "
            "it, such as fedavg, or set the site's dp-open-target, and the model leaves without noise"
        )
    exchange.uncovered.append(protocol.ARRAYS)
    return arrays


def patients_updates(exchange: PrivateExchange, arrays: Arrays) -> Arrays:
    """Return batch updates unchanged: steps with noise cover them, and others leave where allowed."""
    if exchange.steps is None:
        if not exchange.settings.dp_open_target:
            raise PrivacyError(
                f"its '{protocol.BATCH_UPDATES}' are of a training without noise: set the site's "
                "dp-open-target, and they leave without noise"
            )
        exchange.uncovered.append(protocol.BATCH_UPDATES)
    return arrays


def sums(exchange: PrivateExchange, arrays: Arrays) -> Arrays:
    """Release sums over rows, whose change by one patient the client has bounded."""
    if protocol.CHANGE not in arrays:
        raise PrivacyError(
            f"its '{protocol.SUMS}' do not say by how much one patient changes them: there is no limit for "
            "labels that are numbers, nor for a table's columns, which follow from the mean of all its rows"
        )
    width, outputs = arrays["products"].shape
    sums = PrivateSums.from_arrays(arrays, width, outputs)
    normal = exchange.mechanism.normal(sums.gram.size + sums.products.size)
    deviation = multipliers(exchange.mechanism.noise)[1] * float(arrays[protocol.CHANGE])
    return dict(sums.noisy(normal, deviation).to_arrays())


def noise_of_mean(model: Layers, mechanism: Mechanism) -> Arrays:
    """Return the noise of the mean around which a site's sums are, and its deviation as the last number.

    One patient more changes the sum over all by 1 at most. This release and the sums count as one. Of several
    kinds of rows, the first alone is released.
    """
    deviation, features = multipliers(mechanism.noise)[0], widths_of(model)[0]
    return {"noise": np.append(deviation * gaussian(features, mechanism.draw), deviation)}


Release = tuple[Callable[[PrivateExchange, Arrays], Arrays], int]


@dataclass(frozen=True)
class Releases:
    """What a site releases in the replies to one type of train message.

    `records` has the function that releases each record of arrays, the model first, and its number of
    releases; `counts` names the fields of an answer that leave unchanged, since they do not follow from data.
    """

    records: Mapping[str, Release]
    counts: frozenset[str] = frozenset()


MODEL: Release = (trained_model, 1)

MODEL_OF_PATIENTS: Release = (patients_model, 0)

ARRAYS_OF_ANSWERS: Mapping[str, Release] = {f"{Answer.record_name}/guidance": (guidance, 1)}
"""The records of arrays in answers whose sensitivity to a whole site is known."""


def _of_site(question: type[Question]) -> Releases | None:
    """Return what a reply with a model of its own releases, by the fields of its answer; None if unknown."""
    arrays = [_part(name) for name in question.answer.array_names()]
    if question.kind != protocol.TRAIN or question.model == Kind.NOTHING:
        return None
    if not ARRAYS_OF_ANSWERS.keys() >= {*arrays}:
        return None
    fixed = {name for name, kind in question.answer.releases().items() if kind == Kind.NOTHING}
    records = {protocol.ARRAYS: MODEL, **{name: ARRAYS_OF_ANSWERS[name] for name in arrays}}
    return Releases(records, frozenset(fixed))


RELEASES: Mapping[str, Mapping[str, Releases]] = {
    SITE: {
        protocol.TRAIN: Releases(
            {
                protocol.ARRAYS: MODEL,
                protocol.BATCH_UPDATES: (batch_updates, 1),
                protocol.GRADIENTS: (gradients, 2),
            }
        ),
    },
    PATIENT: {
        protocol.TRAIN: Releases(
            {
                protocol.ARRAYS: MODEL_OF_PATIENTS,
                protocol.BATCH_UPDATES: (patients_updates, 0),
            }
        ),
        FineTune.message_type(): Releases({protocol.ARRAYS: MODEL_OF_PATIENTS}),
        FitHead.message_type(): Releases({protocol.ARRAYS: MODEL_OF_PATIENTS}),
        SumRows.message_type(): Releases({protocol.ARRAYS: MODEL_OF_PATIENTS, protocol.SUMS: (sums, 1)}),
    },
}
"""By unit of privacy and type of message: what is released. A site answers no other train message.

For a whole site the questions follow from what their answers declare (`_of_site`). With the unit
``patient`` these are the messages whose training has noise, and `FitHead`, whose answer only an open target
lets out: no client may start from a part that it has kept, or train a part first, without noise.
"""


def releases_of(settings: PrivacySettings, kind: str) -> Releases:
    """Return what is released in the reply to a type of message; raise a `PrivacyError` if it is unknown."""
    releases = RELEASES[settings.dp_unit].get(kind)
    if releases is None and settings.dp_unit == SITE and kind in QUESTIONS:
        releases = _of_site(QUESTIONS[kind])
    if releases is None:
        of = " to one patient" if settings.of_patients else ""
        remedy = QUESTIONS.get(kind, Question).remedy
        raise PrivacyError(f"replies to '{kind}' have no known sensitivity{of}: {remedy}")
    return releases


def withheld(settings: PrivacySettings, question: type[Question]) -> tuple[list[str], list[str]]:
    """Return the fields of each answer to a question for which a site with the unit ``site`` sends nothing.

    The first have no known sensitivity; the others follow from data, and leave if ``dp-allow`` names them.

    Examples
    --------
    >>> from fda_flower.wire.asked.kd3a import Distil
    >>> withheld(PrivacySettings(dp_clip=1.0, dp_allow="mask-share"), Distil)
    ([], ['contribution'])
    """
    answer, releases = question.answer, _of_site(question)
    if releases is None:
        return [name for name in answer.array_names() if _part(name) not in ARRAYS_OF_ANSWERS], []
    fields = [_part(name) for name in answer.releases() if not answer.may_lack(name)]
    figures = [_name_of(part) for part in fields if not _is_released(part, releases)]
    return [], [name for name in figures if not _is_open(name, settings)]


def _part(field: str) -> str:
    return f"{Answer.record_name}/{field}"


def _name_of(part: str) -> str:
    """Return the name in ``dp-allow`` of a part of an answer."""
    return part.split("/")[1].replace("_", "-")


def _is_released(part: str, releases: Releases) -> bool:
    return part in releases.records or part.split("/")[1] in releases.counts


def _is_open(name: str, settings: PrivacySettings) -> bool:
    """Return whether a site lets a figure leave without noise."""
    return settings.dp_open_target or settings.allows(name)


def planned(settings: PrivacySettings, config: Mapping[str, Any], kind: str = protocol.TRAIN) -> int:
    """Return the largest number of releases in the reply to a train message."""
    records = releases_of(settings, kind).records
    always = (protocol.ARRAYS, f"{Answer.record_name}/")
    names = [name for name in records if name.startswith(always) or config.get(name) is not None]
    return sum(records[name][1] for name in names)


def protect_training(content: RecordDict, exchange: PrivateExchange) -> list[str]:
    """Make a train reply private in place; return the names of numbers that leave without noise.

    Raises a `PrivacyError` if the reply holds an unknown record or metric.
    """
    releases = releases_of(exchange.settings, exchange.kind)
    records = releases.records
    allowed = _protect_answer(content, exchange.settings, releases)
    known = {*records, protocol.METRICS, protocol.INFO, protocol.LOGGED, Answer.record_name, *allowed}
    if unknown := sorted(set(content) - known):
        of = " to one patient" if exchange.settings.of_patients else ""
        raise PrivacyError(
            f"its record '{unknown[0]}' has no known sensitivity{of}: choose a method that does not need it"
        )
    uncovered = [*dict.fromkeys(allowed.values()), *_protect_metrics(content, exchange.settings)]
    _check_info(content)
    for name, (release, _) in records.items():
        if name in content.array_records:
            content[name] = to_record(release(exchange, to_layers(content.array_records[name])))
    if protocol.ARRAYS not in content.array_records:
        raise PrivacyError(f"it has no ArrayRecord '{protocol.ARRAYS}'")
    return [*uncovered, *exchange.uncovered]


def protect_evaluation(content: RecordDict, settings: PrivacySettings) -> list[str]:
    """Reduce an evaluation's reply to what the site reports; return the names that leave without noise."""
    if settings.dp_report == FULL:
        return ["evaluation"]
    metrics = content.metric_records.get(protocol.METRICS, MetricRecord())
    protected = {
        name: value
        for name, value in metrics.items()
        if name == protocol.NUM_EXAMPLES
        or (settings.dp_report != NONE and _is_metric(name))
        or settings.allows(name)
    }
    answer = _allowed_answer(content, settings)
    own = {protocol.LOGGED: content[protocol.LOGGED]} if protocol.LOGGED in content else {}
    content.clear()
    content.update({protocol.METRICS: MetricRecord(protected), **answer, **own})
    return ["evaluation"] if set(protected) - {protocol.NUM_EXAMPLES} or any(answer.values()) else []


def _allowed_answer(content: RecordDict, settings: PrivacySettings) -> dict[str, ConfigRecord]:
    """Return the fields of an answer that a site allows to leave without noise, by record."""
    allowed = dict[str, ConfigRecord]()
    for name, record in content.config_records.items():
        first, _, field = name.partition("/")
        if first == Answer.record_name:
            keys = [key for key in record if settings.allows((field or key).replace("_", "-"))]
            allowed[name] = ConfigRecord({key: record[key] for key in keys})
    return {name: record for name, record in allowed.items() if record}


def _protect_metrics(content: RecordDict, settings: PrivacySettings) -> list[str]:
    metrics = content.metric_records.get(protocol.METRICS, MetricRecord())
    protected, uncovered = {}, []
    for name, value in metrics.items():
        if name in COUNTS:
            protected[name] = value
        elif _is_open(name, settings):
            protected[name] = value
            uncovered.append(name)
        elif name != protocol.TRAIN_LOSS:
            raise PrivacyError(
                f"its metric '{name}' follows from the site's data: name it in the site's dp-allow, and it "
                "leaves without noise, or choose a method that does not need it"
            )
    content[protocol.METRICS] = MetricRecord(protected)
    return sorted(uncovered)


def _protect_answer(content: RecordDict, settings: PrivacySettings, releases: Releases) -> dict[str, str]:
    """Check the fields of an answer; return the ones that leave without noise, by record.

    Raises a `PrivacyError` if one may not.
    """
    allowed = dict[str, str]()
    numbers = protocol.settings_in(content, Answer.record_name)
    parts = [_part(field) for field in numbers]
    parts += [name for name in content if name.startswith(f"{Answer.record_name}/")]
    for part in parts:
        name = _name_of(part)
        if _is_released(part, releases):
            continue
        if part in content.array_records:
            raise PrivacyError(f"'{name}' of its answer has no known sensitivity: choose another method")
        if not _is_open(name, settings):
            raise PrivacyError(
                f"'{name}' of its answer follows from the site's data: name it in the site's dp-allow, and "
                "it leaves without noise, or choose a method that does not need it"
            )
        allowed[part] = name
    return allowed


def _check_info(content: RecordDict) -> None:
    info = protocol.settings_in(content, protocol.INFO)
    if unknown := sorted(set(info) - HARMLESS):
        raise PrivacyError(
            f"its record '{protocol.INFO}' has '{unknown[0]}', which may follow from the site's data: "
            "leave it out"
        )


def _is_metric(name: str) -> bool:
    """Return whether a number is a metric of a test or validation set, for any model."""
    own = name.removeprefix(f"{protocol.VALIDATION}-")
    return own in METRICS or name in (UNITS, EFFECTIVE, *LIMITS)


def _asked(exchange: PrivateExchange, record: str, arrays: Arrays) -> str:
    encoding = exchange.config.get(record)
    if encoding is None:
        raise PrivacyError(f"it holds '{record}' ({_names(arrays)}), which was not requested")
    return str(encoding)


def _forms(arrays: Layers) -> dict[str, tuple[Any, ...]]:
    return {name: (array.shape, array.dtype) for name, array in arrays.items()}


def _names(names: Any) -> str:
    return ", ".join(sorted(names))
