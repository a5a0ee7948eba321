"""The commands that use a run's model: predict, evaluate, export, verify."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fda_flower.cli.baselines import baseline_of
from fda_flower.cli.flags import Confidence, Judged, NetBenefit, Positive, Sensitivity, read_flags
from fda_flower.cli.judging import (
    check_curves,
    draw_curves,
    entries_of,
    headline_beside,
    lines_of,
    summary_beside,
)
from fda_flower.cli.output import out
from fda_flower.errors import ConfigError, invalid
from fda_flower.files import check_writable
from fda_flower.names.options import split_names
from fda_flower.names.words import count_of, counted

if TYPE_CHECKING:
    from fda_flower.prediction.model import LoadedModel
    from fda_flower.prediction.new_samples import NewSamples

Run = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run's folder; at a deployed target, the node's folder.")
]
Csv = Annotated[
    Path | None, typer.Option("--csv", metavar="FILE", help="A table of samples.", show_default="none")
]
Images = Annotated[
    Path | None, typer.Option("--images", metavar="FOLDER", help="A folder of images.", show_default="none")
]
DataDir = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER",
        help="Folder of the run's own data. Its test set is used without --csv and --images.",
        show_default="as in the run",
    ),
]
Keep = Annotated[
    str,
    typer.Option(
        metavar="COLUMNS",
        help="Columns of --csv to copy to the output, such as a patient's number; neither features nor the "
        "label.",
        show_default="none",
    ),
]
Coverage = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="Sets of classes, or intervals, that hold the label in this share of cases, such as 0.9.",
        show_default="none",
    ),
]
Curves = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Draw ROC and calibration curves of classes, or survival by groups of risk, into a png, pdf or "
        "svg file; they stay here.",
        show_default="none",
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, mps or xpu.")]
Trust = Annotated[
    bool,
    typer.Option("--trust", help="Allow running the network code that the model file refers to."),
]


def predict(
    run: Run,
    csv: Csv = None,
    images: Images = None,
    data_dir: DataDir = None,
    keep: Keep = "",
    output: Annotated[Path, typer.Option(help="File to write to.")] = Path("predictions.csv"),
    coverage: Coverage = None,
    sensitivity: Sensitivity = None,
    positive: Positive = None,
    confidence: Confidence = None,
    device: Device = "cpu",
    trust: Trust = False,
) -> None:
    """Predict new samples with a run's model and write a CSV file."""
    from fda_flower.prediction.new_samples import write_predictions

    if csv is not None and output.exists() and csv.exists() and output.samefile(csv):
        raise invalid("output", output, "choose another --output", "the file of --csv")
    _check_output(output)
    model = _load(run, device, trust)
    flags = read_flags(model, sensitivity, positive, confidence)
    _say_promise(model, coverage)
    new = _samples(model, run, csv, images, data_dir, keep)
    write_predictions(model, new, output, coverage, flags)
    verdict = _verdict(run)
    for line in verdict:
        out.text(f"The run: {line}")
    count = len(new.samples)
    result = {"file": output, "predictions": count, "round": model.about.round, "verdict": verdict}
    result |= {} if flags is None else flags.entries
    out.result(result, f"{counted(count, 'prediction')}. Written to {output}")


def _verdict(run: Path) -> list[str]:
    """Return the sentence with which a run in this folder, or with this chosen model, ended; else none."""
    from fda_flower.reporting.words import judge

    summary = summary_beside(run)
    return judge(summary)[:1] if summary else []


def evaluate(
    run: Run,
    csv: Csv = None,
    images: Images = None,
    data_dir: DataDir = None,
    keep: Keep = "",
    coverage: Coverage = None,
    sensitivity: Sensitivity = None,
    positive: Positive = None,
    confidence: Confidence = None,
    net_benefit: NetBenefit = None,
    curves: Curves = None,
    device: Device = "cpu",
    trust: Trust = False,
) -> None:
    """Evaluate a run's model on labelled samples: --csv, --images in folders by class, or its test set."""
    from fda_flower.metrics import measure_with_intervals
    from fda_flower.reporting.summary import Sampling
    from fda_flower.reporting.words import describe_sets, judge, support_of

    model = _load(run, device, trust)
    flagged = Judged.read(model, sensitivity, positive, confidence, net_benefit)
    if coverage is not None:
        model.thresholds(coverage)
    check_curves(curves, model.about)
    new = _samples(model, run, csv, images, data_dir, keep, labelled=True)
    outputs, y = model.outputs(new.samples, new.drawing), new.samples.truth
    pair = (model.labels(outputs), model.labels(y)) if model.about.task == "regression" else (outputs, y)
    predicted, labels = pair
    groups, units = new.samples.groups, None if new.samples.units == len(y) else new.samples.units
    task, mask = model.about.task, model.about.mask
    metrics, intervals = measure_with_intervals(predicted, labels, task, groups, mask)
    headline = headline_beside(run, model.about, outputs, y, metrics)
    baseline = baseline_of(model.about, outputs, y, metrics)
    others = {name: value for name, value in baseline.items() if name != headline}
    lines = lines_of(metrics, intervals, others, model.about.task)
    for line in (line for name, line in lines.items() if name != headline):
        out.text(line)
    cases = entries_of(model.about, outputs, y, groups)
    if labels := cases.get("labels"):
        from fda_flower.reporting.labels import table_of_labels

        out.table(table_of_labels(labels, len(y)))
    result = {"samples": len(y), "round": model.about.round, "metric": headline}
    result |= {"figures": metrics, "intervals": intervals}
    result |= {"baseline": baseline} | {name: cases[name] for name in ("labels", "events") if name in cases}
    result |= {} if units is None else {"units": units}
    judged = {
        "metric": headline,
        "last5": metrics.get(headline),
        "figures": metrics,
        **Sampling(len(y), units).entries,
        **cases,
    }
    ends = {"interval": intervals[headline]} if headline in intervals else {}
    for line in judge({**judged, **ends, "baseline": baseline}):
        out.text(line)
    if curves is not None:
        draw_curves(curves, model.about, outputs, y, groups)
        result["curves"] = curves
    result |= flagged.say(outputs, y, groups)
    if coverage is not None:
        result["sets"] = sets = {"asked": coverage, **model.metrics_of_sets(outputs, y, coverage, groups)}
        for line in describe_sets(sets, len(y), units):
            out.text(line)
    support = support_of(judged | {"baseline": baseline}, ", ")
    out.result(result, f"{lines.get(headline, 'No figure')}, {count_of(len(y), units)}{support}")


