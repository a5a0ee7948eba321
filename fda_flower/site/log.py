"""A site's own log of its replies: one JSON line each."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, Context, Message, RecordDict

from fda_flower.errors import ConfigError
from fda_flower.files import append_line, versions
from fda_flower.site.node import Site
from fda_flower.site.records import released_by
from fda_flower.site.words import REFUSED_CODE, KeptError, WithheldError
from fda_flower.wire import protocol

SENT = "sent.jsonl"
"""Name of the log in a node's ``state-dir``."""


Line = dict[str, Any]


MOST, NAME, LONGEST = 1000, 100, 1000
"""The most names of a kind in a line, and the most characters of a name and of a reason."""


@dataclass(frozen=True)
class Facts:
    """What is known of a reply beside itself.

    `app` is the SHA-256 of the app's bundle. `told` is the record with which the node's own client says what
    the reply follows from (`TOLD`); it never leaves.
    """

    app: str | None = None
    told: Mapping[str, Any] = field(default_factory=dict)


TOLD = ("samples", "units", "test-samples", "test-units")
"""The counts in the record `protocol.LOGGED`."""


class SentLog:
    """A site's log of everything that leaves it.

    ============ ======================================================================================
    ``time``     when the reply was ready, in UTC
    ``run``      Flower's id of the run
    ``domain``   of the node
    ``round``    the round of the message; null in the role query
    ``message``  its type: ``query.role``, ``train``, ``evaluate``
    ``records``  by name: ``kind`` and ``bytes``; for arrays their ``arrays``, each with type and shape;
                 for others the names of their ``entries``
    ``bytes``    of all records
    ``releases`` by `Release`, the names of what left: ``sums``, ``model``, ``figures`` and so on
    ``method``   of the run, as its configuration says
    ``role``     of the node, if its configuration says one
    ``app``      the SHA-256 of the app's bundle; absent where the SuperNode has no gate
    ``versions`` of Python and the packages
    ``rules``    the entries of the node configuration that are rules or privacy settings, in force
    ``counts``   what the reply follows from: ``samples`` with labels and their ``units``, patients where the
                 site says who is one, and the same of the test set
    ``epsilon``  of a site that adds noise: ``before`` the message, ``after``, ``delta`` and ``unit``
    ``refused``  the reason that the site sent instead of an answer; absent if it did not refuse
    ``failed``   why it failed, in words that may have stayed here; absent if it did not
    ============ ======================================================================================

    A line has at most `MOST` names of each kind, each of `LONGEST` characters.

    Parameters
    ----------
    path : Path
        The file, created with mode 0600 at the first line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(
        self,
        message: Message,
        context: Context,
        reply: Message | Exception,
        facts: Facts | None = None,
    ) -> None:
        """Append the line of a reply or an exception; raise an `OSError` unless it is written whole."""
        site, kind = Site.of(context), message.metadata.message_type
        line: Line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "run": context.run_id,
            "domain": site.label,
            "round": _round_of(message.content),
            "message": kind,
            "records": {},
            "bytes": 0,
        }
        line |= _circumstances(site, context, facts or Facts())
        if isinstance(reply, KeptError) and isinstance(reply.__cause__, Exception):
            reply = reply.__cause__  # the site's own log has what others are not told
        if isinstance(reply, WithheldError):
            line["refused"] = _cut(str(reply))
        elif isinstance(reply, Exception):
            line["failed"] = _cut(repr(reply))
        elif reply.has_error():
            is_refusal = reply.error.code in (REFUSED_CODE, protocol.BUDGET_CODE)
            line["refused" if is_refusal else "failed"] = _cut(str(reply.error.reason))
        else:
            described = [(name, _describe(record)) for name, record in reply.content.items()]
            line["records"] = {_cut(name, NAME): each for name, each in described[:MOST]}
            line["bytes"] = sum(each["bytes"] for _, each in described)
            line["releases"] = {
                str(kind or "undeclared"): _bounded(names)
                for kind, names in released_by(kind, reply.content).items()
            }
            info = protocol.settings_in(reply.content, protocol.INFO)
            if protocol.PROBLEM in info:
                line["refused" if protocol.REFUSED in info else "failed"] = _cut(str(info[protocol.PROBLEM]))
        append_line(self.path, (json.dumps(line) + "\n").encode())


def read_log(folder: Path) -> list[Line]:
    """Return the complete lines of a node's log; raise a `ConfigError` if the folder has none."""
    path = folder.expanduser() / SENT
    if not path.exists():
        raise ConfigError(
            f"'{folder}' has no {SENT}: give the state-dir of a node that has taken part", thing=str(folder)
        )
    lines: list[Line] = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            lines.append(json.loads(text))
        except ValueError:
            continue
    return lines


def totals(lines: list[Line]) -> list[Line]:
    """Return ``replies``, ``bytes`` and ``most`` (in one reply) by run, message type and record."""
    found: dict[tuple[Any, ...], Line] = {}
    for line in lines:
        for name, record in line["records"].items():
            key = (line["run"], line["message"], name)
            told = {"run": line["run"], "message": line["message"], "record": name}
            total = found.setdefault(key, told | {"replies": 0, "bytes": 0, "most": 0})
            total["replies"] += 1
            total["bytes"] += record["bytes"]
            total["most"] = max(total["most"], record["bytes"])
    return list(found.values())


def _circumstances(site: Site, context: Context, facts: Facts) -> Line:
    """Return the parts of a line that do not depend on what left, without those that are unknown."""
    numbers = {name: value for name, value in facts.told.items() if isinstance(value, int | float)}
    epsilon: Line = {name: numbers[each] for name, each in EPSILONS.items() if each in numbers}
    if epsilon and (privacy := site.privacy) is not None:  # a configuration that is invalid is logged, too
        epsilon |= {"delta": privacy.dp_delta, "unit": privacy.dp_unit}
    found: Line = {
        "method": context.run_config.get("method"),
        "role": site.role,
        "app": None if facts.app is None else f"sha256:{facts.app}",
        "versions": versions(),
        "rules": {name: _cut(value, NAME) for name, value in site.in_force.items()},
        "counts": {name: numbers[name] for name in TOLD if name in numbers},
        "epsilon": epsilon,
    }
    return {name: value for name, value in found.items() if value not in (None, {})}


EPSILONS = {"before": "epsilon-before", "after": "epsilon-after"}


def _cut(value: Any, longest: int = LONGEST) -> Any:
    return f"{value[:longest]}..." if isinstance(value, str) and len(value) > longest else value


def _bounded(names: Iterable[str]) -> list[str]:
    every = list(names)
    more = [f"and {len(every) - MOST} more"] if len(every) > MOST else []
    return [_cut(name, NAME) for name in every[:MOST]] + more


def _describe(record: Any) -> Line:
    if isinstance(record, ArrayRecord):
        forms = ((_cut(name, NAME), [array.dtype, list(array.shape)]) for name, array in record.items())
        arrays = dict(islice(forms, MOST))
        return {"kind": "arrays", "bytes": record.count_bytes(), "arrays": arrays}
    kind = type(record).__name__.removesuffix("Record").lower()
    # Flower cannot count the bytes of an empty list.
    full = type(record)({name: value for name, value in record.items() if value != []})
    return {"kind": kind, "bytes": full.count_bytes(), "entries": _bounded(record)}


def _round_of(content: RecordDict) -> int | None:
    for record in content.config_records.values():
        if isinstance(number := record.get(protocol.SERVER_ROUND), int):
            return number
    return None
