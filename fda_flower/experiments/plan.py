"""What an experiment needs before anything is trained: its files, and the time that its runs take here."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from fda_flower.clients.training import repeatable, train
from fda_flower.datasets import DATASETS, DataSpec, Samples, load_domain, load_federation
from fda_flower.datasets.amounts import count
from fda_flower.datasets.registry import FULL_SIZE
from fda_flower.errors import ConfigError
from fda_flower.experiments.definition import Experiment
from fda_flower.experiments.experiment import attacks_of, chosen_places, overrides_of
from fda_flower.models.devices import find_device
from fda_flower.models.exchange import Network
from fda_flower.models.own import DOWNLOADED
from fda_flower.models.parts import Part
from fda_flower.models.structure import Structure, structure_of
from fda_flower.prediction.batches import device_of
from fda_flower.prediction.features import FeatureStore, features
from fda_flower.prediction.network_passes import predict
from fda_flower.prediction.passes import through
from fda_flower.reporting.results import Place
from fda_flower.runs.config import RunConfig
from fda_flower.runs.network import backbone_of, make_model
from fda_flower.runs.settings import SETTINGS
from fda_flower.server_app import check_run_needs

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
    """What an experiment needs before anything is trained.

    Attributes
    ----------
    missing : tuple of str
        A sentence for each missing file or folder, with its remedy.
    rows : tuple of RowCost
        The cheapest first; without cells that cannot run, or whose data are missing and of unknown size.
    features : float
        The seconds in which frozen bodies compute the features of all samples, once.
    published : bool
        Whether some data are missing, so that random images, in their published number, take their place.
    refused : tuple of str
        A sentence for each reason why cells cannot run, with the cells.
    """

    missing: tuple[str, ...]
    rows: tuple[RowCost, ...]
    features: float
    published: bool
    refused: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """The time of all, one run at a time."""
        return self.features + sum(cost.seconds for cost in self.rows)


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

    The data are read, and files of weights are loaded, as a run does it; `weights=imagenet` is not. A batch
    of each network is measured, of the size that sources and target have. A run's cost is the time of all
    steps of sources and target, and of an evaluation after each round; other passes do not count.

    Raises
    ------
    ConfigError
        If a setting is invalid.
    """
    chosen = experiment.seeds if seeds is None else seeds
    overrides = overrides_of(settings, rounds, machine)
    configs = experiment.configs(chosen_places(experiment, only), chosen[0], overrides)
    attacks_of(experiment, configs, settings or {})
    specs = dict.fromkeys(config.data for config in configs.values())
    faults = {spec: tuple(_faults(spec)) for spec in specs}
    watch, forms = Stopwatch(), dict[DataSpec, Form | None]()
    seconds, refused = dict[str, list[float]](), dict[str, list[Place]]()
    for place, config in configs.items():
        try:
            if config.data not in forms:
                forms[config.data] = _form(config.data, faults[config.data])
            if (form := forms[config.data]) is not None:
                cost = watch.cost(config, form)
                seconds.setdefault(place[1], []).append(cost)
        except ConfigError as error:
            refused.setdefault(str(error), []).append(place)
    costs = [RowCost(row, len(chosen) * len(each), len(chosen) * sum(each)) for row, each in seconds.items()]
    missing = {spec: [e for e in errors if not _is_of_settings(e)] for spec, errors in faults.items()}
    return Plan(
        missing=(*dict.fromkeys([*map(str, chain(*missing.values())), *watch.missing]),),
        rows=(*sorted(costs, key=lambda cost: cost.seconds),),
        features=watch.features,
        published=any(missing[spec] and form is not None for spec, form in forms.items()),
        refused=(*(f"{_named(places)}: {why}" for why, places in refused.items()),),
    )


def _named(places: Sequence[Place]) -> str:
    first, *others = (f"cell '{', '.join(filter(None, place))}'" for place in places)
    return f"{first} and {len(others)} more" if others else first


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


def _is_of_settings(error: ConfigError) -> bool:
    """Return whether data are refused for a setting, such as `target-samples`, and not for a file."""
    return error.thing.replace("-", "_") in {each.name for each in SETTINGS}


def _faults(spec: DataSpec) -> Iterator[ConfigError]:
    """Yield what the data set's own reader refuses, domain by domain if it has some."""
    readers: list[Callable[[], object]] = [partial(load_federation, spec)]
    if spec.shift is None:
        readers = [partial(load_domain, spec, name) for name in spec.domain_names]
    for read in readers:
        try:
            read()
        except ConfigError as error:
            yield error


