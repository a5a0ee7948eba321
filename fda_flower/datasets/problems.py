"""What is wrong with a data set: one error for a run, or all that there is for a check."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fda_flower.errors import ConfigError


@dataclass
class Problem:
    """A problem of a file; it names no value, since the server may read it.

    Attributes
    ----------
    what : str
        What the file has or, without a file, the whole message.
    remedy : str
        What to do about it.
    path : Path, optional
        The file.
    line, column
        The first place, if it is in one.
    count : int
        How many lines have it.
    """

    what: str
    remedy: str = ""
    path: Path | None = None
    line: int = 0
    column: str = ""
    count: int = 1

    def __str__(self) -> str:
        """Return the message of an error."""
        if self.path is None:
            return self.what
        place = f" in line {self.line}, column '{self.column}'" if self.line else ""
        return (
            f"the data file '{self.path}' has {self.what}{place}{self._others(' (and ', ')')}: {self.remedy}"
        )

    @property
    def place(self) -> str:
        """The place in the file in a few words."""
        return f"{self.column}, line {self.line}{self._others(' and ', '')}" if self.line else ""

    def _others(self, before: str, after: str) -> str:
        others = self.count - 1
        return f"{before}{others} more {'line' if others == 1 else 'lines'}{after}" if others else ""


@dataclass
class Problems:
    """Problems, of which those of one kind in one column of a file are one."""

    found: dict[tuple[object, ...], Problem] = field(default_factory=dict)

    def add(self, problem: Problem) -> None:
        """Add a problem."""
        key = (problem.what, problem.path, problem.column)
        if key in self.found:
            self.found[key].count += 1
        else:
            self.found[key] = problem

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Add a `ConfigError` that is raised in this context, and go on after it."""
        try:
            yield
        except ConfigError as error:
            self.add(Problem(str(error)))

    def __bool__(self) -> bool:
        return bool(self.found)

    def raise_first(self) -> None:
        """Raise a `ConfigError` with the first problem, if there is one."""
        for problem in self.found.values():
            raise ConfigError(str(problem))

    def by_kind(self) -> dict[str, list[str]]:
        """Return the places of each kind of problem, by the kind with its remedy."""
        kinds: dict[str, dict[str, list[str]]] = {}
        for each in self.found.values():
            kind = f"{each.what}: {each.remedy}" if each.path else each.what
            files = kinds.setdefault(kind, {})
            if each.path:
                files.setdefault(str(each.path), []).append(each.place)
        return {
            kind: [
                f"{path}: {'; '.join(filter(None, places))}".removesuffix(": ")
                for path, places in files.items()
            ]
            for kind, files in kinds.items()
        }
