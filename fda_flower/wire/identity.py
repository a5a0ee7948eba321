"""A site's identity: the key of its SuperNode, which signs what the server passes on to other sites."""

import base64
import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_private_key,
    load_ssh_public_key,
)

from fda_flower.errors import invalid

FINGERPRINT = re.compile("SHA256:[A-Za-z0-9+/]{43}")


def fingerprint_of(public: Any) -> str:
    """Return the fingerprint of a public key, as ``ssh-keygen -l`` prints it."""
    text = public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    digest = hashlib.sha256(base64.b64decode(text.split()[1])).digest()
    return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


@dataclass(frozen=True)
class Identity:
    """The private key of a SuperNode."""

    key: ec.EllipticCurvePrivateKey

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the identity in a file of ``fda deploy key``; raise a `ConfigError` if it is none."""
        remedy = "give the private key of the SuperNode, as `fda deploy key` makes it"
        try:
            key = load_ssh_private_key(path.expanduser().read_bytes(), None)
        except (OSError, ValueError, UnsupportedAlgorithm) as error:
            raise invalid("secure-key", str(path), remedy, f"which cannot be read ({error})") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise invalid("secure-key", str(path), remedy, "which is no key of an elliptic curve")
        return cls(key)

    @cached_property
    def public(self) -> bytes:
        """The public key, in OpenSSH's format."""
        return self.key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)

    @property
    def fingerprint(self) -> str:
        """See `fingerprint_of`."""
        return fingerprint_of(self.key.public_key())

    def sign(self, statement: bytes) -> bytes:
        """Return the signature of a statement (ECDSA with SHA-256)."""
        return self.key.sign(statement, ec.ECDSA(SHA256()))


def signer_of(statement: bytes, public: bytes, signature: bytes) -> str:
    """Return the fingerprint of the key that has signed a statement; raise a `ValueError` if it has not."""
    try:
        key = load_ssh_public_key(public)
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise ValueError
        key.verify(signature, statement, ec.ECDSA(SHA256()))
    except (ValueError, UnsupportedAlgorithm, InvalidSignature):
        raise ValueError("its keys are not signed by the key that it names") from None
    return fingerprint_of(key)
