"""The chain of a run's rounds: a link for each, with the hash of the link before, so that changes show."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Link:
    """A line of ``chain.jsonl``.

    Attributes
    ----------
    round : int
        The round.
    target : str or None
        The target, if its reply was used.
    sources : tuple of str
        The sources whose replies were used.
    record : str
        SHA-256 of the round's line of ``rounds.jsonl``.
    model : str or None
        SHA-256 of the checkpoint: the models after the round. None for a round of an older version.
    files : Mapping[str, str]
        SHA-256 of files as they were after the round: ``config.json`` and, if they were written in it, those
        of the target's model.
    note : str
        ``"late"`` for the link of a round that an older version did; ``"rewritten"`` if the run went on, by
        which the record has lost what only a last round's has, or ``config.json`` has changed.
    before : str
        The hash of the link before; of the first one that of the run's configuration.
    """

    round: int
    target: str | None
    sources: tuple[str, ...]
    record: str
    model: str | None
    before: str
    files: Mapping[str, str] = field(default_factory=dict)
    note: str = ""

    @property
    def hash(self) -> str:
        """SHA-256 of all of the link, and by `before` of all links before it."""
        return hash_of(asdict(self))

    def to_line(self) -> str:
        """Return the line, with the link's own hash."""
        return json.dumps({**asdict(self), "hash": self.hash}) + "\n"


class Chain:
    """The links of a run, in order.

    Parameters
    ----------
    run : Mapping
        The run's configuration, on which the first link stands.
    links : iterable of Link
        The links so far.
    """

    def __init__(self, run: Mapping[str, Any], links: Iterable[Link] = ()) -> None:
        self.first = hash_of(run)
        self.links = list(links)

    @property
    def last(self) -> str:
        """The hash of the last link; whoever knows it knows whether a link before it has changed."""
        return self.links[-1].hash if self.links else self.first

    @property
    def rounds(self) -> int:
        """The last round that has a link."""
        return self.links[-1].round if self.links else 0

    def add(
        self, line: str, model: str | None, files: Mapping[str, str] | None = None, note: str = ""
    ) -> Link:
        """Add the link of a round's line of ``rounds.jsonl``, and return it."""
        record = json.loads(line)
        target = (record.get("target") or {}).get("domain")
        link = Link(
            record["round"],
            target,
            tuple(record.get("sources") or ()),
            text_hash(line),
            model,
            self.last,
            files or {},
            note,
        )
        self.links.append(link)
        return link

    def cover(self, lines: Sequence[str], files: Mapping[str, str]) -> None:
        """Add a link for each round whose line is new or another one, and one for files that have changed."""
        known = {link.round: link for link in self.links}
        for number, line in enumerate(lines, 1):
            link = known.get(number)
            if link is None:
                self.add(line, None, files, "late")
                continue
            now = {**link.files, **files} if number == len(lines) else link.files
            if link.record != text_hash(line) or now != link.files:
                self.add(line, link.model, now, "rewritten")

    def link_of(self, number: int) -> Link | None:
        """Return the last link of a round."""
        return next((link for link in reversed(self.links) if link.round == number), None)

    def up_to(self, last: int) -> "Chain":
        """Return the chain without the links of rounds after `last`."""
        chain = Chain({}, (link for link in self.links if link.round <= last))
        chain.first = self.first
        return chain

    def to_text(self) -> str:
        """Return all lines."""
        return "".join(link.to_line() for link in self.links)

    def problems(self, lines: Sequence[str], going_on: bool = False) -> list[str]:
        """Return what is wrong with the chain, or with the lines of ``rounds.jsonl`` by it.

        With `going_on` a line may be one that a link before the round's last one has.
        """
        found, before = [], self.first
        records: dict[int, list[str]] = {}
        for link in self.links:
            if link.before != before:
                found.append(f"the link of round {link.round} does not follow the one before it")
            before = link.hash
            records.setdefault(link.round, []).append(link.record)
        for number in range(1, max([len(lines), *records]) + 1):
            known = records.get(number, [])
            if not known:
                found.append(f"round {number} has no link: it was added, or the run was stopped in it")
            elif number > len(lines):
                found.append(f"round {number} is missing in rounds.jsonl")
            elif text_hash(lines[number - 1]) not in (known if going_on else known[-1:]):
                found.append(f"the record of round {number} has changed")
        return found


def read_chain(text: str, run: Mapping[str, Any]) -> tuple[Chain, list[str]]:
    """Return the chain in the text of ``chain.jsonl``, up to a line that is damaged; and what is wrong.

    A last line that was cut off counts as damaged.
    """
    chain = Chain(run)
    for number, line in enumerate(text.splitlines(), 1):
        try:
            values = json.loads(line)
            told = values.pop("hash")
            link = Link(**{**values, "sources": tuple(values["sources"])})
            if link.hash != told:
                raise ValueError("it has not the hash that it tells")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            return chain, [f"line {number} of the chain has changed ({error})"]
        chain.links.append(link)
    return chain, []


def hash_of(value: Any) -> str:
    """Return the SHA-256 of a JSON value, whatever the order of its keys."""
    return text_hash(json.dumps(value, sort_keys=True))


def text_hash(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()
