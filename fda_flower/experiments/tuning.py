"""Searching settings by held-out labels."""

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import optuna
from optuna import Study, Trial
from optuna.distributions import CategoricalDistribution
from optuna.exceptions import ExperimentalWarning, StorageInternalError
from optuna.storages import RDBStorage
from optuna.trial import TrialState
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from fda_flower.datasets import FederatedDataset
from fda_flower.datasets.federation import data_digests, load_federation
from fda_flower.errors import ConfigError, FdaError, RunError, invalid
from fda_flower.experiments.spaces import Spaces, grid, settings_of_trial
from fda_flower.files import derive_seed, only_writer
from fda_flower.metrics import METRICS, ROUNDING, of_mean, of_most_frequent, of_shares, rare_headline
from fda_flower.metrics.survival import of_curve
from fda_flower.names.options import Count, read_list, read_value
from fda_flower.names.tasks import Task
from fda_flower.records.folder import ANSWERS, SAMPLES, check_answers, check_same_data
from fda_flower.records.record import VALIDATION, Record
from fda_flower.reporting.summary import name_of_baseline
from fda_flower.running.run import Execution, fold_configs, mean_by_round, run_config
from fda_flower.runs.config import RunConfig
from fda_flower.runs.network import answers_of
from fda_flower.server_app import check_data

STUDY, NAME = "study.db", "tune"


REASON, CUT, ROUND, MARK = "reason", "cut-off", "round", "command"
"""Attributes in the study: why a trial failed, whether it was cut off, its chosen round; the command."""

SAMPLER = "optuna"
"""Attribute in the study: the version of Optuna, whose sampler draws the trials."""


Make = Callable[[int, Mapping[str, Any]], RunConfig]
"""Makes a run from a seed and changed settings."""


@dataclass(frozen=True)
class TrialResult:
    """An ended trial: ``complete``, ``pruned``, or ``failed`` with a `reason`.

    `number` counts from 1; `values` are by setting. `score` is the mean over seeds of the metric on the
    held-out labels, and `round` the mean of the rounds with these metrics; both are None unless the trial is
    complete.
    """

    number: int
    values: Mapping[str, Any]
    state: str
    score: float | None = None
    round: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class Tuning:
    """The result of a search; `floor` is the baseline's metric, if known.

    The baseline ignores its input; see `fda_flower.reporting.summary.baseline_of`.
    """

    spaces: Spaces
    trials: Sequence[TrialResult]
    metric: str
    floor: float | None = None

    @property
    def best(self) -> TrialResult | None:
        """The first trial with the best metric."""
        complete = [(trial.score, trial) for trial in self.trials if trial.score is not None]
        best = METRICS[self.metric].best(score for score, _ in complete)
        return next((trial for score, trial in complete if score == best), None)

    @property
    def equals(self) -> list[TrialResult]:
        """The trials with the best metric."""
        best = self.best
        return [trial for trial in self.trials if best is not None and trial.score == best.score]

    @property
    def is_better(self) -> bool:
        """Whether the best trial is better than the baseline; True if unknown."""
        if self.floor is None or self.best is None or self.best.score is None:
            return True
        sign = 1 if METRICS[self.metric].higher_is_better else -1
        return sign * (self.best.score - self.floor) > ROUNDING

    @property
    def doubts(self) -> list[str]:
        """Sentences on what the best trial does not show."""
        sentences, metric = [], METRICS[self.metric]
        if len(self.equals) > 1:
            numbers = ", ".join(str(trial.number) for trial in self.equals)
            sentences.append(f"Trials {numbers} are equal: the held-out labels prefer none of them.")
        if self.floor is not None and not self.is_better:
            sentences.append(
                f"No trial is better than the baseline ({name_of_baseline(self.metric)}), "
                f"{metric.title} {metric.show(self.floor)}: give more --rounds, or search other values."
            )
        return sentences


def tune(
    make: Make,
    spaces: Spaces,
    folder: Path,
    *,
    trials: int = 20,
    seeds: Sequence[int] = (0,),
    resume: bool = False,
    on_trial: Callable[[Tuning], None] | None = None,
) -> Tuning:
    """Search settings by the headline on the labels held out in each run, never by test labels.

    The sampler is Optuna's tree-structured Parzen estimator (Bergstra et al., NeurIPS 2011), seeded by the
    number of the trial, so a resumed search has the trials of an uninterrupted one. Lists with no more
    combinations than trials are tried exhaustively. A trial worse than the median of the earlier trials at
    the same round is pruned.

    There are `trials` trials in total, earlier ones included, each run with all `seeds`. A run's score is
    the headline's best round. The study is in `folder`; `on_trial` is
    called after each trial.

    Raises
    ------
    ConfigError
        If a value in a space is invalid, no labels are held out, or the folder holds another search; raised
        before any training.
    RunError
        If the study's file cannot be read or written.
    """
    trials, seeds = read_value("trials", trials, Count), read_list("seeds", seeds, "range(3)")
    base, floor = _check(make, spaces, seeds)
    metric = base.headline
    with only_writer(folder), _storing(folder / STUDY):
        study = _open(folder, base, spaces, {"seeds": list(seeds), "metric": metric}, resume)
        listed = grid(spaces, trials)
        _check_unchanged(study, folder, base, "" if listed else optuna.__version__)
        for number in range(len(_ended(study)), len(listed) or trials):
            trial = _ask(study, spaces, listed[number] if listed else None, number, base.seed)
            _run(study, trial, make, seeds, metric)
            if on_trial is not None:
                on_trial(_result(study, spaces, metric, floor))
        return _result(study, spaces, metric, floor)


