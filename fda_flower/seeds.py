"""Seeds that depend only on their purpose, so that the order of events does not change a run."""

import hashlib


def derive_seed(*parts: object) -> int:
    """Return a seed in ``[0, 2**63)`` for a purpose, such as ``derive_seed(seed, round, domain)``.

    Examples
    --------
    >>> derive_seed(0, 1, "a") == derive_seed(0, 1, "a") != derive_seed(0, 2, "a")
    True
    """
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest) >> 1
