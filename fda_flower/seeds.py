"""Seeds that depend on nothing but what they are for, so that no order of events changes a run."""

import hashlib


def derive_seed(*parts: object) -> int:
    """A seed in ``[0, 2**63)`` for a purpose, such as ``derive_seed(seed, round, domain)``.

    Examples
    --------
    >>> derive_seed(0, 1, "a") == derive_seed(0, 1, "a") != derive_seed(0, 2, "a")
    True
    """
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1
