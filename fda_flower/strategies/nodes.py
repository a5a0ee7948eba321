"""The participants of a run: each node's role, domain and data, as reported by the nodes."""

import logging
import math
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
from fda_flower.names.tasks import Task
from fda_flower.names.words import by_reason, counted, listed
from fda_flower.wire.internals import NO_HEARTBEAT, keys_of, names_of, reason_of, seconds_to_connect
from fda_flower.wire.protocol import (
    ASKS,
    COLUMNS,
    CONFIG,
    FROZEN,
    GATED,
    INFO,
    PROBLEM,
    PROPERTIES,
    REFUSED,
    REGRESSION,
    ROLE_QUERY,
    SERVER_ROUND,
    TASK,
    settings_in,
)
from fda_flower.wire.questions import check_settings

ASK_AGAIN_SECONDS = 60.0
"""Seconds until a node that cannot take part is queried again; in a deployment a message takes seconds."""

LONGEST_NAME = 100
"""Allowed characters of a domain; a node may send anything."""

PATIENCE = 2
"""Consecutive train messages without a reply after which a source is left out; each costs a timeout."""

SAID_EVERY = 60.0
"""Seconds after which the log says again for whom a run waits."""

SHORTEST, SHARE, LONGEST = 0.1, 0.1, 1.0
"""Seconds until connected nodes are listed again: a share of the time waited so far, and its bounds."""

FIRST_TIMEOUT = 60.0
"""Seconds that the first nodes have to report their roles, unless the run waits for them for less."""

ATTEMPTS = 3
"""Role queries to a silent node before the first round, as it may be loading data."""

SILENT = "it does not answer"

WAIT_LONGER = "wait for more of them (wait_for) or longer (wait_seconds)"

UNGUARDED = "hold only as far as the app keeps them: start the node by fda-supernode, which holds them itself"

SHARED = ("class-names", "classes", COLUMNS, "features", "shape", FROZEN)
"""Properties of data and network that must agree between all nodes that report them."""

