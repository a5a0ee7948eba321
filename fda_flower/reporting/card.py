"""The model card of a run, for readers who did not train the model."""

import json
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fda_flower.datasets.spec import EVERY_SITE
from fda_flower.errors import printable
from fda_flower.metrics import CONFIDENCE, METRICS, UNITS, full_title
from fda_flower.names.tasks import Task
from fda_flower.names.words import counted, of_units
from fda_flower.records.parts import describe_parts
from fda_flower.records.record import TEST_EXAMPLES, UNCOVERED, Record
from fda_flower.reporting.alike import Described, alike_lines, alike_notes, alike_table, described_in
from fda_flower.reporting.labels import table_of_labels
from fda_flower.reporting.results import RecordedRun
from fda_flower.reporting.run_tables import settings_table, sources_in
from fda_flower.reporting.sites import sites_in, sites_note, sites_table
from fda_flower.reporting.summary import (
    TEST_SAMPLES,
    interval_of,
    largest_epsilons,
    last_evaluation,
    shares,
    summarise,
)
from fda_flower.reporting.tables import Heading, Part, Table, escaped, markdown
from fda_flower.reporting.words import describe_theory, judge, say_few, support_of, task_of

ROWS = ("table", "heart")
"""Data sets of rows, where the shape of the samples is not known."""

PIPELINES: Mapping[Task, tuple[str, ...]] = {
    "classes": ("classification",),
    "multilabel": ("classification", "multi-label-classification"),
    "regression": ("regression",),
    "survival": ("regression", "survival-analysis"),
}
"""By task, how the hub's name of it ends, and a tag besides."""

OUTPUTS: Mapping[Task, str] = {"classes": "classes", "multilabel": "labels", "survival": "horizons"}
"""By task, what the outputs of a model are."""

OF_THE_MACHINE = {"data_dir", "device", "threads"}
"""Settings that say nothing of the model, but where it was made."""

OF_A_MODEL = {"The model", "Results", "Who took part", "Limits", "How it was made", "Check it"}
"""Sections of a card that say nothing where nobody trained."""

SCORES = ("precision", "recall", "f1")
"""The metrics of a class."""

FEW_TESTS = 100
"""Test samples, or patients, below which a card says that they are few."""


@dataclass(frozen=True)
class Model:
    """A card's facts that are not in the run's records.

    Attributes
    ----------
    description : Mapping
        The content of ``model.json``; empty if another node holds the model.
    verified : str
        The hash of the last round's record; see `fda_flower.records.verification.verify`.
    conclusion : Sequence of str
        The last lines of the run's command.
    sent : Sequence of Mapping
        Lines of the logs of sites (`fda_flower.site.log.SentLog`).
    path : str
        The run's folder, for commands.
    """

    description: Mapping[str, Any] = field(default_factory=dict)
    verified: str = ""
    conclusion: Sequence[str] = ()
    sent: Sequence[Mapping[str, Any]] = ()
    path: str = "RUN"


def card(run: RecordedRun, model: Model) -> str:
    """Return the card in Markdown, with a YAML header for the Hugging Face hub."""
    again: list[Part] = [Heading("Repeat it"), f"```bash\n{_command(run)}\n```"] if run.commands else []
    parts: list[Part] = [Heading(_title(run), 1), *card_parts(run, model), *again]
    return f"{_header(run, model)}\n{markdown(parts)}"


def card_parts(run: RecordedRun, model: Model) -> list[Part]:
    """Return the card without header and title."""
    sections: dict[str, list[Part]] = {
        "The model": _model(run, model),
        "Data": _data(run),
        **({"Who has what": _alike(described)} if (described := described_in(run.history)) else {}),
        "Results": _results(run, model),
        "Who took part": _took_part(run),
        "What left each site": _left(run, model.sent),
        "Privacy": _privacy(run.history),
        "Limits": _limits(run, model),
        "How it was made": _made(run),
        "Check it": _check(model),
    }
    if described_in(run.history):
        sections = {title: parts for title, parts in sections.items() if title not in OF_A_MODEL}
    return [part for title, parts in sections.items() for part in (Heading(title), *parts)]


def _command(run: RecordedRun) -> str:
    """Return the command that repeats the run, without folder names of this machine."""
    words = shlex.split(run.commands[0])
    folder = str(run.settings.get("data_dir"))
    return shlex.join("DIR" if word == folder else word for word in words)


def _title(run: RecordedRun) -> str:
    return f"{run.label} on {run.data}"


