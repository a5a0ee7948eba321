"""The configuration of a run, checked in full before training."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fda_flower.clients.settings import LocalTraining
from fda_flower.datasets.amounts import most, read_amount
from fda_flower.datasets.folders import read_size
from fda_flower.datasets.registry import DATASETS
from fda_flower.datasets.shifts import PARTITIONS, SHIFTS
from fda_flower.datasets.spec import EVERY_SITE, DataSpec
from fda_flower.datasets.splitting import HeldOut, read_validation
from fda_flower.engines import Resources
from fda_flower.errors import ConfigError, check_choice, invalid, unknown
from fda_flower.metrics import headline_metric
from fda_flower.models import (
    ADABN,
    AND,
    LINEAR,
    MODELS,
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
from fda_flower.models.own import check_at_site, may_import
from fda_flower.names.options import (
    as_text,
    as_written,
    check_fields,
    option_names,
    read_options,
    split_options,
)
from fda_flower.names.registry import known_name
from fda_flower.runs.methods import METHODS, Method, find_method, method_names, of_every_site
from fda_flower.runs.settings import AUTO, GONE, OPTION_FIELDS, SETTINGS, RunSettings, as_flower
from fda_flower.site.config import PrivacySettings
from fda_flower.strategies.settings import StrategySettings

if TYPE_CHECKING:
    from fda_flower.site import Site
    from fda_flower.strategies import DomainAdaptationStrategy

CODE = "reference-code"
VARIANTS = {"paper": "paper", CODE: CODE, "reference-rules": CODE}
"""The variants of strategies by the setting's value; with `CODE` batches are cut as the authors cut them."""

AMOUNTS = ("target_samples", "source_samples", "test_samples")
"""Settings that are numbers of samples."""

NAMED: Mapping[str, Callable[[], Iterable[str]]] = {
    "method": lambda: (AUTO, *method_names()),
    "dataset": lambda: DATASETS,
    "shift": lambda: SHIFTS,
    "partition": lambda: PARTITIONS,
    "model": lambda: MODELS,
}
"""Settings that are names, and the valid names; case does not matter."""


