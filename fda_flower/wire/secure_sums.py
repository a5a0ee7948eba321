"""Secure sums: masks on each source's numbers, so that the server learns only the sum over all sources.

The protocol follows Bonawitz et al., "Practical secure aggregation for privacy-preserving machine
learning", CCS 2017, with all pairs of sources, in five messages (`STAGES`). Source ``i`` sends

``y_i = x_i + p(b_i) + Σ_{j>i} p(s_ij) − Σ_{j<i} p(s_ij)  (mod 2⁶⁴)``,

where ``x_i`` are its numbers in fixed point, ``b_i`` is its own seed, ``s_ij`` a key that two sources
agree on by Diffie-Hellman, and ``p`` a key stream. Numbers that need more bits have several words (`added`).
The pairwise masks cancel in the sum. The others hold shares of ``b_i`` and of the source's private key. Once
the ``y_i`` have arrived, they reveal ``b_i`` of each source that is present and the private key of each
source that was lost; never both. Before that they confirm to each other which sources are present, so that a
server cannot tell them different lists. That the others are sources, and not the server, their signatures
show (`statement`).

Key agreement, encryption and Shamir's shares come from `flwr.common.secure_aggregation`. Flower's
pseudo-random numbers are not used, because their 32-bit seed can be found by trial. The key stream
is AES-256 in counter mode.
"""

import hmac
import json
import typing
from base64 import urlsafe_b64decode
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Literal

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from numpy.typing import NDArray

from fda_flower.aggregation import Layers
from fda_flower.errors import ConfigError
from fda_flower.wire.identity import signer_of
from fda_flower.wire.internals import generate_shared_key

Stage = Literal["keys", "shares", "masked", "confirm", "unmask"]
KEYS, SHARES, MASKED, CONFIRM, UNMASK = STAGES = typing.get_args(Stage)
"""Public keys; encrypted shares of the secrets; the masked numbers; a confirmation for each other source of
the list of active ones; the shares in plain text."""

SHARING, MASKING, DIGEST, TO, SUMS = "sharing", "masking", "digest", "to.", "sums"
"""Arrays of the replies: public keys; the SHA-256 of the seed, and the prefix of encrypted shares; masked
numbers. Other arrays are named after the source they concern."""

IDENTITY, SIGNATURE = "identity", "signature"
"""Arrays of a reply with public keys that are signed: the signer's public key, and its signature."""

FEWEST, MOST = 3, 256
"""Smallest and largest number of sources in a round."""

SCALE, LARGEST = 2.0**24, 2.0**31
"""Fixed-point steps per unit, and the bound on a number: a sum over `MOST` sources cannot overflow."""

LONGEST = 500
"""Largest number of bytes of an identity, or of a signature."""

SECRET, PUBLIC, SHARE, CONFIRMED = 32, 65, 52, 32
"""Sizes in bytes: a seed or private key; a public key; a share, its number with the secret padded to 48; a
confirmation."""

CURVE = ec.SECP256R1()

Words = NDArray[np.uint64]
Bytes = dict[str, bytes]


def threshold(sources: int) -> int:
    """Return how many sources must agree, and how many shares reveal a secret: ``⌈2n/3⌉ + 1``.

    Two lists of active sources with this many confirmations each have at least ``n/3 + 2`` sources in common.
    So even a server with a third of the sources on its side gets one secret of each other source at most.
    """
    return -(-2 * sources // 3) + 1


def confirmation(key: bytes, sender: str, active: Iterable[str]) -> bytes:
    """Return what a source sends to another, with their shared key, to confirm the active sources."""
    text = "\0".join(["active", sender, *sorted(active)])
    return hmac.digest(key, text.encode(), "sha256")


def encode(numbers: NDArray[np.floating]) -> Words:
    """Encode numbers in fixed point, modulo 2⁶⁴; raise a `ConfigError` if one is too large or not finite.

    Examples
    --------
    >>> decode(encode(np.array([1.5, -2.0])) + encode(np.array([0.25, 1e-9])))
    array([ 1.75, -2.  ])
    """
    largest = float(np.abs(numbers).max(initial=0.0))
    if not largest < LARGEST:
        why = f"a sum is {largest:g}, but masked sums must be below {LARGEST:g}"
        raise ConfigError(why, thing="masked sums", value=largest, remedy="give labels in a larger unit")
    return np.rint(np.asarray(numbers, np.float64) * SCALE).astype(np.int64).view(np.uint64)


def decode(words: Words) -> NDArray[np.float64]:
    """Decode words from `encode`, or sums of them."""
    return words.view(np.int64) / SCALE


def key_stream(key: bytes, size: int) -> Words:
    """Return ``p(key)``: pseudo-random words from a 32-byte key."""
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(8 * size))
    return np.frombuffer(stream, "<u8").astype(np.uint64, copy=False)


