"""Clients of Flower's older API as nodes: a grid over a ``ClientManager``."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common import (
    Code,
    DisconnectRes,
    EvaluateIns,
    EvaluateRes,
    FitIns,
    FitRes,
    GetParametersIns,
    GetParametersRes,
    GetPropertiesIns,
    GetPropertiesRes,
    ReconnectIns,
)
from flwr.server.client_manager import ClientManager
from flwr.server.client_proxy import ClientProxy
from flwr.serverapp import Grid

from fda_flower.errors import ConfigError
from fda_flower.wire.internals import Run, empty_run, error_reply, numbered
from fda_flower.wire.protocol import INFO, ROLE_QUERY


class ClientError(Exception):
    """A client's exception with the client's id, which Flower's older server does not pass on."""

    def __init__(self, cid: str, error: Exception) -> None:
        super().__init__(repr(error))
        self.cid = cid


class NamedProxy(ClientProxy):
    """A client proxy whose exceptions carry the client's id."""

    def __init__(self, proxy: ClientProxy) -> None:
        self.__dict__.update(proxy.__dict__)
        self._proxy = proxy

    def get_properties(
        self, ins: GetPropertiesIns, timeout: float | None, group_id: int | None
    ) -> GetPropertiesRes:
        """Ask the client for its properties."""
        with self._named():
            return self._proxy.get_properties(ins, timeout, group_id)

    def get_parameters(
        self, ins: GetParametersIns, timeout: float | None, group_id: int | None
    ) -> GetParametersRes:
        """Ask the client for its model."""
        with self._named():
            return self._proxy.get_parameters(ins, timeout, group_id)

    def fit(self, ins: FitIns, timeout: float | None, group_id: int | None) -> FitRes:
        """Have the client train."""
        with self._named():
            return self._proxy.fit(ins, timeout, group_id)

    def evaluate(self, ins: EvaluateIns, timeout: float | None, group_id: int | None) -> EvaluateRes:
        """Have the client evaluate."""
        with self._named():
            return self._proxy.evaluate(ins, timeout, group_id)

    def reconnect(self, ins: ReconnectIns, timeout: float | None, group_id: int | None) -> DisconnectRes:
        """Tell the client to disconnect."""
        with self._named():
            return self._proxy.reconnect(ins, timeout, group_id)

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise ClientError(self.cid, error) from error


class ManagerGrid(Grid):
    """A Flower `Grid` over a `ClientManager`, as far as a `Roster` needs one.

    A role query becomes a call of ``get_properties``. Nothing else can be sent, since it is the older server
    that has the clients train and evaluate.

    Parameters
    ----------
    manager : ClientManager
        The older server's.
    """

    def __init__(self, manager: ClientManager) -> None:
        self._manager = manager
        self._run = empty_run()
        self._node_ids: dict[str, int] = {}
        self._proxies: dict[int, ClientProxy] = {}

    def set_run(self, run: Run) -> None:
        """Set the run that messages belong to."""
        self._run = run

    @property
    def run(self) -> Run:
        """The run that messages belong to."""
        return self._run

    def proxy(self, node_id: int) -> NamedProxy:
        """Return the client of a node."""
        return NamedProxy(self._proxies[node_id])

    def get_node_ids(self) -> Iterable[int]:
        """Return a number for each connected client, which stays the same as long as this grid lasts."""
        connected = dict(self._manager.all())
        for cid, proxy in connected.items():
            # Flower keeps node id 1 for the server.
            self._proxies[self._node_ids.setdefault(cid, len(self._node_ids) + 2)] = proxy
        return [self._node_ids[cid] for cid in connected]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Return the replies to role queries.

        Raises
        ------
        ConfigError
            If a message is not a role query.
        """
        asked = numbered(messages)
        for message in asked:
            if message.metadata.message_type != ROLE_QUERY:
                raise ConfigError(
                    "the method asks its clients more than once in a round, which Flower's older server "
                    "cannot do: use the Message API"
                )
        with ThreadPoolExecutor() as pool:
            return list(pool.map(lambda message: self._answer(message, timeout), asked))

    def _answer(self, message: Message, timeout: float | None) -> Message:
        proxy = self.proxy(message.metadata.dst_node_id)
        try:
            answer = proxy.get_properties(GetPropertiesIns(config={}), timeout, None)
        except ClientError as failure:
            return error_reply(message, f"client {proxy.cid}: {failure}")
        if answer.status.code != Code.OK or "domain" not in answer.properties:
            return error_reply(
                message,
                f"client {proxy.cid} does not report its domain: let its get_properties return "
                '{"domain": ..., "role": "source" or "target"}',
            )
        return Message(RecordDict({INFO: ConfigRecord(dict(answer.properties))}), reply_to=message)

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Not supported by this grid."""
        raise NotImplementedError

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Not supported by this grid."""
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Not supported by this grid."""
        raise NotImplementedError
