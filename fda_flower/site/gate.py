"""The gate of a site: a Flower mod that holds its rules, and logs what leaves."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from logging import ERROR, INFO
from typing import Any

from flwr.app import Context, Error, Message
from flwr.common import log

from fda_flower.errors import ConfigError, RunError
from fda_flower.site.asked import Asked, as_told
from fda_flower.site.log import SENT, Facts, SentLog
from fda_flower.site.node import Site
from fda_flower.site.rules import Rules
from fda_flower.site.secure_with import identity_of, sign_keys
from fda_flower.site.words import (
    LONGEST,
    UNLOGGED,
    WITHHELD,
    RefusalError,
    kept,
    refusal,
    shortened,
    told,
    unable,
)
from fda_flower.wire import protocol
from fda_flower.wire.asked.secure_sums import MaskSums
from fda_flower.wire.internals import ClientAppCallable


@dataclass(frozen=True)
class SiteGate:
    """A Flower mod that applies the rules of the node configuration, and logs replies.

    Make it the first of a ``ClientApp``'s mods, so that it sees the replies as they leave the others;
    `fda_flower.clients.serve` includes it. A message that its `Rules` refuse does not reach the app. With a
    ``state-dir`` each reply is logged in ``sent.jsonl``, and does not leave if it cannot be logged.

    Parameters
    ----------
    about : callable
        Adds the run's method and the node's role to a message. Default: ``method`` of the run's
        configuration, ``role`` of the node's.
    methods : Collection[str]
        The existing methods, to check the node configuration. Default: unknown.
    app : str, optional
        The SHA-256 of the app's bundle, for the log.

    Examples
    --------
    >>> from flwr.clientapp import ClientApp
    >>> app = ClientApp(mods=[SiteGate()])
    """

    about: Callable[[Asked], Asked] = as_told
    methods: Collection[str] = ()
    app: str | None = None

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Answer a message with the app below if the site's rules allow it."""
        asked = Asked(message, context, Site.of(context))
        try:
            rules = asked.site.rules
            rules.check_methods(self.methods)
        except ConfigError as error:
            why = str(error)
            return _logged(asked, lambda: refusal(asked, why), app=self.app)
        withholds = rules.allow_records is not None
        return _logged(asked, lambda: self._answer(asked, rules, call_next), withholds, self.app)

    def refuse(self, message: Message, context: Context, reason: str) -> Message:
        """Answer a message that the site refuses, whatever the app would answer."""
        asked = Asked(message, context, Site.of(context))
        return _logged(asked, lambda: refusal(asked, reason, by_rule=True), app=self.app)

    def _answer(self, asked: Asked, rules: Rules, call_next: ClientAppCallable) -> Message:
        try:
            with told():
                asked = self.about(asked)
        except ConfigError as error:
            return unable(asked, error)
        if reason := rules.refuses_message(asked):
            return refusal(asked, reason, by_rule=True)
        with kept(asked.site):
            reply = shortened(call_next(asked.message, asked.context), asked.message)
        if reply.has_error():
            return reply
        facts = reply.content.pop(protocol.LOGGED, None)
        if own := rules.withhold(asked, reply.content):
            log(INFO, "This site keeps %s of its answer (the site's require-secure)", ", ".join(own))
        fewest = None if facts is None else facts.get(protocol.FEWEST)
        units = None if facts is None or asked.kind != "train" else facts.get("units")
        reason = rules.refuses_reply(asked, reply.content) or rules.refuses_rare(asked, fewest)
        reason = reason or rules.refuses_few(units)
        if reason is not None:
            return refusal(asked, reason, by_rule=True)
        if facts is not None:
            reply.content[protocol.LOGGED] = facts
        return _signed(asked, reply)


def _signed(asked: Asked, reply: Message) -> Message:
    """Return a reply whose keys of a masked sum, if it has any, this site has signed.

    Behind the gate of a SuperNode nothing is signed here: the gate does it.
    """
    site = asked.site
    if not MaskSums.among([asked.message.metadata.message_type]) or site.gated or site.domain is None:
        return reply
    try:
        if (identity := identity_of(site)) is not None:
            sign_keys(asked.message, asked.context.run_id, site.domain, identity, reply.content)
    except ConfigError as error:
        return unable(asked, error, by_rule=True)
    return reply


def _logged(
    asked: Asked, answer: Callable[[], Message], withholds: bool = False, app: str | None = None
) -> Message:
    """Return an answer once it is logged; if the site `withholds` the words of errors, they stay here.

    Behind the gate of a SuperNode nothing is logged or withheld here: the gate does both, and also takes out
    what the client tells the log.
    """
    site = asked.site
    sent = None if site.gated or site.state_dir is None else SentLog(site.state_dir / SENT)
    withholds = withholds and not site.gated
    try:
        reply = answer()
    except Exception as error:  # Flower sends it to the server
        shown = error if len(str(error)) <= LONGEST else RunError(f"{str(error)[:LONGEST]}...")
        if not _noted(sent, asked, shown, Facts(app)):
            return refusal(asked, UNLOGGED)
        if withholds:
            raise RunError(WITHHELD) from None
        if shown is error:
            raise
        raise shown from None
    facts: Mapping[str, Any] = {}
    if not site.gated and reply.has_content():
        facts = reply.content.pop(protocol.LOGGED, facts)
    if not _noted(sent, asked, reply, Facts(app, facts)):
        return refusal(asked, UNLOGGED)
    if withholds and reply.has_error() and not isinstance(reply.error, RefusalError):
        return Message(Error(reply.error.code, WITHHELD), reply_to=asked.message)
    return reply


def _noted(sent: SentLog | None, asked: Asked, reply: Message | Exception, facts: Facts) -> bool:
    """Return whether a reply or an exception is in the site's log, if it has one."""
    try:
        if sent is not None:
            sent.note(asked.message, asked.context, reply, facts)
    except Exception as error:  # a reply of any form
        log(ERROR, "This site cannot log its reply", exc_info=error)
        return False
    return True
