"""The chain of a run: each line of ``rounds.jsonl`` has the hash of the line before, so that changes show."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CHAIN = "chain"
"""The field of a line with its link."""


@dataclass(frozen=True)
class Link:
    """What a line of ``rounds.jsonl`` says of the chain.

    Attributes
    ----------
    round : int
        The round.
    before : str
        The hash of the line before; of the first one the hash of the run's configuration.
    files : Mapping[str, str]
        SHA-256 of files as they were after the round: ``config.json`` and, if they were written in it, those
        of the target's model. That of ``checkpoint`` is the checksum in it.
    hash : str
        SHA-256 of all else in the line, and by `before` of all lines before it.
    """

    round: int
    before: str
    files: Mapping[str, str]
    hash: str


def linked(record: Mapping[str, Any], before: str, files: Mapping[str, str]) -> dict[str, Any]:
    """Return a round's record with its link, as it stands in the line; see `Link`."""
    link = {"before": before, "files": dict(files)}
    line: dict[str, Any] = json.loads(json.dumps({**record, CHAIN: link}))
    line[CHAIN]["hash"] = hash_of(line)
    return line


def without_link(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of a round as the run has made it, of what its line holds."""
    return {name: value for name, value in record.items() if name != CHAIN}


def read_links(lines: Sequence[str], run: Mapping[str, Any]) -> tuple[list[Link], list[str]]:
    """Return the links of lines of ``rounds.jsonl`` up to one that cannot be read, and what is wrong.

    Parameters
    ----------
    lines : sequence of str
        The lines.
    run : Mapping
        The run's configuration, on which the first link stands.
    """
    links, problems = list[Link](), list[str]()
    before = hash_of(run)
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            as_written = json.dumps(record) == line
            link = record[CHAIN]
            told = link.pop("hash")
            links.append(Link(record["round"], link["before"], dict(link["files"]), str(told)))
            whole = as_written and hash_of(record) == told
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            problems.append(
                f"line {number} of rounds.jsonl is not as the run has written it ({error!r}), or the run was "
                "stopped as it wrote it"
            )
            break
        if not whole:
            problems.append(f"the record of round {number} has changed")
        if links[-1].before != before:
            problems.append(f"the record of round {links[-1].round} does not follow the one before it")
        before = links[-1].hash
    return links, problems


def hash_of(value: Any) -> str:
    """Return the SHA-256 of a JSON value, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
