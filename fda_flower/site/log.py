"""A site's own log of its replies: one JSON line each."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, Context, Message, RecordDict

from fda_flower.errors import ConfigError, RunError
from fda_flower.files import make_private
from fda_flower.site.config import SiteConfig
from fda_flower.wire import protocol

SENT = "sent.jsonl"
"""Name of the log in a node's ``state-dir``."""

REFUSED_CODE = 6
"""Flower's error code for a refusal by a mod (``MOD_FAILED_PRECONDITION``)."""

Line = dict[str, Any]


class WithheldError(RunError):
    """A reply may not leave, nor may the reason, which has words of the app: the log has it."""


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
    ``refused``  the reason that the site sent instead of an answer; absent if it did not refuse
    ``failed``   the error reported to the server; absent without one
    ============ ======================================================================================

    Parameters
    ----------
    path : Path
        The file, created with mode 0600 at the first line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, message: Message, context: Context, reply: Message | Exception) -> None:
        """Append the line of a reply or an exception; raise an `OSError` unless it is written whole."""
        line: Line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "run": context.run_id,
            "domain": SiteConfig.of(context).label,
            "round": _round_of(message.content),
            "message": message.metadata.message_type,
            "records": {},
            "bytes": 0,
        }
        if isinstance(reply, WithheldError):
            line["refused"] = str(reply)
        elif isinstance(reply, Exception):
            line["failed"] = repr(reply)
        elif reply.has_error():
            is_refusal = reply.error.code in (REFUSED_CODE, protocol.BUDGET_CODE)
            line["refused" if is_refusal else "failed"] = reply.error.reason
        else:
            line["records"] = {name: _describe(record) for name, record in reply.content.items()}
            line["bytes"] = sum(each["bytes"] for each in line["records"].values())
            info = protocol.settings_in(reply.content, protocol.INFO)
            if protocol.PROBLEM in info:
                line["refused" if protocol.REFUSED in info else "failed"] = str(info[protocol.PROBLEM])
        self._append((json.dumps(line) + "\n").encode())

    def _append(self, data: bytes) -> None:
        make_private(self.path.parent)
        file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            size = os.fstat(file).st_size
            # A power failure may have left half a line.
            if size and os.pread(file, 1, size - 1) != b"\n":
                data = b"\n" + data
            if os.write(file, data) != len(data):
                raise OSError("only part of the line was written")
            os.fsync(file)
        finally:
            os.close(file)


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


def _describe(record: Any) -> Line:
    if isinstance(record, ArrayRecord):
        arrays = {name: [array.dtype, list(array.shape)] for name, array in record.items()}
        return {"kind": "arrays", "bytes": record.count_bytes(), "arrays": arrays}
    kind = type(record).__name__.removesuffix("Record").lower()
    # Flower cannot count the bytes of an empty list.
    full = type(record)({name: value for name, value in record.items() if value != []})
    return {"kind": kind, "bytes": full.count_bytes(), "entries": list(record)}


def _round_of(content: RecordDict) -> int | None:
    for record in content.config_records.values():
        if isinstance(number := record.get(protocol.SERVER_ROUND), int):
            return number
    return None