def _target(run: RecordedRun) -> str:
    named = (record["target"]["domain"] for record in run.history if "domain" in (record.get("target") or {}))
    return next(named, str(run.settings.get("target") or "target"))


def _is_for_every_site(run: RecordedRun) -> bool:
    return run.settings.get("target") == EVERY_SITE


def _made_for(run: RecordedRun) -> str:
    return "the domain of each site" if _is_for_every_site(run) else f"the domain {_target(run)}"


# The header


def _header(run: RecordedRun, model: Model) -> str:
    """Return the YAML: JSON strings and numbers are YAML too."""
    value = shares(run.history, run.metric)["last5"]
    ending, *tags = PIPELINES[_task(run, model)]
    task = f"{_inputs(run, model)}-{ending}"
    of_a_model = [] if described_in(run.history) else [f"pipeline_tag: {task}", "metrics:", f"- {run.metric}"]
    lines = [
        "library_name: fda-flower",
        "tags:",
        *(f"- {tag}" for tag in ("federated-learning", "domain-adaptation", "flower", *tags)),
        *of_a_model,
    ]
    if value is not None:
        dataset, name = str(run.settings.get("dataset")), f"{run.data}, target {_target(run)}"
        lines += [
            "model-index:",
            f"- name: {_quoted(_title(run))}",
            "  results:",
            f"  - task: {{type: {task}}}",
            f"    dataset: {{type: {_quoted(dataset)}, name: {_quoted(name)}}}",
            "    metrics:",
            f"    - {{type: {run.metric}, value: {value:.4f}{_between(run)}}}",
        ]
    return "\n".join(["---", *lines, "---", ""])


def _between(run: RecordedRun) -> str:
    """Return the metric's name with its interval, as far as known, for the header."""
    metric, ends = METRICS[run.metric], last_evaluation(run.history, run.metric).get("interval")
    said = f"{metric.title}, {CONFIDENCE:.0%} interval {' to '.join(map(metric.show, ends))}" if ends else ""
    return f", name: {_quoted(said)}" if said else ""


def _task(run: RecordedRun, model: Model) -> Task:
    """Return what a model predicts, by its description, the run's options, or its records."""
    options = run.settings.get("dataset_options") or {}
    said = model.description
    known: Any = said.get("task") or options.get("task") or ("regression" if said.get("regression") else None)
    return known or task_of({**last_evaluation(run.history, run.metric), "metric": run.metric})


def _predicts(run: RecordedRun, model: Model) -> str:
    """Return what the model predicts, in words."""
    task, names = _task(run, model), ", ".join(map(str, model.description.get("class-names") or ()))
    options = model.description.get("dataset-options") or run.settings.get("dataset_options") or {}
    event, times = options.get("event", "event"), options.get("label", "label")
    horizons = str(options.get("horizons", "")).replace(",", ", ")
    said: dict[Task, str] = {
        "regression": "numbers",
        "multilabel": f"each label, yes or no: {names}" if names else "",
        "survival": f"survival (without '{event}') at {times} {horizons}",
    }
    return said.get(task, names)


def _inputs(run: RecordedRun, model: Model) -> str:
    """Return the kind of inputs, as the hub names tasks: text, tabular or image."""
    options, dataset = run.settings.get("dataset_options") or {}, run.settings.get("dataset")
    if options.get("text"):
        return "text"
    if shape := model.description.get("shape") or run.notes.get("data", {}).get("shape"):
        return "tabular" if len(shape) == 1 else "image"
    return "tabular" if dataset in ROWS or (dataset == "hf" and "image_size" not in options) else "image"


def _quoted(text: str) -> str:
    return json.dumps(printable(text), ensure_ascii=False)


# The sections


def _model(run: RecordedRun, model: Model) -> list[Part]:
    description, settings = model.description, run.settings
    rows = {
        "predicts": _predicts(run, model),
        "for": _made_for(run),
        "network": description.get("network", settings.get("model")),
        "trained part": description.get("train", settings.get("train")),
        "size": f"{run.summary['parameters']:,} numbers" if "parameters" in run.summary else None,
        "predicts with": (description.get("predictor") or {}).get("kind"),
        "input": "x".join(map(str, description.get("shape", ()))),
        **({OUTPUTS[task]: description.get("classes")} if (task := _task(run, model)) in OUTPUTS else {}),
        "kept by": description.get("holder"),
    }
    table = Table(["model", "value"], [[name, value] for name, value in rows.items() if value])
    about = (
        "Several clients trained this model together, without sharing samples (federated domain adaptation). "
    )
    if _is_for_every_site(run):
        about += "Each of them is a target, with a model of its own, for which the others are the sources."
    else:
        about += (
            f"It is made for one of them, the target **{escaped(_target(run))}**, which has few labels. The "
            "others, the sources, have more, from other distributions."
        )
    return [about, table]


