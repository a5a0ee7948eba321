"""One's own data on this machine, read together, once, for a check as for a run."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

from fda_flower.datasets.domains import Splits
from fda_flower.datasets.numbers import Array
from fda_flower.datasets.problems import Problems
from fda_flower.own_data.between_domains import check_shared


class Contents(Protocol):
    """What is readable of a domain: the number of samples, each one's label and, if known, patient."""

    @property
    def samples(self) -> int:
        """The number of samples."""

    @property
    def words(self) -> list[str]:
        """Each sample's label, as text."""

    @property
    def groups(self) -> list[str]:
        """Each sample's patient; empty if they are not known."""

    @property
    def missing(self) -> Counter[str]:
        """The number of missing values by column."""


Of = TypeVar("Of", bound=Contents)


@dataclass
class Survey(Generic[Of]):
    """The domains on this machine, read together.

    Attributes
    ----------
    problems : Problems
        What would stop a run.
    notes : list of str
        Sentences on what is left out or looks strange.
    domains : dict
        The contents of each readable domain.
    classes : tuple of str
        The classes; empty for other tasks.
    labels : tuple of str
        The names of several labels; empty for other tasks.
    categories : dict
        The categories by column of a table.
    numbers : dict
        By domain, each row's class, as a position in `classes`, or the number to predict, or whether it has
        each of several labels, shape ``(n, L)``.
    """

    problems: Problems = field(default_factory=Problems)
    notes: list[str] = field(default_factory=list)
    domains: dict[str, Of] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    categories: dict[str, tuple[str, ...]] = field(default_factory=dict)
    numbers: dict[str, Array] = field(default_factory=dict)

    @property
    def classes_by_domain(self) -> dict[str, list[str]]:
        """The classes of each domain's samples; none without classes."""
        words = {name: {*each.words} for name, each in self.domains.items()}
        return {
            name: [known for known in self.classes if {known, f"{known}.0"} & each]
            for name, each in words.items()
        }


class Surveyed(Splits, Generic[Of]):
    """Domains on this machine that are read together, on first access, by the data set `name`."""

    name: str

    @cached_property
    def survey(self) -> Survey[Of]:
        """All domains on this machine, with their problems."""
        return self._survey()

    @cached_property
    def sound(self) -> Survey[Of]:
        """The same, whose notes are given to `note`; raise a `ConfigError` with the first problem."""
        self.survey.problems.raise_first()
        for note in self.notes:
            self.note(note)
        return self.survey

    def check(self, target: str, sources: Iterable[str]) -> None:
        """Raise a `ConfigError` if no class of the target is at any source."""
        check_shared(target, sources, self.survey.classes_by_domain)

    @property
    def notes(self) -> list[str]:
        """The notes of the survey, with the data set's name."""
        return [f"{self.name}: {note}" for note in self.survey.notes]

    @abstractmethod
    def _survey(self) -> Survey[Of]:
        """Read all domains on this machine, and collect their problems."""

    @abstractmethod
    def inputs(self, options: Mapping[str, Any]) -> str:
        """Return the inputs in words; images are decoded, and those that cannot be are further problems."""
