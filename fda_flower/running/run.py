"""Running one configuration: its overview, its runner, its cross-validation and its result."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result
from numpy.typing import NDArray

from fda_flower.client_app import forget, make_client, make_client_app
from fda_flower.datasets import DATASETS
from fda_flower.datasets.federation import data_digests
from fda_flower.datasets.splitting import HeldOut
from fda_flower.engines import ENGINES, Engine, Folders, Resources
from fda_flower.errors import ConfigError, RunError, invalid, unknown
from fda_flower.files import as_file_name, versions
from fda_flower.metrics import METRICS
from fda_flower.models.devices import is_numbered
from fda_flower.records.folder import SAMPLES, RunFolder
from fda_flower.records.record import COSTS, VALIDATION, Record, Recording, curve, without_model
from fda_flower.reporting.alike import described_in, write_alike
from fda_flower.reporting.summary import PARAMETERS, summarise_run, write_summary
from fda_flower.reporting.trackers import TrackedRun, Tracking, check_trackers
from fda_flower.reporting.words import overview
from fda_flower.running.attacks import Attack
from fda_flower.runs.config import RunConfig
from fda_flower.runs.methods import check_federated
from fda_flower.runs.model_folder import CLIENTS
from fda_flower.runs.network import all_data, device_of_run
from fda_flower.server_app import check_data, make_folder, run_server

RunOutput = tuple[list[Record], dict[str, Any]]
"""The record of each round, and the last model's arrays."""


@dataclass(frozen=True, kw_only=True)
class Execution(Recording):
    """Where a configuration runs, and with what; see `run`.

    Attributes
    ----------
    on_ready : callable, optional
        Called before training with the lines of the overview; for a deployment, whose server has no data, at
        the end with the place of its model.
    track_in : Path, optional
        The folder of the trackers' local stores. Default: the run's.
    attack : Attack, optional
        What some of the sources do; simulated runs only.
    """

    engine: str = "local"
    output: str | Path | None = None
    resume: bool = False
    gpus_per_client: float = 0.0
    gpus_for_target: float | None = None
    workers: int | None = None
    connection: str | None = None
    on_ready: Callable[[list[str]], None] | None = None
    track: Sequence[str] = ()
    track_in: Path | None = None
    attack: Attack | None = None

    @cached_property
    def path(self) -> Path | None:
        """The folder to write to, absolute."""
        return None if self.output is None else Path(self.output).absolute()

    def tell(self, lines: list[str]) -> None:
        """Call `on_ready`, if there is one."""
        if self.on_ready is not None:
            self.on_ready(lines)


HERE = Execution()
"""This process, writing nothing."""

Runner = Callable[[RunConfig, Execution], RunOutput]

ONE_RUN = RLock()
"""Held by a run: PyTorch's threads and random numbers, and Flower's task, belong to the whole process."""


def _on_this_machine(engine: Engine, config: RunConfig, how: Execution) -> RunOutput:
    if how.connection is not None:
        remedy = "leave it out, or choose --engine deploy"
        raise invalid("connection", how.connection, remedy, "but only the engine deploy has one")
    if engine.parallel or how.workers is not None:
        check_federated(config.method)
    resources = _resources(engine, config, how)
    federation, network = check_data(config)
    lines = overview(config, federation, network)
    del federation  # its memory is needed by the clients
    folder = None if how.path is None else make_run_folder(config, how)
    if config.entry.centralised:
        from fda_flower.references.central import run_central

        how.tell(lines)
        return run_central(config, folder, how)
    results: list[tuple[Result, list[Record]]] = []

    def server(grid: Grid) -> None:
        how.tell(lines)
        results.append(run_server(grid, config, folder, how))

    def make_app() -> ClientApp:
        data, changed = None, None
        if engine.parallel:
            data = all_data(config)
            forget()  # so that the app alone holds them
        if how.attack is not None:
            changed = partial(how.attack.client, other=partial(make_client, config, data=data))
        return make_client_app(config, data=data, changed=changed, simulated=True)

    names, folders = config.data.domain_names, None
    if how.path is not None:
        folders = Folders(how.path, [Path(CLIENTS, as_file_name(name)) for name in names])
    engine(server, make_app, len(names), resources, folders)
    ((result, history),) = results
    return history, {name: array.numpy() for name, array in result.arrays.items()}


def _resources(engine: Engine, config: RunConfig, how: Execution) -> Resources:
    """Return what a simulation asks for; raise a `ConfigError` if it cannot be had."""
    data = config.data
    shares = ("gpus-per-client", how.gpus_per_client), ("gpus-for-target", how.gpus_for_target)
    for option, share in shares:
        if share and not engine.parallel:
            remedy = "leave it out, or choose --engine ray"
            raise invalid(option, share, remedy, f"but engine {how.engine} shares out no GPU")
        if share and is_numbered(config.device):
            why = f"which lets Ray choose the GPU, but device is '{config.device}'"
            raise invalid(option, share, "leave one out", why)
    own, target = how.gpus_for_target, None
    if own is not None:
        if config.every_site:
            why = "but with target all every site is a target"
            raise invalid("gpus-for-target", own, "give --gpus-per-client alone", why)
        target = data.domain_names.index(data.target_name)
    return Resources(config.threads, how.gpus_per_client, how.workers, own, target)


