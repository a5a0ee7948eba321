"""Remake the index of results/, and a page and tables for each experiment, from results/records/.

Without an option the pages and tables are written; ``--pictures`` draws the pictures, too. With
``--check`` nothing is written, and the exit code is 1 if a page differs. Pictures are not compared, since
their pixels depend on the machine, nor are the tables as CSV files, which are not committed. Title and
note of a page are the experiment's file's today, and the verdict is from results/verdicts.toml.
``--pack FOLDER`` first adds an experiment's runs in a folder to its records.
"""

import argparse
import csv
import io
import os
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import lost
import numpy as np
import references
from best_rule import plot_best_rule
from matplotlib.figure import Figure
from PIL import Image
from records import RECORDS, pack, read_results, records_of

from fda_flower.datasets import DATASETS
from fda_flower.experiments import read_experiment
from fda_flower.reporting import FIGURES, REPORTS
from fda_flower.reporting.reports import Report
from fda_flower.reporting.tables import Heading, Markdown, Table, markdown

# The plug-ins need not be installed here.
sys.path += [str(Path(__file__).parent / plug_in) for plug_in in ("board", "cifar10_subset")]
from cifar10_subset import SUBSET
from fda_board import RBF
from fda_board.regret import REGRET, plot_regret

TABLES, PAGES = (Path(__file__).parents[1] / name for name in ("tables", "results"))
REFERENCES = ("Oracle",)
"""Rows that are no method, and so do not lead."""


LOST = Report([*REPORTS["table"].sections, lost.report], {**REPORTS["table"].tables, "-lost": lost.numbers})
NEXT_TO_REFERENCES = Report(
    [*REPORTS["table"].sections, references.report],
    {**REPORTS["table"].tables, "-figures": references.numbers},
)
POISONED = ("poisoned", "poisoned_adaptive", "poisoned_fashion_mnist")
REPORTS_HERE = {**dict.fromkeys(POISONED, LOST), "board_tables": NEXT_TO_REFERENCES}
"""Reports that only our own pages have, by experiment."""
FIGURES_HERE = {
    **{name: {"lost": lost.plot_lost} for name in POISONED},
    **{name: {"best-rule": plot_best_rule} for name in ("synthetic", "synthetic_small")},
}
"""Figures that only our own pages have, by experiment and name."""


def register() -> None:
    """Add what the plug-ins name, in each process that makes pages."""
    DATASETS["rbf"], DATASETS["cifar-10-subset"] = RBF, SUBSET
    REPORTS["regret"], FIGURES["regret"] = REGRET, plot_regret


def experiment(name: str, entry: Mapping[str, str], pictures: bool) -> dict[Path, str]:
    """Return the texts of an experiment's page and tables, by file, and draw its pictures if asked to."""
    results = read_results(read_experiment(TABLES / f"{name}.toml"))
    report = REPORTS_HERE.get(name, REPORTS[results.design.report])
    figures = {**{figure: FIGURES[figure] for figure in results.design.figures}, **FIGURES_HERE.get(name, {})}
    for figure, plot in figures.items() if pictures else ():
        draw(plot(results), PAGES / f"{name}-{figure}.png")
    shown = [f"![{results.design.title}]({name}-{figure}.png)" for figure in figures]
    said = [entry["verdict"], *([entry["why"].strip()] if "why" in entry else [])]
    parts = [Heading(results.design.title, 1), *said, *report.parts(results), *shown]
    tables = {PAGES / f"{name}{ending}.csv": table(results).csv() for ending, table in report.tables.items()}
    return {PAGES / f"{name}.md": markdown(parts), **tables}


