"""What follows from a request: its data, and the method, network, rounds and options that it leaves open."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from math import prod
from typing import Any

from fda_flower.clients.settings import LocalTraining
from fda_flower.datasets.folders import read_size
from fda_flower.datasets.registry import DATASETS
from fda_flower.datasets.spec import DataSpec
from fda_flower.models import (
    AND,
    HINGES,
    LINEAR,
    MODELS,
    NUMBERS,
    PIXELS,
    Train,
    check_installed,
    check_name,
    find_model,
    is_pretrained,
    reads_text,
    uses_own_statistics,
)
from fda_flower.models.devices import check_device, check_precision
from fda_flower.models.own import may_import
from fda_flower.names.options import option_names, read_options
from fda_flower.names.tasks import Task
from fda_flower.runs.methods import Method, find_method, of_every_site
from fda_flower.runs.request import Request
from fda_flower.runs.settings import AUTO, SETTINGS, RunSettings
from fda_flower.strategies.settings import StrategySettings

CODE = "reference-code"
VARIANTS = {"paper": "paper", CODE: CODE, "reference-rules": CODE}
"""The variants of strategies by the setting's value; with `CODE` batches are cut as the authors cut them."""


@dataclass(frozen=True, kw_only=True)
class Completion:
    """What a run has besides its settings.

    Attributes
    ----------
    data : DataSpec
        The definition of the federation's data.
    choice : str, optional
        Which method was chosen, and why; None if the run names one.
    idle : tuple of str
        The settings that were changed, but change nothing, since the method takes no training steps.
    """

    data: DataSpec
    choice: str | None = None
    idle: tuple[str, ...] = ()


def complete(request: Request, data: DataSpec | None = None) -> tuple[Request, Completion]:
    """Return a request with all that it leaves open but the types of options; loads nothing heavy.

    `data` are the request's, if they are known. Raise a `ConfigError` on an unknown name.
    """
    method = None if request.method == AUTO else entry_of(request, request.method)
    if request.model != AUTO:
        check_name(request.model)
    check_device(request.device)
    check_precision(request.precision, request.device)
    uses_all = request.every_site or (request.dataset in DATASETS and DATASETS[request.dataset].is_own)
    if uses_all and request.target_samples == RunSettings.target_samples:
        request = replace(request, target_samples=None)
    data = _data(request, method) if data is None else data
    of_data = ("shift", "shift_options", "dataset_options", "partition_options", "target")
    changes: dict[str, Any] = {name: getattr(data, name) for name in of_data}
    choice = None
    if method is None:
        name, why = fitting_method(data, request.model, _rules_ridge_out(request, data))
        changes["method"], choice = name, f"Method auto: {name}, since {why}"
        method = entry_of(request, name)
    if request.model == AUTO:
        changes["model"] = fitting_model(data, method, request.privacy.of_patients)
        check_installed(changes["model"])
    idle: tuple[str, ...] = ()
    if method.rounds is not None:
        idle, changes["rounds"] = _without_effect(request, method), method.rounds
    return replace(request, **changes), Completion(data=data, choice=choice, idle=idle)


def entry_of(request: Request, method: str) -> Method:
    """Return a method's entry in its table, in the form that a request's target asks for."""
    return of_every_site(method) if request.every_site else find_method(method)


def _data(request: Request, method: Method | None) -> DataSpec:
    own: dict[str, Any] = {each.name: getattr(request, each.name, None) for each in fields(DataSpec)}
    own["num_sources"] = request.sources
    own["patients"] = request.privacy.dp_group if request.patients is None else request.patients
    if method is not None and method.all_target_labels:
        own["target_samples"] = None
    if request.held_out is not None and request.held_out.in_turn:
        own["validation"] = None
    return DataSpec(**own)


def typed_options(run: Request, method: Method) -> Request:
    """Return a run whose options have the types that its network and its method declare; loads both.

    Raise a `ConfigError` on an option that its owner does not have.
    """
    from fda_flower.strategies.adaptive import check_beta
    from fda_flower.strategies.options import COMMON, OF_RUNS

    read: dict[str, Any] = {"beta": None if run.beta is None else check_beta(run.beta)}
    if may_import(run.model) and (run.model_options or ":" in run.model):  # others of the list take none
        build, hidden = find_model(run.model).builder, {"shape", "classes"}
        read["model_options"] = read_options(f"model '{run.model}'", build, dict(run.model_options), hidden)
    what, hidden = f"method '{run.method}'", {*COMMON - OF_RUNS, "beta", "auto"}
    read["method_options"] = read_options(what, method.strategy_class, dict(run.method_options), hidden)
    return replace(run, **read)


def _without_effect(request: Request, method: Method) -> tuple[str, ...]:
    """Return the settings of training steps that a request changes, for a method of fixed rounds."""
    changed = [each for each in SETTINGS if each.of_steps and getattr(request, each.name) != each.default]
    if request.warmup_rounds:
        changed = [each for each in changed if each.name == "rounds"]
    return tuple(
        each.key for each in changed if getattr(request, each.name) != getattr(method, each.name, None)
    )


