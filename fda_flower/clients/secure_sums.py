"""A source's side of secure sums: its keys and shares, its masked numbers, and the shares it reveals."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from logging import INFO
from typing import Any

import numpy as np
from cryptography.fernet import InvalidToken
from flwr.app import ArrayRecord
from flwr.common import log
from numpy.typing import NDArray

from fda_flower.aggregation import Layers
from fda_flower.clients.own_state import OwnState
from fda_flower.errors import RunError
from fda_flower.wire.internals import create_shares, decrypt, encrypt
from fda_flower.wire.protocol import SERVER_ROUND, TrainRequest, to_layers
from fda_flower.wire.secure_sums import (
    ACTIVE,
    DIGEST,
    KEYS,
    MASKED,
    MASKING,
    PUBLIC,
    SECRET,
    SECURE,
    SHARE,
    SHARES,
    SHARING,
    STAGES,
    SUMS,
    TO,
    Bytes,
    digest_of,
    encode,
    from_bytes,
    key_stream,
    masks_of_pairs,
    new_secret,
    public_of,
    shared_key,
    threshold,
    to_bytes,
)

SEED, OWN, KEY, SEED_SHARE, KEY_SHARE = "seed", "own", "key.", "seed-share.", "key-share."
"""State of a client within a round: its secrets, its name, and keys and shares by source."""


class SecureSums:
    """Answers the four messages of a round; the client's own state keeps its secrets between them.

    It answers each once and in order, so that no mask is used twice and nobody gets both secrets of a
    source. It refuses other messages with a `RunError`.
    """

    def __init__(self, state: OwnState) -> None:
        self.state = state

    def answer(self, request: TrainRequest, numbers: Callable[[], NDArray[np.floating]]) -> dict[str, Layers]:
        """Return the record of a reply under its name; `numbers` returns the numbers to sum when needed."""
        config, record = request.config, request.records.get(SECURE, ArrayRecord())
        stage, kept = config[SECURE], self._kept(config)
        entries = to_bytes(to_layers(record))  # type: ignore[arg-type]
        if stage == KEYS:
            kept = {SHARING: new_secret(), MASKING: new_secret()}
            reply: Layers = from_bytes({name: public_of(secret) for name, secret in kept.items()})
        elif stage == SHARES:
            reply = from_bytes(self._shares(kept, entries))
        elif stage == MASKED:
            reply = {SUMS: self._masked(kept, entries, numbers())}
        else:
            reply = from_bytes(self._unmask(kept, config[ACTIVE]))
            kept = {}
        self.state.save(SECURE, from_bytes(kept), {"round": config[SERVER_ROUND], "stage": stage})
        return {SECURE: reply}

    def _kept(self, config: Mapping[str, Any]) -> Bytes:
        """Return the state of the previous stage, empty in the first."""
        stage, found = config[SECURE], self.state.load(SECURE)
        if stage == KEYS:
            return {}
        before = (config[SERVER_ROUND], dict(zip(STAGES[1:], STAGES, strict=False))[stage])
        last = None if found is None else (found[1]["round"], found[1]["stage"])
        if found is None or last != before:
            raise _refusal(f"asked for '{stage}' after {before}, it has last answered {last}", stage)
        return to_bytes(found[0])

    @staticmethod
    def _shares(kept: Bytes, keys: Bytes) -> Bytes:
        """Take the public keys of all sources; return shares of the secrets, encrypted for each."""
        mine = b"".join(public_of(kept[name]) for name in (SHARING, MASKING))
        single = {key for pair in keys.values() for key in (pair[:PUBLIC], pair[PUBLIC:])}
        if len(keys) < 2 or len(single) != 2 * len(keys) or mine not in keys.values():
            raise _refusal("keys are too few, not all different, or without its own", sorted(keys))
        own = next(name for name, pair in keys.items() if pair == mine)
        seed, least = secrets.token_bytes(SECRET), threshold(len(keys))
        shares = (create_shares(secret, least, len(keys)) for secret in (seed, kept[MASKING]))
        reply = {DIGEST: digest_of(seed)}
        kept |= {SEED: seed, OWN: own.encode(), **{f"{KEY}{name}": pair for name, pair in keys.items()}}
        for name, of_seed, of_key in zip(sorted(keys), *shares, strict=True):
            if name == own:
                kept |= {f"{SEED_SHARE}{name}": of_seed, f"{KEY_SHARE}{name}": of_key}
                continue
            key = shared_key(kept[SHARING], keys[name][:PUBLIC])
            reply[f"{TO}{name}"] = encrypt(key, of_seed + of_key + own.encode())
        return reply

    @staticmethod
    def _masked(kept: Bytes, sent: Bytes, numbers: NDArray[np.floating]) -> NDArray[np.uint64]:
        """Take the shares of the others' secrets; return the masked numbers."""
        keys = _named(kept, KEY)
        if len(sent) + 1 < threshold(len(keys)):
            raise _refusal("the shares of the other sources are too few", sorted(sent))
        for name, token in sent.items():
            try:
                found = decrypt(shared_key(kept[SHARING], keys[name][:PUBLIC]), token)
            except (KeyError, InvalidToken):
                found = b""
            if len(found) < 2 * SHARE or found[2 * SHARE :] != name.encode():
                raise _refusal(f"the shares of '{name}' cannot be read", name)
            kept[f"{SEED_SHARE}{name}"], kept[f"{KEY_SHARE}{name}"] = found[:SHARE], found[SHARE : 2 * SHARE]
        others = {name: keys[name][PUBLIC:] for name in sent}
        masked = encode(numbers) + key_stream(kept[SEED], len(numbers))
        masked += masks_of_pairs(kept[OWN].decode(), kept[MASKING], others, len(numbers))
        log(INFO, "%d sums leave masked, for a sum with %s", len(numbers), ", ".join(sorted(others)))
        return masked

    @staticmethod
    def _unmask(kept: Bytes, active: Sequence[str]) -> Bytes:
        """Return a share of each source: of its seed if active, of its private key if lost."""
        seeds, keys = _named(kept, SEED_SHARE), _named(kept, KEY_SHARE)
        named, least = set(active), threshold(len(_named(kept, KEY)))
        if not named <= seeds.keys() or kept[OWN].decode() not in named or len(named) < least:
            raise _refusal(f"a sum needs {least} known sources, with this one", sorted(named))
        return {name: (seeds if name in named else keys)[name] for name in seeds}


def _refusal(why: str, value: object) -> RunError:
    return RunError(f"masked sums: {why}", thing="masked sums", value=value)


def _named(kept: Bytes, prefix: str) -> Bytes:
    return {name.removeprefix(prefix): entry for name, entry in kept.items() if name.startswith(prefix)}
