"""Checks of a run before training: whether its method, network, privacy and selection go together."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fda_flower.datasets.amounts import most
from fda_flower.datasets.spec import DataSpec
from fda_flower.engines import Resources
from fda_flower.errors import ConfigError, check_choice, invalid
from fda_flower.metrics import headline_metric
from fda_flower.models import ADABN, AND, LINEAR, MODELS, reads_text, uses_own_statistics
from fda_flower.names.tasks import Task
from fda_flower.names.words import listed
from fda_flower.runs.completion import (
    VARIANTS,
    Completion,
    common_settings,
    complete,
    entry_of,
    local_training,
    starts_pretrained,
    strategy_options,
    trained_part,
    typed_options,
)
from fda_flower.runs.methods import METHODS, SURVEYS, Method
from fda_flower.runs.request import Request
from fda_flower.runs.settings import AUTO
from fda_flower.strategies.settings import StrategySettings

if TYPE_CHECKING:
    from fda_flower.strategies import DomainAdaptationStrategy

OF_WEIGHTS = (
    "weights in them took 1.0 points of AUROC and left the AUPRC where 2 to 15% are ill (18 targets); a "
    "threshold (fda predict --sensitivity) balances classes as well"
)
"""Why Ridge has no class weights. Rows weighed n/(C n_c), logistic heads, three seeds: AUROC -1.0 ± 0.6,
AUPRC -0.1 ± 0.5; balanced accuracy 63.4, and 64.1 without weights if a class is named from its share on."""


def checked(request: Request, data: DataSpec | None = None) -> tuple[Request, Completion]:
    """Return the run that a request asks for, after all checks; those that load heavy modules are the last.

    `data` are the request's, if they are known. Raise a `ConfigError` on a run that cannot work.
    """
    run, completion = checked_lightly(request, data)
    data, method = completion.data, entry_of(run, run.method)
    _check_privacy(run, method, data)
    run = typed_options(run, method)
    _check_method(run, method, data)
    return run, completion


def checked_lightly(request: Request, data: DataSpec | None = None) -> tuple[Request, Completion]:
    """Return the run that a request asks for, after the checks that load neither Flower nor PyTorch.

    They are enough to read a run's folder: it had the others when it began.
    """
    run, completion = complete(request, data)
    data, method = completion.data, entry_of(run, run.method)
    _check_network(run, method)
    _check_masks(run, method, data)
    _ = headline_metric(run.metric, data.task)
    # Building these validates their fields.
    _ = local_training(run, method), local_training(run, method, target=True), Resources(run.threads)
    _ = StrategySettings(**common_settings(run))
    return run, completion


def _check_masks(run: Request, method: Method, data: DataSpec) -> None:
    """Raise a `ConfigError` if a run cannot work because its labels are masks, or are none."""
    if run.metric == "dice" and not data.mask:
        why = f"but the labels of '{run.dataset}' are no masks"
        raise invalid("metric", run.metric, "leave it out, or set mask=True in your data set's entry", why)
    if data.mask and method.train is not None:
        why = "which fits a linear layer, with an output for each pixel of a mask"
        raise invalid("method", run.method, "choose mixture", why)


def _check_network(run: Request, method: Method) -> None:
    """Raise a `ConfigError` if a run's network does not fit its samples or its method."""
    column = dict(run.dataset_options).get("text")
    if reads_text(run.model) and not column:
        remedy = "name the column by --dataset-option text=COLUMN, or choose another model"
        raise invalid("model", run.model, remedy, "which reads texts, but the samples have none")
    if column and not reads_text(run.model) and (run.model in MODELS or AND in run.model):
        remedy = "leave the model out, or the option 'text'"
        raise invalid("model", run.model, remedy, f"which does not read the text of column '{column}'")
    _ = trained_part(run, method)
    if (own := method.train) is None:
        return
    what = f"method '{run.method}' trains only a linear layer"
    if run.train not in (AUTO, "head", own):
        raise invalid("train", run.train, "leave it out", f"but {what}")
    if run.train == AUTO and run.model != LINEAR and not starts_pretrained(run):
        raise ConfigError(
            f"{what}, so the layers of '{run.model}' below its head would stay random: leave the model "
            f"out, choose a pretrained one or '{LINEAR}', or keep the random layers by --train head",
            thing="model",
            value=run.model,
        )


