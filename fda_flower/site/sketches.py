"""What a site remembers of the sketches that have left it, so that several do not tell what one must not."""

import json
from dataclasses import dataclass
from pathlib import Path

from fda_flower.files import PRIVATE, locked, make_private, write_atomically

FILE = "sketches.json"
"""The memory's name in a node's ``state-dir``."""

SHARE = 8
"""A model has at least so many times the numbers of all sketches of one of its vectors together."""


@dataclass(frozen=True)
class SketchMemory:
    """The sizes of the sketches that have left a site, by the number of the model's numbers.

    A site sends sketches with the round's number as seed: a vector has only one sketch of each size, whoever
    asks for it, in whichever run, and however often. So the sizes bound what can be known of it.

    Attributes
    ----------
    path : Path
        The file.
    """

    path: Path

    def admits(self, numbers: int, size: int) -> bool:
        """Return whether sketches of a size may leave; remember it if they may.

        Raises
        ------
        OSError, ValueError
            If the file cannot be read or written: what has left is then not known.
        """
        make_private(self.path.parent)
        with locked(self.path.with_name(f".{self.path.name}.lock")):
            kept = self._read()
            sizes = kept.setdefault(str(numbers), [])
            if size in sizes:
                return True
            sizes.append(size)
            if size < 1 or SHARE * sum(sizes) > numbers:
                return False
            write_atomically(self.path, json.dumps(kept).encode(), PRIVATE)
        return True

    def _read(self) -> dict[str, list[int]]:
        try:
            kept = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        if not isinstance(kept, dict) or not all(_are_sizes(sizes) for sizes in kept.values()):
            raise ValueError(f"'{self.path}' is damaged: restore the file from a copy")
        return kept


def _are_sizes(value: object) -> bool:
    return isinstance(value, list) and all(type(size) is int and size > 0 for size in value)
