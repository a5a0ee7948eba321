"""Secure sums: what masks the numbers of a source, so that the server reads only the sum over all sources.

The protocol is that of Bonawitz et al., "Practical secure aggregation for privacy-preserving machine
learning", CCS 2017, with all pairs of sources, in four messages (`STAGES`). Source ``i`` sends

``y_i = x_i + p(b_i) + Σ_{j>i} p(s_ij) − Σ_{j<i} p(s_ij)  (mod 2⁶⁴)``,

where ``x_i`` are its numbers in fixed point, ``b_i`` is a seed of its own, ``s_ij`` a key that two sources
agree on by Diffie-Hellman, and ``p`` a key stream. The masks of pairs cancel in the sum. The others hold
shares of ``b_i`` and of the source's private key: once all ``y_i`` are there, they reveal of each source
either ``b_i``, or, if it was lost on the way, its private key; never both.

Key agreement, encryption and Shamir's shares are Flower's (`flwr.common.secure_aggregation`). Its
pseudo-random numbers are not used: they have 32 bits of seed, which can be tried one by one. The key stream
here is AES-256 in counter mode.
"""

from base64 import urlsafe_b64decode
from collections.abc import Mapping
from hashlib import sha256

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from numpy.typing import NDArray

from fda_flower.aggregation import Layers
from fda_flower.errors import ConfigError
from fda_flower.wire.internals import generate_shared_key

SECURE, ACTIVE = "secure-sums", "active"
"""The setting of a train message that names its stage, and the record in the message and in the reply; the
setting of the last stage that names the sources whose masked numbers have arrived."""

KEYS, SHARES, MASKED, UNMASK = STAGES = ("keys", "shares", "masked", "unmask")
"""Public keys; encrypted shares of the secrets; the masked numbers; shares in the open."""

SHARING, MASKING, DIGEST, TO, SUMS = "sharing", "masking", "digest", "to.", "sums"
"""Arrays of the replies: public keys; the SHA-256 of the seed, and how the names of encrypted shares begin;
masked numbers. Other arrays have the name of the source that they are of."""

FEWEST, MOST = 3, 256
"""Sources of a round."""

SCALE, LARGEST = 2.0**24, 2.0**31
"""Steps in 1, and what a source's numbers are smaller than, so that the sum over `MOST` does not overflow."""

SECRET, PUBLIC, SHARE = 32, 65, 52
"""Bytes of a seed or private key, a public key, and a share: its number, and the secret padded to 48."""

CURVE = ec.SECP256R1()

Words = NDArray[np.uint64]
Bytes = dict[str, bytes]


def threshold(sources: int) -> int:
    """Return how many shares reveal a secret: more than half, so that no two secrets of one source are."""
    return sources // 2 + 1


def encode(numbers: NDArray[np.floating]) -> Words:
    """Return numbers in fixed point, modulo 2⁶⁴; a `ConfigError` if one is not finite or too large.

    Examples
    --------
    >>> decode(encode(np.array([1.5, -2.0])) + encode(np.array([0.25, 1e-9])))
    array([ 1.75, -2.  ])
    """
    largest = float(np.abs(numbers).max(initial=0.0))
    if not largest < LARGEST:
        why = f"a sum is {largest:g}, and one that is masked must be below {LARGEST:g}"
        raise ConfigError(why, thing="masked sums", value=largest, remedy="give labels in a larger unit")
    return np.rint(np.asarray(numbers, np.float64) * SCALE).astype(np.int64).view(np.uint64)


def decode(words: Words) -> NDArray[np.float64]:
    """Return the numbers that `encode` has made words of, or of the words' sums."""
    return words.view(np.int64) / SCALE


def key_stream(key: bytes, size: int) -> Words:
    """Return ``p(key)``, words that nobody without the key of 32 bytes can tell from random ones."""
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(8 * size))
    return np.frombuffer(stream, "<u8").astype(np.uint64, copy=False)


def new_secret() -> bytes:
    """Return a new private key."""
    return ec.generate_private_key(CURVE).private_numbers().private_value.to_bytes(SECRET, "big")


def public_of(secret: bytes) -> bytes:
    """Return the public key of a private one."""
    key = ec.derive_private_key(int.from_bytes(secret, "big"), CURVE).public_key()
    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def digest_of(seed: bytes) -> bytes:
    """Return what a source tells of its seed before it is revealed, so that nobody can forge it."""
    return sha256(seed).digest()


def check_public(public: bytes) -> None:
    """Raise a `ValueError` if bytes are no public key."""
    if len(public) != PUBLIC:
        raise ValueError(f"its public keys do not have {PUBLIC} bytes")
    ec.EllipticCurvePublicKey.from_encoded_point(CURVE, public)


def shared_key(secret: bytes, public: bytes) -> bytes:
    """Return the key that two sources share, as Flower's `encrypt` takes it; a `ValueError` if none is."""
    private = ec.derive_private_key(int.from_bytes(secret, "big"), CURVE)
    return generate_shared_key(private, ec.EllipticCurvePublicKey.from_encoded_point(CURVE, public))


def masks_of_pairs(own: str, secret: bytes, others: Mapping[str, bytes], size: int) -> Words:
    """Return the sum of a source's masks with others, of which it has the public keys."""
    total = np.zeros(size, np.uint64)
    for name, public in others.items():
        mask = key_stream(urlsafe_b64decode(shared_key(secret, public)), size)
        total += mask if own < name else np.negative(mask)
    return total


def to_bytes(arrays: Layers) -> Bytes:
    """Return arrays of a message as the bytes that they are."""
    return {name: array.tobytes() for name, array in arrays.items()}


def from_bytes(entries: Mapping[str, bytes]) -> dict[str, NDArray[np.uint8]]:
    """Return bytes as arrays for a message."""
    return {name: np.frombuffer(entry, np.uint8) for name, entry in entries.items()}
