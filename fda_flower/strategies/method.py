"""The hooks and options of a method. Only `aggregate` has no default."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from flwr.app import ArrayRecord

from fda_flower.aggregation import Layers
from fda_flower.records.record import LAST, Record
from fda_flower.strategies.nodes import Node
from fda_flower.strategies.replies import ClientUpdate
from fda_flower.strategies.round import Round
from fda_flower.strategies.selection import Selection
from fda_flower.strategies.settings import Buffers, StandardisedBy
from fda_flower.wire import protocol
from fda_flower.wire.asked.columns import DescribeColumns
from fda_flower.wire.asked.secure_sums import MaskSums
from fda_flower.wire.protocol import EvaluateRequest, TrainRequest, to_layers, to_record
from fda_flower.wire.questions import Question

Sources = Mapping[str, ClientUpdate]
"""Updates of sources by domain, sorted by domain."""


Epochs = dict[str, int]
"""Epochs by role."""


@dataclass(frozen=True)
class Aggregated:
    """The result of a round. The base class commits all of it or none.

    Attributes
    ----------
    model : Layers
        The new global model.
    state : Mapping[str, Layers]
        Changed models of the method, by name. The next round, also of a resumed run, finds them in the
        strategy's `state`; `to_layers` converts one to arrays.
    record : Record
        Entries of the round's record.
    clients : Mapping[str, Record]
        Entries of the clients' records, by domain.
    warnings : sequence of str
        What the log says of the round.
    """

    model: Layers
    state: Mapping[str, Layers] = field(default_factory=dict)
    record: Record = field(default_factory=dict)
    clients: Mapping[str, Record] = field(default_factory=dict)
    warnings: Sequence[str] = ()


def entries(name: str, clients: Iterable[ClientUpdate], values: Iterable[float]) -> dict[str, Record]:
    """Return an entry of each client's record, such as its ``weight``, for `Aggregated.clients`."""
    return {client.domain: {name: value} for client, value in zip(clients, values, strict=True)}