def make_run_folder(config: RunConfig, how: Execution) -> RunFolder:
    """Return the folder of a run on this machine; an attack defines the run too."""
    folder = make_folder(str(how.path), config, how.resume, device_of_run(config))
    folder.config |= {} if how.attack is None else how.attack.settings()
    if digests := data_digests(config.data):
        folder.note(SAMPLES, digests)
    return folder


def _on_a_superlink(config: RunConfig, how: Execution) -> RunOutput:
    if how.connection is None:
        raise ConfigError(
            "engine deploy needs a connection: give --connection NAME, as in Flower's config.toml",
            thing="connection",
        )
    if how.path is None:
        raise ConfigError("engine deploy needs an output folder: give --output FOLDER", thing="output folder")
    if how.attack is not None:
        raise invalid("attack", how.attack.name, "leave it out", "but with engine deploy no site attacks")
    asked_for = {
        "workers": how.workers,
        "gpus-per-client": how.gpus_per_client or None,
        "gpus-for-target": how.gpus_for_target,
    }
    for name, given in asked_for.items():
        if given is not None:
            why = "but with engine deploy each site uses its own machine"
            raise invalid(name, given, "leave it out", why)
    from fda_flower.deployment import run_deployed

    history, folder = run_deployed(config, how.connection, how.path, resume=how.resume, on_round=how.on_round)
    how.tell([f"The model is on the server of '{how.connection}', in {folder}"])
    return history, {}


RUNNERS: dict[str, Runner] = {
    **{name: partial(_on_this_machine, engine) for name, engine in ENGINES.items()},
    "deploy": _on_a_superlink,
}
"""The runners by the name of the engine."""


FOLDER = "validation"
"""Holds the folds' runs, in the folder of the run with all labels."""


def fold_configs(config: RunConfig) -> list[RunConfig]:
    """Return the run of each fold of a run with ``cv:K``; each trains on the labels of the others."""
    held_out = config.held_out
    assert held_out is not None
    folds = [HeldOut(folds=held_out.folds, fold=i + 1) for i in range(held_out.folds)]
    return [replace(config, validation=str(fold), patience=None) for fold in folds]


def cross_validate(config: RunConfig, how: Execution) -> dict[int, float]:
    """Run each fold, and return the mean of their metrics by round, which choose the final run's round.

    The folds' records and checkpoints are in ``validation/fold-1`` and so on; `on_round` is called with their
    records, which have a ``fold``.
    """
    if how.engine == "deploy":
        remedy = "give a share such as 0.2, or a fold such as fold:1/5"
        why = "but engine deploy holds out one part in a run"
        raise invalid("validation", config.validation, remedy, why)
    histories = []
    for number, fold in enumerate(fold_configs(config), 1):
        folder = None if how.path is None else how.path / FOLDER / f"fold-{number}"
        on_round = how.on_round and _with_fold(how.on_round, number)
        history, _ = RUNNERS[how.engine](fold, replace(how, output=folder, on_round=on_round))
        histories.append(history)
    return mean_by_round(histories)


def mean_by_round(histories: Sequence[Sequence[Mapping[str, object]]]) -> dict[int, float]:
    """Return the mean metric of each round that all folds have evaluated.

    Examples
    --------
    >>> mean_by_round([[{"validation": 0.5}, {"validation": 0.75}], [{}, {"validation": 0.25}]])
    {2: 0.5}
    """
    rounds = zip(*histories, strict=True)
    scores = [[record.get(VALIDATION) for record in records] for records in rounds]
    return {
        number: float(np.mean(np.array(values, np.float64)))
        for number, values in enumerate(scores, 1)
        if None not in values
    }


def _with_fold(on_round: Callable[[Record], None], number: int) -> Callable[[Record], None]:
    return lambda record: on_round({**record, "fold": number})


