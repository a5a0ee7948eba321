"""What a tracker knows of a run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

PROJECT = "fda-flower"
"""The name under which trackers keep all runs of this package, unless their own variables give another."""


@dataclass(frozen=True)
class TrackedRun:
    """A run as trackers take it: never its data.

    Attributes
    ----------
    folder : Path
        The run's folder.
    store : Path
        The folder of a local store: the run's, or that of the comparison or experiment which it belongs to.
    settings : Mapping
        Its settings by name.
    versions : Mapping
        Versions of packages by name.
    id : str, optional
        What `Tracker.id` was when the run was begun; None if it begins now.
    """

    folder: Path
    store: Path
    settings: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    id: str | None = None

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.name


class Tracker(Protocol):
    """Shows one run. Its class takes a `TrackedRun`; whatever it raises turns it off.

    Attributes
    ----------
    id : str
        By which a resumed run finds its tracked run again.
    """

    id: str

    def record(self, number: int, values: Mapping[str, float]) -> None:
        """Show a round's numbers."""

    def close(self, finished: bool) -> None:
        """End, and say whether the run is finished."""
