"""A Flower mod that adds noise to a site's replies, and the rules for each of their records."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from logging import ERROR, INFO, WARNING
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.common import log
from numpy.typing import NDArray

from fda_flower.aggregation import Layers, PrivateSums, find_buffers, multipliers, widths_of
from fda_flower.files import as_file_name, checksum, derive_seed
from fda_flower.metrics import EFFECTIVE, METRICS, UNITS
from fda_flower.site.accountant import Steps, noise_of_steps
from fda_flower.site.config import CLIP, FULL, LEDGER, NONE, PATIENT, SITE, PrivacySettings, SiteConfig
from fda_flower.site.journal import Journal
from fda_flower.site.noise import (
    BudgetError,
    Entry,
    Ledger,
    Mechanism,
    PrivacyError,
    Randomness,
    factor_to,
    gaussian,
    norm_of,
)
from fda_flower.site.patients import STEPS, PatientPrivacy, read_steps, remove_claims
from fda_flower.site.words import KEPT, may_leave, speaks, told
from fda_flower.wire import protocol
from fda_flower.wire.asked import QUESTIONS
from fda_flower.wire.asked.personal import FineTune
from fda_flower.wire.asked.ridge import FitHead, SumRows
from fda_flower.wire.internals import error_reply, of_type
from fda_flower.wire.protocol import to_layers, to_record
from fda_flower.wire.questions import Answer, Question
from fda_flower.wire.releases import Release as Kind

Arrays = dict[str, NDArray[Any]]


BEFORE, AFTER = "epsilon-before", "epsilon-after"
"""Entries of `protocol.LOGGED`: the ``ε`` that a site had spent before a message, and after its reply."""

COUNTS = frozenset({protocol.NUM_EXAMPLES, protocol.NUM_STEPS, protocol.LEARNING_RATE, protocol.BATCH_SIZE})
"""Metrics that leave unchanged: numbers of samples, which the role query reports, and settings."""

HARMLESS = frozenset({"domain", "role", protocol.AGGREGATED_ON})
"""Allowed entries of a reply's record ``info``."""


@dataclass
class Exchange:
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


def trained_model(exchange: Exchange, arrays: Arrays) -> Arrays:
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


def guidance(exchange: Exchange, arrays: Arrays) -> Arrays:
    """Return FedDWA's guidance, releasing its distance from the received model."""
    own = {name: exchange.model[name] for name in arrays if name in exchange.model}
    if _forms(arrays) != _forms(own):
        raise PrivacyError("its 'guidance' has other arrays than the message's model")
    return exchange.moved(arrays)


def batch_updates(exchange: Exchange, arrays: Arrays) -> Arrays:
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


def gradients(exchange: Exchange, arrays: Arrays) -> Arrays:
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


def patients_model(exchange: Exchange, arrays: Arrays) -> Arrays:
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


def patients_updates(exchange: Exchange, arrays: Arrays) -> Arrays:
    """Return batch updates unchanged: steps with noise cover them, and others leave where allowed."""
    if exchange.steps is None:
        if not exchange.settings.dp_open_target:
            raise PrivacyError(
                f"its '{protocol.BATCH_UPDATES}' are of a training without noise: set the site's "
                "dp-open-target, and they leave without noise"
            )
        exchange.uncovered.append(protocol.BATCH_UPDATES)
    return arrays


def sums(exchange: Exchange, arrays: Arrays) -> Arrays:
    """Release sums over rows, whose change by one patient the client has bounded."""
    if protocol.CHANGE not in arrays:
        raise PrivacyError(
            f"its '{protocol.SUMS}' do not say by how much one patient changes them: there is no limit for "
            "labels that are numbers, nor for a table's columns, which follow from the mean of all its rows"
        )
    width, outputs = arrays["products"].shape
    found = PrivateSums.from_arrays(arrays, width, outputs)
    normal = exchange.mechanism.normal(found.gram.size + found.products.size)
    deviation = multipliers(exchange.mechanism.noise)[1] * float(arrays[protocol.CHANGE])
    return dict(found.noisy(normal, deviation).to_arrays())


