"""The finished rounds of a run, in memory and in its folder."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from logging import INFO
from typing import Any

from flwr.common import log

from fda_flower.aggregation import Layers
from fda_flower.errors import RunError
from fda_flower.records.folder import Checkpoint, RunFolder, of_a_round_before
from fda_flower.records.record import Record, betas_line, round_line, why_held


class Progress:
    """The finished rounds of a run, in memory and in its folder.

    `history` holds their records, as in ``rounds.jsonl``; `on_round` is called with each. The run ends with
    an error after `max_held_rounds` consecutive held rounds.
    """

    def __init__(
        self, output: RunFolder | None, max_held_rounds: int, on_round: Callable[[Record], None] | None
    ) -> None:
        self.output = output
        self.max_held_rounds = max_held_rounds
        self.on_round = on_round
        self.history: list[Record] = []
        self._held_rounds = 0

    def open(self, settings: Mapping[str, Any]) -> Checkpoint | None:
        """Open the folder, and make the rounds of its checkpoint the history; return None without one."""
        if self.output is None or (checkpoint := self.output.open(settings)) is None:
            return None
        self._held_rounds = checkpoint.held_rounds
        self.history[:] = self.output.read_rounds()[: checkpoint.round]
        log(INFO, "Resumed after round %d from %s", checkpoint.round, self.output.path)
        return checkpoint

    def begin(self, done: int, model: Layers) -> None:
        """Write the run's configuration and initial checkpoint, and drop unfinished rounds."""
        if self.output is not None:
            self.output.begin(done, model)

    def close(self) -> None:
        """Unlock the folder."""
        if self.output is not None:
            self.output.close()

    def note(self, held: str | None) -> None:
        """Count consecutive held rounds; `held` is the reason, None if the model was updated."""
        self._held_rounds = 0 if held is None else self._held_rounds + 1

    def finish(
        self,
        record: Record,
        num_rounds: int,
        checkpoint: Callable[[], Checkpoint],
        chosen: bool,
    ) -> None:
        """Write a round's record and checkpoint; raise a `RunError` after too many held rounds in a row."""
        self.history[-1:] = [*map(of_a_round_before, self.history[-1:]), record]
        if self.output is not None:
            self.output.save_round(record, replace(checkpoint(), held_rounds=self._held_rounds), chosen)
        if self.on_round is not None:
            self.on_round(record)
        before = self.history[-2] if len(self.history) > 1 else None
        lines = (round_line(record, num_rounds, before=before), betas_line(record))
        log(INFO, "%s", "; ".join(filter(None, lines)))
        if self._held_rounds >= self.max_held_rounds:
            raise RunError(
                f"the model could not be updated for {self._held_rounds} rounds in a row "
                f"({why_held(self.history[-self._held_rounds :])}): repair the clients, then resume",
                thing="held rounds",
                value=self._held_rounds,
            )
