"""A search of settings by labels held out from training: trials of Optuna, whose study is a SQLite file."""

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fda_flower.config import RunConfig
from fda_flower.errors import ConfigError, FdaError, RunError, check_choice
from fda_flower.experiments.cross_validation import fold_configs, mean_by_round
from fda_flower.experiments.run import run_config
from fda_flower.experiments.tuning_space import Space, grid, settings_of_trial
from fda_flower.files import only_writer
from fda_flower.metrics import METRICS
from fda_flower.records import Record
from fda_flower.reporting.summary import LAST
from fda_flower.seeds import derive_seed
from fda_flower.selection import VALIDATION
from fda_flower.server_app import check_data

if TYPE_CHECKING:
    from optuna import Study, Trial

STUDY, NAME = "study.db", "tune"
REASON, CUT, ROUND, MARK = "reason", "cut-off", "round", "command"
"""Notes: why a trial failed, that it was cut off, its round chosen; and what the study is of."""

Judge = Callable[[Sequence[float], str], tuple[float, int]]
"""Returns what counts of the figures by round, and the position of the round that it is of."""

Make = Callable[[int, Mapping[str, Any]], RunConfig]
"""Makes the run with a seed and changed settings."""


@dataclass(frozen=True)
class TrialResult:
    """A trial that has ended.

    Attributes
    ----------
    number : int
        1, 2, ...
    values : Mapping
        The settings tried, by the names of the search.
    state : str
        ``complete``, ``pruned`` or ``failed``.
    figure : float or None
        The mean over seeds of each seed's figure on the labels held out; None unless complete.
    round : float or None
        The mean over seeds of the rounds that have these figures.
    reason : str
        Why it failed.
    """

    number: int
    values: Mapping[str, Any]
    state: str
    figure: float | None = None
    round: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class Tuning:
    """The result of a search; `best` is the first of equal trials, None if none is complete."""

    spaces: Sequence[Space]
    trials: Sequence[TrialResult]
    metric: str
    best: TrialResult | None = field(init=False)

    def __post_init__(self) -> None:
        complete = [trial for trial in self.trials if trial.figure is not None]
        figure = METRICS[self.metric].best(trial.figure for trial in complete if trial.figure is not None)
        best = next((trial for trial in complete if trial.figure == figure), None)
        object.__setattr__(self, "best", best)


def tune(
    make: Make,
    spaces: Sequence[Space],
    folder: Path,
    *,
    trials: int = 20,
    seeds: Sequence[int] = (0,),
    judge: str = "best",
    resume: bool = False,
    on_trial: Callable[[Tuning], None] | None = None,
) -> Tuning:
    """Search settings by the headline on the labels held out in each run; no test label has a say.

    The sampler is Optuna's tree-structured Parzen estimator (Bergstra et al., NeurIPS 2011), seeded by the
    number of the trial, so that a search that goes on has the trials of one that was never cut off. Lists
    with no more combinations than trials are tried one after the other. A trial that is worse than the median
    of the trials before it, at the same round, is pruned.

    Parameters
    ----------
    make : callable
        Returns the run with a seed and changed settings.
    spaces : sequence of Space
        What to search.
    folder : Path
        Holds the study.
    trials : int
        The trials in all, those done before included.
    seeds : sequence of int
        Each trial is run with all of them.
    judge : {"best", "last5"}
        Whether the headline's best round counts, or its mean over the last 5 rounds: take it for runs of
        which the last rounds count, without a choice of the round.
    resume : bool
        Go on with the study that `folder` holds.
    on_trial : callable, optional
        Called after each trial.

    Raises
    ------
    ConfigError
        If a setting is invalid with a value of its space, no labels are held out, or the folder holds
        another search; nothing has been trained.
    RunError
        If the study's file cannot be read or written.
    """
    if trials < 1:
        raise ConfigError(f"trials is {trials}, it must be at least 1")
    check_choice("judge", judge, JUDGES)
    base = _check(make, spaces, seeds)
    metric = base.headline
    with only_writer(folder), _storing(folder / STUDY):
        study = _open(folder, base, spaces, {"seeds": list(seeds), "metric": metric, "judge": judge}, resume)
        listed = grid(spaces, trials)
        for number in range(len(_ended(study)), len(listed) or trials):
            trial = _ask(study, spaces, listed[number] if listed else None, number, base.seed)
            _run(study, trial, make, seeds, metric, JUDGES[judge])
            if on_trial is not None:
                on_trial(_result(study, spaces, metric))
        return _result(study, spaces, metric)


@contextmanager
def _storing(path: Path) -> Iterator[None]:
    """Inside, an error of the study's file is a `RunError`."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (StorageInternalError, SQLAlchemyError) as error:
        raise RunError(
            f"the search's file '{path}' cannot be used ({error.__cause__ or error}): make room, or restore "
            "it from a copy, and go on with --resume"
        ) from error


def _check(make: Make, spaces: Sequence[Space], seeds: Sequence[int]) -> RunConfig:
    """Return the run without changes, after a check of each space's values, one setting at a time."""
    base = make(seeds[0], {})
    if base.validation is None:
        raise ConfigError("no labels are held out to judge trials by: add validation=0.2 or validation=cv:5")
    for space in spaces:
        for value in space.samples:
            try:
                make(seeds[0], settings_of_trial({space.name: value}))
            except ConfigError as error:
                raise ConfigError(f"search of {space.name}, value {value}: {error}") from error
    for seed in seeds:
        for config in _parts(make(seed, {})):
            check_data(config)
    return base


