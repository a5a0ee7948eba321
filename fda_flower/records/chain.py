"""The hash chain over a run's rounds and files."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fda_flower.records.record import chosen_round

CHAIN = "chain"
"""Key of the link in a line."""


@dataclass(frozen=True)
class Link:
    """The link of a line of ``rounds.jsonl`` in the hash chain.

    `before` is the hash of the previous line or, in the first line, of the run's configuration. `files` maps
    files to their SHA-256 after the round: ``config.json`` and, if the round wrote them, the files of the
    target's model; for ``checkpoint`` it is the checksum inside. `hash` is the SHA-256 of the rest of the
    line and thus, through `before`, of all previous lines. `chosen` is the round that validation has chosen
    so far, None without validation.
    """

    round: int
    before: str
    files: Mapping[str, str]
    hash: str
    chosen: int | None = None


def linked(record: Mapping[str, Any], before: str, files: Mapping[str, str]) -> dict[str, Any]:
    """Return a round's record with its link, ready to write; see `Link`."""
    link = {"before": before, "files": dict(files)}
    line: dict[str, Any] = json.loads(json.dumps({**record, CHAIN: link}))
    line[CHAIN]["hash"] = hash_of(line)
    return line


def without_link(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record in a line, without its link."""
    return {name: value for name, value in record.items() if name != CHAIN}


def read_links(lines: Iterable[str], run: Mapping[str, Any]) -> tuple[list[Link], list[str]]:
    """Return the links of ``rounds.jsonl`` up to the first unreadable line, and the problems found.

    The first link refers to the run's configuration.
    """
    links, problems = list[Link](), list[str]()
    before = hash_of(run)
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            as_written = json.dumps(record) == line
            link = record[CHAIN]
            digest = link.pop("hash")
            chosen = chosen_round([record])
            links.append(Link(record["round"], link["before"], dict(link["files"]), str(digest), chosen))
            intact = as_written and hash_of(record) == digest
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            problems.append(
                f"line {number} of rounds.jsonl is not as the run wrote it ({error!r}), or the run was "
                "stopped while writing it"
            )
            break
        if not intact:
            problems.append(f"the record of round {number} has changed")
        if links[-1].before != before:
            problems.append(f"the record of round {links[-1].round} does not follow the one before it")
        before = links[-1].hash
    return links, problems


def hash_of(value: Any) -> str:
    """Return the SHA-256 of a JSON value, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
