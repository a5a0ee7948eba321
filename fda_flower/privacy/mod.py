"""A Flower mod: what a site sends has noise, or is not sent."""

from collections.abc import Callable
from logging import INFO, WARNING
from typing import Any

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.common import log

from fda_flower import protocol
from fda_flower.aggregation import Layers
from fda_flower.files import checksum
from fda_flower.flower_internals import error_reply
from fda_flower.privacy.ledger import Entry
from fda_flower.privacy.mechanism import BudgetError, Mechanism, PrivacyError
from fda_flower.privacy.replies import Exchange, planned, protect_evaluation, protect_training
from fda_flower.privacy.site import PrivateSite
from fda_flower.protocol import to_layers


class DifferentialPrivacy:
    """A Flower mod around a client app: clips what its replies tell of the site's data, and adds noise.

    The unit of privacy is the site: all of its data, as one. Of a train reply the update of the parameters,
    batch updates and gradients are released by the Gaussian mechanism, each with a sensitivity of its own;
    counters and settings leave as they are; the training loss does not leave. A reply that holds anything
    else becomes an error, as does one that would bring the site's ``ε`` above its budget. Replies to an
    evaluation hold what the site tells, without noise. The role query passes.

    Parameters
    ----------
    site_of : callable
        Returns the site of a context, or None for one whose replies are sent as they are. Default: what the
        node configuration says.

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
        site = self._site_of(context)
        if site is None:
            return call_next(message, context)
        answer = {protocol.TRAIN: _train, protocol.EVALUATE: _evaluate}.get(kind)
        try:
            if answer is None:
                raise PrivacyError(f"messages of type '{kind}' have no known sensitivity")
            return answer(site, message, context, call_next)
        except PrivacyError as error:
            reason = f"'{site.domain}' sends nothing: {error}"
            log(WARNING, "%s", reason)
            if isinstance(error, BudgetError):
                return Message(Error(protocol.BUDGET_CODE, reason), reply_to=message)
            return error_reply(message, reason)


def _train(site: PrivateSite, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    settings, content = site.settings, message.content
    # Copies, since the app below may change the message.
    model = to_layers(content.array_records[protocol.ARRAYS])
    config = dict(protocol.settings_in(content, protocol.CONFIG))
    request = _digest(model, config)
    number = int(str(config.get(protocol.SERVER_ROUND, 0)))
    entry = Entry(number, request, settings.dp_noise, planned(settings, model, config))
    if settings.private:
        _check_budget(site, entry)
    reply = call_next(message, context)
    if reply.has_error():
        return reply
    assert settings.dp_clip is not None, "it is on"
    mechanism = Mechanism(settings.dp_clip, settings.dp_noise, site.randomness(request))
    uncovered = protect_training(reply.content, Exchange(settings, mechanism, model, config))
    if settings.private:
        done = Entry(number, request, settings.dp_noise, mechanism.releases)
        site.ledger.spend(done, settings.dp_delta, settings.max_epsilon, again=site.seed is not None)
    _tell(reply.content, site, uncovered)
    return reply


def _evaluate(site: PrivateSite, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    reply = call_next(message, context)
    if not reply.has_error():
        uncovered = protect_evaluation(reply.content, site.settings)
        _tell(reply.content, site, uncovered)
    return reply


def _check_budget(site: PrivateSite, entry: Entry) -> None:
    settings, again = site.settings, site.seed is not None
    if settings.max_epsilon is None:
        return
    next_one = site.ledger.epsilon(settings.dp_delta, entry, again)
    if next_one > settings.max_epsilon:
        spent = site.ledger.epsilon(settings.dp_delta)
        raise BudgetError(
            f"{protocol.BUDGET}: its ε is {spent:.4g} and would become {next_one:.4g}, above its max-epsilon "
            f"{settings.max_epsilon:g} (δ = {settings.dp_delta:g})"
        )


def _tell(content: RecordDict, site: PrivateSite, uncovered: list[str]) -> None:
    """Tell the server what the site has spent, and what the ``ε`` does not cover."""
    info = dict(protocol.settings_in(content, protocol.INFO))
    settings = site.settings
    if settings.private:
        info[protocol.EPSILON] = site.ledger.epsilon(settings.dp_delta)
        info[protocol.DELTA] = settings.dp_delta
        if uncovered:
            info[protocol.UNCOVERED] = uncovered
        log(INFO, "ε of '%s' is %.4g (δ = %g)", site.domain, info[protocol.EPSILON], settings.dp_delta)
    content[protocol.INFO] = ConfigRecord(info)


def _digest(model: Layers, config: dict[str, Any]) -> str:
    return checksum({key: str(value) for key, value in config.items()}, model)[:16]