def _check_privacy(run: Request, method: Method, data: DataSpec) -> None:
    """Raise a `ConfigError` if a method cannot have a run's noise."""
    if run.privacy.of_patients:
        _check_patients(run, method, data)
    if run.privacy.on and run.method in SURVEYS:
        why = f"but '{run.method}' sends statistics, which have no noise"
        raise invalid("dp-clip", run.dp_clip, "leave it out", why)
    if run.privacy.on and method.centralised:
        why = f"but '{run.method}' has all data in one place: no client sends anything, leave it out"
        raise ConfigError(f"dp-clip is {run.dp_clip:g}, {why}", thing="dp-clip", value=run.dp_clip)
    if run.privacy.private and run.held_out is not None and run.held_out.in_turn:
        why = "which takes several runs, whose ε would add up"
        raise invalid("validation", run.validation, "hold out a share, such as 0.2", why)


WITHOUT_NOISE: Mapping[Task, str] = {
    "survival": "but each label of a survival follows from all patients of a site, so noise protects none",
    "multilabel": "but each sample has several labels, for which there is no noise of each patient yet",
}
"""By task, why no noise protects each patient."""


def _check_patients(run: Request, method: Method, data: DataSpec) -> None:
    if (why := WITHOUT_NOISE.get(data.task)) is not None:
        raise invalid("dp-unit", run.dp_unit, "leave it out, or choose another task", why)
    noise = None if method.centralised else method.noise
    if noise is None:
        able = [name for name, each in METHODS.builtin.items() if each.noise]
        why = None if method.centralised else method.build().without_patients
        why = why or f"but what '{run.method}' sends has no noise that protects a patient"
        raise invalid("dp-unit", run.dp_unit, f"choose one of {', '.join(able)}", why)
    if noise == "steps":
        _check_steps(run, method)
        return
    if run.dp_clip is not None:
        why = f"but dp-unit is patient, and the rows of '{run.method}' already have a bounded norm"
        raise invalid("dp-clip", run.dp_clip, "leave it out", why)
    if uses_own_statistics(run.model):
        why = "but with dp-unit patient: one patient would change the rows of all others"
        raise invalid("model", run.model, f"leave '{AND}{ADABN}' out", why)
    if data.task == "regression":
        why = f"but '{run.dataset}' is a regression, whose labels have no limit that noise could follow"
        raise invalid("dp-unit", run.dp_unit, "choose a data set with classes", why)
    if not run.dp_open_target:
        why = "but with dp-unit patient the target sends the head that it has fitted without noise"
        remedy = "if it accepts that, give dp-open-target; the sources' sums have noise all the same"
        raise invalid("dp-open-target", False, remedy, why)


def _check_steps(run: Request, method: Method) -> None:
    """Check a run whose clients' steps have noise for each patient."""
    if run.class_weights != "none":
        why = "but with dp-unit patient: they follow from the labels of all patients"
        raise invalid("class-weights", run.class_weights, "leave it out", why)
    if trained_part(run, method).what not in ("head", "linear", "all"):
        why = "but its noise is on the gradients of one linear layer, and more is trained"
        raise invalid("dp-unit", run.dp_unit, "choose --train head", why)


