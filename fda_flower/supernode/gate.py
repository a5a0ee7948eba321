"""A site's gate in its SuperNode: it holds the site's rules, whatever the app of a run is.

An app is code from outside, and may leave out `fda_flower.site.SiteGate`. The SuperNode is
the site's own process, and all messages pass through it.
"""

from collections.abc import Mapping
from dataclasses import replace
from logging import ERROR
from typing import Any

from flwr.app import Context, Message
from flwr.common import log

from fda_flower.errors import FdaError
from fda_flower.site.asked import Asked
from fda_flower.site.gate import SiteGate
from fda_flower.site.node import Site
from fda_flower.site.secure_with import identity_of
from fda_flower.site.words import KEPT, refusal
from fda_flower.wire.bundles import Form, split
from fda_flower.wire.internals import error_reply
from fda_flower.wire.protocol import GATED


class Gate:
    """The rules of a node configuration, for all messages of a SuperNode (a `Border` of the private API).

    A reply is read whole, judged and logged by a `SiteGate`, and written again as the answer to the message
    that came, so that nothing leaves that was not read.

    Parameters
    ----------
    node : Mapping
        The node configuration.

    Raises
    ------
    ConfigError
        If an entry of the configuration is misspelt or invalid, or the node could not add its noise or sign.
    """

    marks: Mapping[str, Any] = {GATED: True}

    def __init__(self, node: Mapping[str, Any]) -> None:
        self._node = {name: value for name, value in node.items() if name != "apps"}  # held before the start
        self.site = Site.read(node)
        self.site.check_ledger()
        identity_of(self.site)
        self._gate = SiteGate()
        self._asked: dict[str, tuple[Message, Context, str | None]] = {}
        self._digest: str | None = None
        self._apps: dict[int, str | None] = {}

    def refuses_app(self, digest: str) -> str | None:
        """Return why an app, by the SHA-256 of its bundle, may not start; None if it may."""
        self._digest = digest
        return self.site.rules.refuses_app(digest)

    def refuse(self, message: Message, context: Context, reason: str) -> Message:
        """Return the reply to a message whose app may not start; it is logged when it leaves."""
        self._note(message, context, reason)
        return refusal(Asked(message, context, self.site), reason, by_rule=True)

    def take(self, message: Message, context: Context) -> None:
        """Note a message that has come."""
        self._note(message, context, None)

    def _note(self, message: Message, context: Context, refused: str | None) -> None:
        if self._digest is not None:
            self._apps[message.metadata.run_id], self._digest = self._digest, None
        self._asked[message.metadata.message_id] = message, context, refused

    def give(self, reply: Message) -> Message:
        """Return the message that leaves in place of an app's reply: the same, a refusal or an error."""
        message, context, refused = self._asked.pop(reply.metadata.reply_to_message_id)
        context.node_config = self._node
        gate = replace(self._gate, app=self._apps.get(message.metadata.run_id))

        form = Form.PLAIN

        def app(question: Message, context: Context) -> Message:
            nonlocal form
            if reply.has_error():
                return Message(reply.error, reply_to=question)
            form = Form.of(reply.content)
            return Message(split(reply.content), reply_to=question)

        try:
            message.content = split(message.content)
            if refused is not None:
                return gate.refuse(message, context, refused)
            answer = gate(message, context, app)
            if answer.has_content():
                answer.content = form.write(answer.content)
            return answer
        except Exception as error:  # Flower would send it from the app's process
            if not isinstance(error, FdaError):
                log(ERROR, "This site cannot answer", exc_info=error)
            return error_reply(message, str(error) if isinstance(error, FdaError) else KEPT)
