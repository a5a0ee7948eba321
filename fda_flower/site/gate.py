"""The gate of a site: a Flower mod around its whole app, which refuses, and notes what leaves."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from logging import WARNING

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.common import log

from fda_flower import protocol
from fda_flower.errors import ConfigError
from fda_flower.site.config import SiteConfig
from fda_flower.site.log import REFUSED_CODE, SENT, SentLog
from fda_flower.site.policy import Asked, Rules


def as_told(asked: Asked) -> Asked:
    """Return the same with the method that the run's configuration names, and the role of the node's."""
    method = asked.context.run_config.get("method")
    role = SiteConfig.of(asked.context).role
    return replace(asked, method=None if method is None else str(method), role=role)


@dataclass(frozen=True)
class SiteGate:
    """A Flower mod: have the site decide by its node configuration, and note what leaves it.

    It has to be the first of a ``ClientApp``'s mods, so that it sees what the others make of a reply;
    `fda_flower.clients.serve` has it. A message that its `Rules` refuse
    does not reach the app. With a ``state-dir`` each reply is noted in its ``sent.jsonl`` before it
    leaves, and does not leave if it cannot be noted.

    Parameters
    ----------
    about : callable
        Adds the run's method and the node's role to what is asked. Default: ``method`` of the run's
        configuration, ``role`` of the node's.
    methods : Collection[str]
        The methods that exist, so that the node configuration can be checked. Default: not known.

    Examples
    --------
    >>> from flwr.clientapp import ClientApp
    >>> app = ClientApp(mods=[SiteGate()])
    """

    about: Callable[[Asked], Asked] = as_told
    methods: Collection[str] = ()

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Answer a message, by the app below if the site's rules allow it."""
        asked = Asked(message, context)
        folder = SiteConfig.of(context).state_dir
        sent = None if folder is None else SentLog(folder / SENT)
        try:
            reply = self._answer(asked, call_next)
        except Exception as error:
            if sent is not None:  # Flower sends the exception to the server.
                sent.note(message, context, error)
            raise
        if sent is not None:
            try:
                sent.note(message, context, reply)
            except OSError as error:
                return refusal(asked, f"the site cannot note what it sends in '{sent.path}': {error}")
        return reply

    def _answer(self, asked: Asked, call_next: ClientAppCallable) -> Message:
        try:
            rules = Rules.read(asked.context.node_config, self.methods)
            told = asked if rules == Rules() else self.about(asked)
        except ConfigError as error:
            return refusal(asked, str(error))
        if reason := rules.refuses_message(told):
            return refusal(asked, reason, by_rule=True)
        reply = call_next(asked.message, asked.context)
        if reply.has_error() or _says_only_why_not(asked, reply.content):
            return reply
        reason = rules.refuses_reply(told, reply.content)
        return reply if reason is None else refusal(asked, reason, by_rule=True)


def _says_only_why_not(asked: Asked, reply: RecordDict) -> bool:
    """Whether it is the answer to the role query of a node that cannot take part."""
    is_query = asked.message.metadata.message_type == protocol.ROLE_QUERY
    return is_query and set(reply) == {protocol.INFO} and protocol.PROBLEM in reply[protocol.INFO]


def refusal(asked: Asked, reason: str, by_rule: bool = False) -> Message:
    """Return the reply that refuses: to the role query the node's ``problem``, else an error."""
    log(WARNING, "This site refuses: %s", reason)
    if asked.message.metadata.message_type != protocol.ROLE_QUERY:
        return Message(Error(REFUSED_CODE, reason), reply_to=asked.message)
    info: dict[str, str | bool] = {**SiteConfig.of(asked.context).about(), protocol.PROBLEM: reason}
    if by_rule:
        info[protocol.REFUSED] = True
    return Message(RecordDict({protocol.INFO: ConfigRecord({**info})}), reply_to=asked.message)
