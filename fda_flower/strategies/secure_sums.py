"""The server's side of secure sums: relay keys and shares, add masked numbers, unmask the total."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import combinations, islice

import numpy as np

from fda_flower.aggregation import Layers
from fda_flower.strategies.method import Sources
from fda_flower.strategies.replies import BadReplyError, ClientUpdate
from fda_flower.strategies.round import Round
from fda_flower.wire import secure_sums as wire
from fda_flower.wire.asked.secure_sums import MaskSums
from fda_flower.wire.internals import combine_shares
from fda_flower.wire.protocol import TrainRequest

TRIES, LONGEST = 200, 1000
"""Largest number of share sets tried if some are forged; largest size of encrypted shares."""

FIRST = MaskSums(stage=wire.KEYS)
"""The question of a sum over rows of features, in its first stage."""

Check = Callable[[str, wire.Bytes], None]
"""Raises a `ValueError` if a source's entries are unusable; receives its domain and the entries."""


class SecureSum:
    """The secure sum of a round: `size` words from each of at least `fewest` sources; see `total`.

    Its messages ask the `question`, with the stage's entries, and `limbs` words are for each number.
    """

    def __init__(
        self,
        round: Round,
        size: int,
        fewest: int = 2,
        question: MaskSums = FIRST,
        limbs: int = 1,
    ) -> None:
        self.round, self.size, self.question, self.limbs = round, size, question, limbs
        self.nodes = {node.domain: node for node in round.sources}
        self.least = max(wire.FEWEST, fewest)

    def total(self, sources: Sources) -> tuple[wire.Words, dict[str, ClientUpdate]]:
        """Return the sum, and the updates of the sources included in it.

        Parameters
        ----------
        sources : Sources
            The replies to the first stage, ``keys``.

        Raises
        ------
        BadReplyError
            If fewer than `fda_flower.wire.secure_sums.threshold` sources are left, or a secret cannot be
            recovered.
        """
        counts = Counter(
            key for update in sources.values() for key in wire.to_bytes(update.answer.entries).values()
        )
        keys = self._checked(wire.KEYS, sources, partial(_check_keys, counts, self.round))
        self.least = max(wire.threshold(len(keys)), self.least)
        pairs = wire.from_bytes({name: wire.joined_keys(pair) for name, pair in keys.items()})
        replies = self._ask({name: self._stage(wire.SHARES, entries=pairs) for name in keys})
        shared = self._checked(wire.SHARES, replies, partial(_check_shares, set(keys)))
        updates = self._ask(
            {name: self._stage(wire.MASKED, entries=_passed_on(shared, name)) for name in shared}
        )
        masked = self._checked(wire.MASKED, updates, self._check_masked)
        for name in self.round.record["sources"].keys() - masked.keys():
            del self.round.record["sources"][name]
        replies = self._ask(dict.fromkeys(masked, self._stage(wire.CONFIRM, active=tuple(masked))))
        confirmed = self._checked(wire.CONFIRM, replies, partial(_check_confirmed, set(masked)))
        replies = self._ask(
            {name: self._stage(wire.UNMASK, entries=_confirmations(confirmed, name)) for name in confirmed}
        )
        held = self._checked(wire.UNMASK, replies, partial(_check_revealed, set(shared)))
        total = np.zeros(self.size, np.uint64)
        for name, entries in masked.items():
            seed = _secret(name, held, len(keys), wire.digest_of, shared[name][wire.DIGEST])
            words = np.frombuffer(entries[wire.SUMS], np.uint64)
            own = wire.negated(wire.key_stream(seed, self.size), self.limbs)
            total = wire.added(total, wire.added(words, own, self.limbs), self.limbs)
        active = {name: keys[name][wire.MASKING] for name in masked}
        for name in shared.keys() - masked.keys():
            secret = _secret(name, held, len(keys), wire.public_of, keys[name][wire.MASKING])
            masks = wire.masks_of_pairs(name, secret, active, self.size, self.limbs)
            total = wire.added(total, masks, self.limbs)
        return total, {name: updates[name] for name in masked}

    def _stage(
        self, stage: wire.Stage, entries: Layers | None = None, active: tuple[str, ...] = ()
    ) -> MaskSums:
        return replace(self.question, stage=stage, entries=entries, active=active)

    def _ask(self, questions: Mapping[str, MaskSums]) -> Sources:
        plain = TrainRequest(self.round.arrays, self.round.config)
        requests = {self.nodes[name]: replace(plain, question=each) for name, each in questions.items()}
        return self.round.exchange(requests)[1]

    def _checked(self, stage: str, replies: Sources, check: Check) -> dict[str, wire.Bytes]:
        """Return the entries of replies; drop those that fail a check."""
        found = {}
        for name, update in replies.items():
            entries = wire.to_bytes(update.answer.entries)
            try:
                check(name, entries)
                found[name] = entries
            except ValueError as error:
                self.round.drop(name, BadReplyError(str(error)))
        if len(found) < self.least:
            usable = f"{len(found)} of {len(self.nodes)} sources have usable"
            same = " (all sums of a run are of the same sources)" if stage == wire.CONFIRM else ""
            raise BadReplyError(f"{usable} '{stage}', masked sums need {self.least}{same}")
        return found

    def _check_masked(self, _name: str, entries: wire.Bytes) -> None:
        if len(entries.get(wire.SUMS, b"")) != 8 * self.size:
            raise ValueError(f"its masked sums are not {self.size} words")