def noise_of_mean(model: Layers, mechanism: Mechanism) -> Arrays:
    """Return the noise of the mean around which a site's sums are, and its deviation as the last number.

    One patient more changes the sum over all by 1 at most. This release and the sums count as one. Of several
    kinds of rows, the first alone is released.
    """
    deviation, features = multipliers(mechanism.noise)[0], widths_of(model)[0]
    return {"noise": np.append(deviation * gaussian(features, mechanism.draw), deviation)}


Release = tuple[Callable[[Exchange, Arrays], Arrays], int]


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
    arrays = [f"{Answer.record_name}/{name}" for name in question.answer.array_names()]
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
    found = RELEASES[settings.dp_unit].get(kind)
    if found is None and settings.dp_unit == SITE and kind in QUESTIONS:
        found = _of_site(QUESTIONS[kind])
    if found is None:
        of = " to one patient" if settings.of_patients else ""
        raise PrivacyError(
            f"replies to '{kind}' have no known sensitivity{of}: choose a method that does not ask for them"
        )
    return found


def planned(settings: PrivacySettings, config: Mapping[str, Any], kind: str = protocol.TRAIN) -> int:
    """Return the largest number of releases in the reply to a train message."""
    records = releases_of(settings, kind).records
    always = (protocol.ARRAYS, f"{Answer.record_name}/")
    names = [name for name in records if name.startswith(always) or config.get(name) is not None]
    return sum(records[name][1] for name in names)


def protect_training(content: RecordDict, exchange: Exchange) -> list[str]:
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
    kept = {
        name: value
        for name, value in metrics.items()
        if name == protocol.NUM_EXAMPLES
        or (settings.dp_report != NONE and _is_figure(name))
        or settings.allows(name)
    }
    answer = _allowed_answer(content, settings)
    own = {protocol.LOGGED: content[protocol.LOGGED]} if protocol.LOGGED in content else {}
    content.clear()
    content.update({protocol.METRICS: MetricRecord(kept), **answer, **own})
    return ["evaluation"] if set(kept) - {protocol.NUM_EXAMPLES} or any(answer.values()) else []


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
    kept, uncovered = {}, []
    for name, value in metrics.items():
        if name in COUNTS:
            kept[name] = value
        elif settings.dp_open_target or settings.allows(name):
            kept[name] = value
            uncovered.append(name)
        elif name != protocol.TRAIN_LOSS:
            raise PrivacyError(
                f"its metric '{name}' follows from the site's data: name it in the site's dp-allow, and it "
                "leaves without noise, or choose a method that does not need it"
            )
    content[protocol.METRICS] = MetricRecord(kept)
    return sorted(uncovered)


def _protect_answer(content: RecordDict, settings: PrivacySettings, releases: Releases) -> dict[str, str]:
    """Check the fields of an answer; return the ones that leave without noise, by record.

    Raises a `PrivacyError` if one may not.
    """
    allowed = dict[str, str]()
    numbers = protocol.settings_in(content, Answer.record_name)
    parts = [f"{Answer.record_name}/{field}" for field in numbers]
    parts += [name for name in content if name.startswith(f"{Answer.record_name}/")]
    for part in parts:
        field = part.split("/")[1]
        shown = field.replace("_", "-")
        if part in releases.records or field in releases.counts:
            continue
        if part in content.array_records:
            raise PrivacyError(f"'{shown}' of its answer has no known sensitivity: choose another method")
        if not (settings.dp_open_target or settings.allows(shown)):
            raise PrivacyError(
                f"'{shown}' of its answer follows from the site's data: name it in the site's dp-allow, and "
                "it leaves without noise, or choose a method that does not need it"
            )
        allowed[part] = shown
    return allowed


def _check_info(content: RecordDict) -> None:
    info = protocol.settings_in(content, protocol.INFO)
    if unknown := sorted(set(info) - HARMLESS):
        raise PrivacyError(
            f"its record '{protocol.INFO}' has '{unknown[0]}', which may follow from the site's data: "
            "leave it out"
        )


def _is_figure(name: str) -> bool:
    """Return whether a metric is a figure of a test or validation set, for any model."""
    own = name.removeprefix(f"{protocol.VALIDATION}-")
    return own in METRICS or name in (UNITS, EFFECTIVE)


def _asked(exchange: Exchange, record: str, arrays: Arrays) -> str:
    encoding = exchange.config.get(record)
    if encoding is None:
        raise PrivacyError(f"it holds '{record}' ({_names(arrays)}), which was not requested")
    return str(encoding)


