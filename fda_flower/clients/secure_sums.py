"""A source's side of secure sums: its keys and shares, its masked numbers, and the shares it reveals."""

import json
import secrets
from collections.abc import Callable, Sequence
from logging import INFO

import numpy as np
from cryptography.fernet import InvalidToken
from flwr.common import log
from numpy.typing import NDArray

from fda_flower.aggregation import Layers, Sums
from fda_flower.clients.private_state import PrivateState
from fda_flower.errors import ConfigError, RunError
from fda_flower.wire import private, protocol
from fda_flower.wire import secure_sums as wire
from fda_flower.wire.asked.secure_sums import Masked, MaskSums
from fda_flower.wire.internals import create_shares, decrypt, encrypt
from fda_flower.wire.protocol import TrainRequest

STATE, REVEALED = "secure-sums", "secure-sums-revealed"
"""States of a client: within a round; and the sources in the sum to which it has helped."""

ACTIVE = "active"
SEED, OWN, KEY, SEED_SHARE, KEY_SHARE = "seed", "own", "key.", "seed-share.", "key-share."
"""Entries within a round: the active sources, secrets, its name, and keys and shares by source."""


class SecureSums:
    """Answers the five messages of a round; the client's own state keeps its secrets between them.

    It answers each once and in order, so that no mask is used twice and nobody gets both secrets of a
    source. It helps to unmask only what enough sources confirm, and in a run only one list of sources: the
    difference of two sums is a source's own. It refuses other messages with a `RunError`.
    """

    def __init__(self, state: PrivateState) -> None:
        self.state = state

    def answer(
        self, question: MaskSums, server_round: int, words: Callable[[], wire.Words], limbs: int = 1
    ) -> Masked:
        """Return the answer in a round; `words` returns the numbers to sum when needed, `limbs` for each."""
        stage, memory = question.stage, self._memory(question.stage, server_round)
        entries = wire.to_bytes(question.entries or {})
        if stage == wire.KEYS:
            private.check([private.MASKS])
            memory = {wire.SHARING: wire.new_secret(), wire.MASKING: wire.new_secret()}
            reply: Layers = wire.from_bytes({name: wire.public_of(secret) for name, secret in memory.items()})
        elif stage == wire.SHARES:
            pairs = {name: entry[: 2 * wire.PUBLIC] for name, entry in entries.items()}  # without signatures
            reply = wire.from_bytes(self._shares(memory, pairs))
        elif stage == wire.MASKED:
            reply = {wire.SUMS: self._masked(memory, entries, words(), limbs)}
        elif stage == wire.CONFIRM:
            reply = wire.from_bytes(self._confirm(memory, question.active))
        else:
            reply = wire.from_bytes(self._unmask(memory, entries))
            self.state.save(REVEALED, {}, {ACTIVE: memory[ACTIVE].decode()})
            memory = {}
        self.state.save(STATE, wire.from_bytes(memory), {"round": server_round, "stage": stage})
        return Masked(entries=reply)

    def _memory(self, stage: str, server_round: int) -> wire.Bytes:
        """Return the state of the previous stage, empty in the first."""
        if stage == wire.KEYS:
            return {}
        saved = self.state.load(STATE)
        before = (server_round, dict(zip(wire.STAGES[1:], wire.STAGES, strict=False))[stage])
        last = None if saved is None else (saved[1]["round"], saved[1]["stage"])
        if saved is None or last != before:
            raise _refusal(f"asked for '{stage}' after {before}, it has last answered {last}", stage)
        return wire.to_bytes(saved[0])

    @staticmethod
    def _shares(memory: wire.Bytes, keys: wire.Bytes) -> wire.Bytes:
        """Take the public keys of all sources; return shares of the secrets, encrypted for each."""
        mine = b"".join(wire.public_of(memory[name]) for name in (wire.SHARING, wire.MASKING))
        single = {key for pair in keys.values() for key in (pair[: wire.PUBLIC], pair[wire.PUBLIC :])}
        if len(keys) < wire.FEWEST or len(single) != 2 * len(keys) or mine not in keys.values():
            raise _refusal("keys are too few, not all different, or without its own", sorted(keys))
        own = next(name for name, pair in keys.items() if pair == mine)
        seed, least = secrets.token_bytes(wire.SECRET), wire.threshold(len(keys))
        shares = (create_shares(secret, least, len(keys)) for secret in (seed, memory[wire.MASKING]))
        reply = {wire.DIGEST: wire.digest_of(seed)}
        memory |= {SEED: seed, OWN: own.encode(), **{f"{KEY}{name}": pair for name, pair in keys.items()}}
        for name, of_seed, of_key in zip(sorted(keys), *shares, strict=True):
            if name == own:
                memory |= {f"{SEED_SHARE}{name}": of_seed, f"{KEY_SHARE}{name}": of_key}
                continue
            key = _shared(memory, keys[name])
            reply[f"{wire.TO}{name}"] = encrypt(key, of_seed + of_key + own.encode())
        return reply

    @staticmethod
    def _masked(memory: wire.Bytes, sent: wire.Bytes, words: wire.Words, limbs: int) -> wire.Words:
        """Take the shares of the others' secrets; return the masked numbers."""
        keys = _named(memory, KEY)
        if len(sent) + 1 < wire.threshold(len(keys)):
            raise _refusal("the shares of the other sources are too few", sorted(sent))
        for name, token in sent.items():
            try:
                opened = decrypt(_shared(memory, keys[name]), token)
            except (KeyError, InvalidToken):
                opened = b""
            if len(opened) < 2 * wire.SHARE or opened[2 * wire.SHARE :] != name.encode():
                raise _refusal(f"the shares of '{name}' cannot be read", name)
            memory[f"{SEED_SHARE}{name}"] = opened[: wire.SHARE]
            memory[f"{KEY_SHARE}{name}"] = opened[wire.SHARE : 2 * wire.SHARE]
        others = {name: keys[name][wire.PUBLIC :] for name in sent}
        own, secret = memory[OWN].decode(), memory[wire.MASKING]
        masks = wire.masks_of_pairs(own, secret, others, len(words), limbs)
        masks = wire.added(masks, wire.key_stream(memory[SEED], len(words)), limbs)
        log(INFO, "%d sums leave masked, for a sum with %s", len(words) // limbs, ", ".join(sorted(others)))
        return wire.added(words, masks, limbs)

    def _confirm(self, memory: wire.Bytes, active: Sequence[str]) -> wire.Bytes:
        """Take the list of active sources; return a confirmation for each of the others."""
        seeds, keys = _named(memory, SEED_SHARE), _named(memory, KEY)
        named, least, own = set(active), wire.threshold(len(keys)), memory[OWN].decode()
        if not named <= seeds.keys() or own not in named or len(named) < least:
            raise _refusal(f"a sum needs {least} known sources, with this one", sorted(named))
        before, listed = self.state.read(REVEALED), json.dumps(sorted(named))
        if before is not None and before[1][ACTIVE] != listed:
            why = f"in this run it has helped to sum {before[1][ACTIVE]}, and does so for no other sources"
            raise _refusal(why, sorted(named))
        memory[ACTIVE] = listed.encode()
        shared = {name: _shared(memory, keys[name]) for name in named - {own}}
        return {name: wire.confirmation(key, own, named) for name, key in shared.items()}

    @staticmethod
    def _unmask(memory: wire.Bytes, confirmed: wire.Bytes) -> wire.Bytes:
        """Return a share of each source: of its seed if active, of its private key if lost."""
        seeds, lost, keys = _named(memory, SEED_SHARE), _named(memory, KEY_SHARE), _named(memory, KEY)
        named, least = set(json.loads(memory[ACTIVE])), wire.threshold(len(keys))
        agreeing = [
            name
            for name in named & confirmed.keys()
            if confirmed[name] == wire.confirmation(_shared(memory, keys[name]), name, named)
        ]
        if len({*agreeing, memory[OWN].decode()}) < least:
            why = f"{least} sources must confirm which ones are active, with this one"
            raise _refusal(why, sorted(agreeing))
        return {name: (seeds if name in named else lost)[name] for name in seeds}


def _shared(memory: wire.Bytes, pair: bytes) -> bytes:
    """Return the key that this source shares with the one that has this pair of public keys."""
    return wire.shared_key(memory[wire.SHARING], pair[: wire.PUBLIC])


def _refusal(why: str, value: object) -> RunError:
    return RunError(f"masked sums: {why}", thing="masked sums", value=value)


def _named(memory: wire.Bytes, prefix: str) -> wire.Bytes:
    return {name.removeprefix(prefix): entry for name, entry in memory.items() if name.startswith(prefix)}


SMALLEST = 1e-6
"""Smallest sum of squared labels that fixed point represents well enough."""


def masked_sums(
    request: TrainRequest,
    question: MaskSums,
    private_state: PrivateState | None,
    sums: Callable[[], Sequence[Sums]],
) -> Masked:
    """Answer a stage of masked sums; `sums`, of each kind of rows, are computed when needed."""

    def to_mask() -> wire.Words:
        return wire.encode(np.concatenate([_to_mask(each) for each in sums()]))

    return masked_words(request, question, private_state, to_mask)


def masked_words(
    request: TrainRequest,
    question: MaskSums,
    private_state: PrivateState | None,
    words: Callable[[], wire.Words],
    limbs: int = 1,
) -> Masked:
    """Answer a stage of masked sums of `words`, which are computed when needed."""
    if private_state is None:
        remedy = "give ridge_reply the context's state"
        raise ConfigError("the server asks for masked sums", thing="state", value=None, remedy=remedy)
    server_round = int(request.config[protocol.SERVER_ROUND])
    return SecureSums(private_state).answer(question, server_round, words, limbs)


def _to_mask(sums: Sums) -> NDArray[np.float64]:
    """Return the numbers to mask; raise a `ConfigError` if labels are too small for fixed point."""
    smallest = float(sums.squares.min(initial=1.0, where=sums.squares > 0))
    if smallest < SMALLEST:
        why = f"the squares of its labels sum to {smallest:g}, but masked sums need at least {SMALLEST:g}"
        raise ConfigError(why, thing="labels", value=smallest, remedy="give labels in a smaller unit")
    return sums.vector


def as_masked(sums: Sums) -> Sums:
    """Return the sums that a site adds to a masked total, which are in fixed point."""
    words = wire.encode(_to_mask(sums))
    return type(sums).from_vector(wire.decode(words), *sums.products.shape)
