"""One run, in one call."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result
from numpy.typing import NDArray

from fda_flower.client_app import make_client_app
from fda_flower.config import RunConfig
from fda_flower.engines import ENGINES, Resources
from fda_flower.errors import unknown
from fda_flower.reporting import accuracies, summarise, write_summary
from fda_flower.server_app import make_folder, run_server
from fda_flower.strategies.run_folder import Record


@dataclass(frozen=True)
class RunResult:
    """What a run came to.

    Attributes
    ----------
    config : RunConfig
        What was run.
    history : list[dict]
        The record of each round, as in ``rounds.jsonl``.
    summary : dict
        ``last5`` and ``best`` accuracy in percent, and more; as in ``summary.json``.
    model : dict[str, NDArray]
        The last global model, by the names of its state dictionary.
    path : Path or None
        The run's folder.
    """

    config: RunConfig
    history: list[Record]
    summary: dict[str, Any]
    model: dict[str, NDArray[np.generic]]
    path: Path | None

    @property
    def accuracies(self) -> list[float]:
        """Target accuracy of each round, in percent."""
        return accuracies(self.history)


def run(
    *,
    engine: str = "local",
    output: str | Path | None = None,
    resume: bool = False,
    gpus_per_client: float = 0.0,
    workers: int | None = None,
    on_round: Callable[[Record], None] | None = None,
    **settings: Any,
) -> RunResult:
    """Run one method on one federation.

    Parameters
    ----------
    engine : {"local", "ray"}
        In this process, or through Flower's Ray simulation; the results have the same bits.
    output : str or Path, optional
        Folder to write to. Default: none is written.
    resume : bool
        Go on with the run that `output` holds, if any.
    gpus_per_client, workers
        See `Resources`.
    on_round : callable, optional
        Called with each round's record.
    **settings
        The fields of `RunConfig`.

    Raises
    ------
    ConfigError
        If a setting cannot work; nothing has been trained.
    RunError
        If the run could not go on.

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
        on_round=on_round,
    )


def run_config(
    config: RunConfig,
    *,
    engine: str = "local",
    output: str | Path | None = None,
    resume: bool = False,
    gpus_per_client: float = 0.0,
    workers: int | None = None,
    on_round: Callable[[Record], None] | None = None,
) -> RunResult:
    """As `run`, from a configuration."""
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    resources = Resources(config.threads, gpus_per_client, workers)
    folder = None if output is None else make_folder(str(Path(output).absolute()), config, resume)
    results: list[tuple[Result, list[Record]]] = []

    def server(grid: Grid) -> None:
        results.append(run_server(grid, config, folder, on_round))

    ENGINES[engine](server, make_client_app(config), len(config.data.domain_names), resources)
    ((result, history),) = results
    if folder is not None:
        write_summary(folder, config, history)
    return RunResult(
        config,
        history,
        summarise(history),
        {name: array.numpy() for name, array in result.arrays.items()},
        None if folder is None else folder.path,
    )
