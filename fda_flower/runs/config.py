"""The configuration of a run, complete, and checked in full before training."""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, Self

from fda_flower.clients.settings import LocalTraining
from fda_flower.datasets.amounts import most
from fda_flower.datasets.spec import AMOUNTS
from fda_flower.metrics import headline_metric
from fda_flower.models import Train
from fda_flower.names.tasks import Task
from fda_flower.records.record import HEADLINE
from fda_flower.runs.checks import checked, checked_lightly
from fda_flower.runs.completion import (
    Completion,
    entry_of,
    fitting_model,
    local_training,
    strategy_options,
    trained_part,
)
from fda_flower.runs.methods import Method
from fda_flower.runs.request import Request
from fda_flower.runs.settings import GONE, SETTINGS

if TYPE_CHECKING:
    from fda_flower.strategies import DomainAdaptationStrategy
    from fda_flower.strategies.method import Epochs


class RunConfig(Request, Completion):
    """One method on one federation with one seed; an invalid combination raises a `ConfigError`.

    Its arguments are the fields of a `Request`, which it completes: what a setting leaves open has its value
    here. If no method is named, `method` becomes the choice of `fitting_method`, and `choice` says which and
    why.
    """

    if not TYPE_CHECKING:  # the arguments have the types of the fields

        @wraps(Request.__init__)
        def __init__(self, **settings: Any) -> None:
            self._hold(*checked(Request(**settings)))

    def _hold(self, run: Request, completion: Completion) -> None:
        Request.__init__(self, **run.values)
        Completion.__init__(self, **vars(completion))

    @classmethod
    def of(cls, request: Request) -> Self:
        """Return the run that a request asks for."""
        return cls(**request.values)

    @classmethod
    def recorded(cls, settings: Mapping[str, Any]) -> Self:
        """Return the run in a folder, whose strategy is loaded only when it is used: it was checked before.

        Raise a `ConfigError` if the settings are none of this version.
        """
        config = cls.__new__(cls)
        config._hold(*checked_lightly(Request(**settings)))
        return config

    @property
    def remarks(self) -> list[str]:
        """Lines on a chosen method, and on settings that change nothing."""
        lines = [self.choice] if self.choice else []
        if self.idle:
            which = f"{', '.join(self.idle)} {'changes' if len(self.idle) == 1 else 'change'} nothing"
            lines.append(
                f"{self.entry.label} takes {self.entry.rounds} round without training steps: {which}"
            )
        return lines

    @property
    def entry(self) -> Method:
        """The method's entry in its table."""
        return entry_of(self, self.method)

    @cached_property
    def strategy(self) -> "DomainAdaptationStrategy":
        """The method's strategy, for questions about it; a run builds its own."""
        return self.entry.build(**self.strategy_options())

    def conclusion(self, record: Mapping[str, Any]) -> list[str]:
        """Return lines to print at the end of a run, from its last record."""
        return self.strategy.conclusion(dict(record)) if self.entry.concludes else []

    def strategy_options(self) -> dict[str, Any]:
        """Keyword arguments of the method's strategy."""
        return strategy_options(self, self.entry, self.data)

    @property
    def needs(self) -> tuple[str, ...]:
        """The method's needs with its options, names of `fda_flower.runs.needs.NEEDS`."""
        return (*self.entry.needs, *self.strategy.needs)

    @property
    def task(self) -> Task:
        """Whether the labels are numbers."""
        return self.data.task

    @property
    def headline(self) -> str:
        """The figure that judges the run, a name of `fda_flower.metrics.METRICS`; see `headline_of`."""
        return headline_metric(self.metric, self.task)

    def headline_of(self, history: Iterable[Mapping[str, Any]]) -> str:
        """Return the metric that judges a run with these records: a rare class may ask for another."""
        rare = next((record[HEADLINE] for record in history if HEADLINE in record), None)
        return headline_metric(self.metric or rare, self.task)

    @property
    def all_rounds(self) -> int:
        """The number of rounds, including warm-up rounds."""
        return self.rounds + self.strategy.warmup_rounds

    @property
    def fitting_model(self) -> str:
        """The network that fits the data, where none is named."""
        return fitting_model(self.data, self.entry, self.privacy.of_patients)

    @property
    def trained(self) -> Train:
        """The part of the network that is trained."""
        return trained_part(self, self.entry)

    @property
    def fits(self) -> bool:
        """Whether nodes fit a linear layer in closed form, and nobody trains it by steps."""
        return self.entry.rounds is not None and not self.strategy.warmup_rounds

    @property
    def rate(self) -> float:
        """The learning rate of the sources."""
        return self.source_training.learning_rate

    @property
    def source_training(self) -> LocalTraining:
        """How the sources train."""
        return local_training(self, self.entry)

    @property
    def target_training(self) -> LocalTraining:
        """How the target trains."""
        return local_training(self, self.entry, target=True)

    def check_samples(self, role: str, who: str, samples: int) -> None:
        """Raise a `ConfigError` if a client of a role has too few samples for the method."""
        training = self.target_training if role == "target" else self.source_training
        self.strategy.check_samples(role, who, samples, training.batch_size)

    def training_epochs(self, labels: int, ran: int | None = None) -> dict[str, int]:
        """Return the epochs of a source, and of a target with `labels` samples, in a run of `ran` rounds.

        If sources are drawn, it is a source's mean.
        """
        return self._epochs(self.strategy.training_epochs, labels, ran)

    def epochs_of_head(self, labels: int) -> dict[str, int]:
        """Return how many of the `training_epochs` train the network's head alone."""
        return self._epochs(self.strategy.epochs_of_head, labels)

    def _epochs(
        self, count: "Callable[[int, int, Epochs, int], Epochs]", labels: int, ran: int | None = None
    ) -> "Epochs":
        strategy = self.strategy
        epochs = {"source": self.source_training.epochs, "target": self.target_training.epochs}
        rounds = self.rounds if ran is None else ran - strategy.warmup_rounds
        trained = count(rounds, strategy.warmup_rounds, epochs, labels)
        if not dict(self.method_options).get("fraction_train"):
            return trained
        sources = len(self.data.source_names)
        return {
            **trained,
            "source": round(trained["source"] * strategy.participation.size(sources) / sources),
        }

    def fingerprint(self) -> dict[str, Any]:
        """Return the identity of a run, as JSON values: all but its length and its place.

        The metric counts if labels held out choose by it. An unset mean of the sources is the method's. A
        limit of samples counts as a number, since a data set of that size gives the same bits.
        """
        values = self.settings()
        for name in AMOUNTS:
            values[name] = most(values[name]) or values[name]
        values["source_mean"] = self.source_mean or self.entry.strategy_class.source_mean
        settings = {each.name: values[each.name] for each in SETTINGS if each.defines_run} | GONE
        if self.privacy.chooses_noise:
            settings |= {name: values[name] for name in ("max_epsilon", "rounds")}
        return settings | ({} if self.validation is None else {"metric": self.headline})
