"""A Flower mod that adds noise to the replies of a site, and charges its ledger."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from logging import ERROR, INFO, WARNING
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.common import log

from fda_flower.files import as_file_name, checksum, derive_seed
from fda_flower.site.accountant import Steps, noise_of_steps
from fda_flower.site.config import CLIP, LEDGER, NONE, PrivacySettings
from fda_flower.site.ledger import BudgetError, Entry, Journal, Ledger, PrivacyError
from fda_flower.site.node import Site
from fda_flower.site.noise import STEPS, Mechanism, PatientPrivacy, Randomness, read_steps, remove_claims
from fda_flower.site.sensitivities import (
    PrivateExchange,
    noise_of_mean,
    planned,
    protect_evaluation,
    protect_training,
)
from fda_flower.site.words import KEPT, may_leave, told
from fda_flower.wire import protocol
from fda_flower.wire.asked.ridge import SumRows
from fda_flower.wire.internals import ClientAppCallable, error_reply
from fda_flower.wire.protocol import to_layers, to_record
from fda_flower.wire.questions import Question

BEFORE, AFTER = "epsilon-before", "epsilon-after"
"""Entries of `protocol.LOGGED`: the ``ε`` that a site had spent before a message, and after its reply."""
SIZES = "privacy.sizes"
"""A node's record of what it told of its test set, for evaluations that may tell no more."""


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
        node = Site.of(context)
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
            reply = call_next(message, context)
            return reply if reply.has_error() else self._role(reply, context)
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
            stays = error.may_leave is False and not Site.of(context).speaks
            reason = f"'{site.domain}' sends nothing: {KEPT if stays else error}"
            if isinstance(error, BudgetError):
                return Message(Error(protocol.BUDGET_CODE, reason), reply_to=message)
            return error_reply(message, reason)

    def _role(self, reply: Message, context: Context) -> Message:
        """Return an answer to the role query that tells of no rare class or event if the site adds noise.

        The size that it tells of the test set is noted in the node's state.
        """
        info = protocol.settings_in(reply.content, protocol.INFO)
        if protocol.TEST in info:
            context.state[SIZES] = ConfigRecord({protocol.TEST: info[protocol.TEST]})
        counts = {protocol.HEADLINE, protocol.FEW_EVENTS}
        if counts & info.keys() and self._site_of(context) is not None:
            rest = {name: value for name, value in info.items() if name not in counts}
            reply.content[protocol.INFO] = ConfigRecord(rest)
        return reply


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
        exchange = PrivateExchange(settings, mechanism, model, config, steps=private_steps, kind=kind)
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


def _released(entry: Entry, exchange: PrivateExchange) -> Entry:
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

    A failure, which may depend on data, has the answer of a success: the size is the role query's, or 0.
    """
    size = protocol.settings_in(context.state, SIZES).get(protocol.TEST, 0)
    try:
        content = _ask(site, message, context, call_next).content
        uncovered = protect_evaluation(content, site.settings)
    except FailedError:
        content, uncovered = RecordDict(), []
    metrics = content.metric_records.get(protocol.METRICS, MetricRecord())
    content[protocol.METRICS] = MetricRecord({**metrics, protocol.NUM_EXAMPLES: int(str(size))})
    _tell(content, site, uncovered)
    return Message(content, reply_to=message)


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