def draw(figure: Figure, path: Path) -> None:
    """Write a figure with 32 colours, in a fifth of the bytes."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    picture = Image.open(buffer).convert("RGB")
    picture.quantize(32, dither=Image.Dither.NONE).save(path, optimize=True)


def index(verdicts: Mapping[str, Mapping[str, str]], texts: Mapping[Path, str]) -> str:
    """Return the index: for each paper a table with a line for each experiment, and one for the others."""
    parts: list[Any] = [Heading("Results", 1), INTRODUCTION]
    for paper, about in PAPERS.items():
        rows = []
        for name, entry in verdicts.items():
            if entry.get("paper", "") == paper:
                cells = [entry["table"], _link(name), *_compared(name, texts)] if paper else [_link(name)]
                rows.append([Markdown(text) for text in (*cells, _seeds(name, texts), entry["verdict"])])
        table = str(Table([*(COLUMNS if paper else ["Experiment"]), "Seeds", "Verdict"], rows))
        parts += [Heading(about), table.replace("---:", "---")]  # words, to the left
    return markdown(parts)


PAPERS = {
    "FedGP": "FedGP: Jiang et al., ICLR 2024",
    "FedDAF": "FedDAF: Sen et al.",
    "": "Experiments of our own",
}
COLUMNS = ("Table", "Experiment", "Leads: ours", "Leads: paper", "Distance", "Order", "Inside")
INTRODUCTION = """\
The papers' tables, measured again. Accuracies are in percent, on the target's test set: the mean of the last
5 rounds and of the seeds. Each page has the whole table next to the paper's values, what was cut down, and
the pictures. [What follows from them](../README.md#what-follows) is on a page of its own.

* **Leads**: the method with the best mean over the table's cells, among the rows that both have, without
  Oracle.
* **Distance**: the mean distance between our cells and the paper's, in points, and the number of cells.
* **Order**: Spearman's correlation between the two orders of the rows; 1 is the same order.
* **Inside**: the number of cells in which the paper's value is inside the 95% prediction interval of one
  further seed of ours. It needs 3 seeds.
* **Seeds**: the number of runs of each cell, and the rows that have another.

`python experiments/tools/results.py` remakes this page and all others from `records/`."""


def _compared(name: str, texts: Mapping[Path, str]) -> list[str]:
    """Return who leads here and in the paper, the mean distance, the correlation, and how many are inside."""
    cells = [line for line in _numbers(name, texts) if line["last5"] and line["paper"]]
    if not cells:
        return ["-"] * 5
    rows: dict[str, list[tuple[float, float]]] = {}
    for line in cells:
        rows.setdefault(line["row"], []).append((float(line["last5"]), float(line["paper"])))
    most = max(map(len, rows.values()))
    means = {row: np.mean(values, axis=0) for row, values in rows.items() if len(values) == most}
    methods = [row for row in means if row not in REFERENCES]
    leaders = [max(methods, key=lambda row, side=side: means[row][side]) for side in (0, 1)]
    leads = [f"{row} {means[row][side]:.1f}" for side, row in enumerate(leaders)]
    distance = np.mean([abs(float(line["difference"])) for line in cells])
    inside = [line["inside"] for line in cells if line.get("inside")]
    share = f"{inside.count('True')} of {len(inside)}" if inside else "-"
    return [*leads, f"{distance:.1f} in {len(cells)}", _order(np.array([*means.values()])), share]


def _seeds(name: str, texts: Mapping[Path, str]) -> str:
    """Return the number of seeds of most rows, and the rows that have another."""
    counts: dict[str, set[int]] = {}
    for line in _numbers(name, texts):
        if line["seeds"] not in ("", "0"):
            counts.setdefault(line["row"], set()).add(int(line["seeds"]))
    spans = {row: " to ".join(map(str, sorted({min(each), max(each)}))) for row, each in counts.items()}
    (usual, _), *others = Counter(spans.values()).most_common() or [("-", 0)]
    rows = [f"{span}: {', '.join(row for row in spans if spans[row] == span)}" for span, _ in others]
    return "; ".join([usual, *rows])


def _order(means: np.ndarray) -> str:
    from scipy.stats import spearmanr

    return f"{spearmanr(*means.T).statistic:.2f}" if len(means) > 2 else "-"


def _numbers(name: str, texts: Mapping[Path, str]) -> list[dict[str, str]]:
    path = PAGES / f"{name}.csv"
    if path in texts:
        return [*csv.DictReader(texts[path].splitlines())]
    return [*csv.DictReader(path.read_text(encoding="utf-8").splitlines())] if path.exists() else []


def _link(name: str) -> str:
    """Return a link to an experiment's page, or to its file if it was not run."""
    file = f"{name}.md" if records_of(name).exists() else f"../tables/{name}.toml"
    return f"[{read_experiment(TABLES / f'{name}.toml').title}]({file})"


def main() -> int:
    """Write or check all files; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pack", nargs="+", type=Path, default=[], metavar="FOLDER", help="add these runs")
    parser.add_argument("--pictures", action="store_true", help="draw the pictures, too")
    parser.add_argument("--check", action="store_true", help="write nothing, and fail if a file differs")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="the pages of these experiments alone")
    chosen = parser.parse_args()
    register()
    for folder in chosen.pack:
        print(f"packed: {pack(folder).relative_to(PAGES)}")
    verdicts = tomllib.loads((PAGES / "verdicts.toml").read_text(encoding="utf-8"))
    sizes = {path.name.split(".")[0]: path.stat().st_size for path in RECORDS.iterdir()}
    if unknown := sorted(sizes.keys() - verdicts.keys()):
        sys.exit(f"results/verdicts.toml has no entry for {', '.join(unknown)}")
    if strange := sorted({*(chosen.only or ())} - sizes.keys()):
        sys.exit(f"there are no records of {', '.join(strange)}: choose among {', '.join(sorted(sizes))}")
    needed = {*(chosen.only or sizes), *(name for name in sizes if not (PAGES / f"{name}.csv").exists())}
    names = sorted(needed, key=lambda name: sizes[name], reverse=True)  # the longest first
    drawn = {*(chosen.only or sizes)} if chosen.pictures and not chosen.check else set()
    with ProcessPoolExecutor(os.cpu_count(), initializer=register) as pool:
        entries = [verdicts[name] for name in names]
        made = [*pool.map(experiment, names, entries, [name in drawn for name in names])]
    texts = {path: text for each in made for path, text in each.items()}
    texts[PAGES / "README.md"] = index(verdicts, texts)
    proven = [path for path in texts if not (chosen.check and path.suffix == ".csv")]
    stale = [p for p in proven if not p.exists() or p.read_text(encoding="utf-8") != texts[p]]
    if not chosen.only:
        stale += {*PAGES.glob("*.md")} - texts.keys()  # no records prove them
    for path in sorted(stale):
        print(f"{'differs' if chosen.check else 'written' if path in texts else 'removed'}: {path.name}")
        if not chosen.check:
            path.write_text(texts[path], encoding="utf-8") if path in texts else path.unlink()
    if chosen.check and stale:
        print("Remake them: python experiments/tools/results.py", file=sys.stderr)
    return int(chosen.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
