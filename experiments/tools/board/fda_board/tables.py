"""Write the tables of `board_tables.toml`: for each a folder with a file for each site.

    pip install 'experiments/tools/board[tables]'
    python -m fda_board.tables DIR

The folders are `DIR/tables/NAME`; `DIR/heart_disease` has the four hospitals' files. A source's file has
at most 750 rows; a run takes a fifth of them for testing. The target's has at most 450, with a column of
their part: a half, but at most 150, to train, from which a run draws its labels, and the others to test.
Both have their share of each class, or of small and large labels. All machines draw the same rows.
"""

import argparse
import csv
import hashlib
import io
import random
import re
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

from fda_board.real_tables import INSTALL, LABEL, REAL_TABLES, SITE, RealTable
from fda_flower.errors import ConfigError, FdaError

MOST_OF_SOURCE, MOST_OF_TARGET, MOST_TO_TRAIN = 750, 450, 150
SOURCES = 5
SPLIT = "split"
OPTIONS = 'missing = "mean"\ncategorical = "onehot"\n'
REGRESSION = 'task = "regression"\n'
DIGESTS = {
    "heart_va": "99a6a7b82460c756",
    "opt": "72300baaadbed390",
    "chile": "5153cc19ee31c3a9",
    "wvs": "a56b3877c6f6062d",
    "randhie": "1bfde90523a95a7e",
    "smoking": "87709ef581a14f61",
    "aids": "e3b54afb57321c62",
    "leuk": "3f2819d47497b304",
    "support": "b32ae8a9407d673b",
    "thyroid": "f0c10c243dcb75e7",
    "suicide": "77ad156d104049da",
    "ovarian": "30f85ee846cb6930",
    "happiness": "5cb231030bdd5f0f",
    "loans": "db88478cb6ef4497",
    "ames": "79b10981a0c55d73",
}
"""The digests of the tables that the records are of, by name."""


def files_of(name: str, table: RealTable, rows: pd.DataFrame) -> dict[str, str]:
    """Return the text of each site's file, by the site's name as a file; the target's is last."""
    rows = rows[rows[SITE].notna() & rows[LABEL].notna()]
    sizes = rows[SITE].value_counts().drop(table.target)
    largest = sorted(sizes.index, key=lambda site: (-sizes[site], site))[:SOURCES]
    files = {}
    for site in (*sorted(table.sources or largest), table.target):
        part = rows[rows[SITE] == site].drop(columns=SITE)
        most = MOST_OF_TARGET if site == table.target else MOST_OF_SOURCE
        order = [*range(len(part))]
        random.Random(f"{name}/{site}").shuffle(order)
        part = part.iloc[order[:most]]
        if site == table.target:
            part = part.assign(**{SPLIT: split_of([*part[LABEL]])})
        files[file_of(site)] = as_csv(part)
    return files


def split_of(labels: list[Any]) -> list[str]:
    """Return the part of each of these rows, in random order; both have their share of the labels."""
    count = min(MOST_TO_TRAIN, len(labels) // 2)
    by_label = sorted(range(len(labels)), key=labels.__getitem__)
    trained = {by_label[(2 * i + 1) * len(labels) // (2 * count)] for i in range(count)}
    return ["train" if i in trained else "test" for i in range(len(labels))]


def file_of(site: str) -> str:
    """Return a site's name as the name of a file.

    Examples
    --------
    >>> file_of("ARF/MOSF w/Sepsis"), file_of("new england")
    ('ARF-MOSF-w-Sepsis', 'new-england')
    """
    return re.sub("[^A-Za-z0-9]+", "-", site).strip("-")


def as_csv(rows: pd.DataFrame) -> str:
    """Return rows as text, a missing cell empty and a number with at most 10 digits."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(rows.columns)
    lines.writerows([_cell(value) for value in line] for line in rows.itertuples(index=False))
    return text.getvalue()


def _cell(value: Any) -> str:
    if pd.isna(value):
        return ""
    return value if isinstance(value, str) else f"{value:.10g}"


def digest(files: dict[str, str]) -> str:
    """Return a digest of files: their names and texts."""
    content = "\0".join(f"{name}\0{text}" for name, text in files.items())
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def check(name: str, table: RealTable, made: str) -> None:
    """Raise a `ConfigError` that names the package if a table is not the one that the records are of."""
    if made != DIGESTS.get(name):
        origin = f"{table.package} {version(table.package)}" if table.package else "these files"
        what = f"table '{name}' of {origin} is not the one that the records are of"
        remedy = INSTALL if table.package else "get the files again"
        raise ConfigError(what, thing="table", value=name, remedy=remedy)


def write(folder: Path, names: list[str]) -> Iterator[str]:
    """Write tables below a folder; yield each name with its digest."""
    for name in names:
        table = REAL_TABLES[name]
        files = files_of(name, table, table.read(folder))
        check(name, table, made := digest(files))
        place = folder / "tables" / name
        place.mkdir(parents=True, exist_ok=True)
        for site, text in files.items():
            (place / f"{site}.csv").write_text(text, encoding="utf-8", newline="")
        options = OPTIONS + REGRESSION * table.regression
        (place / "fda.toml").write_text(options, encoding="utf-8", newline="")
        yield f"{name}: {made}, target {file_of(table.target)}"


def main() -> int:
    """Write the tables; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--only", nargs="+", choices=REAL_TABLES, default=[*REAL_TABLES], metavar="NAME")
    chosen = parser.parse_args()
    try:
        for line in write(chosen.folder, chosen.only):
            print(line)
    except FdaError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