def _parts(config: RunConfig) -> list[RunConfig]:
    """Return the runs that judge a seed: one for each fold, or the run itself."""
    held_out = config.held_out
    return fold_configs(config) if held_out is not None and held_out.in_turn else [config]


def _open(
    folder: Path, base: RunConfig, spaces: Sequence[Space], how: Mapping[str, Any], resume: bool
) -> "Study":
    import optuna

    path = folder / STUDY
    if path.exists() and not resume:
        raise ConfigError(
            f"the output folder '{folder}' already holds a search: go on with --resume (resume=True), or "
            "choose another --output"
        )
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        storage=f"sqlite:///{path.absolute()}",
        study_name=NAME,
        direction="maximize" if METRICS[how["metric"]].higher_is_better else "minimize",
        pruner=optuna.pruners.MedianPruner(n_startup_trials=5),
        load_if_exists=True,
    )
    mark = {
        "run": {**base.fingerprint(), "rounds": base.rounds, "patience": base.patience},
        "spaces": [repr(space) for space in spaces],
        **how,
    }
    found, ours = study.user_attrs.get(MARK), json.loads(json.dumps(mark))
    if found is not None and found != ours:
        keys = [key for key in ours if found.get(key) != ours[key]]
        raise ConfigError(
            f"'{folder}' holds another search ({', '.join(keys)} differ): repeat its command, or choose "
            "another --output"
        )
    study.set_user_attr(MARK, ours)
    for trial in study.get_trials(states=(optuna.trial.TrialState.RUNNING,)):
        _cut_off(study, trial.number)
    return study


def _cut_off(study: "Study", number: int) -> None:
    """Mark a trial as cut off: it is run again, and nothing is learned from it."""
    from optuna.trial import TrialState

    study.tell(number, state=TrialState.FAIL)
    study.set_user_attr(f"{CUT}-{number}", True)


def _ended(study: "Study") -> list[Any]:
    """Return the trials that have ended by themselves, in order."""
    return [trial for trial in study.get_trials() if f"{CUT}-{trial.number}" not in study.user_attrs]


def _ask(
    study: "Study", spaces: Sequence[Space], listed: Mapping[str, Any] | None, number: int, seed: int
) -> "Trial":
    import optuna

    sampler = optuna.samplers.TPESampler(seed=derive_seed(seed, "tune", number) % 2**32)
    with warnings.catch_warnings():
        # Its interface may change: the tests would notice.
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study.sampler = optuna.samplers.PartialFixedSampler(dict(listed), sampler) if listed else sampler
    return study.ask({space.name: space.distribution for space in spaces})


def _best(figures: Sequence[float], metric: str) -> tuple[float, int]:
    best = METRICS[metric].best(figures)
    return best, figures.index(best)


def _last5(figures: Sequence[float], metric: str) -> tuple[float, int]:
    return float(np.mean(figures[-LAST:])), len(figures) - 1


JUDGES: dict[str, Judge] = {"best": _best, "last5": _last5}
"""By the word of the option."""


def _run(
    study: "Study",
    trial: "Trial",
    make: Make,
    seeds: Sequence[int],
    metric: str,
    judge: Judge,
) -> None:
    import optuna
    from optuna.trial import TrialState

    try:
        figures, rounds = [], []
        for index, seed in enumerate(seeds):
            parts = _parts(make(seed, settings_of_trial(trial.params)))
            by_round = mean_by_round(
                [_history(trial, part, index * len(parts) + i, metric, judge) for i, part in enumerate(parts)]
            )
            figure, position = judge(list(by_round.values()), metric)
            rounds.append(list(by_round)[position])
            figures.append(figure)
    except optuna.TrialPruned:
        study.tell(trial, state=TrialState.PRUNED)
    except KeyboardInterrupt:
        _cut_off(study, trial.number)
        raise
    except optuna.exceptions.StorageInternalError:
        raise
    except Exception as error:
        trial.set_user_attr(REASON, str(error) if isinstance(error, FdaError) else repr(error))
        study.tell(trial, state=TrialState.FAIL)
    else:
        trial.set_user_attr(ROUND, float(np.mean(rounds)))
        study.tell(trial, float(np.mean(figures)))


def _history(
    trial: "Trial",
    config: RunConfig,
    part: int,
    metric: str,
    judge: Judge,
) -> list[Record]:
    """Run a part of a trial, and report after each round its figure so far."""
    import optuna

    seen: list[float] = []

    def on_round(record: Record) -> None:
        if VALIDATION in record:
            seen.append(record[VALIDATION])
            trial.report(judge(seen, metric)[0], part * config.all_rounds + record["round"])
            if trial.should_prune():
                raise optuna.TrialPruned

    history = run_config(config, on_round=on_round).history
    if not seen:
        raise ConfigError(
            f"method '{config.method}' has judged no round by labels held out: choose another method"
        )
    return history


def _result(study: "Study", spaces: Sequence[Space], metric: str) -> Tuning:
    from optuna.trial import TrialState

    states = {TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed"}
    results = [
        TrialResult(
            number,
            dict(trial.params),
            states[trial.state],
            trial.value if trial.state == TrialState.COMPLETE else None,
            trial.user_attrs.get(ROUND),
            trial.user_attrs.get(REASON, ""),
        )
        for number, trial in enumerate(_ended(study), 1)
    ]
    return Tuning(spaces, results, metric)
