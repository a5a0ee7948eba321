"""How far a run has come: the records of its rounds, and what is written after each."""

from collections.abc import Callable, Mapping
from logging import INFO
from typing import Any

from flwr.common import log

from fda_flower.aggregation import Layers
from fda_flower.errors import RunError
from fda_flower.records import Record, round_line
from fda_flower.run_folder import Checkpoint, RunFolder, of_a_round_before


class Progress:
    """The finished rounds of a run, in memory and in its folder.

    Parameters
    ----------
    output : RunFolder, optional
        Where to write the rounds' records and a checkpoint, and to resume from.
    max_held_rounds : int
        After so many held rounds in a row the run ends with an error.
    on_round : callable, optional
        Called with each round's record.

    Attributes
    ----------
    history : list[dict]
        The record of each finished round, as in ``rounds.jsonl``.
    """

    def __init__(
        self,
        output: RunFolder | None,
        max_held_rounds: int,
        on_round: Callable[[Record], None] | None,
    ) -> None:
        self.output = output
        self.max_held_rounds = max_held_rounds
        self.on_round = on_round
        self.history: list[Record] = []
        self._held_rounds = 0

    def open(self, settings: Mapping[str, Any]) -> Checkpoint | None:
        """Return the checkpoint that the folder holds, whose rounds become the history; None without one."""
        checkpoint = None if self.output is None else self.output.open(settings)
        if checkpoint is not None and self.output is not None:
            self._held_rounds = checkpoint.held_rounds
            self.history[:] = self.output.read_rounds()[: checkpoint.round]
            log(INFO, "Resumed after round %d from %s", checkpoint.round, self.output.path)
        return checkpoint

    def begin(self, done: int, model: Layers) -> None:
        """Write the run's configuration and its first checkpoint, and drop the rounds that are not done."""
        if self.output is not None:
            self.output.begin(done, model)

    def close(self) -> None:
        """Let others write to the folder."""
        if self.output is not None:
            self.output.close()

    def note(self, held: str | None) -> None:
        """Count the held rounds in a row; `held` is why this one is, None for a new model."""
        self._held_rounds = 0 if held is None else self._held_rounds + 1

    def finish(
        self,
        record: Record,
        num_rounds: int,
        model: Layers,
        state: Callable[[], dict[str, Layers]],
        chosen: bool,
    ) -> None:
        """Write a round's record and its checkpoint, and tell of it.

        Raises
        ------
        RunError
            After too many held rounds in a row.
        """
        self.history[-1:] = [*map(of_a_round_before, self.history[-1:]), record]
        if self.output is not None:
            checkpoint = Checkpoint(record["round"], model, state(), self._held_rounds)
            self.output.save_round(record, checkpoint, chosen)
        if self.on_round is not None:
            self.on_round(record)
        before = self.history[-2] if len(self.history) > 1 else None
        log(INFO, "%s", round_line(record, num_rounds, before=before))
        if self._held_rounds >= self.max_held_rounds:
            raise RunError(
                f"the model could not be updated for {self._held_rounds} rounds in a row "
                f"({record['held']}): repair the clients, then resume"
            )