@dataclass(frozen=True)
class RunResult:
    """The result of a run: the record of each round, as in ``rounds.jsonl``, and the rest.

    `summary` is the content of ``summary.json``, with ``last5`` and ``best`` of the headline, as shares.
    `model` is the last global model, by the names of its state dictionary; empty for a deployed run, whose
    model is on the server. `path` is the run's folder, if any.
    """

    config: RunConfig
    history: list[Record]
    summary: dict[str, Any]
    model: dict[str, NDArray[np.generic]]
    path: Path | None

    def __repr__(self) -> str:
        known = {"last5": self.last5, "best": self.best}
        scores = {key: round(value, 2) for key, value in known.items() if value is not None}
        fields = {"method": self.config.method, "rounds": len(self.history), **scores, "path": self.path}
        return f"RunResult({', '.join(f'{name}={value!r}' for name, value in fields.items())})"

    @property
    def last5(self) -> float | None:
        """The mean headline of the last 5 rounds, in percent or its own unit."""
        return self._scaled("last5")

    @property
    def best(self) -> float | None:
        """The headline of the best round on the test set, in percent or its own unit."""
        return self._scaled("best")

    def _scaled(self, key: str) -> float | None:
        value = self.summary.get(key)
        return None if value is None else METRICS[self.config.headline_of(self.history)].scaled(value)

    @property
    def accuracies(self) -> list[float]:
        """Target accuracy of each round, in percent; NaN for a regression."""
        return self.scores("accuracy")

    def scores(self, metric: str | None = None) -> list[float]:
        """Return a metric of the target by round, in percent or its own unit.

        `metric` is a name of `fda_flower.metrics.METRICS`. Default: the run's headline.
        """
        return curve(self.history, metric or self.config.headline_of(self.history))


def run(
    *,
    engine: str = "local",
    output: str | Path | None = None,
    resume: bool = False,
    gpus_per_client: float = 0.0,
    gpus_for_target: float | None = None,
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
        On this machine, on Ray, or over a SuperLink: the results have the same bits.
    output : str or Path, optional
        The folder to write to; "deploy" needs one. Default: nothing is written.
    resume : bool
        Continue the run that `output` holds, if any.
    gpus_per_client, gpus_for_target, workers
        For simulations only; see `Resources`.
    connection : str, optional
        For "deploy": the SuperLink, by its name in Flower's ``config.toml``.
    on_round : callable, optional
        Called with each round's record.
    track : sequence of str
        Trackers of the rounds: ``"mlflow"``, ``"wandb"``, ``"tensorboard"``. A failing tracker is switched
        off with a warning.
    **settings
        The fields of `RunConfig`.

    Raises
    ------
    ConfigError
        If a setting is invalid; raised before training.
    RunError
        If the run cannot continue.

    Examples
    --------
    >>> from fda_flower import run
    >>> result = run(method="target-only", model="mlp", rounds=1, seed=0)
    >>> len(result.accuracies)
    1
    """
    how = Execution(
        engine=engine,
        output=output,
        resume=resume,
        gpus_per_client=gpus_per_client,
        gpus_for_target=gpus_for_target,
        workers=workers,
        connection=connection,
        on_round=on_round,
        track=track,
    )
    return run_config(RunConfig.read(settings), how)


def run_config(config: RunConfig, how: Execution = HERE) -> RunResult:
    """Run a configuration, like `run`; Ctrl-C leaves the summary of the rounds so far."""
    if how.engine not in RUNNERS:
        raise unknown("engine", how.engine, RUNNERS)
    path = how.path
    if DATASETS[config.dataset].is_own:
        forget()  # the user may have changed a file since the last run in this process
    check_trackers(how.track)
    for line in config.remarks:
        COSTS.info(line)
    if how.track and path is None:
        raise invalid("track", ",".join(how.track), "give an output folder", "but nothing is written")
    about = config.settings() | {"data_dir": None}
    tracked = TrackedRun(path or Path(), how.track_in or path or Path(), about, versions())
    begun = False
    try:
        with Tracking(how.track, tracked) as tracking:

            def on_record(record: Record) -> None:
                nonlocal begun
                if "fold" not in record:
                    begun = True
                    tracking.record(record)
                if how.on_round is not None:
                    how.on_round(record)

            watched = replace(how, on_round=on_record)
            if config.held_out is not None and config.held_out.in_turn:
                watched = replace(watched, validation=cross_validate(config, watched))
            with ONE_RUN:
                history, model = RUNNERS[how.engine](config, watched)
    except KeyboardInterrupt:
        if path is not None and begun:
            write_summary(path, config, summarise_run(config, RunFolder(path).read_rounds(light=True)))
        raise
    summary = summarise_run(config, history, model)
    failure = _failure(config, history, summary)
    if failure is not None:
        summary.pop(PARAMETERS, None)  # without it, no run is complete
    if path is not None:
        write_summary(path, config, summary)
        write_alike(path, described_in(history))
    if failure is not None:
        raise failure
    return RunResult(config, history, summary, model, path)


def _failure(config: RunConfig, history: Sequence[Record], summary: Mapping[str, Any]) -> RunError | None:
    """Return the error of a run without any new model, or without any evaluation; None for other runs."""
    if (failure := without_model(history)) is not None:
        return failure
    failed = history[-1].get("evaluation-failed") if history and not summary["figures"] else None
    if not failed:
        return None
    message = f"the target was evaluated in no round, since its evaluation failed ({failed})"
    remedy = f"repair it, and run one more round (--rounds {config.rounds + 1} --resume)"
    return RunError(message, thing="evaluation", value=failed, remedy=remedy)