def export(
    run: Run,
    output: Annotated[Path, typer.Option(help="File to write to.")] = Path("model.onnx"),
    coverage: Coverage = None,
    trust: Trust = False,
) -> None:
    """Write a run's model as an ONNX file, for other programs."""
    from fda_flower.models.tokens import NUMBERS, PACKAGE
    from fda_flower.prediction.export import export as write

    _check_output(output)
    model = _load(run, "cpu", trust)
    _say_promise(model, coverage)
    kind = write(model, output, coverage)
    features: list[str] = []
    if model.about.preparation is not None and model.about.features:
        text = str(model.about.preparation.get("text", ""))
        features = [name for name in model.about.features if name != text]
        units = "in a table's units; a category is 1 or 0"
        out.text(f"Input: rows of {counted(len(features), 'feature')} as {kind}, {units}.")
        if text:
            out.text(f"Then the {NUMBERS} numbers that {PACKAGE} makes from the text in column '{text}'.")
    out.result({"file": output, "features": features}, f"Written to {output}")


def _check_output(path: Path) -> None:
    """Raise a `ConfigError` unless the file can be written; called before the model is loaded."""
    if path.is_dir():
        raise invalid("output", path, "choose another --output", "a folder")
    check_writable(path.absolute().parent)


def _say_promise(model: "LoadedModel", coverage: float | None) -> None:
    """Say when sets hold the label as often as asked; raise a `ConfigError` if they cannot."""
    if coverage is None:
        return
    model.thresholds(coverage)
    assert model.calibration is not None, "or else there are no thresholds"
    labels, units = model.calibration.labels, model.calibration.units
    new = "samples that come" if units == labels else "a sample of a new patient that comes"
    ones = count_of(labels, None if units == labels else units, "labelled one")
    out.text(
        f"The label is promised in {100 * coverage:g}% of cases, only for {new} as the {ones} of "
        f"'{model.about.domain}' did."
    )


def _load(run: Path, device: str, trust: bool) -> "LoadedModel":
    from fda_flower.models.devices import check_device
    from fda_flower.prediction.model import load
    from fda_flower.records.folder import CHOSEN_MODEL
    from fda_flower.runs.model_folder import has_ended

    check_device(device)
    model = load(run, device, trust=trust)
    about = model.about
    if run.name == CHOSEN_MODEL:
        out.text(f"The model is from round {about.round}, chosen by held-out labels.")
    elif not about.finished and has_ended(run):
        out.text(f"The run stopped early, after round {about.round} of {about.rounds}.")
    elif not about.finished:
        out.text(f"The run is not finished: the model is from round {about.round} of {about.rounds}.")
    if about.holder == "server":
        out.text("The model is the server's global one; the target's own part is in the folder of its node.")
    return model


def _samples(
    model: "LoadedModel",
    run: Path,
    csv: Path | None,
    images: Path | None,
    data_dir: str | None,
    keep: str,
    labelled: bool = False,
) -> "NewSamples":
    from fda_flower.prediction.new_samples import from_csv, from_images
    from fda_flower.runs.model_folder import own_test_set

    given = [name for name, value in (("csv", csv), ("images", images), ("data-dir", data_dir)) if value]
    if len(given) > 1:
        raise ConfigError(f"--{' and --'.join(given)} are given: give one of them")
    columns = split_names("keep", keep) if keep else ()
    if columns and csv is None:
        raise invalid("keep", keep, "leave it out or add --csv", "but only --csv has columns")
    if csv is not None:
        new = from_csv(model, csv, columns, labelled)
    elif images is not None:
        new = from_images(model, images, labelled)
    else:
        new = own_test_set(model, run, data_dir)
    for note in new.notes:
        out.warning(note)
    return new


def verify(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    expect: Annotated[
        str | None,
        typer.Option(
            metavar="HASH",
            help="The last hash, as noted elsewhere when the run ended.",
            show_default="none",
        ),
    ] = None,
) -> None:
    """Verify that nobody has changed a run's records, models and configuration.

    Anyone who can write to the folder can also rewrite its chain of hashes. Note the last hash elsewhere and
    give it as --expect.
    """
    from fda_flower.records.verification import verify as verify_run

    verification = verify_run(run, expect)
    for note in verification.notes:
        out.text(f"Note: {note}")
    ok = [f"ok: {counted(verification.rounds, 'round')}, last hash {verification.last}"]
    out.result(asdict(verification), *[f"Not ok: {problem}" for problem in verification.problems] or ok)
    if verification.problems:
        raise typer.Exit(1)
