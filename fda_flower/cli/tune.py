"""The command `fda tune`: a search of settings, judged on labels held out from training."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fda_flower.cli.cells import end_with, read_seeds
from fda_flower.cli.folders import folder_of
from fda_flower.cli.options import ConfigFile, options_given, with_settings
from fda_flower.cli.output import out
from fda_flower.cli.runs import Resume
from fda_flower.cli.stopping import this_command, when_stopped
from fda_flower.errors import RunError, invalid
from fda_flower.names.words import counted
from fda_flower.runs.config import RunConfig

if TYPE_CHECKING:
    from fda_flower.experiments.spaces import Spaces
    from fda_flower.experiments.tuning import Make, Tuning

VALIDATION_SHARE = "0.2"
"""Default share of labels held out."""

METHOD = "fedgp-auto"
"""Default method: it trains by steps, as Ridge does not, and is judged in each round, as Mixture is not."""


@with_settings(validation=VALIDATION_SHARE, method=METHOD)
def tune(
    settings: dict[str, Any],
    search: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=VALUES",
            help="A setting and its values: learning-rate=log:1e-4..1e-2, epochs=1..5 or batch-size=4,8,16; "
            "method-option.NAME for an option. Repeatable.",
        ),
    ] = [],  # noqa: B006
    trials: Annotated[int, typer.Option(help="Trials in all.")] = 20,
    seeds: Annotated[
        str | None,
        typer.Option(
            help="Seeds of each trial: a number, or a list or range: 3, 4,7, 10-12.", show_default="--seed"
        ),
    ] = None,
    config: ConfigFile = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder to write to.", show_default="runs/tune, or -DATA")
    ] = None,
    resume: Resume = False,
) -> None:
    """Search settings without any test label.

    Each trial trains with one choice of the settings and is judged on held-out labels.
    """
    from fda_flower.experiments.definition import merged
    from fda_flower.experiments.spaces import read_spaces
    from fda_flower.names.notes import once

    spaces = read_spaces(search)
    given_options = options_given()
    if seeds is not None and "seed" in given_options:
        raise invalid("seed", settings["seed"], "leave one of them out", "but --seeds gives the seeds")
    if both := [name for name in spaces if name.replace("-", "_") in given_options]:
        why = "but --search gives its values"
        raise invalid(both[0], settings[both[0].replace("-", "_")], "leave one of them out", why)
    given = [settings.get("seed", RunConfig.seed)] if seeds is None else list(read_seeds(seeds))
    logging.getLogger("flwr").setLevel(logging.WARNING)
    folder = output or folder_of("tune", settings, resume)
    again = this_command("--resume", output=folder)
    when_stopped(lambda: f"Stopped. {folder} holds the finished trials. Continue with: {again}")

    def make(seed: int, own: Mapping[str, Any]) -> RunConfig:
        return RunConfig(**{**merged(settings, own), "seed": seed})

    with once():
        tuning = _search(make, folder, spaces, trials=trials, seeds=given, resume=resume)
    end_with({}, {"searches": [tuning]}, f"Written to {folder}")


def _search(make: "Make", folder: Path, spaces: "Spaces", **how: Any) -> dict[str, Any]:
    """Search settings; return the result."""
    from fda_flower.experiments.spaces import settings_of_trial
    from fda_flower.experiments.tuning import tune as run_tuning
    from fda_flower.experiments.tuning_files import as_toml, write_tuning
    from fda_flower.metrics import METRICS

    with out.progress() as progress:
        task = progress.add_task("Trials", total=how["trials"], shown="")

        def on_trial(state: "Tuning") -> None:
            best = state.best
            text = "" if best is None or best.score is None else METRICS[state.metric].show(best.score)
            progress.update(task, completed=len(state.trials), shown=text and f"best {text}")

        tuning = run_tuning(make, spaces, folder, on_trial=on_trial, **how)
    best = tuning.best
    run = None if best is None else make(how["seeds"][0], settings_of_trial(best.values))
    files = write_tuning(tuning, folder, run)
    if best is None or best.score is None or run is None:
        failed = [trial.reason for trial in tuning.trials if trial.reason]
        why = f", the first because {failed[0]}" if failed else ""
        raise RunError(f"no trial of {len(tuning.trials)} is complete{why}: see '{folder / 'trials.md'}'")
    score = METRICS[tuning.metric].show(best.score)
    out.text(
        f"{run.entry.title}: best of {counted(len(tuning.trials), 'trial')}: trial {best.number}, "
        f"{METRICS[tuning.metric].title} {score} on the held-out labels"
    )
    for doubt in tuning.doubts:
        out.warning(doubt)
    out.text(as_toml(tuning))
    return {
        "cell": "",
        "folder": folder,
        "files": files,
        "trials": len(tuning.trials),
        "best": {"trial": best.number, "round": best.round, tuning.metric: best.score},
        "settings": best.values,
    }
