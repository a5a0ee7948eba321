"""The results in a folder, and the report of results."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fda_flower.experiments.definition import NO_NAME, Experiment, read_definition
from fda_flower.experiments.experiment import chosen_places
from fda_flower.experiments.folders import COMPARISON, DEFINITION, kind_of, read_mark, read_runs
from fda_flower.files import write_atomically, writing
from fda_flower.models.own import only_read
from fda_flower.names.words import counted
from fda_flower.records.record import HEADLINE, has_stopped
from fda_flower.reporting.results import MOST, Design, Place, RecordedRun, Results, file_name
from fda_flower.reporting.summary import ACCURACY, AVERAGE, PARAMETERS, REFUSED
from fda_flower.reporting.tables import escaped
from fda_flower.runs.config import RunConfig


@only_read()
def load_results(folder: str | Path) -> Results:
    """Return the results so far in a folder of an experiment, a comparison, or any runs.

    Raises
    ------
    ConfigError
        If the folder holds no results, or a damaged one.
    """
    folder = Path(folder)
    if kind_of(folder) != "experiment":
        return _of_runs(folder)
    mark = read_mark(folder)
    experiment = replace(read_definition(folder / DEFINITION), name=mark["experiment"])
    return _of_calls(results_of(experiment, mark["settings"], read_runs(folder)), experiment, mark["calls"])


def _of_runs(folder: Path) -> Results:
    """Return the results of a run, or of a folder of runs without a definition, with a row for each label."""
    runs: dict[Place, list[RecordedRun]] = {}
    for run in read_runs(folder).values():
        if run.history:
            runs.setdefault(("", run.label, ""), []).append(run)
    every = [run for each in runs.values() for run in each]
    rare = (record[HEADLINE] for run in every for record in run.history if HEADLINE in record)
    metric = next((run.metric for run in every), ACCURACY)
    if any(run.metric != metric for run in every):
        metric = next(rare, metric)
        runs = {place: [replace(run, metric=metric) for run in each] for place, each in runs.items()}
    return Results(
        Design(name=COMPARISON, title=folder.resolve().name, figures=("runs",)),
        rows=[label for _, label, _ in runs],
        columns=[""],
        runs=runs,
        rounds=max((len(run.history) for run in every), default=0),
        metrics={("", ""): metric} if every else {},
        data=list(dict.fromkeys(run.data for run in every if run.data)),
    )


def _of_calls(results: Results, experiment: Experiment, calls: Sequence[Mapping[str, Any]]) -> Results:
    """Return the results without the rows, columns and groups that no call asked for, unless one has runs."""
    places = {place for call in calls for place in chosen_places(experiment, call.get("only", ()))}
    places = places | {*results.runs, *results.refused} if calls else {*results.places}
    groups, rows, columns = (
        [label for label in labels if any(place[i] == label for place in places)]
        for i, labels in enumerate((results.groups, results.rows, results.columns))
    )
    average = experiment.average and len(columns) == len(results.columns)  # the paper's is over all columns
    design = replace(experiment, average=average)
    return replace(results, design=design, groups=groups, rows=rows, columns=columns)


def results_of(
    experiment: Experiment, settings: Mapping[str, Any], runs: Mapping[str, RecordedRun]
) -> Results:
    """Return the results of an experiment with changed `settings`, from its runs by name."""
    own = {file_name(place): place for place in experiment.places}
    places = {name: own.get(name.rpartition("-seed")[0]) for name in runs}
    options = {p: runs[n].settings.get("dataset_options", {}) for n, p in places.items() if p is not None}
    plain = experiment.readable({}, options)
    requested = {place: config.rounds for place, config in plain.items()}
    configs = plain | (experiment.readable(settings, options) if settings else {})
    endings = {row.label: {"model": "", "average": AVERAGE}[row.headline] for row in experiment.rows}
    rounds, short, stopped = [], [], []
    by_place: dict[Place, list[RecordedRun]] = {}
    refused: dict[Place, str] = {}
    for name, run in runs.items():
        place = places[name]
        if place is None or place not in configs or not run.whole:
            continue
        if REFUSED in run.summary:
            refused[place] = run.summary[REFUSED]
            continue
        config = configs[place]
        by_place.setdefault(place, []).append(replace(run, ending=endings[place[1]]))
        ran = sum(not record.get("warmup") for record in run.history)
        ended = has_stopped(run.history, config.patience)
        rounds.append(max(ran, run.notes.get("rounds", 0)) if ended else ran)
        if rounds[-1] < requested.get(place, 0):
            short.append((rounds[-1], requested[place]))
        if len(run.history) < rounds[-1]:
            stopped.append(len(run.history))
    metrics = _metrics(experiment, configs, by_place)
    judged = {
        place: [replace(run, metric=metrics[place[0], place[2]]) for run in each]
        for place, each in by_place.items()
    }
    labels = [group.label for group in experiment.groups]
    begun = {place[0] for place in (*by_place, *refused)}
    groups = [label for label in labels if label in begun] or labels
    cuts = _cuts(experiment, by_place, short, len(refused))
    cuts += [f"no runs of '{label}'" for label in labels if label not in groups]
    cuts += _left_out(runs, places)
    if stopped:
        cuts.append(f"ended by their patience: runs {len(stopped)}, rounds {min(stopped)} to {max(stopped)}")
    cuts += [f"{key.replace('_', '-')} is {value}" for key, value in settings.items()]
    return Results(
        experiment,
        paper=experiment.paper,
        rows=[row.label for row in experiment.rows],
        columns=[column.label for column in experiment.columns],
        runs=judged,
        rounds=max(rounds, default=0),
        groups=groups,
        values={c.label: c.value for c in experiment.columns if c.value is not None},
        cuts=cuts,
        ensembles={place[1] for place, c in configs.items() if c.entry.is_ensemble(dict(c.method_options))},
        centralised={place[1] for place, config in configs.items() if config.entry.centralised},
        data=_data(experiment, configs.values()),
        refused=refused,
        metrics=metrics,
    )


def _metrics(
    experiment: Experiment, configs: Mapping[Place, RunConfig], runs: Mapping[Place, Sequence[RecordedRun]]
) -> dict[tuple[str, str], str]:
    """Return the metric of each group and column: one for all its runs, and the paper's if it prints any."""
    printed = {(group, column) for group, _, column in experiment.paper}
    metrics = dict[tuple[str, str], str]()
    for (group, row, column), config in configs.items():
        each = runs.get((group, row, column), ())
        records = [record for run in each for record in run.history if (group, column) not in printed]
        default, metric = config.headline, config.headline_of(records)
        if metric != default or (group, column) not in metrics:
            metrics[group, column] = metric
    return metrics


