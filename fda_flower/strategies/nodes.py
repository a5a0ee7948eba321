"""The participants of a run: each node's role, domain and data, as reported by the nodes."""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from logging import WARNING
from typing import Any, TypeGuard

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common import log
from flwr.serverapp import Grid

from fda_flower.errors import ConfigError, RunError, printable
from fda_flower.files import as_file_name
from fda_flower.names.words import by_reason
from fda_flower.wire.internals import NO_HEARTBEAT, keys_of, names_of, reason_of
from fda_flower.wire.protocol import (
    ASKS,
    CONFIG,
    FROZEN,
    GATED,
    INFO,
    PROBLEM,
    PROPERTIES,
    REFUSED,
    ROLE_QUERY,
    SERVER_ROUND,
    settings_in,
)
from fda_flower.wire.questions import check_settings

ASK_AGAIN_SECONDS = 60.0
"""Seconds until a node that cannot take part is queried again; in a deployment a message takes seconds."""

LONGEST_NAME = 100
"""Allowed characters of a domain; a node may send anything."""

PATIENCE = 2
"""Consecutive train messages without a reply after which a source is left out; each costs a timeout."""

ATTEMPTS = 3
"""Role queries to a silent node before the first round, as it may be loading data."""

SILENT = "it does not answer"

UNGUARDED = "hold only as far as the app keeps them: start the node by fda-supernode, which holds them itself"

SHARED = ("class-names", "classes", "features", "shape", FROZEN)
"""Properties of data and network that must agree between all nodes that report them."""


@dataclass(frozen=True)
class Node:
    """A client of the federation; `id` is Flower's id of its node.

    `info` is its full answer to the role query. This package's clients report ``domain``, ``role``,
    ``examples`` (labelled samples to train on), the ``shape`` of a sample, the number of ``classes``,
    ``class-names``, and ``features`` (the columns of a table).
    """

    id: int
    domain: str
    is_target: bool
    info: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def role(self) -> str:
        """``"target"`` or ``"source"``."""
        return "target" if self.is_target else "source"


@dataclass(frozen=True)
class Missing:
    """A node that cannot take part: the reason, the time of the query, and whether it was silent."""

    node: Node
    reason: str
    asked: float
    silent: bool