@contextmanager
def _storing(path: Path) -> Iterator[None]:
    """Turn errors of the study's file into a `RunError`."""
    try:
        yield
    except (StorageInternalError, SQLAlchemyError) as error:
        raise RunError(
            f"the search's file '{path}' cannot be used ({error.__cause__ or error}): free disk space, or "
            "restore it from a copy, and continue with --resume",
            thing="search's file",
            value=path,
        ) from error


def _check(make: Make, spaces: Spaces, seeds: Sequence[int]) -> tuple[RunConfig, float | None]:
    """Return the unchanged run, after checking the values of each space, one setting at a time.

    Also return the baseline's mean metric on the held-out labels; None if unknown.
    """
    base = make(seeds[0], {})
    if base.validation is None:
        raise invalid(
            "validation", None, "add validation=0.2 or validation=cv:5", "but held-out labels judge trials"
        )
    for name, space in spaces.items():
        for value in space.choices if isinstance(space, CategoricalDistribution) else (space.low, space.high):
            where = f"search of {name}"
            try:
                changed = make(seeds[0], settings_of_trial({name: value}))
                if name in changed.idle:
                    remedy = "search another setting, or name another method"
                    raise invalid(name, value, remedy, f"but '{changed.method}' takes no training steps")
            except ConfigError as error:
                raise ConfigError(f"{where}, value {value}: {error}", thing=where, value=value) from error
    configs = [config for seed in seeds for config in _parts(make(seed, {}))]
    if rare := _rare(check_data(configs[0])[0]) if base.metric is None else None:
        base = replace(base, metric=rare)
    floors = [floor for config in configs for floor in _floors(check_data(config)[0], base.headline)]
    return base, float(np.mean(floors)) if floors else None


def _rare(data: FederatedDataset) -> str | None:
    """Return the metric that a rare class of the sites that hold out labels asks for; None without one."""
    known = [domain.train for domain in data.domains.values() if domain.validation is not None]
    counts = [np.bincount(each.y, minlength=data.classes) for each in known if each.task == "classes"]
    return rare_headline(np.sum(counts, axis=0).tolist()) if counts else None


def _floors(data: FederatedDataset, metric: str) -> list[float]:
    """Return the baseline's metric at each site that holds out labels, as far as known."""
    held = [domain.validation for domain in data.domains.values() if domain.validation is not None]
    chance = METRICS[metric].chance
    if chance is not None:
        return [chance] * len(held)
    scores = [BASELINES[each.task](each.truth) for each in held]
    return [baseline[metric] for baseline in scores if metric in baseline]


BASELINES: Mapping[Task, Callable[[Any], dict[str, float]]] = {
    "classes": lambda y: of_most_frequent(np.diag(np.bincount(y))),
    "regression": lambda y: of_mean({"r2": 0.0}),
    "multilabel": lambda y: of_shares((y > 0).sum(axis=0).tolist(), len(y)),
    "survival": of_curve,
}
"""By task, the metrics of what ignores the samples, for labels."""


def _parts(config: RunConfig) -> list[RunConfig]:
    """Return the runs that judge a seed: one for each fold, or the run itself."""
    held_out = config.held_out
    return fold_configs(config) if held_out is not None and held_out.in_turn else [config]


def storage_of(path: Path) -> RDBStorage:
    """Return Optuna's storage in an SQLite file, without a connection that stays open after its use."""
    return RDBStorage(f"sqlite:///{path.absolute()}", engine_kwargs={"poolclass": NullPool})