def _passed_on(shared: Mapping[str, wire.Bytes], name: str) -> Layers:
    return wire.from_bytes({other: shared[other][f"{wire.TO}{name}"] for other in shared if other != name})


def _check_keys(counts: Mapping[bytes, int], round: Round, name: str, entries: wire.Bytes) -> None:
    for key in (wire.SHARING, wire.MASKING):
        wire.check_public(entries.get(key, b""))
        if counts[entries[key]] > 1:
            raise ValueError(f"its public key '{key}' equals another source's")
    if wire.SIGNATURE in entries:
        wire.signer_of_keys(wire.joined_keys(entries), round.run_id, round.number, name)


def _check_shares(names: set[str], name: str, entries: wire.Bytes) -> None:
    expected = {wire.DIGEST, *(f"{wire.TO}{other}" for other in names if other != name)}
    if entries.keys() != expected or max(map(len, entries.values())) > LONGEST:
        raise ValueError("its shares are not exactly one for each other source")


def _confirmations(confirmed: Mapping[str, wire.Bytes], name: str) -> Layers:
    return wire.from_bytes({other: confirmed[other][name] for other in confirmed if other != name})


def _check_confirmed(names: set[str], name: str, entries: wire.Bytes) -> None:
    if entries.keys() != names - {name} or {len(each) for each in entries.values()} != {wire.CONFIRMED}:
        raise ValueError(
            f"it does not confirm the active sources to each other one, in {wire.CONFIRMED} bytes"
        )


def _check_revealed(names: set[str], _name: str, entries: wire.Bytes) -> None:
    if entries.keys() != names or {len(share) for share in entries.values()} != {wire.SHARE}:
        raise ValueError(f"it does not reveal a share of {wire.SHARE} bytes of each source")


def _secret(
    name: str,
    revealed: Mapping[str, wire.Bytes],
    sources: int,
    told_of: Callable[[bytes], bytes],
    told: bytes,
) -> bytes:
    """Return the secret that matches a source's commitment, from the first shares that yield it."""
    shares = [entries[name] for entries in revealed.values()]
    for chosen in islice(combinations(shares, wire.threshold(sources)), TRIES):
        try:
            secret = combine_shares(list(chosen))
            if told_of(secret) == told:
                return secret
        except ValueError:
            continue
    raise BadReplyError(f"a secret of '{name}' does not follow from the shares of {', '.join(revealed)}")