class Nodes:
    """The nodes by role, sorted by domain, so that results do not depend on Flower's random node ids.

    `target` is the domain of the target, whatever role its node reports; by default it is the node whose role
    is ``"target"``. Without `has_target` there is none, and one more source is required. The role query may
    take `query_timeout` seconds or, before the first round, `patience` if that is longer.

    Attributes
    ----------
    asks : Mapping[str, str]
        By role, what the run will request that a site may forbid: per-batch data (``norms``, ``sketch`` or
        ``full``) or open ``sums``. The role query includes it, so that such a site refuses the run before any
        training.
    by_name : bool
        Whether a node that is registered with the SuperLink under a name may only serve its domain.
    expected : Collection[str]
        The domains of the run, if they are known. Until its node connects, each is `missing`.
    """

    def __init__(
        self, target: str | None = None, query_timeout: float = 30.0, has_target: bool = True
    ) -> None:
        self._target = target
        self._has_target = has_target
        self._query_timeout = query_timeout
        self._nodes: dict[int, Node] = {}
        self._domains: dict[int, str] = {}
        self._registered: dict[int, str] = {}
        self._missing: dict[int, Missing] = {}
        self._unanswered: dict[int, int] = {}
        self._first_target: str | None = None
        self.asks: Mapping[str, str] = {}
        self.by_name = False
        self.expected: Collection[str] = ()

    def gather(self, grid: Grid, expected: int, patience: float, timeout: float | None = None) -> None:
        """Query the first nodes, silent ones up to `ATTEMPTS` times, or once for `timeout`; see `refresh`."""
        for _ in range(ATTEMPTS if timeout is None else 1):
            self.refresh(grid, expected, patience, timeout)
            if not any(each.silent for each in self._missing.values()):
                break
        if self.target is not None:
            self._first_target = self.target.domain

    def leave_out(self, silent: Collection[Node], asked: Collection[Node], seconds: float) -> None:
        """Leave out the sources that did not reply to `PATIENCE` consecutive train messages.

        After `seconds` their role is queried again, and one more silence leaves them out.
        """
        for node in asked:
            self._unanswered[node.id] = self._unanswered.get(node.id, 0) + 1 if node in silent else 0
            if self._unanswered[node.id] >= PATIENCE and not node.is_target and node.id in self._nodes:
                reason = f"no reply within the timeout, {PATIENCE} times in a row: start its node again"
                log(WARNING, "%s is left out: %s", node.domain, reason)
                until = time.monotonic() + seconds - ASK_AGAIN_SECONDS
                self._missing[node.id] = Missing(self._nodes.pop(node.id), reason, until, False)
                self._unanswered[node.id] = PATIENCE - 1

    def refresh(
        self, grid: Grid, expected: int = 1, patience: float = 0.0, timeout: float | None = None
    ) -> None:
        """Query role and domain of new nodes, and forget nodes that have left.

        A node that cannot take part, for example because its data are missing, is listed in `missing`. Waits
        up to `patience` seconds for the `expected` nodes; if that is above 0, silent nodes are queried again
        at once. A query takes at most `timeout` seconds.

        Raises
        ------
        RunError
            If two of the first nodes claim to be the target, have the same domain, or have incompatible data;
            if one claims another domain than its registered name; or if a site refuses the run.
            A later node of this kind is left out instead.
        """
        connected = _wait_for(grid, expected, patience)
        begun = bool(self._nodes)
        self._nodes = {i: node for i, node in self._nodes.items() if i in connected}
        now = time.monotonic()
        self._missing = {
            i: each
            for i, each in self._missing.items()
            if i in connected and now < each.asked + ASK_AGAIN_SECONDS and not (patience and each.silent)
        }
        new = sorted(connected - self._nodes.keys() - self._missing.keys())
        self._registered = names_of(grid) if new else {}
        told = list(self._ask(grid, new, timeout or max(patience, self._query_timeout)))
        if not begun:
            _check_refusals(told)
        registered = self._registered if self.by_name else {}
        left_out = list[tuple[str, str]]()
        for node, problem in sorted(told, key=lambda each: each[0].domain):
            clashes = (conflict(other, node) for other in self.connected)
            clash = next(filter(None, (another_name(node, registered.get(node.id)), *clashes)), None)
            if clash is None and node.is_target and self._first_target not in (None, node.domain):
                why = f"it claims to be the target, which is '{self._first_target}' in this run"
                clash = RunError(why, thing="target", value=node.domain)
            if clash and not problem and not begun:
                raise clash
            if reason := problem or (clash and str(clash)):
                left_out.append((node.domain, reason))
                self._missing[node.id] = Missing(node, reason, time.monotonic(), reason.startswith(SILENT))
            else:
                self._nodes[node.id] = node
                self._domains[node.id] = node.domain
        for nodes, reason in by_reason(left_out):
            log(WARNING, "%s does not take part: %s", nodes, reason)
        for nodes, reason in by_reason((node.domain, UNGUARDED) for node, _ in told if is_unguarded(node)):
            log(WARNING, "%s has rules that %s", nodes, reason)

    @property
    def connected(self) -> list[Node]:
        """All participants, sorted by domain."""
        return sorted(self._nodes.values(), key=lambda node: node.domain)

    @property
    def sources(self) -> list[Node]:
        """The sources, sorted by domain."""
        return [node for node in self.connected if not node.is_target]

    @property
    def target(self) -> Node | None:
        """The target, if it is connected."""
        return next((node for node in self.connected if node.is_target), None)

    @property
    def missing(self) -> list[dict[str, str]]:
        """The ``domain`` of each node that cannot take part or is away, and the ``reason``.

        A node is away if it took part before and is not connected, or if nobody serves an `expected` domain.
        """
        out = [(each.node.domain, each.reason) for each in self._missing.values()]
        known = {*self._domains.values(), *self.expected}
        away = known - {node.domain for node in self.connected} - {domain for domain, _ in out}
        out += [(domain, NO_HEARTBEAT) for domain in away]
        return [{"domain": domain, "reason": reason} for domain, reason in sorted(out)]

    def keys(self, grid: Grid) -> dict[str, str]:
        """Return the fingerprints of the nodes' registered keys, by domain."""
        fingerprints = keys_of(grid)
        return {node.domain: fingerprints[node.id] for node in self.connected if node.id in fingerprints}

    def require(self, min_sources: int) -> None:
        """Raise a `RunError` with the reasons unless the target and enough sources take part."""
        for each in self._missing.values():
            if each.node.is_target:
                domain = each.node.domain
                why = f"the target '{domain}' cannot take part: {each.reason}"
                raise RunError(why, thing="target", value=domain)
        claims = ", ".join(f"'{node.domain}'" for node in self.connected) or "none"
        problems = sorted((each.node.domain, each.reason) for each in self._missing.values())
        reasons = "; ".join(f"{domains}: {reason}" for domains, reason in by_reason(problems))
        repair = f"repair what keeps nodes out ({reasons})" if reasons else ""
        if self.target is None and self._has_target:
            thing, value = ("role", "target") if self._target is None else ("domain", self._target)
            wanted = f"with role '{value}'" if self._target is None else f"of domain '{value}'"
            remedy = repair or (
                'give exactly one client the role, by node configuration (role="target") or by the '
                "strategy's target argument"
                if self._target is None
                else f"give another target, or {start_more(_count(self._target, len(self.connected) + 1))}"
            )
            message = f"no node {wanted} among the {len(self.connected)} connected ones ({claims})"
            raise RunError(message, thing=thing, value=value, remedy=remedy)
        min_sources += not self._has_target
        if len(self.sources) < min_sources:
            count = len(self.sources)
            remedy = repair or start_more(len(self.connected) + min_sources - count)
            claims = ", ".join(f"'{node.domain}'" for node in self.sources) or "none"
            message = f"{count} sources are connected ({claims}), at least {min_sources} are needed"
            raise RunError(message, thing="sources", value=count, remedy=remedy)

    def _ask(self, grid: Grid, node_ids: list[int], timeout: float) -> Iterable[tuple[Node, str | None]]:
        """Yield each node, and why it cannot take part, or None."""
        # Other authors' mods read a `config` in every message.
        content = {ASKS: ConfigRecord(dict(self.asks)), CONFIG: ConfigRecord({SERVER_ROUND: 0})}
        sent = {self._node(i, {}): Message(RecordDict({**content}), i, ROLE_QUERY) for i in node_ids}
        replies = grid.send_and_receive(sent.values(), timeout=timeout) if sent else []
        for node, reply in match_replies(sent, replies):
            if reply is None:
                yield node, f"{SILENT} within {timeout:g} s"
            elif reply.has_error():
                yield node, _first_line(reason_of(reply.error))
            elif INFO not in reply.content:
                yield node, "its answer has no record 'info'"
            else:
                info, problem = read_role(settings_in(reply.content, INFO))
                if self._target is None and info.get("role", "source") not in ("source", "target"):
                    role = printable(str(info["role"]), LONGEST_NAME)
                    problem = problem or f"its role is '{role}', neither 'source' nor 'target'"
                yield self._node(node.id, info), problem

    def _node(self, node_id: int, info: dict[str, Any]) -> Node:
        domain = printable(str(info.get("domain") or self._domain_of(node_id)), LONGEST_NAME)
        is_target = info.get("role") == "target" if self._target is None else domain == self._target
        return Node(node_id, domain, is_target and self._has_target, info)

    def _domain_of(self, node_id: int) -> str:
        """Return the domain of a node that does not report it: the one before, or its registered name."""
        name = self._registered.get(node_id, f"node {node_id}")
        by_file = {as_file_name(domain): domain for domain in self.expected}
        return self._domains.get(node_id) or by_file.get(name, name)