def _forms(arrays: Layers) -> dict[str, tuple[Any, ...]]:
    return {name: (array.shape, array.dtype) for name, array in arrays.items()}


def _names(names: Any) -> str:
    return ", ".join(sorted(names))


@dataclass(frozen=True)
class PrivateSite:
    """A site's privacy settings and ledger.

    Attributes
    ----------
    domain : str
        The site's domain.
    settings : PrivacySettings
        Its settings.
    ledger : Ledger
        Its past releases.
    seed : int, optional
        Seed of a simulation's noise. Default: the operating system's randomness.
    rounds : int, optional
        The run's rounds, over which chosen noise spends the budget. Default: unknown.
    """

    domain: str
    settings: PrivacySettings
    ledger: Ledger = field(default_factory=lambda: Ledger(None, RecordDict()))
    seed: int | None = None
    rounds: int | None = None

    @property
    def noise(self) -> float:
        """The noise multiplier of a single release."""
        settings = self.settings
        if settings.chooses_noise:
            return noise_of_steps(float(settings.max_epsilon or 0), settings.dp_delta, 1.0, 1)
        return settings.dp_noise

    def check_budget(self, entry: Entry) -> None:
        """Raise a `BudgetError` if the releases of an entry would exceed the site's budget."""
        most, delta, again = self.settings.max_epsilon, self.settings.dp_delta, self.seed is not None
        next_one = self.ledger.epsilon(delta, entry, again, unit=entry.unit)
        if most is not None and next_one > most:
            spent = self.ledger.epsilon(delta, unit=entry.unit)
            raise BudgetError(
                f"the privacy budget is spent: its ε is {spent:.4g} and would become {next_one:.4g}, above "
                f"its max-epsilon {most:g} (δ = {delta:g})"
            )

    def of_patients(self, request: str) -> PatientPrivacy:
        """Return what the site says to its client, if it protects each patient."""
        settings, seed = self.settings, -1
        if self.seed is not None:
            seed = derive_seed(self.seed, "patients", self.domain, request)
        return PatientPrivacy(
            CLIP if settings.dp_clip is None else settings.dp_clip,
            settings.dp_noise,
            settings.dp_delta,
            float(settings.max_epsilon or 0) if settings.chooses_noise else 0.0,
            self.rounds or 0,
            settings.dp_open_target,
            seed,
        )

    def randomness(self, request: str) -> Randomness:
        """Return the source of noise for the reply to a request."""
        if self.seed is None:
            return os.urandom
        return np.random.default_rng(derive_seed(self.seed, "privacy", self.domain, request)).bytes

    @classmethod
    def of(
        cls,
        context: Context,
        domain: str | None = None,
        run: PrivacySettings | None = None,
        seed: int | None = None,
        folder: Path | None = None,
    ) -> "PrivateSite | None":
        """Return the site that a node configuration describes; None if its replies are sent unchanged.

        Parameters
        ----------
        context : Context
            Flower's, with the node configuration.
        domain : str, optional
            For messages. Default: from the node configuration.
        run : PrivacySettings, optional
            The run's settings, used if the node configuration has none.
        seed, folder : int, Path, optional
            For a simulated run: the noise of a node without own settings follows from the seed.

        Raises
        ------
        ConfigError
            If a site that adds noise has no ``state-dir``, or one with another name's ledger.
        """
        node = SiteConfig.of(context)
        decided = node.privacy
        settings = decided or run
        if settings is None or not settings.on:
            return None
        own = domain or node.label
        if decided is None and seed is not None:
            path = None if folder is None else folder / "clients" / as_file_name(own) / LEDGER
            return cls(own, settings, Ledger(path, context.state), seed)
        if not settings.private:
            return cls(own, settings)
        path = node.ledger_path(own)
        return cls(own, settings, Ledger(path, context.state, Journal.of(path)))


