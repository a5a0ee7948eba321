"""Write the table of leaderboard/README.md from the files of its rows; ``--check`` only compares it."""

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path += [str(Path(__file__).parents[2] / "examples"), str(Path(__file__).parents[1] / "leaderboard")]
from leaderboard import FOLDER, SEEDS, TARGETS, read

from fda_flower import __version__
from fda_flower.errors import ConfigError
from fda_flower.metrics.intervals import quantile
from fda_flower.reporting.tables import Cell, Table

PAGE, MARK = FOLDER / "README.md", "<!-- made by experiments/tools/leaderboard_page.py -->\n\n"
IMAGES = "67322dc5"
"""The digest of the images that the page describes; rows of others are the last."""
ABOUT = ("release", "date", "images")
HEADER = ("Row", "by", "network", "A", "C", "P", "S", "mean (std)", "from the best", *ABOUT)


def rows() -> list[dict[str, Any]]:
    """Return the rows, with `accuracies` of shape ``(targets, seeds)`` if they were run.

    The best of the newest release is the first. Raise a `ConfigError` that names a row without all figures,
    or of this release and other seeds.
    """
    by_name = {path.stem: read(path.stem) for path in sorted(FOLDER.glob("*.py"))}
    for name, row in by_name.items():
        figures, row["accuracies"] = row["figures"], np.full((len(TARGETS), 1), -np.inf)
        if figures is None:
            continue
        seeds = {tuple(figures.get(target, ())) for target in TARGETS}
        others = figures.get("release") == __version__ and seeds != {tuple(SEEDS)}
        if {*figures} != {*TARGETS, *ABOUT} or len(seeds) > 1 or others:
            remedy = f"run it again: python examples/leaderboard.py {name}"
            raise ConfigError(
                f"row '{name}' lacks figures of its release's seeds", thing="row", value=name, remedy=remedy
            )
        row["accuracies"] = np.array([[*figures[target].values()] for target in TARGETS])
        row["samples"] = figures["release"], figures["images"], seeds
    dates = {row["figures"]["date"]: row["figures"]["release"] for row in by_name.values() if row["figures"]}
    newest = dates[max(dates)], IMAGES

    def place(row: dict[str, Any]) -> tuple[bool, float]:
        figures = row["figures"] or {}
        return (figures.get("release"), figures.get("images")) == newest, float(row["accuracies"].mean())

    return sorted(by_name.values(), key=place, reverse=True)


def content() -> str:
    """Return the number to beat, and the table of all rows.

    The mean's spread is over the seeds' means over the targets. The distance from the best has its 95%
    interval by Student's t, of differences of the same seeds; rows of other samples have none.
    """
    ordered, lines = rows(), []
    best = next(row for row in ordered if not row["config"].entry.all_target_labels)
    for row in ordered:
        about = f"{row['label']} †" if row["config"].entry.all_target_labels else row["label"]
        cells = [about, row["by"], row["config"].model]
        lines.append([*cells, *(_figures(row, best) if row["figures"] else ["-"] * (len(HEADER) - 3))])
    number, figures = best["accuracies"].mean(), best["figures"]
    first = f"**{number:.2f}%**: {best['label']}, release {figures['release']}, {figures['date']}."
    return f"{first}\n\n{Table(HEADER, lines)}\n"


def _figures(row: dict[str, Any], best: dict[str, Any]) -> list[object]:
    seeds, distance = row["accuracies"].mean(axis=0), "-"
    if row is not best and row["samples"] == best["samples"]:
        distances = seeds - best["accuracies"].mean(axis=0)
        half = quantile(len(seeds) - 1) * distances.std(ddof=1) / np.sqrt(len(seeds))
        distance = f"{distances.mean():+.1f} ± {half:.1f}"
    targets = [f"{accuracy:.1f}" for accuracy in row["accuracies"].mean(axis=1)]
    mean = Cell(f"{seeds.mean():.2f} ({seeds.std(ddof=1):.2f})", best=row is best)
    return [*targets, mean, distance, *(row["figures"][key] for key in ABOUT)]


def main(*arguments: str) -> int:
    """Write or check the page; return the exit code."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, after = text.split(MARK)
    page = MARK.join([before, content(), after])
    if "--check" not in arguments:
        PAGE.write_text(page, encoding="utf-8")
    elif page != text:
        print("The page differs from its rows' files: python experiments/tools/leaderboard_page.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