def _form(spec: DataSpec, faults: Collection[ConfigError]) -> Form | None:
    for error in filter(_is_of_settings, faults):
        raise error
    return _published(spec) if faults else _loaded(spec)


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
        self._there = dict[str, bool]()
        self._bodies = dict[str, Samples]()
        self._known = dict[str, tuple[float, float]]()
        self._structures = dict[str, tuple[Structure, bool]]()

    def cost(self, config: RunConfig, form: Form) -> float:
        """Return the seconds of a run."""
        epochs, heads = config.training_epochs(form.labels), config.epochs_of_head(form.labels)
        config = self._with_weights(config, form)
        self._check(config, form)
        _, forward = self._measured(config, form, config.source_training)
        seconds = config.all_rounds * form.tests * forward
        unlabelled = form.rest if "unlabelled" in config.entry.needs else 0
        for role, sizes, training in (
            ("source", form.sources, config.source_training),
            ("target", (form.labels + unlabelled,), config.target_training),
        ):
            steps, head = sum(map(training.steps, sizes)) / training.epochs, heads.get(role, 0)
            parts: tuple[tuple[Part, float], ...] = (("all", epochs.get(role, 0) - head), ("head", head))
            for part, trained in parts:
                if trained:
                    seconds += trained * steps * self._measured(config, form, training, part)[0]
        return seconds

    def _check(self, config: RunConfig, form: Form) -> None:
        """Raise a `ConfigError` if the method refuses the numbers of samples, or the network."""
        for name, samples in zip(config.data.source_names, form.sources, strict=True):
            config.check_samples("source", f"'{name}'", samples)
        config.check_samples("target", f"'{config.data.target_name}'", form.labels)
        key = repr((config.model, config.model_options, config.trained, form.shape, form.classes))
        if key not in self._structures:
            structure = structure_of(make_model(config, form.shape, form.classes))
            self._structures[key] = structure, backbone_of(config, form.shape, form.classes) is not None
        structure, has_backbone = self._structures[key]
        check_run_needs(config, structure, form.rest, has_backbone)

    def _with_weights(self, config: RunConfig, form: Form) -> RunConfig:
        """Return the run, with random weights if its own are missing, or would be downloaded."""
        options, key = dict(config.model_options), repr((config.model, config.model_options))
        if "weights" not in options:
            return config
        if options["weights"] == DOWNLOADED:
            self._there[key] = False
        if key not in self._there:
            try:
                make_model(config, form.shape, form.classes)
                self._there[key] = True
            except ConfigError as error:
                self.missing.append(str(error))
                self._there[key] = False
        del options["weights"]
        return config if self._there[key] else replace(config, model_options=options)

    def _measured(
        self, config: RunConfig, form: Form, training: "LocalTraining", part: Part = "all"
    ) -> tuple[float, float]:
        """Return the seconds of a step of a part on a batch, and of the evaluation of one sample."""
        network = config.model, config.model_options, config.trained, form.shape, form.classes
        key = repr((network, config.precision, config.fits, training.batch_size, training.optimizer, part))
        if key not in self._known:
            batch = self._through_body(repr((network, config.dataset)), config, form, training.batch_size)
            model = make_model(config, form.shape, form.classes)
            self._known[key] = _times(config, model, batch, training, part)
        return self._known[key]

    def _through_body(self, key: str, config: RunConfig, form: Form, size: int) -> Samples:
        """Return a batch, as the features of a frozen body if there is one; their time counts once."""
        body = backbone_of(config, form.shape, form.classes)
        if not isinstance(body, torch.nn.Module):
            return through(body, form.batch(size))
        if key not in self._bodies:
            images, network = form.batch(FEW), body.to(find_device(config.device)).eval()
            passed = partial(features, network, images, device=device_of(network))
            self._bodies[key], seconds = _timed(lambda: passed(store=FeatureStore(None, {})))
            every = sum(form.sources) + form.labels + form.rest + form.tests
            self.features += seconds / len(images) * every
        few = self._bodies[key]
        return few.take(np.arange(size) % len(few))


FEW = 4
"""Samples that pass a frozen body, one by one, to measure it."""


def _times(
    config: RunConfig, network: Network, batch: Samples, training: "LocalTraining", part: Part
) -> tuple[float, float]:
    """Return the seconds of a step, and of the evaluation of one sample; none for a fit in closed form."""
    if not isinstance(network, torch.nn.Module):
        return 0.0, 0.0
    device, generator = find_device(config.device), torch.Generator().manual_seed(0)
    model = network.to(device)

    def seconds_of(steps: int) -> float:
        local = replace(training, epochs=steps)
        return _timed(lambda: train(model, batch, local, generator, part=part))[1]

    with repeatable(0, config.threads, device):
        step = seconds_of(1)
        if step < ENOUGH:  # less what a training begins with
            step = max(seconds_of(1 + STEPS) - step, 0.0) / STEPS
        _, forward = _timed(lambda: predict(model, batch, generator, len(batch), device).cpu())
    return step, forward / len(batch)


REPEATS, STEPS, ENOUGH = 3, 10, 1.0
"""Measurements, steps of a fast network in one, and the seconds after which there are no more."""


def _timed(work: Callable[[], Result]) -> tuple[Result, float]:
    """Return the result of some work, and the least seconds that it takes, not counting the first time."""
    result, times = work(), list[float]()
    while len(times) < REPEATS and sum(times) < ENOUGH:
        begun = time.perf_counter()
        result = work()
        times.append(time.perf_counter() - begun)
    return result, min(times)