class DifferentialPrivacy:
    """A Flower mod around a client app that clips its replies and adds noise.

    The unit of privacy is the site: all of its data together. In a train reply, the update of the parameters,
    batch updates and gradients are released by the Gaussian mechanism, each with its own sensitivity.
    Counters and settings leave unchanged; the training loss does not leave. With the unit ``patient`` only
    Ridge's sums are released, and models trained by steps with noise. A reply that holds anything else, or
    that would exceed the site's budget, becomes an error. Replies to an evaluation hold what the site's
    settings allow, without noise. Role queries pass unchanged.

    Parameters
    ----------
    site_of : callable
        Returns the site of a context, or None if its replies are sent unchanged. Default: from the node
        configuration.

    Examples
    --------
    >>> from flwr.clientapp import ClientApp
    >>> app = ClientApp(mods=[DifferentialPrivacy()])
    """

    def __init__(self, site_of: Callable[[Context], PrivateSite | None] = PrivateSite.of) -> None:
        self._site_of = site_of

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Answer a message."""
        kind = message.metadata.message_type
        if kind == protocol.ROLE_QUERY:
            return call_next(message, context)
        remove_claims(message.content)
        with told():
            site = self._site_of(context)
        if site is None:
            return call_next(message, context)
        answer = {protocol.TRAIN: _train, protocol.EVALUATE: _evaluate}.get(kind.partition(".")[0])
        try:
            if answer is None:
                raise PrivacyError(f"messages of type '{kind}' have no known sensitivity")
            return answer(site, message, context, call_next)
        except PrivacyError as error:
            log(WARNING, "'%s' sends nothing: %s", site.domain, error)
            stays = error.may_leave is False and not speaks(context)
            reason = f"'{site.domain}' sends nothing: {KEPT if stays else error}"
            if isinstance(error, BudgetError):
                return Message(Error(protocol.BUDGET_CODE, reason), reply_to=message)
            return error_reply(message, reason)


def _train(site: PrivateSite, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    settings, content, kind = site.settings, message.content, message.metadata.message_type
    # Copy, since the app below may change the message.
    model = to_layers(content.array_records[protocol.ARRAYS])
    config = dict(protocol.settings_in(content, protocol.CONFIG))
    request = _digest(content)
    number = int(str(config.get(protocol.SERVER_ROUND, 0)))
    entry = Entry(number, request, site.noise, planned(settings, config, kind), settings.dp_unit)
    mechanism = Mechanism(settings.dp_clip or 0.0, site.noise, site.randomness(request))
    if settings.of_patients:
        content[protocol.CONFIG] = ConfigRecord({**config, **site.of_patients(request).settings()})
        if kind == SumRows.message_type():
            content[protocol.MEAN_NOISE] = to_record(noise_of_mean(model, mechanism))
    before = 0.0
    if settings.private:  # before data are read: whether the reply fails may depend on them
        site.check_budget(entry)
        before = site.ledger.epsilon(settings.dp_delta, unit=settings.dp_unit)
        site.ledger.spend(entry, settings.dp_delta, settings.max_epsilon, again=site.seed is not None)
    try:
        reply = _ask(site, message, context, call_next)
        private_steps = _take_steps(reply.content, settings)
        exchange = Exchange(settings, mechanism, model, config, steps=private_steps, kind=kind)
        uncovered = protect_training(reply.content, exchange)
    except PrivacyError as error:  # by the form of message or reply, or by a setting
        if settings.private and site.seed is None and not isinstance(error, FailedError):
            site.ledger.settle(entry, None, settings.dp_delta, None)
        raise
    if settings.private:
        done = _released(entry, exchange)
        site.ledger.settle(entry, done, settings.dp_delta, settings.max_epsilon)
    _tell(reply.content, site, uncovered)
    if protocol.LOGGED in reply.content and settings.private:
        after = protocol.settings_in(reply.content, protocol.INFO)[protocol.EPSILON]
        reply.content.config_records[protocol.LOGGED].update({BEFORE: before, AFTER: float(str(after))})
    return reply


def _released(entry: Entry, exchange: Exchange) -> Entry:
    """Return the entry of what a reply releases."""
    releases = exchange.mechanism.releases
    if exchange.steps is None:
        return replace(entry, releases=releases)
    if releases:
        raise PrivacyError(f"it holds '{protocol.SUMS}' with a trained model")
    noise, rate, steps = exchange.steps
    return replace(entry, noise=noise, rate=rate, releases=steps)


class FailedError(PrivacyError):
    """The app has failed at data; why is not for others."""


def _ask(site: PrivateSite, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Return the app's reply.

    Raises a `PrivacyError` if there is none. Its words name a setting, or nothing: the reason, which may
    depend on data, is in the site's own log.
    """
    try:
        reply = call_next(message, context)
    except Exception as error:  # of any kind
        if may_leave(error):
            raise PrivacyError(str(error)) from error
        reason: object = error
    else:
        if not reply.has_error():
            return reply
        reason = reply.error.reason
    log(ERROR, "'%s' cannot answer: %s", site.domain, reason, exc_info=isinstance(reason, Exception))
    raise FailedError("its app has failed, and why is in the site's own log")


