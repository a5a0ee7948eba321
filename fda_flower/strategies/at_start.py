"""Estimates from gradients that all clients take at the global model, before they train."""

from collections.abc import Iterable
from typing import Literal

from flwr.app import ArrayRecord

from fda_flower.aggregation import (
    CountSketch,
    GradientEncoding,
    GradientForm,
    Layers,
    StartGradients,
    read_gradients,
)
from fda_flower.protocol import GRADIENTS, SKETCH_SEED, SKETCH_SIZE, TrainRequest, to_record
from fda_flower.records import Record
from fda_flower.strategies.round import Round
from fda_flower.strategies.validation import ClientUpdate

EstimateAt = Literal["training", "start"]


class GradientsAtStart:
    """What clients are asked for, and how it is read.

    Parameters
    ----------
    encoding : {"sketch", "full"}
        How clients encode their mean gradients.
    sketch_size : int
        Number of buckets of a sketch. Its seed is the round's number, the same for all clients.
    """

    def __init__(self, encoding: GradientEncoding, sketch_size: int) -> None:
        self._encoding, self._sketch_size = encoding, sketch_size

    def ask(self, request: TrainRequest, round: Round, sent: bool = True) -> TrainRequest:
        """Return a request that also asks for gradients; `sent` says whether they come with the reply."""
        asked: Record = {GRADIENTS: self._encoding}
        if self._encoding == "sketch":
            asked |= {SKETCH_SIZE: self._sketch_size, SKETCH_SEED: round.number}
        return request.adding(config=asked, expects={GRADIENTS: "any"} if sent else {})

    def read(
        self, round: Round, target: ClientUpdate, sources: Iterable[ClientUpdate]
    ) -> StartGradients | str:
        """Return the gradients in the replies, or why the target's cannot be used."""
        length = sum(layer.size for layer in target.parameters.values())
        form = GradientForm(self._encoding, CountSketch(self._sketch_size, round.number), length)
        return read_gradients(_sent(target), [_sent(source) for source in sources], form)

    def forwarded(self, sources: Iterable[ClientUpdate]) -> dict[str, ArrayRecord]:
        """Return the record ``gradients.I`` of the ``I``-th source that sent some, for the target."""
        sent = ((i, _sent(source)) for i, source in enumerate(sources))
        return {f"{GRADIENTS}.{i}": to_record(arrays) for i, arrays in sent if not isinstance(arrays, str)}


def _sent(update: ClientUpdate) -> Layers | str:
    return update.faults.get(GRADIENTS) or update.extra[GRADIENTS]