def start_more(nodes: int) -> str:
    """Return the remedy for too few nodes; a simulation by ``flwr run`` has two by default.

    Examples
    --------
    >>> start_more(4)
    'start more nodes, in a simulation by --federation-config num-supernodes=4'
    """
    return f"start more nodes, in a simulation by --federation-config num-supernodes={nodes}"


def _count(domain: str, otherwise: int) -> int:
    """Return the least number of nodes if one has this domain: Flower numbers them from 0."""
    return int(domain) + 1 if domain.isdecimal() and len(domain) < 4 else otherwise


def _wait_for(grid: Grid, expected: int, patience: float) -> set[int]:
    deadline = time.monotonic() + patience
    while len(connected := set(grid.get_node_ids())) < expected and time.monotonic() < deadline:
        time.sleep(0.1)
    if len(connected) < expected:
        log(WARNING, "%d of %d nodes are connected after %g s", len(connected), expected, patience)
    return connected


def _check_refusals(told: Iterable[tuple[Node, str | None]]) -> None:
    """Raise a `RunError` with the reasons of sites that refuse the run."""
    refused = sorted((node.domain, str(problem)) for node, problem in told if node.info.get(REFUSED))
    if refused:
        reasons = "; ".join(f"{nodes} refuses the run: {reason}" for nodes, reason in by_reason(refused))
        why = f"{reasons}; change the run, or take the site's node out"
        raise RunError(why, thing="site", value=[domain for domain, _ in refused])