REMEDIES = {
    **dict.fromkeys(("class-names", "classes"), ", or name all classes by the data set's option 'classes'"),
    FROZEN: " file of weights, pinned as `fda weights FILE` says, and the same versions of its package",
}
"""What else a person can do where such a property differs."""


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

    @property
    def task(self) -> Task:
        """What its model predicts."""
        task: Task = self.info.get(TASK) or ("regression" if self.info.get(REGRESSION) else "classes")
        return task

    @property
    def has_table(self) -> bool:
        """Whether its samples are rows of a table, without a text: each of their numbers is a column."""
        return bool(self.info.get(COLUMNS) == math.prod(self.info.get("shape", ())))


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
    take `query_timeout` seconds; before the first round see `gather`.

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
        self._gathers = self._is_deployed = False
        self.asks: Mapping[str, str] = {}
        self.by_name = False
        self.expected: Collection[str] = ()

    def gather(
        self,
        grid: Grid,
        expected: int,
        min_sources: int,
        seconds: float | None = None,
        timeout: float | None = None,
    ) -> None:
        """Wait until `expected` nodes are connected, the target and `min_sources` sources among them.

        The wait takes `seconds` at most, by default those of `wire.internals.seconds_to_connect`; every
        minute the log says for whom. A node that cannot take part ends it, since somebody must repair that.
        Connected nodes have `timeout` seconds to report their role, by default `FIRST_TIMEOUT` or the query
        timeout, in each of up to `ATTEMPTS` queries.
        """
        usual = seconds_to_connect(grid)
        patience = usual if seconds is None else seconds
        usual_timeout = max(self._query_timeout, min(math.inf if seconds is None else seconds, FIRST_TIMEOUT))
        timeouts = [usual_timeout] * (ATTEMPTS if patience else 1) if timeout is None else [timeout]
        self._gathers, self._is_deployed = True, usual == math.inf
        asked, missing = set[int](), 0
        for is_over, is_due in polls(patience):
            here = {*grid.get_node_ids()}
            missing = max(0, expected - len(here))
            if not (is_over or is_due or (here != asked and not missing)):
                continue
            asked = here
            self._ask_first(grid, here, timeouts)
            lacking = self._lacking(missing, min_sources)
            is_stuck = not missing and any(not each.silent for each in self._missing.values())
            if is_over or is_stuck or not lacking:
                break
            if is_due:
                log(logging.INFO, "Waiting for %s. %s", listed(lacking), self.described)
        if missing:
            log(WARNING, "%d of %d nodes are connected after %g s", expected - missing, expected, patience)
        self._gathers = False
        if self.target is not None:
            self._first_target = self.target.domain

    def _ask_first(self, grid: Grid, here: set[int], timeouts: Iterable[float]) -> None:
        """Query the first nodes that are `here`, silent ones again for each of the `timeouts`."""
        for timeout in timeouts:
            self._refresh(grid, here, timeout, again=True)
            if not any(each.silent for each in self._missing.values()):
                break
            here = {*grid.get_node_ids()}

    def _lacking(self, nodes: int, min_sources: int) -> list[str]:
        """Return in words who is lacking: a number of nodes, and the target and sources among them."""
        sources = min_sources + (not self._has_target) - len(self.sources)
        target = "the target" if self._target is None else f"the target '{self._target}'"
        lacking = [target] if self._has_target and self.target is None else []
        lacking += [counted(sources, "more source")] if sources > 0 else []
        return lacking + ([counted(nodes, "more node")] if nodes > len(lacking) else [])

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

    def refresh(self, grid: Grid) -> None:
        """Query role and domain of new nodes, and forget nodes that have left.

        A node that cannot take part, for example because its data are missing, is listed in `missing`.

        Raises
        ------
        RunError
            If two of the first nodes claim to be the target, have the same domain, or have incompatible data;
            if one claims another domain than its registered name; or if a site refuses the run.
            A later node of this kind is left out instead.
        """
        self._refresh(grid, {*grid.get_node_ids()}, self._query_timeout)

    def _refresh(self, grid: Grid, connected: set[int], timeout: float, again: bool = False) -> None:
        """Do as `refresh`, for the nodes that are connected; with `again` query silent ones at once."""
        begun = bool(self._nodes) and not self._gathers
        self._nodes = {i: node for i, node in self._nodes.items() if i in connected}
        now = time.monotonic()
        self._missing = {
            i: each
            for i, each in self._missing.items()
            if i in connected and now < each.asked + ASK_AGAIN_SECONDS and not (again and each.silent)
        }
        new = sorted(connected - self._nodes.keys() - self._missing.keys())
        self._registered = names_of(grid) if new else {}
        told = list(self._ask(grid, new, timeout))
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
    def described(self) -> str:
        """Who takes part, in words."""
        named = (
            "every site" if not self._has_target else self.target.domain if self.target else "not connected"
        )
        sources = ", ".join(node.domain for node in self.sources) or "none"
        return f"Target: {named}. Sources: {sources}"

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
            by_role = (
                'give exactly one client the role, by node configuration (role="target") or by the '
                "strategy's target argument"
            )
            more = self._more(_count(self._target or "", len(self.connected) + 1))
            by_role += f", or {WAIT_LONGER}" * (self._is_deployed and not self.expected)
            remedy = repair or (f"give another target, or {more}" if self._target is not None else by_role)
            message = f"no node {wanted} among the {len(self.connected)} connected ones ({claims})"
            raise RunError(message, thing=thing, value=value, remedy=remedy)
        min_sources += not self._has_target
        if len(self.sources) < min_sources:
            count = len(self.sources)
            remedy = repair or self._more(len(self.connected) + min_sources - count)
            claims = ", ".join(f"'{node.domain}'" for node in self.sources) or "none"
            message = f"{count} sources are connected ({claims}), at least {min_sources} are needed"
            raise RunError(message, thing="sources", value=count, remedy=remedy)

    def _more(self, nodes: int) -> str:
        """Return the remedy for too few nodes; a simulation by ``flwr run`` has two by default."""
        if not self._is_deployed:
            return f"start more nodes, in a simulation by --federation-config num-supernodes={nodes}"
        return "start more nodes" if self.expected else f"start more nodes, or {WAIT_LONGER}"

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


def _count(domain: str, otherwise: int) -> int:
    """Return the least number of nodes if one has this domain: Flower numbers them from 0."""
    return int(domain) + 1 if domain.isdecimal() and len(domain) < 4 else otherwise


def polls(seconds: float) -> Iterator[tuple[bool, bool]]:
    """Yield whether a time is over, the last time when it is, and whether another minute has passed."""
    begin = said = time.monotonic()
    while True:
        now = time.monotonic()
        is_over, is_due = now >= begin + seconds, now >= said + SAID_EVERY
        yield is_over, is_due
        if is_over:
            return
        said = now if is_due else said
        time.sleep(min(max(SHORTEST, SHARE * (now - begin)), LONGEST))


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
                f"{_difference(one, told, other, told_too)}; give all sites the same" + REMEDIES.get(key, "")
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
