"""Who takes part: each node's role and domain, asked of the nodes themselves."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from logging import WARNING

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid

from fda_flower.errors import RunError

ROLE_QUERY = "query.role"


@dataclass(frozen=True)
class Node:
    """A client of the federation: Flower's id of its node, its domain, and whether it is the target."""

    id: int
    domain: str
    is_target: bool

    @property
    def role(self) -> str:
        """``"target"`` or ``"source"``."""
        return "target" if self.is_target else "source"


class Roster:
    """The nodes by role, sorted by domain, so that nothing depends on Flower's random node ids.

    Parameters
    ----------
    target : str, optional
        The domain of the target, whatever role it gives itself. Default: the node whose role is
        ``"target"``.
    """

    def __init__(self, target: str | None = None) -> None:
        self._target = target
        self._nodes: dict[int, Node] = {}

    def refresh(
        self, grid: Grid, expected: int = 1, patience: float = 0.0, timeout: float | None = None
    ) -> None:
        """Ask the nodes that are new for their role, and forget those that have left.

        Parameters
        ----------
        grid : Grid
            Flower's way to the nodes.
        expected : int
            Nodes to wait for.
        patience : float
            Seconds to wait for them at most.
        timeout : float, optional
            Seconds to wait for their answers.

        Raises
        ------
        RunError
            If two nodes claim to be the target or have the same domain.
        """
        connected = _wait_for(grid, expected, patience)
        self._nodes = {i: node for i, node in self._nodes.items() if i in connected}
        for node in self._ask(grid, sorted(connected - self._nodes.keys()), timeout):
            self._nodes[node.id] = node
        self._check()

    @property
    def nodes(self) -> list[Node]:
        """All nodes, sorted by domain."""
        return sorted(self._nodes.values(), key=lambda node: node.domain)

    @property
    def sources(self) -> list[Node]:
        """The sources, sorted by domain."""
        return [node for node in self.nodes if not node.is_target]

    @property
    def target(self) -> Node | None:
        """The target, if it is connected."""
        return next((node for node in self.nodes if node.is_target), None)

    def get(self, node_id: int) -> Node | None:
        """The node with this id of Flower's."""
        return self._nodes.get(node_id)

    def require(self, min_sources: int) -> None:
        """Raise a `RunError` unless there are one target and enough sources."""
        claims = ", ".join(node.domain for node in self.nodes) or "none"
        if self.target is None:
            wanted = "with role 'target'" if self._target is None else f"of domain '{self._target}'"
            raise RunError(
                f"no node {wanted} among the connected ones ({claims}): give exactly one client the "
                'role, by node configuration (role="target") or by the strategy\'s target argument'
            )
        if len(self.sources) < min_sources:
            raise RunError(
                f"{len(self.sources)} sources are connected ({claims}), at least {min_sources} are "
                "needed: start more clients with role 'source'"
            )

    def _ask(self, grid: Grid, node_ids: list[int], timeout: float | None) -> Iterable[Node]:
        if not node_ids:
            return
        messages = [Message(RecordDict(), node_id, ROLE_QUERY) for node_id in node_ids]
        for reply in grid.send_and_receive(messages, timeout=timeout):
            if reply.has_error() or "info" not in reply.content.config_records:
                reason = reply.error.reason if reply.has_error() else "its reply has no 'info'"
                log(WARNING, "Node %s does not tell its role: %s", reply.metadata.src_node_id, reason)
                continue
            yield self._node(reply.metadata.src_node_id, reply.content.config_records["info"])

    def _node(self, node_id: int, info: ConfigRecord) -> Node:
        domain, role = str(info.get("domain", node_id)), info.get("role")
        is_target = role == "target" if self._target is None else domain == self._target
        return Node(node_id, domain, is_target)

    def _check(self) -> None:
        targets = [node for node in self.nodes if node.is_target]
        if len(targets) > 1:
            claims = ", ".join(f"'{node.domain}' (node {node.id})" for node in targets)
            raise RunError(f"{len(targets)} nodes claim to be the target, exactly one may: {claims}")
        domains = [node.domain for node in self.nodes]
        for domain in domains:
            if domains.count(domain) > 1:
                raise RunError(
                    f"{domains.count(domain)} nodes serve the domain '{domain}': give each client its own"
                )


def _wait_for(grid: Grid, expected: int, patience: float) -> set[int]:
    deadline = time.monotonic() + patience
    while len(connected := set(grid.get_node_ids())) < expected and time.monotonic() < deadline:
        time.sleep(0.1)
    if len(connected) < expected:
        log(WARNING, "%d of %d nodes are connected after %g s", len(connected), expected, patience)
    return connected