class MethodHooks(ABC):
    """Methods that a subclass overrides to define a strategy.

    A round is held if the target trains and its reply cannot be used, if fewer than `min_sources` sources
    remain, if `aggregate` raises a `BadReplyError`, or if a new model would not be finite. The global model
    and the method's models are then unchanged, and the record's ``held`` gives the reason. The clients have
    still trained, and keep their own state.

    Attributes
    ----------
    state : dict[str, ArrayRecord]
        Further models of the method, by name; `Aggregated.state` replaces them.
    round : Round
        The current round.
    num_rounds : int
        Number of rounds of the run, once known; set it where another loop than `start` runs them.
    """

    round: Round
    state: dict[str, ArrayRecord]
    history: list[Record]
    selection: Selection
    buffers: Buffers
    warmup_rounds: int
    min_sources: int
    evaluate_every: int
    columns: StandardisedBy
    num_rounds: int = 0
    questions: ClassVar[tuple[type[Question], ...]] = ()
    """The questions it may ask; a question says of which roles. A site answers no others; see `asked_of`."""
    needs: tuple[str, ...] = ()
    """Requirements with these options, in addition to the class's own; names of `runs.needs.NEEDS`."""
    has_target: ClassVar[bool] = True
    """Whether one node is the target; otherwise all are sources, whatever role they report."""
    trains: frozenset[str] = frozenset({"source", "target"})
    """The roles that train."""
    refused_buffers: ClassVar[Mapping[str, str]] = {}
    """Reasons to refuse values of `buffers`; ``"target"`` is always refused if the target does not train."""
    without_patients: str | None = None
    """Why noise cannot protect patients, although sites can add it to all replies; see `Method.noise`."""
    requires: ClassVar[Mapping[str, str]] = {}
    """The metrics without which each reply to a train message is dropped, with the remedy."""
    masks_columns: bool = False
    """Whether the sums over tables' columns are masked; see `strategies.columns`."""
    needs_all_sources: ClassVar[str | None] = None
    """Why a round needs all sources, if it does; otherwise a fraction of them may take part."""
    fewest_sources: ClassVar[int] = 1
    """Number of sources that a round takes at least where only a fraction takes part."""
    averages_sources: ClassVar[bool] = False
    """Whether `source_mean` also applies after the warm-up."""
    asks_again: bool = False
    """Whether `aggregate` sends further requests within a round."""
    ends_with_an_evaluation: bool = False
    """Whether the target evaluates differently in the last round."""
    falls_back: ClassVar[str] = "a new start of"
    """Words of the log before the domains that have an entry ``fallback`` in a round's record."""
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {"reference-code": {}, "paper": {}}
    """Options that select the authors' code or the paper's definition."""

    @property
    def needs_num_rounds(self) -> bool:
        """Whether a round depends on the number of rounds."""
        return self.ends_with_an_evaluation or self.evaluate_every > 1

    @abstractmethod
    def aggregate(self, round: Round, target: ClientUpdate | None, sources: Sources) -> Aggregated:
        """Return the new global model and the method's changed models.

        Do not change the strategy here, so that a held round changes nothing.

        Parameters
        ----------
        round : Round
            The round, with the global model.
        target : ClientUpdate or None
            The target's update; None if the target does not train.
        sources : Sources
            At least `min_sources` updates, or none if sources do not train.

        Raises
        ------
        BadReplyError
            If the replies cannot be used; the round is held.
        """

    @property
    def asked_questions(self) -> tuple[type[Question], ...]:
        """The questions with these options; by default all."""
        return self.questions

    @property
    def needs_all(self) -> str | None:
        """Why a reply without an array is dropped even if all replies lack it; None if it stays as it is.

        By default a method that trains by questions, or whose target aggregates, needs the whole model.
        """
        more = self.asks_again or any(each.kind == protocol.TRAIN for each in self.asked_questions)
        return f"{type(self).__name__} needs the whole model" if more else None

    @property
    def evaluates_own(self) -> bool:
        """Whether the target evaluates with a model, or part of one, that it keeps: asked by a question."""
        return any(each.kind == protocol.EVALUATE for each in self.asked_questions)

    @property
    def learns_from_sources(self) -> bool:
        """Whether anything of the sources' comes into a model; if not, tables have no common columns."""
        return "source" in self.trains or self.warmup_rounds > 0

    @property
    def trained_plainly(self) -> frozenset[str]:
        """The roles that get plain train messages after the warm-up.

        By default those that train, and that no question asks to train in another way.
        """
        trained = (each for each in self.asked_questions if each.kind == protocol.TRAIN)
        return frozenset(self.trains - {role for each in trained for role in each.roles})

    def asked_of(self, role: str) -> frozenset[str]:
        """Return the types of all messages that a run with these options sends to the nodes of a role.

        A site answers no others, and refuses them before it reads data.
        """
        messages = {each.message_type() for each in self.asked_questions if role in each.roles}
        if role in self.trained_plainly or (role == "source" and self.warmup_rounds):
            messages.add(protocol.TRAIN)
        if role == "target" and self.has_target:
            messages.add(protocol.EVALUATE)
        if role == "source" and self.learns_from_sources and self.columns == "common":
            messages.add((MaskSums if self.masks_columns else DescribeColumns).message_type())
        return frozenset(messages)

    def state_dict(self) -> dict[str, Layers]:
        """Return the method's further models, for the checkpoint."""
        return {name: to_layers(record) for name, record in self.state.items()}

    def load_state_dict(self, state: Mapping[str, Layers]) -> None:
        """Restore the models of a checkpoint."""
        self.state = {name: to_record(layers) for name, layers in state.items()}

    def asks(self, node: Node, round: Round) -> bool:
        """Return whether a node trains after the warm-up; by default if its role does."""
        return node.role in self.trains

    def train_request(self, node: Node, round: Round) -> TrainRequest:
        """Return the train request for a node, including the reply it expects."""
        return TrainRequest(round.arrays, round.config, requires=self.requires)

    def answered(self, domain: str, answer: Any) -> Record:
        """Return the entries of a client's record for its answer to the question of a train message."""
        return {}

    def evaluated(self, answer: Any) -> Record:
        """Return the entries of the round's record for the answer to the question of the headline."""
        return {}

    def evaluate_request(self, round: Round) -> EvaluateRequest | None:
        """Return the request for the headline, by default of the new global model; None for none."""
        return self.global_request(round, round.arrays)

    def further_requests(self, round: Round) -> Mapping[str, EvaluateRequest]:
        """Return the requests for further models, by the ending of their metrics in the round's record.

        By default the new global model, if the headline is of another.
        """
        return {"global": self.global_request(round, round.arrays)} if self.evaluates_own else {}

    def global_request(self, round: Round, arrays: ArrayRecord) -> EvaluateRequest:
        """Return the request for a global model, such as the new one or an average."""
        return EvaluateRequest(arrays, round.config)

    def evaluates_in(self, number: int) -> bool:
        """Return whether the target evaluates in a round: every `evaluate_every`, and in the last ones."""
        return number % self.evaluate_every == 0 or number > self.num_rounds - LAST

    def validate_nodes(self, nodes: Iterable[Node]) -> None:
        """Raise a `ConfigError` if the method cannot work with these nodes; runs before training."""
        return None

    def conclusion(self, record: Record) -> list[str]:
        """Return lines to print at the end of a run, from its last record."""
        return []

    def check_samples(self, role: str, who: str, samples: int, batch_size: int) -> None:
        """Raise a `ConfigError` if a client has too few samples for its role in the method."""
        return None

    def training_epochs(self, rounds: int, warmup: int, epochs: Epochs, labels: int) -> Epochs:
        """Return the number of epochs that a client of each role trains in a whole run, for reports.

        Passes that only evaluate a model or its gradient do not count.

        Parameters
        ----------
        rounds, warmup : int
            Rounds of the method, and warm-up rounds before them, where only the sources train.
        epochs : dict[str, int]
            Epochs of one local training by role, ``"source"`` and ``"target"``.
        labels : int
            Labelled samples of the target.
        """
        trainings = {role: rounds * (role in self.trains) for role in epochs}
        trainings["source"] += warmup
        return {role: trainings[role] * each for role, each in epochs.items()}

    def epochs_of_head(self, rounds: int, warmup: int, epochs: Epochs, labels: int) -> Epochs:
        """Return how many of the `training_epochs` train the network's head alone."""
        return dict.fromkeys(epochs, 0)