@dataclass(frozen=True, kw_only=True)
class RunConfig(RunSettings):
    """One method on one federation with one seed; an invalid combination raises a `ConfigError`.

    Every setting may also be given as text, as on the command line or in Flower's configuration. If no method
    is named, `method` becomes the choice of `fitting_method`, and `choice` says which and why.

    `site` and `patients` are no settings: they say whose view of the run this is, as in `DataSpec`. Without
    `patients`, these are of the run's own settings.
    """

    site: str | None = None
    patients: str | None = None

    def __post_init__(self) -> None:
        given = {each.name: getattr(self, each.name) for each in SETTINGS if each.plain}
        if none := [e.name for e in SETTINGS if e.plain and given[e.name] is None and not e.optional]:
            raise invalid(none[0], None, "give a value, or leave it out")
        known = {name: value for name, value in given.items() if value is not None}
        for name, value in read_options("the run", RunConfig, known, set()).items():
            self._set(name, value)
        for name, names in NAMED.items():
            if (given_name := getattr(self, name)) is not None:
                self._set(name, known_name(given_name, names()))
        check_fields(self)
        if self.method != AUTO:
            _ = self.entry
        if self.model != AUTO:
            check_name(self.model)
        check_device(self.device)
        check_precision(self.precision, self.device)
        self._read_lists()
        data = self.data
        for name in ("shift", "shift_options", "dataset_options", "partition_options", "target"):
            self._set(name, getattr(data, name))
        if self.method == AUTO:
            name, why = fitting_method(data, self.model, self._rules_ridge_out)
            self._set("method", name)
            self._set("_choice", f"Method auto: {name}, since {why}")
        if self.model == AUTO:
            self._set("model", self.fitting_model)
            check_installed(self.model)
        self._check_text()
        self._check_trained()
        if self.entry.rounds is not None:
            self._set("_idle", self._without_effect)
            self._set("rounds", self.entry.rounds)
        _ = self.headline
        # Building these validates their fields.
        _ = self.source_training, self.target_training, Resources(self.threads)
        _ = StrategySettings(**self._strategy_settings)
        self._check_privacy()
        # The checks below load heavy modules.
        self._check_model()
        self._check_method()

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _read_lists(self) -> None:
        for name in OPTION_FIELDS:
            options = getattr(self, name)
            try:
                read = split_options(options) if isinstance(options, str) else dict(options)
                self._set(name, tuple(sorted(read.items())))
            except (TypeError, ValueError) as error:
                if isinstance(error, ConfigError):
                    raise
                remedy = "give options by name, such as {'mu': 0.1}"
                raise invalid(name.replace("_", "-"), options, remedy) from error
        for name in AMOUNTS:
            self._set(name, read_amount(name.replace("_", "-"), getattr(self, name)))
        uses_all = self.every_site or (self.dataset in DATASETS and DATASETS[self.dataset].is_own)
        if uses_all and self.target_samples == RunSettings.target_samples:
            self._set("target_samples", None)
        held_out = read_validation(self.validation)
        self._set("validation", None if held_out is None else str(held_out))
        if isinstance(names := self.only_sources, str):
            names = [name.strip() for name in names.split(",")]
        if names is not None:
            if not isinstance(names, Sequence):
                raise invalid("only-sources", names, "give a list of domains")
            try:
                self._set("only_sources", tuple(map(as_text, names)))
            except TypeError as error:
                raise invalid("only-sources", names, f"{error}: a list of domains") from error
        if isinstance(self.beta, str):
            self._set("beta", parse_beta(self.beta))
        if isinstance(self.beta, Mapping):
            raise invalid("beta", self.beta, "give one number, or one for each source in order")

    @property
    def choice(self) -> str | None:
        """Which method was chosen, and why; None if the run names one."""
        return self.__dict__.get("_choice")

    @property
    def idle(self) -> Sequence[str]:
        """The settings that were changed, but change nothing, since the method takes no training steps."""
        idle: Sequence[str] = self.__dict__.get("_idle", ())
        return idle

    @property
    def _without_effect(self) -> Sequence[str]:
        changed = [each for each in SETTINGS if each.of_steps and getattr(self, each.name) != each.default]
        if self.warmup_rounds:
            changed = [each for each in changed if each.name == "rounds"]
        return [
            each.key for each in changed if getattr(self, each.name) != getattr(self.entry, each.name, None)
        ]

    @property
    def remarks(self) -> Sequence[str]:
        """Lines on a chosen method, and on settings that change nothing."""
        lines = [self.choice] if self.choice else []
        if self.idle:
            which = f"{', '.join(self.idle)} {'changes' if len(self.idle) == 1 else 'change'} nothing"
            lines.append(
                f"{self.entry.label} takes {self.entry.rounds} round without training steps: {which}"
            )
        return lines

    @property
    def _rules_ridge_out(self) -> str | None:
        """The setting with which Ridge cannot run, in words; None if there is none."""
        if self.train not in (AUTO, "head", "linear"):
            return f"train is {self.train}, and Ridge trains a linear layer alone"
        if self.train == AUTO and self.model not in (AUTO, LINEAR) and not self._is_pretrained:
            return f"the network '{self.model}' starts from random weights"
        if self.class_weights != "none":
            return "Ridge has no training loss in which classes could weigh more"
        noise_for_sums = self.dp_open_target and self.dp_clip is None and not self.regression
        if self.privacy.on and not noise_for_sums:
            return "Ridge has noise for patients alone, with classes and dp-open-target and without dp-clip"
        return None

    @property
    def fitting_model(self) -> str:
        """The network that fits the data; a method that trains only a linear layer takes no random body."""
        fits = self.data.fitting_model
        if self.entry.train is None:
            return fits
        linear = MODELS[fits].linear
        if self.privacy.of_patients and uses_own_statistics(linear):
            return linear.partition(AND)[0]
        if linear == PIXELS and self._has_many_pixels:
            return linear.rpartition(AND)[2]
        return linear

    @property
    def _has_many_pixels(self) -> bool:
        """Whether images have more numbers than Ridge takes in a row."""
        size = dict(self.data.dataset_options).get("image_size")
        if size is None:
            return False
        from fda_flower.strategies.ridge import WIDEST

        return 3 * prod(read_size(str(size))) > WIDEST

    def _check_trained(self) -> None:
        _ = self.trained
        if (own := self.entry.train) is None:
            return
        what = f"method '{self.method}' trains only a linear layer"
        if self.train not in (AUTO, "head", own):
            raise invalid("train", self.train, "leave it out", f"but {what}")
        if self.train == AUTO and self.model != LINEAR and not self._is_pretrained:
            raise ConfigError(
                f"{what}, so the layers of '{self.model}' below its head would stay random: leave the model "
                f"out, choose a pretrained one or '{LINEAR}', or keep the random layers by --train head",
                thing="model",
                value=self.model,
            )

    @property
    def _is_pretrained(self) -> bool:
        return is_pretrained(self.model, dict(self.model_options))

    def _check_model(self) -> None:
        if may_import(self.model) and (self.model_options or self.model not in MODELS):
            build, hidden = find_model(self.model).builder, {"shape", "classes"}
            options = read_options(f"model '{self.model}'", build, dict(self.model_options), hidden)
            self._set("model_options", tuple(sorted(options.items())))

    def _check_text(self) -> None:
        column = dict(self.dataset_options).get("text")
        if reads_text(self.model) and not column:
            remedy = "name the column by --dataset-option text=COLUMN, or choose another model"
            raise invalid("model", self.model, remedy, "which reads texts, but the samples have none")
        if column and self.model in MODELS and not reads_text(self.model):
            remedy = "leave the model out, or the option 'text'"
            raise invalid("model", self.model, remedy, f"which does not read the text of column '{column}'")

    def _check_privacy(self) -> None:
        if self.privacy.of_patients:
            self._check_patients()
        if self.privacy.on and self.entry.centralised:
            why = f"but '{self.method}' has all data in one place: no client sends anything, leave it out"
            raise ConfigError(f"dp-clip is {self.dp_clip:g}, {why}", thing="dp-clip", value=self.dp_clip)
        if self.privacy.private and self.held_out is not None and self.held_out.in_turn:
            why = "which takes several runs, whose ε would add up"
            raise invalid("validation", self.validation, "hold out a share, such as 0.2", why)

    def _check_patients(self) -> None:
        noise = None if self.entry.centralised else self.entry.noise
        if noise is None:
            able = [name for name, each in METHODS.items() if each.noise]
            why = None if self.entry.centralised else self.entry.build().without_patients
            why = why or f"but what '{self.method}' sends has no noise that protects a patient"
            raise invalid("dp-unit", self.dp_unit, f"choose one of {', '.join(able)}", why)
        if noise == "steps":
            self._check_steps()
            return
        if self.dp_clip is not None:
            why = f"but dp-unit is patient, and the rows of '{self.method}' already have a bounded norm"
            raise invalid("dp-clip", self.dp_clip, "leave it out", why)
        if uses_own_statistics(self.model):
            why = "but with dp-unit patient: one patient would change the rows of all others"
            raise invalid("model", self.model, f"leave '{AND}{ADABN}' out", why)
        if self.regression:
            why = f"but '{self.dataset}' is a regression, whose labels have no limit that noise could follow"
            raise invalid("dp-unit", self.dp_unit, "choose a data set with classes", why)
        if not self.dp_open_target:
            why = "but with dp-unit patient the target sends the head that it has fitted without noise"
            remedy = "if it accepts that, give dp-open-target; the sources' sums have noise all the same"
            raise invalid("dp-open-target", False, remedy, why)

    def _check_steps(self) -> None:
        """Check a run whose clients' steps have noise for each patient."""
        if self.class_weights != "none":
            why = "but with dp-unit patient: they follow from the labels of all patients"
            raise invalid("class-weights", self.class_weights, "leave it out", why)
        if self.trained.what not in ("head", "linear", "all"):
            why = "but its noise is on the gradients of one linear layer, and more is trained"
            raise invalid("dp-unit", self.dp_unit, "choose --train head", why)

    def _check_method(self) -> None:
        from fda_flower.strategies.options import COMMON
        from fda_flower.strategies.selection import check_selection

        method, what = self.entry, f"method '{self.method}'"
        if self.variant is not None:
            check_choice("variant", self.variant, VARIANTS)
        hidden = {*COMMON, "beta", "auto"}
        options = read_options(what, method.strategy_class, dict(self.method_options), hidden)
        self._set("method_options", tuple(sorted(options.items())))
        if self.beta is not None:
            self._check_beta(what)
        trains = not method.centralised and method.train is None
        if self.class_weights != "none" and (self.regression or not trains):
            why = f"but {what} has no local training to weigh them in"
            if self.regression:
                why = f"but '{self.dataset}' is a regression, which has no classes"
            raise invalid("class-weights", self.class_weights, "leave it out", why)
        strategy = self.strategy
        if self.privacy.of_patients and strategy.without_patients is not None:
            raise invalid("dp-unit", self.dp_unit, "leave one of the two out", strategy.without_patients)
        strategy.model_average.check(self.rounds)
        if not method.centralised and self.min_sources > len(self.data.source_names):
            remedy = f"give {len(self.data.source_names)} at most, the number of sources"
            raise invalid("min-sources", self.min_sources, remedy)
        check_selection(what, strategy, self.validation, self.patience)
        if (samples := most(self.data.target_samples)) is not None:
            self.check_samples("target", "the target", samples)
        if (samples := most(self.source_samples)) is not None:
            self.check_samples("source", "each source", samples)

    def _check_beta(self, what: str) -> None:
        from fda_flower.strategies.adaptive import betas_of, check_beta

        beta = check_beta(self.beta)  # type: ignore[arg-type]
        if not self.entry.takes("beta"):
            remedy = "leave it out, or choose FedDA or FedGP"
            raise ConfigError(f"{what} has no beta", thing="beta", value=self.beta, remedy=remedy)
        betas_of(beta, self.data.source_names)
        self._set("beta", beta)

    def check_samples(self, role: str, who: str, samples: int) -> None:
        """Raise a `ConfigError` if a client of a role has too few samples for the method."""
        training = self.target_training if role == "target" else self.source_training
        self.strategy.check_samples(role, who, samples, training.batch_size)

    def strategy_options(self) -> dict[str, Any]:
        """Keyword arguments of the method's strategy."""
        method = self.entry
        options = dict(method.variants[VARIANTS[self.variant]]) if self.variant else {}
        options |= dict(self.method_options)
        if isinstance(self.beta, tuple):
            options["beta"] = dict(zip(self.data.source_names, self.beta, strict=True))
        elif self.beta is not None:
            options["beta"] = self.beta
        return options | self._strategy_settings

    @property
    def _strategy_settings(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in option_names(StrategySettings)}
        return {name: value for name, value in own.items() if value is not None}

    @cached_property
    def strategy(self) -> "DomainAdaptationStrategy":
        """The method's strategy, for questions about it; a run builds its own."""
        return self.entry.build(**self.strategy_options())

    @property
    def entry(self) -> Method:
        """The method's entry in its table."""
        return of_every_site(self.method) if self.every_site else find_method(self.method)

    @property
    def every_site(self) -> bool:
        """Whether every site is a target."""
        return self.target == EVERY_SITE

    @property
    def needs(self) -> tuple[str, ...]:
        """The method's needs with its options, names of `fda_flower.runs.needs.NEEDS`."""
        return (*self.entry.needs, *self.strategy.needs)

    @property
    def regression(self) -> bool:
        """Whether the labels are numbers."""
        return self.data.is_regression

    @property
    def headline(self) -> str:
        """The figure by which the run is judged, a name of `fda_flower.metrics.METRICS`."""
        return headline_metric(self.metric, regression=self.regression)

    @property
    def all_rounds(self) -> int:
        """The number of rounds, including warm-up rounds."""
        return self.rounds + self.strategy.warmup_rounds

    @cached_property
    def data(self) -> DataSpec:
        """The definition of the federation's data."""
        own: dict[str, Any] = {each.name: getattr(self, each.name, None) for each in fields(DataSpec)}
        own["num_sources"] = self.sources
        own["patients"] = self.privacy.dp_group if self.patients is None else self.patients
        if self.method != AUTO and self.entry.all_target_labels:
            own["target_samples"] = None
        if self.held_out is not None and self.held_out.in_turn:
            own["validation"] = None
        return DataSpec(**own)

    @property
    def held_out(self) -> HeldOut | None:
        """The labels held out for validation; None for none."""
        return read_validation(self.validation)

    @cached_property
    def privacy(self) -> PrivacySettings:
        """The privacy of the clients' replies."""
        return PrivacySettings(**{each.name: getattr(self, each.name) for each in fields(PrivacySettings)})

    @property
    def trained(self) -> Train:
        """The part of the network that is trained."""
        if self.entry.train is not None:
            return Train.read(self.entry.train)
        if self.train != AUTO:
            return Train.read(self.train)
        return Train("head" if self._is_pretrained else "all")

    @property
    def rate(self) -> float:
        """The learning rate of the sources."""
        usual = 0.001 if self.trained.what == "head" else 0.003
        return usual if self.learning_rate is None else self.learning_rate

    @property
    def source_training(self) -> LocalTraining:
        """How the sources train."""
        names = ("batch_size", "epochs", "optimizer", "class_weights")
        own: dict[str, Any] = {name: getattr(self, name) for name in names}
        return LocalTraining(self.rate, batches="drop-last" if self.variant == CODE else "even", **own)

    @property
    def target_training(self) -> LocalTraining:
        """How the target trains."""
        own: dict[str, Any] = {"learning_rate": self.target_learning_rate, "epochs": self.target_epochs}
        own |= {"batch_size": self.target_batch_size}
        own |= {"batches": "keep-last"} if self.variant == CODE else {}
        return replace(self.source_training, **{n: v for n, v in own.items() if v is not None})

    def training_epochs(self, labels: int, ran: int | None = None) -> dict[str, int]:
        """Return the epochs of a source, and of a target with `labels` samples, in a run of `ran` rounds."""
        strategy = self.strategy
        epochs = {"source": self.source_training.epochs, "target": self.target_training.epochs}
        rounds = self.rounds if ran is None else ran - strategy.warmup_rounds
        return strategy.training_epochs(rounds, strategy.warmup_rounds, epochs, labels)

    @property
    def given(self) -> dict[str, Any]:
        """All settings by name."""
        return {each.name: getattr(self, each.name) for each in SETTINGS}

    def settings(self) -> dict[str, Any]:
        """Return all settings by name, as JSON values; the data folder is absolute."""
        values = {name: dict(value) if name in OPTION_FIELDS else value for name, value in self.given.items()}
        folder = None if self.data_dir is None else str(Path(self.data_dir).expanduser().absolute())
        return values | {"data_dir": folder}

    def fingerprint(self) -> dict[str, Any]:
        """Return the identity of a run, as JSON values: all but its length and its place.

        The metric counts if labels held out choose by it. An unset mean of the sources is the method's. A
        limit of samples counts as a number, since a data set of that size gives the same bits.
        """
        values = self.settings()
        for name in AMOUNTS:
            values[name] = most(values[name]) or values[name]
        values["source_mean"] = self.source_mean or self.entry.strategy_class.source_mean
        found = {each.name: values[each.name] for each in SETTINGS if each.defines_run} | GONE
        if self.privacy.chooses_noise:
            found |= {name: values[name] for name in ("max_epsilon", "rounds")}
        return found | ({} if self.validation is None else {"metric": self.headline})

    def to_flower(self) -> dict[str, Any]:
        """Return the settings as a Flower run configuration: text and numbers by kebab-case names."""
        return {each.key: as_flower(getattr(self, each.name)) for each in SETTINGS}

    @classmethod
    def read(cls, settings: Mapping[str, Any]) -> "RunConfig":
        """Return the run with settings by name; raise a `ConfigError` for an unknown name."""
        names = [each.name for each in SETTINGS]
        for name in settings:
            if name not in names:
                raise unknown("setting", name, names)
        return cls(**settings)

    @classmethod
    def from_flower(cls, config: Mapping[str, Any], site: "Site | None" = None) -> "RunConfig":
        """Read a Flower run configuration, with a `site` as `at_site` does; ignore unknown keys."""
        known = {key.replace("-", "_"): value for key, value in config.items()}
        given: dict[str, Any] = {
            each.name: None if known[each.name] == "" else known[each.name]
            for each in SETTINGS
            if each.name in known and (known[each.name] != "" or each.optional)
        }
        return cls.at_site(given, site)

    @classmethod
    def at_site(cls, settings: Mapping[str, Any], site: "Site | None") -> "RunConfig":
        """Return the run with settings by name as a site reads it.

        A site's data are in its own ``data-dir``, whatever the run says, and no more of a run's model is
        imported or read than the site allows. Without a site, or for a simulated node, it is the run itself.
        """
        if site is None or not site.is_site:
            return cls(**settings)
        options = settings.get("model_options", ())
        options = split_options(options) if isinstance(options, str) else dict(options)
        check_at_site(str(settings.get("model", AUTO)), options, site.rules.allow_models)
        patients = None if site.privacy is None else site.privacy.dp_group
        own = {"data_dir": site.data_dir, "site": site.domain or "", "patients": patients}
        run = cls(**{**settings, **own})
        if patients is None and run.dp_group and not DATASETS[run.dataset].public:
            remedy = "let the site's node configuration have dp-unit and dp-group"
            raise invalid(
                "dp-group", run.dp_group, remedy, "but at a site the run does not say who is a patient"
            )
        return run