def _data(run: RecordedRun) -> list[Part]:
    group = (run.settings.get("dataset_options") or {}).get("group")
    patients = [
        f"Who is a patient follows from the data set's option 'group': {escaped(str(group))}. All samples of "
        "one are in training or all in the test set."
    ]
    return [run.sizes, *(patients if group else [])] if run.history else ["No round is done yet."]


def _results(run: RecordedRun, model: Model) -> list[Part]:
    metric, evaluation = METRICS[run.metric], last_evaluation(run.history, run.metric)
    last5 = shares(run.history, run.metric)["last5"]
    parts: list[Part] = []
    if last5 is None:
        return ["The target reported no metric."]
    support, ends = support_of({**evaluation, "metric": run.metric}, " ("), evaluation.get("interval")
    between = f", {CONFIDENCE:.0%} interval {' to '.join(map(metric.show, ends))}" if ends else ""
    count = evaluation.get(TEST_SAMPLES, 0)
    tests = f" on {count:,} test samples{of_units(count, evaluation.get(UNITS))}" if count else ""
    whose = "as a mean of the sites" if _is_for_every_site(run) else "of the target"
    whose += f"{escaped(support)})" if support else ""
    what = "patients" if UNITS in evaluation else "samples"
    covers = f" The interval covers the choice of test {what}, not of a seed." if ends else ""
    parts.append(
        f"**{metric.title} {metric.show(last5)}**{tests} {whose}{between}: the mean of the last rounds, of "
        f"one run and seed.{covers}"
    )
    summary = summarise(run.history, run.metric)
    parts += map(escaped, [*model.conclusion, *judge(summary), *describe_theory(summary)])
    if sites_in(run.history):
        parts += [sites_table(run.history), *filter(None, [escaped(sites_note(run.history))])]
    parts += [part for part in figures_of(evaluation, run.history, _task(run, model)) if part not in parts]
    if labels := evaluation.get("labels"):
        parts.append(table_of_labels(labels, count))
    if classes := evaluation.get("classes"):
        header = ["class", "precision", "recall", "F1", "test samples"]
        rows = [
            [n, *("-" if c[k] is None else f"{c[k]:.3f}" for k in SCORES), c["support"]]
            for n, c in classes.items()
        ]
        parts.append(Table(header, rows))
    return parts


def _alike(described: Described) -> list[Part]:
    lines = [*alike_lines(described), *alike_notes(described)]
    return [alike_table(described), *map(escaped, lines)]


def figures_of(evaluation: Mapping[str, Any], history: Sequence[Record], task: Task) -> list[Part]:
    """Return the table of an evaluation's figures with intervals and baseline, and a word on few cases."""
    least = evaluation.get("baseline", {})
    rows = list[list[object]]()
    for name, value in evaluation["figures"].items():
        metric, ends = METRICS[name], interval_of(value, history, name)
        floor = metric.show(least[name]) if name in least else ""
        between = " to ".join(map(metric.show, ends)) if ends else ""
        against = f"{floor} ({metric.baseline})" if floor else ""
        rows.append([full_title(name, task), metric.show(value), between, against])
    columns = [0, 1, *(column for column in (2, 3) if any(row[column] for row in rows))]
    header = ["figure, last round", "value", f"{CONFIDENCE:.0%} interval", "baseline"]
    table = Table([header[i] for i in columns], [[row[i] for i in columns] for row in rows])
    return [table, *([escaped(few)] if (few := say_few(evaluation)) else [])]


def _took_part(run: RecordedRun) -> list[Part]:
    history, used, dropped = run.history, Counter[str](), Counter[str]()
    roles: dict[str, str] = {}
    for record in history:
        target = record.get("target") or ({"domain": _target(run)} if TEST_EXAMPLES in record else {})
        for role, entry in [("target", target), *sources_in(record)]:
            if "domain" in entry:
                used[entry["domain"]] += 1
                roles[entry["domain"]] = role
        dropped.update(str(each.get("domain", each.get("node"))) for each in record["dropped"])
    names = list(dict.fromkeys([*roles, *dropped]))
    rows = [[name, roles.get(name, ""), used[name], dropped[name]] for name in names]
    held = sum(record["held"] is not None for record in history)
    said = counted(len(history), "round") + (f", {held} of them without a new model" if held else "")
    header = ["domain", "role", "rounds with a reply that was used", "replies that were dropped"]
    return [f"{said}.", Table(header, rows)]


