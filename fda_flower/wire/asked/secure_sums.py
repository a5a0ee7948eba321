"""The question of masked sums; see `fda_flower.wire.secure_sums`."""

from collections.abc import Iterable
from typing import Annotated, Literal

from flwr.app import Message

from fda_flower.aggregation import Layers
from fda_flower.wire.questions import QUESTIONS, Answer, Question
from fda_flower.wire.releases import Release
from fda_flower.wire.secure_sums import Stage


class Masked(Answer):
    """What a source sends in a stage of masked sums: its `entries`; see `fda_flower.wire.secure_sums`."""

    entries: Annotated[Layers, Release.MASKED]


class MaskSums(Question):
    """Ridge with masked sums: answer a `stage`, and leave the model.

    `entries` are what the other sources have sent to this one, by source. `active` lists the sources whose
    masked sums have arrived. The sums are over rows of features, `centred` or not as in `SumRows`, or, with
    `over`, over the values of a table's columns.
    """

    action = "mask_sums"
    roles = ("source",)
    model = Release.NOTHING
    answer = Masked
    answered_by = "fda_flower.clients.ridge:mask_sums"

    stage: Stage
    entries: Layers | None = None
    active: tuple[str, ...] = ()
    over: Literal["columns"] | None = None
    centred: bool | None = None

    @staticmethod
    def among(messages: Iterable[str]) -> bool:
        """Return whether a message of some types asks for a stage of masked sums."""
        return any(issubclass(QUESTIONS.get(each, Question), MaskSums) for each in messages)

    @classmethod
    def sent_in(cls, message: Message) -> "MaskSums":
        """Return the question of a message; raise a `ConfigError` if it holds none, or not whole."""
        kind = QUESTIONS.get(message.metadata.message_type, cls)
        return (kind if issubclass(kind, cls) else cls).read(message.content)