def _data(experiment: Experiment, configs: Iterable[RunConfig]) -> list[str]:
    """Return the names of the data sets, and the shift of a table with one column."""
    names = [config.dataset for config in configs]
    if experiment.columns == (NO_NAME,):
        names += [config.shift for config in configs if config.shift]
    return list(dict.fromkeys(names))


def _cuts(
    experiment: Experiment,
    by_place: Mapping[Place, Collection[RecordedRun]],
    short: Collection[tuple[int, int]],
    refused: int,
) -> list[str]:
    """Describe missing cells, except `refused` ones; `short` has the rounds run and requested."""
    cuts = []
    if short:
        ran, requested = (sorted(set(numbers)) for numbers in zip(*short, strict=True))
        span = " to ".join(map(str, sorted({ran[0], ran[-1]})))
        cuts.append(f"{span} {'round' if span == '1' else 'rounds'} instead of {requested[-1]}")
    count, places, seeds = sum(map(len, by_place.values())), len(by_place), len(experiment.seeds)
    if places + refused < len(experiment.places):
        cuts.append(f"{places + refused} of {len(experiment.places)} cells")
    if count < places * seeds:
        cuts.append(f"{count} of {places * seeds} runs over {seeds} seeds")
    return cuts


def _left_out(runs: Mapping[str, RecordedRun], places: Mapping[str, Place | None]) -> list[str]:
    """Name the runs that are in no table, and are not merely unfinished."""
    others = sorted(name for name, place in places.items() if place is None)
    ended = sorted(name for name, run in runs.items() if PARAMETERS in run.summary and not run.whole)
    left_out = (("whose labels are not in the file", others), ("whose rounds.jsonl lacks rounds", ended))
    return [
        f"without {counted(len(names), 'run')} {why}: {', '.join(names[:MOST])}"
        + (" and so on" if len(names) > MOST else "")
        for why, names in left_out
        if names
    ]


def write_report(results: Sequence[Results], output: str | Path, figures: str = "png") -> list[Path]:
    """Write the tables and figures of experiments, and return the files.

    Parameters
    ----------
    results : sequence of Results
        From `load_results`, in the order of the report; several may belong to the same experiment.
    output : str or Path
        The Markdown file. A folder with its name, without the extension, receives each experiment's
        tables as CSV files and in LaTeX, and its figures.
    figures : {"png", "pdf", "svg"}
        The figures' format.

    Raises
    ------
    ConfigError
        If the files cannot be written, or figures have no such format.
    """
    from fda_flower.reporting import REPORTS, check_format, save_figures

    check_format(figures)
    output = Path(output)
    folder = output.with_suffix("")
    paths, sections, seen = [], [], Counter[str]()
    with writing("report", output):
        folder.mkdir(parents=True, exist_ok=True)
        for one in results:
            name = one.design.name
            seen[name] += 1
            if seen[name] > 1:  # files of its own
                name = f"{name}-{seen[name]}"
                one = replace(one, design=replace(one.design, name=name))
            report = REPORTS[one.design.report]
            for ending, table in report.tables.items():
                paths.append(folder / f"{name}{ending}.csv")
                write_atomically(paths[-1], table(one).csv().encode())
            paths.append(folder / f"{name}.tex")
            write_atomically(paths[-1], report.latex(one).encode())
            drawn = save_figures(one, folder, figures) if one.runs else []
            pictures = [
                f"![{escaped(one.design.title)}]({quote(f'{folder.name}/{path.name}')})" for path in drawn
            ]
            sections.append("\n\n".join([report.markdown(one).strip(), *pictures]))
            paths += drawn
        write_atomically(output, ("\n\n".join(sections) + "\n").encode())
    return [output, *paths]