def new_secret() -> bytes:
    """Return a new private key."""
    return ec.generate_private_key(CURVE).private_numbers().private_value.to_bytes(SECRET, "big")


def public_of(secret: bytes) -> bytes:
    """Return the public key of a private key."""
    key = ec.derive_private_key(int.from_bytes(secret, "big"), CURVE).public_key()
    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def digest_of(seed: bytes) -> bytes:
    """Return the commitment to a seed; it prevents a forged seed at the reveal."""
    return sha256(seed).digest()


def check_public(public: bytes) -> None:
    """Raise a `ValueError` if bytes are not a public key."""
    if len(public) != PUBLIC:
        raise ValueError(f"its public keys are not {PUBLIC} bytes long")
    ec.EllipticCurvePublicKey.from_encoded_point(CURVE, public)


def joined_keys(entries: Bytes) -> bytes:
    """Return the public keys of a source as they are passed on, with who has signed them, if anyone.

    Raises a `ValueError` if a part is too long.
    """
    signed = [entries.get(name, b"") for name in (IDENTITY, SIGNATURE)]
    if max(map(len, signed)) > LONGEST:
        raise ValueError(f"its keys are signed by more than {LONGEST} bytes")
    return entries[SHARING] + entries[MASKING] + len(signed[0]).to_bytes(2, "big") + b"".join(signed)


def parted_keys(joined: bytes) -> Bytes:
    """Return what `joined_keys` has joined."""
    signed = joined[2 * PUBLIC + 2 :]
    size = int.from_bytes(joined[2 * PUBLIC : 2 * PUBLIC + 2], "big")
    keys = {SHARING: joined[:PUBLIC], MASKING: joined[PUBLIC : 2 * PUBLIC]}
    return {**keys, IDENTITY: signed[:size], SIGNATURE: signed[size:]}


def statement(entries: Bytes, run: int, server_round: int, domain: str) -> bytes:
    """Return what a source signs: its public keys, for one round of one run, under its own name."""
    keys = [entries[name].hex() for name in (SHARING, MASKING)]
    return json.dumps(["fda-flower masked sums", KEYS, run, server_round, domain, *keys]).encode()


def signer_of_keys(joined: bytes, run: int, server_round: int, domain: str) -> str:
    """Return the fingerprint of who has signed a source's keys; raise a `ValueError` if nobody has."""
    entries = parted_keys(joined)
    if not entries[SIGNATURE]:
        raise ValueError("its keys are not signed")
    said = statement(entries, run, server_round, domain)
    return signer_of(said, entries[IDENTITY], entries[SIGNATURE])


def shared_key(secret: bytes, public: bytes) -> bytes:
    """Return the key that two sources share, for Flower's `encrypt`; raise a `ValueError` if invalid."""
    private = ec.derive_private_key(int.from_bytes(secret, "big"), CURVE)
    return generate_shared_key(private, ec.EllipticCurvePublicKey.from_encoded_point(CURVE, public))


def added(one: Words, other: Words, limbs: int = 1) -> Words:
    """Return the sum of numbers of several words, `limbs` for each from the lowest on, modulo 2^(64 limbs).

    Examples
    --------
    >>> added(np.array([2**64 - 1, 5], np.uint64), np.array([1, 2], np.uint64), limbs=2).tolist()
    [0, 8]
    """
    total = one + other
    if limbs > 1:
        lost, sums = (total < one).reshape(-1, limbs), total.reshape(-1, limbs)
        carry = np.zeros(len(sums), np.uint64)
        for limb in range(limbs):
            sums[:, limb] += carry
            carry = ((sums[:, limb] < carry) | lost[:, limb]).astype(np.uint64)
    return total


def negated(words: Words, limbs: int = 1) -> Words:
    """Return minus the numbers, modulo 2^(64 limbs)."""
    one = np.zeros_like(words)
    one[::limbs] = 1
    return added(~words, one, limbs)


def masks_of_pairs(own: str, secret: bytes, others: Mapping[str, bytes], size: int, limbs: int = 1) -> Words:
    """Return the sum of a source's pairwise masks, from the public keys of the others."""
    total = np.zeros(size, np.uint64)
    for name, public in others.items():
        mask = key_stream(urlsafe_b64decode(shared_key(secret, public)), size)
        total = added(total, mask if own < name else negated(mask, limbs), limbs)
    return total


def to_bytes(arrays: Layers) -> Bytes:
    """Return the arrays of a message as bytes."""
    return {name: array.tobytes() for name, array in arrays.items()}


def from_bytes(entries: Mapping[str, bytes]) -> dict[str, NDArray[np.uint8]]:
    """Return bytes as arrays for a message."""
    return {name: np.frombuffer(entry, np.uint8) for name, entry in entries.items()}