def fitting_method(data: DataSpec, model: str = AUTO, obstacle: str | None = None) -> tuple[str, str]:
    """Return the method of a run that names none, and why.

    It is Ridge where a linear layer reads more than a table's columns, such as features, else Mixture.

    `model` is the network that the run names, if it names one; `obstacle` is what rules Ridge out, in words.

    Examples
    --------
    >>> fitting_method(DataSpec("digits"))
    ('ridge', 'the samples are images')
    >>> fitting_method(DataSpec("heart"))
    ('mixture', 'the samples are rows of a table')
    """
    if data.every_site:
        return "ridge", "every site is a target"
    if obstacle is not None:
        return "mixture", obstacle
    if model not in (AUTO, LINEAR):
        return "ridge", f"the body of the network '{model}' stays frozen"
    fits = data.fitting_model
    if MODELS[fits].linear == LINEAR:
        return "mixture", "the samples are rows of a table"
    if reads_text(fits):
        return "ridge", "the samples have a text"
    return "ridge", "random features fit the numbers" if data.is_regression else "the samples are images"


def parse_beta(text: str) -> float | tuple[float, ...]:
    """Parse ``"0.5"``, or ``"0.2,0.3,0.5"`` with one number per source."""
    try:
        values = tuple(float(as_written(part)) for part in text.split(","))
    except ValueError:
        raise invalid("beta", text, "give a number, or one for each source separated by commas") from None
    return values[0] if len(values) == 1 else values
