"""What an experiment needs before anything is trained: its files, and the time that its runs take here."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from fda_flower.clients.training import repeatable, train
from fda_flower.datasets import DATASETS, DataSpec, Samples, load_domain, load_federation
from fda_flower.datasets.amounts import count
from fda_flower.datasets.registry import FULL_SIZE
from fda_flower.errors import ConfigError
from fda_flower.experiments.definition import Experiment
from fda_flower.experiments.experiment import chosen_places, overrides_of
from fda_flower.models.devices import find_device
from fda_flower.prediction.batches import device_of
from fda_flower.prediction.features import FeatureStore, features
from fda_flower.prediction.network_passes import predict
from fda_flower.prediction.passes import through
from fda_flower.runs.config import RunConfig
from fda_flower.runs.network import backbone_of, make_model

if TYPE_CHECKING:
    from fda_flower.clients.settings import LocalTraining

Result = TypeVar("Result")


@dataclass(frozen=True)
class RowCost:
    """A row of an experiment: its number of runs, and the seconds that all of them take, one at a time."""

    row: str
    runs: int
    seconds: float


@dataclass(frozen=True)
class Plan:
    """What is missing, in sentences with remedies; the rows, the cheapest first; where the numbers are from.

    `features` are the seconds in which a frozen body computes the features of all samples, once. Rows of data
    whose size is unknown have no cost.
    """

    missing: tuple[str, ...]
    rows: tuple[RowCost, ...]
    features: float
    notes: tuple[str, ...]


def plan_experiment(
    experiment: Experiment,
    *,
    only: Collection[str] = (),
    seeds: Sequence[int] | None = None,
    rounds: int | None = None,
    settings: Mapping[str, Any] | None = None,
    machine: Mapping[str, Any] | None = None,
) -> Plan:
    """Return what the runs of `run_experiment` need, with the same arguments; nothing is trained or written.

    The data are read, and weights are loaded, as a run does it; what a run downloads is downloaded. One batch
    of each network is measured, with its own size for sources and target. A run's cost is the time of all
    steps of sources and target, and of an evaluation after each round; other passes do not count.

    Raises
    ------
    ConfigError
        If a setting is invalid.
    """
    chosen = experiment.seeds if seeds is None else seeds
    overrides = overrides_of(settings, rounds, machine)
    configs = experiment.configs(chosen_places(experiment, only), chosen[0], overrides)
    specs = dict.fromkeys(config.data for config in configs.values())
    missing = dict.fromkeys(sentence for spec in specs for sentence in _missing_files(spec))
    forms = {spec: _published(spec) if missing else _loaded(spec) for spec in specs}
    watch = Stopwatch()
    seconds = dict[str, float]()
    for (_, row, _), config in configs.items():
        if (form := forms[config.data]) is not None:
            seconds[row] = seconds.get(row, 0.0) + watch.cost(config, form) * len(chosen)
    missing |= dict.fromkeys(watch.missing)
    runs = {row: sum(place[1] == row for place in configs) * len(chosen) for row in seconds}
    costs = [RowCost(row, runs[row], total) for row, total in seconds.items()]
    published = [form for form in forms.values() if form is not None and form.samples is None]
    notes = ["without the data: random images, as many as the data set has as published"] * bool(published)
    return Plan((*missing,), (*sorted(costs, key=lambda each: each.seconds),), watch.features, (*notes,))


@dataclass(frozen=True)
class Form:
    """The form of a run's data: numbers of samples, a sample's shape, classes, and samples to measure with.

    `sources` has the training samples of each source, `labels` the target's labelled ones, `rest` its others.
    """

    sources: tuple[int, ...]
    labels: int
    rest: int
    tests: int
    shape: tuple[int, ...]
    classes: int
    samples: Samples | None = None

    def batch(self, size: int) -> Samples:
        """Return a batch in memory: the first samples, or random images."""
        if self.samples is None:
            rng = np.random.default_rng(0)
            return Samples(rng.random((size, *self.shape), np.float32), rng.integers(self.classes, size=size))
        first = self.samples.take(np.arange(min(size, len(self.samples))))
        return first if isinstance(first.x, np.ndarray) else replace(first, x=first.x[:])


def _missing_files(spec: DataSpec) -> Iterator[str]:
    """Yield what the data set's own reader refuses, domain by domain if it has some."""
    readers: list[Callable[[], object]] = [partial(load_federation, spec)]
    if spec.shift is None:
        readers = [partial(load_domain, spec, name) for name in spec.domain_names]
    for read in readers:
        try:
            read()
        except ConfigError as error:
            yield str(error)