def _take_steps(content: RecordDict, settings: PrivacySettings) -> Steps | None:
    """Remove the steps that had noise for each patient from a reply; they stay at the site."""
    if not settings.of_patients or STEPS not in content.array_records:
        return None
    found = content.array_records[STEPS]
    del content[STEPS]
    return read_steps(to_layers(found))


def _evaluate(site: PrivateSite, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    if site.settings.dp_report == NONE:
        return _evaluate_silently(site, message, context, call_next)
    reply = _ask(site, message, context, call_next)
    _tell(reply.content, site, protect_evaluation(reply.content, site.settings))
    return reply


def _evaluate_silently(
    site: PrivateSite, message: Message, context: Context, call_next: ClientAppCallable
) -> Message:
    """Let the app evaluate; return the size of its test set, and what the site's dp-allow names.

    A failure, which may depend on data, has the answer of a success, since the role query tells the size.
    """
    config = protocol.settings_in(message.content, protocol.CONFIG)
    of = protocol.VALIDATION_EXAMPLES if config.get(protocol.VALIDATION) == "only" else protocol.TEST
    size = _sizes(message, context, call_next).get(of, 0)
    try:
        content = _ask(site, message, context, call_next).content
        uncovered = protect_evaluation(content, site.settings)
    except FailedError:
        content, uncovered = RecordDict(), []
    metrics = content.metric_records.get(protocol.METRICS, MetricRecord())
    content[protocol.METRICS] = MetricRecord({**metrics, protocol.NUM_EXAMPLES: int(str(size))})
    _tell(content, site, uncovered)
    return Message(content, reply_to=message)


def _sizes(message: Message, context: Context, call_next: ClientAppCallable) -> ConfigRecord:
    """Return what the app answers to the role query; nothing if it does not."""
    try:
        reply = call_next(of_type(message, protocol.ROLE_QUERY), context)
    except Exception as error:  # it is the same whatever the message asks
        log(WARNING, "The app does not tell its sizes: %s", error)
        return ConfigRecord()
    return ConfigRecord() if reply.has_error() else protocol.settings_in(reply.content, protocol.INFO)


def _tell(content: RecordDict, site: PrivateSite, uncovered: list[str]) -> None:
    """Report to the server the privacy spent, and the parts of the reply without protection."""
    info = dict(protocol.settings_in(content, protocol.INFO))
    settings = site.settings
    if settings.private:
        info[protocol.EPSILON] = site.ledger.epsilon(settings.dp_delta, unit=settings.dp_unit)
        info[protocol.DELTA] = settings.dp_delta
        if settings.of_patients:
            info[protocol.OF_PATIENTS] = True
        if uncovered:
            info[protocol.UNCOVERED] = uncovered
        log(INFO, "ε of '%s' is %.4g (δ = %g)", site.domain, info[protocol.EPSILON], settings.dp_delta)
    content[protocol.INFO] = ConfigRecord(info)


def _digest(content: RecordDict) -> str:
    """Return a digest of a message: its model, its settings, and its question."""
    settings, arrays = dict[str, str](), dict[str, Any]()
    for name, record in content.items():
        asked = name.partition("/")[0] == Question.record_name
        if name == protocol.ARRAYS or (asked and isinstance(record, ArrayRecord)):
            prefix = "" if name == protocol.ARRAYS else f"{name} "
            arrays |= {f"{prefix}{key}": array for key, array in to_layers(record).items()}  # type: ignore[arg-type]
        elif name == protocol.CONFIG or asked:
            prefix = "" if name == protocol.CONFIG else f"{name} "
            settings |= {f"{prefix}{key}": str(value) for key, value in record.items()}
    return checksum(settings, arrays)[:16]