def read_role(answer: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """Return a role answer's entries, with printable texts, and why the node cannot take part, or None.

    Of an answer with an entry of another type or out of its bounds, only domain and role are left.
    """
    info = {name: value if name == PROBLEM else _printable(value) for name, value in answer.items()}
    try:
        check_settings(info, PROPERTIES, "entry")
    except ConfigError as error:
        texts = ((name, info.get(name)) for name in ("domain", "role"))
        return {name: text for name, text in texts if isinstance(text, str)}, printable(str(error))
    return info, _first_line(info[PROBLEM]) if PROBLEM in info else None


def _printable(value: Any) -> Any:
    if isinstance(value, list):
        return [_printable(each) for each in value]
    return printable(value) if isinstance(value, str) else value


def _first_line(reason: object) -> str:
    lines = str(reason or "").strip().splitlines()
    return printable(lines[0]) if lines else "an error without a reason"


def match_replies(
    sent: Mapping[Node, Message], replies: Iterable[Message]
) -> Iterator[tuple[Node, Message | None]]:
    """Yield each node with its reply or None, in the order of `sent`."""
    asked = {message.metadata.message_id: node.id for node, message in sent.items()}
    arrived: dict[int, Message] = {}
    for reply in replies:
        metadata = reply.metadata
        node_id = asked.get(metadata.reply_to_message_id, metadata.src_node_id)
        # The error reply of a dead SuperNode lacks the node's own id. All others carry it, and come before
        # replies that another node sends in its place.
        if node_id == metadata.src_node_id or (reply.has_error() and node_id not in arrived):
            arrived[node_id] = reply
    for node in sent:
        yield node, arrived.pop(node.id, None)


def is_unguarded(node: Node) -> bool:
    """Return whether a node reports rules that its SuperNode does not hold."""
    return node.info.get(GATED) is False


def another_name(node: Node, name: str | None) -> RunError | None:
    """Return why a node that is registered under a name cannot serve its domain; None if it can.

    The name is the domain, or the one that a file of the domain has (`fda_flower.files.as_file_name`).
    """
    if not name or name in (node.domain, as_file_name(node.domain)):
        return None
    why = f"the node registered as '{name}' claims the domain '{node.domain}'"
    remedy = "correct its node configuration, or register its key under the domain's name"
    return RunError(printable(why), thing="node registered as", value=name, remedy=remedy)


def conflict(one: Node, other: Node) -> RunError | None:
    """Return why two nodes cannot both take part, with the remedy; None if they can."""
    if one.domain == other.domain:
        why = f"2 nodes serve the domain '{one.domain}': give each client its own"
        return RunError(printable(why), thing="domain", value=one.domain)
    if one.is_target and other.is_target:
        claims = ", ".join(f"'{node.domain}' (node {node.id})" for node in (one, other))
        why = f"2 nodes claim to be the target, exactly one may: {claims}"
        return RunError(printable(why), thing="target", value=[one.domain, other.domain])
    for key in SHARED:
        told, told_too = one.info.get(key), other.info.get(key)
        if None not in (told, told_too) and told != told_too:
            why = (
                f"'{one.domain}' and '{other.domain}' do not have the same {key.replace('-', ' ')}: "
                f"{_difference(one, told, other, told_too)}; give all sites the same"
                + (", or name all classes by the data set's option 'classes'" if "class" in key else "")
            )
            return RunError(printable(why), thing=key, value=[told, told_too])
    return None


def _difference(one: Node, told: object, other: Node, told_too: object) -> str:
    if not (_is_names(told) and _is_names(told_too)):
        return f"{told} and {told_too}"
    only = (
        f"only '{node.domain}' has {', '.join(name for name in ours if name not in others)}"
        for node, ours, others in ((one, told, told_too), (other, told_too, told))
        if set(ours) - set(others)
    )
    return "; ".join(only) or f"{', '.join(told)} and {', '.join(told_too)}"


def _is_names(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)