def _check_site(run: Request, method: Method, strategy: "DomainAdaptationStrategy") -> None:
    """Raise a `ConfigError` if sites with the run's noise would send nothing that the method can use."""
    without, figures = _withheld(run, strategy)
    if not (without or figures):
        return
    able = [name for name, each in METHODS.builtin.items() if not any(_withheld(run, each.build()))]
    remedy = f"{'give dp-unit patient, or ' if method.noise else ''}choose one of {', '.join(able)}"
    sends = f"but '{run.method}' sends {listed(without or figures)}"
    if without:
        why = f"{sends}, for which there is no limit that noise could follow"
        raise invalid("dp-clip", run.dp_clip, remedy, why)
    names = ",".join([*filter(None, [run.dp_allow]), *figures])
    why = f"{sends}, which noise for a site does not cover"
    raise invalid("dp-allow", run.dp_allow, f"give {names}, which leave without noise, or {remedy}", why)


def _withheld(run: Request, strategy: "DomainAdaptationStrategy") -> tuple[list[str], list[str]]:
    """Return what a site with the run's noise holds back of a method's train replies; see `withheld`."""
    from fda_flower.site.sensitivities import withheld
    from fda_flower.wire.protocol import TRAIN, TRAIN_LOSS

    lost = TRAIN_LOSS in strategy.requires and not run.privacy.allows(TRAIN_LOSS)
    without, figures = list[str](), [TRAIN_LOSS] * lost
    for question in (each for each in strategy.asked_questions if each.kind == TRAIN):
        arrays, numbers = withheld(run.privacy, question)
        without, figures = without + arrays, figures + numbers
    return without, figures


def _check_method(run: Request, method: Method, data: DataSpec) -> None:
    """Raise a `ConfigError` if a method does not take a run's settings or its numbers of samples."""
    from fda_flower.strategies.selection import check_selection

    what, sources = f"method '{run.method}'", data.source_names
    if run.variant is not None:
        check_choice("variant", run.variant, VARIANTS)
    if run.beta is not None:
        _check_beta(run, method, sources)
    trains = not method.centralised and method.train is None
    if data.task == "survival" and method.train is not None and AND in run.model:
        why = "but a survival's heads are on the features of one network"
        raise invalid("model", run.model, f"choose one, such as {LINEAR}", why)
    if run.class_weights != "none" and (data.task != "classes" or not trains):
        why = f"but {what} has no local training to weigh them in"
        if method.train is not None:
            why = f"but {what} has sums instead of training, and {OF_WEIGHTS}"
        if data.task != "classes":
            why = f"but the task of '{run.dataset}' is {data.task}, which has no classes"
        raise invalid("class-weights", run.class_weights, "leave it out", why)
    strategy = method.build(**strategy_options(run, method, data))
    if run.privacy.of_patients and strategy.without_patients is not None:
        raise invalid("dp-unit", run.dp_unit, "leave one of the two out", strategy.without_patients)
    if run.privacy.on and not run.privacy.of_patients and not method.centralised:
        _check_site(run, method, strategy)
    strategy.model_average.check(run.rounds)
    if not method.centralised and run.min_sources > len(sources):
        raise invalid("min-sources", run.min_sources, f"give {len(sources)} at most, the number of sources")
    check_selection(what, strategy, run.validation, run.patience)
    if (samples := most(data.target_samples)) is not None:
        batch = local_training(run, method, target=True).batch_size
        strategy.check_samples("target", "the target", samples, batch)
    if (samples := most(run.source_samples)) is not None:
        strategy.check_samples("source", "each source", samples, run.batch_size)


def _check_beta(run: Request, method: Method, sources: Sequence[str]) -> None:
    from fda_flower.strategies.adaptive import betas_of

    if not method.takes("beta"):
        remedy = "leave it out, or choose FedDA or FedGP"
        raise ConfigError(f"method '{run.method}' has no beta", thing="beta", value=run.beta, remedy=remedy)
    betas_of(run.beta, sources)  # type: ignore[arg-type]


def fits(request: Request, data: DataSpec) -> bool:
    """Return whether the run that is asked for can work on these data, which are not read again."""
    try:
        checked(request, data)
    except ConfigError:
        return False
    return True