def _loaded(spec: DataSpec) -> Form:
    data = load_federation(spec)
    target = data.domains.get(data.target, data.domains[spec.domain_names[-1]])
    sources = tuple(len(data.domains[name].train) for name in spec.source_names)
    rest = 0 if target.unlabelled is None else len(target.unlabelled)
    sizes = sources, len(target.train), rest, len(target.test)
    return Form(*sizes, data.shape, data.classes, data.domains[spec.source_names[0]].train)


def _published(spec: DataSpec) -> Form | None:
    """Return the form of a data set that is not here: its domains are taken to be equally large."""
    entry = DATASETS[spec.dataset]
    if entry.published is None:
        return None
    samples, classes = entry.published
    side = dict(spec.dataset_options).get("image_size", FULL_SIZE)
    tests = samples // len(spec.all_names) // 5
    trained = 4 * tests
    labels = count("target-samples", spec.target_samples, trained)
    sources = (count("source-samples", spec.source_samples, trained),) * len(spec.source_names)
    return Form(sources, labels, trained - labels, tests, (3, int(side), int(side)), classes)


class Stopwatch:
    """Measures a batch of each network once."""

    def __init__(self) -> None:
        self.missing, self.features = list[str](), 0.0
        self._known = dict[str, tuple[float, float]]()
        self._bodies = dict[str, Samples]()
        self._random = dict[str, RunConfig]()

    def cost(self, config: RunConfig, form: Form) -> float:
        """Return the seconds of a run."""
        epochs = config.training_epochs(form.labels)
        config = self._with_weights(config, form)
        seconds, step, forward = 0.0, 0.0, 0.0
        for role, sizes, training in (
            ("source", form.sources, config.source_training),
            ("target", (form.labels,), config.target_training),
        ):
            step, forward = self._measured(config, form, training)
            steps = sum(map(training.steps, sizes)) / training.epochs
            seconds += epochs.get(role, 0) * steps * step
        return seconds + config.all_rounds * form.tests * forward

    def _with_weights(self, config: RunConfig, form: Form) -> RunConfig:
        """Return the run, with random weights if its own are not here; these are missing then."""
        key = repr((config.model, config.model_options))
        options = dict(config.model_options)
        if key not in self._random and "weights" in options:
            try:
                make_model(config, form.shape, form.classes)
            except ConfigError as error:
                self.missing.append(str(error))
                self._random[key] = config
        if key not in self._random:
            return config
        return replace(config, model_options={name: v for name, v in options.items() if name != "weights"})

    def _measured(self, config: RunConfig, form: Form, training: "LocalTraining") -> tuple[float, float]:
        """Return the seconds of a step on a batch, and of the evaluation of one sample."""
        net = config.model, config.model_options, config.trained, config.precision, form.shape, form.classes
        key = repr((net, training.batch_size, training.optimizer, config.fits))
        if key not in self._known:
            device, batch = find_device(config.device), form.batch(training.batch_size)
            network = make_model(config, form.shape, form.classes)
            batch = self._through_body(repr((net, len(batch))), config, form, batch)
            if not isinstance(network, torch.nn.Module):  # fitted in closed form
                self._known[key] = 0.0, 0.0
                return self._known[key]
            network, generator = network.to(device), torch.Generator().manual_seed(0)
            once = replace(training, epochs=1)
            with repeatable(0, config.threads, device):
                _, step = _timed(lambda: train(network, batch, once, generator))
                _, forward = _timed(lambda: predict(network, batch, generator, len(batch), device).cpu())
            self._known[key] = step, forward / len(batch)
        return self._known[key]

    def _through_body(self, net: str, config: RunConfig, form: Form, batch: Samples) -> Samples:
        """Return a batch as the features of a frozen body, whose time counts once; without one, as it is."""
        body = backbone_of(config, form.shape, form.classes)
        if body is None:
            return batch
        if not isinstance(body, torch.nn.Module):  # NumPy's, of a table's rows
            return through(body, batch)
        body = body.to(find_device(config.device)).eval()
        if net not in self._bodies:
            passed, seconds = _timed(lambda: features(body, batch, FeatureStore(None, {}), device_of(body)))
            self._bodies[net] = passed
            every = sum(form.sources) + form.labels + form.rest + form.tests
            self.features += seconds / len(batch) * every
        return self._bodies[net]


def _timed(work: Callable[[], Result]) -> tuple[Result, float]:
    """Return the result of some work, and the seconds that it takes when it is done again."""
    work()
    begun = time.perf_counter()
    result = work()
    return result, time.perf_counter() - begun