def _open(folder: Path, base: RunConfig, spaces: Spaces, how: Mapping[str, Any], resume: bool) -> Study:
    path = folder / STUDY
    if path.exists() and not resume:
        raise ConfigError(
            f"the output folder '{folder}' already holds a search: continue it with --resume (resume=True), "
            "or choose another --output",
            thing="output folder",
            value=folder,
        )
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        storage=storage_of(path),
        study_name=NAME,
        direction=direction_of(how["metric"]),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=5),
        load_if_exists=True,
    )
    mark = {
        "run": {**base.fingerprint(), "rounds": base.rounds, "patience": base.patience},
        "spaces": [f"{name}: {space}" for name, space in spaces.items()],
        **how,
    }
    earlier, ours = study.user_attrs.get(MARK), json.loads(json.dumps(mark))
    if earlier is not None and earlier != ours:
        keys = [key for key in ours if earlier.get(key) != ours[key]]
        raise ConfigError(
            f"'{folder}' holds another search ({', '.join(keys)} differ): repeat its command, or choose "
            "another --output",
            thing=str(folder),
        )
    study.set_user_attr(MARK, ours)
    for trial in study.get_trials(states=(TrialState.RUNNING,)):
        _cut_off(study, trial.number)
    return study


def _check_unchanged(study: Study, folder: Path, base: RunConfig, sampler: str) -> None:
    """Raise a `ConfigError` if a search that goes on would mix samplers, data or networks."""
    data, known = load_federation(base.data), study.user_attrs
    made, digests = known.get(SAMPLER, sampler), data_digests(base.data)
    if sampler and made != sampler:
        what = f"Optuna {made} drew the trials of the search in '{folder}', and {sampler} draws others"
        remedy = f"install optuna=={made}, or choose another --output"
        raise ConfigError(what, thing=SAMPLER, value=made, remedy=remedy)
    check_same_data(folder, known.get(SAMPLES), digests)
    answers = answers_of(base, data.shape, data.classes)
    check_answers(base.fingerprint(), known.get(ANSWERS, ()), answers)
    for name, value in ((SAMPLER, sampler), (SAMPLES, digests), (ANSWERS, answers)):
        if value and name not in known:
            study.set_user_attr(name, value)


def _cut_off(study: Study, number: int) -> None:
    """Mark a trial as cut off: it runs again, and the sampler ignores it."""
    study.tell(number, state=TrialState.FAIL)
    study.set_user_attr(f"{CUT}-{number}", True)


def _ended(study: Study) -> list[Any]:
    """Return the trials that were not cut off, in order."""
    return [trial for trial in study.get_trials() if f"{CUT}-{trial.number}" not in study.user_attrs]


def _ask(study: Study, spaces: Spaces, listed: Mapping[str, Any] | None, number: int, seed: int) -> Trial:
    sampler = optuna.samplers.TPESampler(seed=derive_seed(seed, "tune", number) % 2**32)
    with warnings.catch_warnings(action="ignore", category=ExperimentalWarning):
        study.sampler = optuna.samplers.PartialFixedSampler(dict(listed), sampler) if listed else sampler
    return study.ask(dict(spaces))


def _run(study: Study, trial: Trial, make: Make, seeds: Sequence[int], metric: str) -> None:
    try:
        scores, rounds = [], []
        for index, seed in enumerate(seeds):
            parts = _parts(replace(make(seed, settings_of_trial(trial.params)), metric=metric))
            by_round = mean_by_round(
                [_history(trial, part, index * len(parts) + i, metric) for i, part in enumerate(parts)]
            )
            score = METRICS[metric].best(by_round.values())
            rounds.append(next(number for number, each in by_round.items() if each == score))
            scores.append(score)
    except optuna.TrialPruned:
        study.tell(trial, state=TrialState.PRUNED)
    except KeyboardInterrupt:
        _cut_off(study, trial.number)
        raise
    except StorageInternalError:
        raise
    except Exception as error:
        trial.set_user_attr(REASON, str(error) if isinstance(error, FdaError) else repr(error))
        study.tell(trial, state=TrialState.FAIL)
    else:
        trial.set_user_attr(ROUND, float(np.mean(rounds)))
        study.tell(trial, float(np.mean(scores)))


def _history(trial: Trial, config: RunConfig, part: int, metric: str) -> list[Record]:
    """Run a part of a trial, and report its score after each round."""
    seen: list[float] = []

    def on_round(record: Record) -> None:
        if VALIDATION in record:
            seen.append(record[VALIDATION])
            trial.report(METRICS[metric].best(seen), part * config.all_rounds + record["round"])
            if trial.should_prune():
                raise optuna.TrialPruned

    history = run_config(config, Execution(on_round=on_round)).history
    if not seen:
        raise ConfigError(
            f"method '{config.method}' has judged no round by held-out labels: choose another method",
            thing="method",
            value=config.method,
        )
    return history


def _result(study: Study, spaces: Spaces, metric: str, floor: float | None) -> Tuning:
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
    return Tuning(spaces, results, metric, floor)


def direction_of(metric: str) -> Literal["maximize", "minimize"]:
    """Return the direction in which a metric becomes better, as Optuna names it."""
    return "maximize" if METRICS[metric].higher_is_better else "minimize"
