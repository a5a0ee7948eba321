"""Times each round of a framework, and a round of the bare loop after it."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

STEADY = "steady"
"""The file that a process writes when its warm-up rounds are over."""


class Loop(Protocol):
    """What a framework's round is compared with."""

    def round(self) -> Any:
        """Do a round."""


@dataclass
class Measured:
    """What a process has measured.

    Attributes
    ----------
    start : float
        Seconds from the start of the process to the end of its first round.
    rounds, bare : list of float
        Seconds of each round after the warm-up, and of the bare round after it.
    accuracy : float
        Of the framework's model after the last round, as a share.
    """

    start: float = 0.0
    rounds: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)
    accuracy: float = 0.0


class Pairing:
    """The stopwatch of a process.

    What a framework does between two rounds counts for the second; the bare loop, which is made after the
    warm-up rounds, counts for none.

    Parameters
    ----------
    warm_up : int
        Rounds that are not timed, at least 1.
    make_loop : callable
        Makes the bare loop.
    begun : float
        When the process began, on `clock`.
    folder : Path
        Where the file `STEADY` is written.
    clock : callable
        Seconds, the same in all processes.
    """

    def __init__(
        self,
        warm_up: int,
        make_loop: Callable[[], Loop],
        begun: float,
        folder: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._warm_up, self._make_loop, self._folder, self._clock = warm_up, make_loop, folder, clock
        self._done, self._begun = 0, begun
        self._loop: Loop | None = None
        self.measured = Measured()

    def round_done(self, accuracy: float) -> None:
        """Call this after each round with the accuracy of its model."""
        taken = self._clock() - self._begun
        self._done += 1
        self.measured.accuracy = accuracy
        if self._done == 1:
            self.measured.start = taken
        if self._done == self._warm_up:
            (self._folder / STEADY).touch()
            self._loop = self._make_loop()
            self._loop.round()
        if self._done > self._warm_up:
            assert self._loop is not None
            begun = self._clock()
            self._loop.round()
            self.measured.bare.append(self._clock() - begun)
            self.measured.rounds.append(taken)
        self._begun = self._clock()

    def result(self) -> dict[str, Any]:
        """Return what was measured, as JSON can hold it."""
        return asdict(self.measured)