def _left(run: RecordedRun, sent: Sequence[Mapping[str, Any]]) -> list[Part]:
    received = sum(record.get("bytes-received", 0) for record in run.history) / 1e6
    parts: list[Part] = [
        f"Samples and labels stay at their site. The server received {received:,.1f} MB of replies in all: "
        "arrays of the model or sums over samples, and the metrics in this card."
    ]
    kinds_by_site: dict[str, Counter[str]] = {}
    size = Counter[str]()
    for line in sent:
        records = {f"{name} ({each['kind']})" for name, each in line.get("records", {}).items()}
        kinds_by_site.setdefault(line["domain"], Counter()).update(records or {"nothing"})
        size[line["domain"]] += line.get("bytes", 0)
    if kinds_by_site:
        rows = [
            [
                name,
                sum(1 for line in sent if line["domain"] == name),
                f"{size[name] / 1e6:.2f}",
                _counted(kinds),
            ]
            for name, kinds in kinds_by_site.items()
        ]
        parts.append(Table(["site, by its own log", "replies", "MB", "records"], rows))
    return parts


def _counted(kinds: Counter[str]) -> str:
    return ", ".join(f"{name} x {times}" for name, times in sorted(kinds.items()))


def _privacy(history: Sequence[Record]) -> list[Part]:
    spent_by_site = largest_epsilons(history)
    if not spent_by_site:
        return ["No noise was added: what left the sites has no guarantee of differential privacy."]
    header = ["domain", "protects", "ε", "δ", "left without noise"]
    rows = [
        [
            name,
            f"each {spent.get('unit', 'site')}",
            f"{spent['epsilon']:.4g}",
            f"{spent['delta']:g}",
            ", ".join(spent.get(UNCOVERED, ())) or "-",
        ]
        for name, spent in spent_by_site.items()
    ]
    about = (
        "Differential privacy, the most that each site has spent. It covers nothing that left without noise:"
    )
    return [about, Table(header, rows)]


def _limits(run: RecordedRun, model: Model) -> list[Part]:
    evaluation = last_evaluation(run.history, run.metric)
    lines = [f"It is made for {_made_for(run)}. Nothing is known of its accuracy elsewhere, or later."]
    tests = evaluation.get(TEST_SAMPLES, 0)
    if 0 < evaluation.get(UNITS, tests) < FEW_TESTS:
        of = of_units(tests, evaluation.get(UNITS))
        lines.append(f"{tests} test samples{of} are few: read the interval, not the metric.")
    if weak := [name for name, each in evaluation.get("classes", {}).items() if (each["recall"] or 0) < 0.5]:
        lines.append(f"It misses more than half of the test samples of the class {', '.join(weak)}.")
    if missing := [n for n, each in evaluation.get("classes", {}).items() if not each["support"]]:
        lines.append(f"The test set has no sample of the class {', '.join(missing)}.")
    if missing := [n for n, each in evaluation.get("labels", {}).items() if not each["support"]]:
        lines.append(f"The test set has no sample with the label {', '.join(missing)}.")
    if (model.description.get("predictor") or {}).get("kind") not in (None, "network"):
        lines.append("Several networks make a prediction.")
    lines.append("One run with one seed: another seed gives another model, with other metrics.")
    lines.append("The metrics are of research software: they do not replace a validation for clinical use.")
    return [escaped(line) for line in lines]


def _made(run: RecordedRun) -> list[Part]:
    settings = {name: value for name, value in run.settings.items() if name not in OF_THE_MACHINE}
    (first, *_) = settings_table(settings, {}) or [Table(["setting"], [])]
    rows = [row[:2] for row in first.rows]
    return [
        *map(escaped, describe_parts(run.notes)),
        Table(["setting that is not the default", "value"], rows),
    ]


def _check(model: Model) -> list[Part]:
    lines = []
    if digest := model.description.get("sha256"):
        lines.append(
            f"`model.json` says of the arrays in `model.safetensors` that their digest is `{digest}`."
        )
    if body := model.description.get("body"):
        lines.append(f"The frozen part of the network has the digest `{body}`.")
    if model.verified:
        lines.append(
            f"The chain of the run's records ends with `{model.verified}`; with it "
            f"`fda verify {shlex.quote(model.path)} --expect {model.verified}` compares records, "
            "configuration and model."
        )
    return [" ".join(lines) or "This folder holds no model: the node that keeps it can verify it."]
