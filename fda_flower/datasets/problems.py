"""Problems of the user's data, collected and counted by kind."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fda_flower.errors import ConfigError
from fda_flower.names.words import counted

MOST_KINDS = 9
"""The most further kinds of problems in one message."""

Option = tuple[str, str]
"""The name of an option of the data set, and its value."""


@dataclass
class Problem:
    """A problem of a file; it names no value, because the server may read it.

    `what` describes the first `line` and `column` or, without a file, is the whole message; `remedy` says how
    to fix it, `option` is one with which a run takes the data, and `count` is the number of lines with it.
    """

    what: str
    remedy: str = ""
    path: Path | None = None
    line: int = 0
    column: str = ""
    count: int = 1
    error: ConfigError | None = None
    option: Option | None = None

    def __str__(self) -> str:
        if self.path is None:
            return self.what
        column = f"column '{self.column}'" if self.column else ""
        line = f"line {self.line}" if self.line else ""
        place = f" in {', '.join(filter(None, (line, column)))}{self._others(' (and ', ')')}"
        place = place if line or column else ""
        return f"the data file '{self.path}' has {self.what}{place}: {self.remedy}"

    @property
    def sentence(self) -> str:
        """The problem and its remedy, without the place in a file."""
        return f"{self.what}: {self.remedy}" if self.path else self.what

    @property
    def kind(self) -> str:
        """The sentence for any column."""
        name = self.named_column
        return re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "COLUMN", self.sentence) if name else self.sentence

    @property
    def named_column(self) -> str:
        """The column that the sentence names; empty for none."""
        return str(self.error.value) if self.error is not None and self.error.thing == "column" else ""

    @property
    def place(self) -> str:
        """The place in the file, as text."""
        line = f"line {self.line}{self._others(' and ', '')}" if self.line else ""
        return ", ".join(filter(None, (self.column, line)))

    def _others(self, before: str, after: str) -> str:
        others = self.count - 1
        return f"{before}{counted(others, 'more line')}{after}" if others else ""


@dataclass
class Problems:
    """Problems; problems of one kind in one column of a file are counted as one."""

    entries: dict[tuple[object, ...], Problem] = field(default_factory=dict)

    def add(self, problem: Problem) -> None:
        """Add a problem."""
        key = (problem.what, problem.path, problem.column)
        if key in self.entries:
            self.entries[key].count += problem.count
        else:
            self.entries[key] = problem

    @contextmanager
    def caught(self, option: Option | None = None) -> Iterator[None]:
        """Catch a `ConfigError` that is raised in this context, and add it."""
        try:
            yield
        except ConfigError as error:
            self.add(Problem(str(error), error=error, option=option))

    @property
    def options(self) -> dict[str, str]:
        """The options with which a run takes the data; empty if a problem needs something else."""
        values: dict[str, dict[str, None]] = {}
        for each in self.entries.values():
            if each.option is None:
                return {}
            name, value = each.option
            values.setdefault(name, {})[value] = None
        return {name: ",".join(each) for name, each in values.items()}

    def __bool__(self) -> bool:
        return bool(self.entries)

    def raise_first(self) -> None:
        """Raise a `ConfigError` with the first problem, and the first of each other kind, if there is one."""
        if not self.entries:
            return
        first, *others = (places[0] for places in self.by_kind().values())
        what = str(first).removesuffix(f": {first.remedy}")
        error = first.error or ConfigError(what, thing="data file", value=first.path, remedy=first.remedy)
        if not others:
            raise error
        rest = "".join(f"\nand {each}" for each in others[:MOST_KINDS])
        more = f"\nand {len(others) - MOST_KINDS} more" if len(others) > MOST_KINDS else ""
        joined = ConfigError(f"{error}{rest}{more}", thing=error.thing, value=error.value)
        joined.remedy, joined.may_leave = error.remedy, False  # of data, among others
        raise joined from error

    def by_kind(self) -> dict[str, list[Problem]]:
        """Return the problems by kind and remedy, each as the first is described.

        Those that differ in the name of the column alone are of one kind.
        """
        kinds: dict[str, list[Problem]] = {}
        for each in self.entries.values():
            kinds.setdefault(each.kind, []).append(each)
        return {places[0].sentence: places for places in kinds.values()}
