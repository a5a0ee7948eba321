"""One run, in one call."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fda_flower.config import RunConfig
from fda_flower.errors import ConfigError, RunError, unknown
from fda_flower.experiments.attacks import Attack
from fda_flower.experiments.cross_validation import cross_validate
from fda_flower.experiments.runners import RUNNERS, RunRequest
from fda_flower.records import Record, curve
from fda_flower.reporting import summarise_run, write_summary
from fda_flower.run_folder import RunFolder
from fda_flower.trackers import TrackedRun, Tracking, check_trackers
from fda_flower.versions import versions


@dataclass(frozen=True)
class RunResult:
    """The result of a run.

    Attributes
    ----------
    config : RunConfig
        The configuration of the run.
    history : list[dict]
        The record of each round, as in ``rounds.jsonl``.
    summary : dict
        ``last5`` and ``best`` of the headline, and more; as in ``summary.json``.
    model : dict[str, NDArray]
        The last global model, by the names of its state dictionary; none of a deployed run, whose model is on
        the server.
    path : Path or None
        The run's folder, if any.
    """

    config: RunConfig
    history: list[Record]
    summary: dict[str, Any]
    model: dict[str, NDArray[np.generic]]
    path: Path | None

    def __repr__(self) -> str:
        scores = {key: self.summary.get(key) for key in ("last5", "best")}
        shown = {"method": self.config.method, "rounds": len(self.history), **scores, "path": self.path}
        return f"RunResult({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    @property
    def accuracies(self) -> list[float]:
        """Target accuracy of each round, in percent; NaN for a regression."""
        return self.figures("accuracy")

    def figures(self, metric: str | None = None) -> list[float]:
        """Return a figure of the target by round, in percent or its own unit.

        `metric` is a name of `fda_flower.metrics.METRICS`. Default: the run's headline.
        """
        return curve(self.history, metric or self.config.headline)


def run(
    *,
    engine: str = "local",
    output: str | Path | None = None,
    resume: bool = False,
    gpus_per_client: float = 0.0,
    workers: int | None = None,
    connection: str | None = None,
    on_round: Callable[[Record], None] | None = None,
    track: Sequence[str] = (),
    **settings: Any,
) -> RunResult:
    """Run one method on one federation.

    Parameters
    ----------
    engine : {"local", "ray", "deploy"}
        On this machine, through Flower's Ray simulation, or over a SuperLink with real SuperNodes; the
        results have the same bits.
    output : str or Path, optional
        The folder to write to; "deploy" needs one. Default: nothing is written.
    resume : bool
        Continue the run that `output` holds, if any.
    gpus_per_client, workers
        For simulations only; see `Resources`.
    connection : str, optional
        For "deploy": the SuperLink, by its name in Flower's ``config.toml``.
    on_round : callable, optional
        Called with each round's record.
    track : sequence of str
        Trackers that show the rounds: ``"mlflow"``, ``"wandb"``, ``"tensorboard"``. One that fails is off,
        with a warning; the run goes on.
    **settings
        The fields of `RunConfig`.

    Raises
    ------
    ConfigError
        If a setting is invalid; nothing has been trained.
    RunError
        If the run cannot continue.

    Examples
    --------
    >>> from fda_flower import run
    >>> result = run(method="target-only", model="mlp", rounds=1, seed=0)
    >>> len(result.accuracies)
    1
    """
    return run_config(
        RunConfig(**settings),
        engine=engine,
        output=output,
        resume=resume,
        gpus_per_client=gpus_per_client,
        workers=workers,
        connection=connection,
        on_round=on_round,
        track=track,
    )


def run_config(
    config: RunConfig,
    *,
    engine: str = "local",
    output: str | Path | None = None,
    resume: bool = False,
    gpus_per_client: float = 0.0,
    workers: int | None = None,
    connection: str | None = None,
    on_round: Callable[[Record], None] | None = None,
    on_ready: Callable[[list[str]], None] | None = None,
    track: Sequence[str] = (),
    track_in: Path | None = None,
    attack: Attack | None = None,
) -> RunResult:
    """Run a configuration. An interrupt (Ctrl-C) leaves the summary of the rounds that are done.

    Parameters
    ----------
    config : RunConfig
        The run.
    on_ready : callable, optional
        Called before training with lines that say what the run takes; of a deployment, whose server has no
        data, at its end with a line that says where its model is.
    track_in : Path, optional
        The folder of the trackers' local stores. Default: the run's.
    attack : Attack, optional
        What some of the sources do, in a simulated run.
    engine, output, resume, gpus_per_client, workers, connection, on_round, track
        Those of `run`.
    """
    if engine not in RUNNERS:
        raise unknown("engine", engine, RUNNERS)
    path = None if output is None else Path(output).absolute()
    check_trackers(track)
    if track and path is None:
        raise ConfigError(f"track is '{','.join(track)}', but nothing is written: give an output folder")
    about = config.settings() | {"data_dir": None}
    tracked = TrackedRun(path or Path(), track_in or path or Path(), about, versions())
    begun = False
    try:
        with Tracking(track, tracked) as tracking:

            def on_record(record: Record) -> None:
                nonlocal begun
                if "fold" not in record:
                    begun = True
                    tracking.record(record)
                if on_round is not None:
                    on_round(record)

            request = RunRequest(
                config, path, resume, gpus_per_client, workers, connection, on_record, on_ready, None, attack
            )
            if config.held_out is not None and config.held_out.in_turn:
                request = replace(request, validation=_validated(request, engine))
            history, model = RUNNERS[engine](request)
    except KeyboardInterrupt:
        if path is not None and begun:
            write_summary(path, config, RunFolder(path).read_rounds())
        raise
    if path is not None:
        write_summary(path, config, history)
    summary = summarise_run(config, history)
    failed = history[-1].get("evaluation-failed") if history else None
    if failed and not summary["figures"]:
        raise RunError(
            f"the target was evaluated in no round, since its evaluation failed ({failed}): repair it, and "
            f"run one more round (--rounds {config.rounds + 1} --resume)"
        )
    return RunResult(config, history, summary, model, path)


def _validated(request: RunRequest, engine: str) -> dict[int, float]:
    """Return the figures of cross-validation, by round."""
    if engine == "deploy":
        raise ConfigError(
            f"validation is {request.config.validation}, but engine deploy holds out one part in a run: give "
            "a share such as 0.2, or a fold such as fold:1/5"
        )
    return cross_validate(request, RUNNERS[engine])