def fitting_method(data: DataSpec, model: str = AUTO, obstacle: str | None = None) -> tuple[str, str]:
    """Return the method of a run that names none, and why: Ridge, or Mixture where that is ruled out.

    `model` is the network that the run names, if it names one; `obstacle` is what rules Ridge out, in words.

    Examples
    --------
    >>> fitting_method(DataSpec("digits"))
    ('ridge', 'the samples are images')
    >>> fitting_method(DataSpec("heart"))
    ('ridge', 'the samples are rows of a table')
    >>> fitting_method(DataSpec("heart"), obstacle="train is all, and Ridge trains a linear layer alone")[0]
    'mixture'
    """
    if data.every_site:
        return "ridge", "every site is a target"
    if obstacle is not None:
        return "mixture", obstacle
    if model not in (AUTO, LINEAR):
        return "ridge", f"the body of the network '{model}' stays frozen"
    fits = data.fitting_model
    if reads_text(fits):
        return "ridge", "the samples have a text"
    return "ridge", "the samples are rows of a table" if MODELS[fits].rows else "the samples are images"


def _rules_ridge_out(request: Request, data: DataSpec) -> str | None:
    """Return the setting with which Ridge cannot run, in words; None if there is none."""
    if request.train not in (AUTO, "head", "linear"):
        return f"train is {request.train}, and Ridge trains a linear layer alone"
    if request.train == AUTO and request.model not in (AUTO, LINEAR) and not starts_pretrained(request):
        return f"the network '{request.model}' starts from random weights"
    if data.mask:
        return "Ridge has no masks"
    if request.class_weights != "none":
        return "Ridge has no training loss in which classes could weigh more"
    noise_for_sums = request.dp_open_target and request.dp_clip is None and data.task == "classes"
    if request.privacy.on and not noise_for_sums:
        return "Ridge has noise for patients alone, with classes and dp-open-target and without dp-clip"
    return None


def starts_pretrained(run: Request) -> bool:
    """Return whether a run's network starts from pretrained weights."""
    return is_pretrained(run.model, dict(run.model_options))


def has_rows(run: Request, data: DataSpec) -> bool:
    """Return whether a complete run's samples are rows of numbers: a table's, or pretrained features.

    Random filters are not pretrained, and texts are no numbers.
    """
    fits = MODELS[data.fitting_model]
    parts = [MODELS[part] for part in run.model.split(AND) if part in MODELS]
    learnt = any(part.package and not part.reads_text for part in parts)
    return (fits.rows and not fits.reads_text) or learnt or bool(dict(run.model_options).get("weights"))


def trained_part(run: Request, method: Method) -> Train:
    """Return the part of a run's network that a method trains."""
    if method.train is not None:
        return Train.read(method.train)
    if run.train != AUTO:
        return Train.read(run.train)
    return Train("head" if starts_pretrained(run) else "all")


def local_training(run: Request, method: Method, target: bool = False) -> LocalTraining:
    """Return how the sources train, or the target."""
    usual = 0.001 if trained_part(run, method).what == "head" else 0.003
    rate = usual if run.learning_rate is None else run.learning_rate
    batches: dict[str, Any] = {"batches": "drop-last" if run.variant == CODE else "even"}
    names = ("batch_size", "epochs", "optimizer", "class_weights")
    training = LocalTraining(rate, **{name: getattr(run, name) for name in names}, **batches)
    if not target:
        return training
    own: dict[str, Any] = {"learning_rate": run.target_learning_rate, "epochs": run.target_epochs}
    own |= {"batch_size": run.target_batch_size}
    own |= {"batches": "keep-last"} if run.variant == CODE else {}
    return replace(training, **{name: value for name, value in own.items() if value is not None})


def strategy_options(run: Request, method: Method, data: DataSpec) -> dict[str, Any]:
    """Return the keyword arguments of a run's strategy."""
    options = dict(method.variants[VARIANTS[run.variant]]) if run.variant else {}
    options |= dict(run.method_options)
    if isinstance(run.beta, tuple):
        options["beta"] = dict(zip(data.source_names, run.beta, strict=True))
    elif run.beta is not None:
        options["beta"] = run.beta
    if not method.has_target and not data.every_site:
        options["target"] = data.target_name  # for what it says; no node has another role
    return options | common_settings(run)


def common_settings(run: Request) -> dict[str, Any]:
    """Return a run's settings of every strategy."""
    own = {name: getattr(run, name) for name in option_names(StrategySettings)}
    return {name: value for name, value in own.items() if value is not None}


def fitting_model(data: DataSpec, method: Method, of_patients: bool) -> str:
    """Return the network that fits the data; a method that trains only a linear layer takes no random body.

    `of_patients` is whether each patient is protected.
    """
    fits = data.fitting_model
    if method.train is None:
        return fits
    linear = MODELS[fits].linear
    if linear == HINGES:
        return OF_ROWS.get(data.task, HINGES)
    if of_patients and uses_own_statistics(linear):
        return linear.partition(AND)[0]
    if linear == PIXELS and _has_many_pixels(data):
        return linear.rpartition(AND)[2]
    return linear


OF_ROWS: Mapping[Task, str] = {"regression": NUMBERS, "survival": LINEAR, "multilabel": NUMBERS}
"""By task, the network of a linear layer for rows of a table, if it has no hinges alone."""


def _has_many_pixels(data: DataSpec) -> bool:
    """Return whether images have more numbers than Ridge takes in a row."""
    size = dict(data.dataset_options).get("image_size")
    if size is None:
        return False
    from fda_flower.strategies.ridge import WIDEST

    return 3 * prod(read_size(str(size))) > WIDEST
