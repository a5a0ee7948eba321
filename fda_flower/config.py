"""What defines a run, checked whole before anything is trained."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fda_flower.datasets.amounts import Amount, read_amount
from fda_flower.datasets.spec import DataSpec
from fda_flower.datasets.validation import HeldOut, read_validation
from fda_flower.devices import check_device
from fda_flower.errors import ConfigError, check_choice
from fda_flower.local_training import LocalTraining
from fda_flower.methods import Method, find_method
from fda_flower.metrics import METRICS, headline_metric
from fda_flower.models import MODELS, check_name, find_model
from fda_flower.options import read_options, split_options
from fda_flower.settings import Options, as_flower, setting, settings_of

_data, _method, _training, _selection, _machine = (
    partial(setting, group) for group in ("Data", "Method", "Training", "Selection", "Machine")
)
_limit = partial(setting, "Limits", strategy=True)
_TIME = {"seconds": True, "defines_run": False}

AUTO = "auto"
"""The word for the network that fits the data set."""

BATCHES = {"even": ("even", "even"), "fixed": ("drop-last", "keep-last")}
"""How sources and the target cut their samples into batches, by the words of the setting."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One method on one federation with one seed.

    Every setting may be given as text too, as a command line or Flower's configuration has it.

    Raises
    ------
    ConfigError
        If a name is unknown or a number cannot work.
    """

    dataset: str = _data("digits", "Data set; `fda list` shows them.")
    dataset_options: Options = _data((), "Option of the data set, such as image_size=64.")
    shift: str | None = _data(
        None, "How the domains differ; `fda list` shows the shifts.", shown="the data set's, if it needs one"
    )
    shift_options: Options = _data((), "Option of the shift, such as angle=45.")
    partition: str = _data("even", "How samples are dealt to the clients; `fda list` shows the partitions.")
    partition_options: Options = _data((), "Option of the partition, such as alpha=0.5.")
    sources: int | None = _data(None, "Number of sources.", shown="the shift's")
    target: str | None = _data(None, "The target's domain.", shown="the shift's, or the data set's last")
    only_sources: Sequence[str] | None = _data(
        None, "Sources that take part, separated by commas.", shown="all"
    )
    target_samples: Amount | None = _data(
        50, "Labelled samples of the target: a number, a share such as 15%, or all."
    )
    source_samples: Amount | None = _data(
        None, "Samples of each source: a number, a share, or all.", shown="all"
    )
    test_samples: Amount | None = _data(
        None, "Test samples of the target: a number, a share, or all.", shown="all"
    )
    seed: int = _data(0, "Seed of everything random.", at_least=0)
    data_dir: str | None = _data(
        None, "Folder of data sets; without it they are downloaded.", envvar="FDA_DATA_DIR", defines_run=False
    )
    method: str = _method("fedgp-auto", "Method; `fda list` shows them.")
    method_options: Options = _method((), "Option of the method, such as magnitude=cosine.")
    variant: str | None = _method(
        None,
        "reference-code: as the authors' code runs the method; paper: as the paper defines it.",
        shown="the method's own defaults",
    )
    beta: float | Sequence[float] | None = _method(
        None,
        "Weight of the sources against the target in [0, 1]; one, or one each: 0.2,0.3,0.5.",
        shown="the method's",
    )
    rounds: int = _method(30, "Rounds of local training and aggregation.", at_least=1, defines_run=False)
    warmup_rounds: int | None = _method(
        None, "Rounds before them in which only the sources train.", shown="the method's", strategy=True
    )
    learning_rate_factor: float = _method(
        1.0, "Factor of both learning rates after the warm-up rounds.", strategy=True
    )
    average: str | None = _method(
        None,
        "An average of the rounds' models, evaluated beside the last model: ema:0.9 or tail:5.",
        shown="none",
        strategy=True,
    )
    buffers: str = _method(
        "mean", "BatchNorm's running statistics of the global model: mean, target or adabn.", strategy=True
    )
    model: str = _training(
        AUTO,
        "Network; `fda list` shows them. Your own: package.module:function.",
        shown="one that fits the data set",
    )
    model_options: Options = _training((), "Option of the network, such as weights=imagenet.")
    optimizer: str = _training("adam", "Optimizer of all clients: adam or sgd.")
    learning_rate: float = _training(0.003, "Learning rate of the sources.")
    batch_size: int = _training(16, "Batch size of the sources.")
    target_learning_rate: float | None = _training(None, "Learning rate of the target.", shown="the sources'")
    target_batch_size: int = _training(4, "Batch size of the target.")
    batches: str = _training(
        "even",
        "even: batches of nearly equal size; fixed: full ones, and the rest, which sources leave out.",
    )
    epochs: int = _training(1, "Passes over a client's samples in a round.")
    target_epochs: int | None = _training(
        None, "Passes of the target over its samples in a round.", shown="the sources'"
    )
    proximal: float = _training(
        0.0, "Factor μ of the penalty μ/2 ‖v − θ‖² that draws clients to the model that they begin with."
    )
    class_weights: str = _training(
        "none", "balanced: in a client's loss the classes of which it has few labels weigh more."
    )
    validation: str | float | None = _selection(
        None,
        "Labels held out to choose by: a share such as 0.2, or cv:5 for cross-validation.",
        shown="none",
    )
    select_by: str = _selection(
        "target",
        "Whose labels are held out: target, or sources (a share of each source's).",
        strategy=True,
    )
    patience: int | None = _selection(
        None,
        "Stop when the figure on the labels held out has not improved for so many rounds.",
        shown="none",
        at_least=1,
        strategy=True,
        defines_run=False,
    )
    min_sources: int = _limit(1, "With fewer usable replies of sources the model stays as it is.")
    max_held_rounds: int = _limit(
        3, "Rounds in a row without the target, or too few sources, until the run ends.", defines_run=False
    )
    max_update_norm: float | None = _limit(None, "Limit for the norm of each client's update.", shown="none")
    on_large_update: str = _limit("clip", "What happens to a larger update: clip or drop.")
    wait_seconds: float = _limit(60.0, "Seconds to wait for the clients at the start.", **_TIME)
    query_timeout: float = _limit(30.0, "Seconds that a client has to tell who it is.", **_TIME)
    round_timeout: float = _limit(3600.0, "Seconds that a client has for its reply.", strategy=False, **_TIME)
    outcomes: bool = _machine(
        False,
        "Record which test samples the target gets right, to compare methods sample by sample.",
        strategy=True,
        defines_run=False,
    )
    metric: str | None = _machine(
        None,
        f"The headline of tables, pictures and progress: {', '.join(METRICS)}.",
        shown="accuracy, of a regression r2",
        strategy=True,
        defines_run=False,
    )
    device: str = _machine("auto", "auto, cpu or cuda; auto takes a GPU if there is one.", defines_run=False)
    threads: int = _machine(
        1, "Cores of a client, which are torch's threads.", flag="cpus-per-client", at_least=1
    )

    def __post_init__(self) -> None:
        given = {each.name: getattr(self, each.name) for each in SETTINGS if each.plain}
        if none := [e.name for e in SETTINGS if e.plain and given[e.name] is None and not e.optional]:
            raise ConfigError(f"{none[0]} is None: give a value, or leave it out")
        known = {name: value for name, value in given.items() if value is not None}
        for name, value in read_options("the run", RunConfig, known, set()).items():
            self._set(name, value)
        for each in SETTINGS:
            each.check(getattr(self, each.name))
        _ = self.entry
        if self.model != AUTO:
            check_name(self.model)
        check_device(self.device)
        self._read_lists()
        data = self.data
        for name in ("shift", "shift_options", "dataset_options", "partition_options"):
            self._set(name, getattr(data, name))
        self._set("target", data.target_name)
        if self.model == AUTO:
            self._set("model", data.fitting_model)
        check_choice("batches", self.batches, BATCHES)
        _ = self.headline
        # Building these validates their fields.
        _ = self.source_training, self.target_training
        # From here on heavy modules are loaded.
        self._check_model()
        self._check_method()

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _read_lists(self) -> None:
        for name in OPTION_FIELDS:
            options = getattr(self, name)
            read = split_options(options) if isinstance(options, str) else dict(options)
            self._set(name, tuple(sorted(read.items())))
        for name in ("target_samples", "source_samples", "test_samples"):
            self._set(name, read_amount(name.replace("_", "-"), getattr(self, name)))
        held_out = read_validation(self.validation)
        self._set("validation", None if held_out is None else str(held_out))
        if isinstance(self.only_sources, str):
            self._set("only_sources", [name.strip() for name in self.only_sources.split(",")])
        if self.only_sources is not None:
            if not isinstance(self.only_sources, Sequence):
                raise ConfigError(f"only-sources is {self.only_sources!r}: give a list of domains")
            self._set("only_sources", tuple(self.only_sources))
        if isinstance(self.beta, str):
            self._set("beta", parse_beta(self.beta))
        if isinstance(self.beta, Mapping):
            raise ConfigError(f"beta is {self.beta!r}: give one number, or one for each source in order")

    def _check_model(self) -> None:
        if self.model_options or self.model not in MODELS:
            build, hidden = find_model(self.model).builder, {"shape", "classes"}
            options = read_options(f"model '{self.model}'", build, dict(self.model_options), hidden)
            self._set("model_options", tuple(sorted(options.items())))

    def _check_method(self) -> None:
        from fda_flower.method_checks import check_class_weights, check_proximal, read_beta, read_method
        from fda_flower.strategies.selection import check_selection

        method, what = self.entry, f"method '{self.method}'"
        self._set("method_options", read_method(method, what, dict(self.method_options), self.variant))
        if self.beta is not None:
            self._set("beta", read_beta(method, what, self.beta, self.data.source_names))
        check_class_weights(self.class_weights, method, what, self.dataset, self.regression)
        strategy = method.build(**self.strategy_options())
        strategy.model_average.check(self.rounds)
        folds = 0 if self.held_out is None else self.held_out.folds
        check_selection(what, strategy, self.validation, folds, self.select_by, self.patience)
        check_proximal(self.proximal, method, what, strategy)
        if isinstance(self.data.target_samples, int):
            self.check_samples("target", "the target", self.data.target_samples)
        if isinstance(self.source_samples, int):
            self.check_samples("source", "each source", self.source_samples)

    def check_samples(self, role: str, who: str, samples: int) -> None:
        """Raise a `ConfigError` if the method cannot work with so few samples of a client of a role."""
        training = self.target_training if role == "target" else self.source_training
        strategy = self.entry.build(**self.strategy_options())
        strategy.check_samples(role, who, samples, training.batch_size)

    def strategy_options(self) -> dict[str, Any]:
        """Keyword arguments of the method's strategy."""
        method = self.entry
        options = dict(method.variants[self.variant]) if self.variant else {}
        options |= dict(self.method_options)
        if isinstance(self.beta, tuple):
            options["beta"] = dict(zip(self.data.source_names, self.beta, strict=True))
        elif self.beta is not None:
            options["beta"] = self.beta
        own = {each.name: getattr(self, each.name) for each in SETTINGS if each.strategy}
        return options | {name: value for name, value in own.items() if value is not None}

    @property
    def entry(self) -> Method:
        """The method, from its table."""
        return find_method(self.method)

    @property
    def regression(self) -> bool:
        """Whether the labels are numbers."""
        return self.data.is_regression

    @property
    def headline(self) -> str:
        """The figure that the run is judged by, a name of `fda_flower.metrics.METRICS`."""
        return headline_metric(self.metric, regression=self.regression)

    @property
    def all_rounds(self) -> int:
        """The rounds of a run, the warm-up rounds among them."""
        return self.rounds + self.entry.build(**self.strategy_options()).warmup_rounds

    @property
    def data(self) -> DataSpec:
        """What defines the federation's data."""
        held_out = self.held_out
        return DataSpec(
            dataset=self.dataset,
            shift=self.shift,
            shift_options=_pairs(self.shift_options),
            dataset_options=_pairs(self.dataset_options),
            partition=self.partition,
            partition_options=_pairs(self.partition_options),
            num_sources=self.sources,
            target=self.target,
            only_sources=None if self.only_sources is None else tuple(self.only_sources),
            target_samples=None if self.entry.all_target_labels else self.target_samples,
            source_samples=self.source_samples,
            test_samples=self.test_samples,
            validation=None if held_out is None or held_out.in_turn else str(held_out),
            select_by=self.select_by,
            seed=self.seed,
            data_dir=self.data_dir,
        )

    @property
    def held_out(self) -> HeldOut | None:
        """What is held out to choose by; None for nothing."""
        return read_validation(self.validation)

    @property
    def source_training(self) -> LocalTraining:
        """How the sources train."""
        cut, _ = BATCHES[self.batches]
        rate, size = self.learning_rate, self.batch_size
        return LocalTraining(rate, size, self.epochs, self.optimizer, cut, self.proximal, self.class_weights)

    @property
    def target_training(self) -> LocalTraining:
        """How the target trains."""
        rate = self.learning_rate if self.target_learning_rate is None else self.target_learning_rate
        epochs = self.epochs if self.target_epochs is None else self.target_epochs
        _, cut = BATCHES[self.batches]
        size = self.target_batch_size
        return LocalTraining(rate, size, epochs, self.optimizer, cut, self.proximal, self.class_weights)

    def training_epochs(self, labels: int, ran: int | None = None) -> dict[str, int]:
        """Return the epochs that a source and a target with so many labels train in the whole run.

        `ran` are the rounds of a run that has stopped early, the warm-up rounds among them.
        """
        strategy = self.entry.build(**self.strategy_options())
        epochs = {"source": self.source_training.epochs, "target": self.target_training.epochs}
        rounds = self.rounds if ran is None else ran - strategy.warmup_rounds
        return strategy.training_epochs(rounds, strategy.warmup_rounds, epochs, labels)

    def settings(self) -> dict[str, Any]:
        """Return all settings by name, as JSON can hold them; the data folder is absolute."""
        values = {
            name: dict(value) if name in OPTION_FIELDS else value for name, value in asdict(self).items()
        }
        folder = None if self.data_dir is None else str(Path(self.data_dir).expanduser().absolute())
        return values | {"data_dir": folder}

    def fingerprint(self) -> dict[str, Any]:
        """Return what makes two runs the same, as JSON: everything but how long and where they run.

        The metric does where labels held out choose by it.
        """
        values = self.settings()
        found = {each.name: values[each.name] for each in SETTINGS if each.defines_run}
        return found | ({} if self.validation is None else {"metric": self.headline})

    def to_flower(self) -> dict[str, Any]:
        """Return the same as a run configuration of Flower's: text and numbers by kebab-case names."""
        return {each.key: as_flower(getattr(self, each.name)) for each in SETTINGS}

    @classmethod
    def from_flower(cls, config: Mapping[str, Any]) -> "RunConfig":
        """Read a run configuration of Flower's; unknown keys are ignored.

        Raises
        ------
        ConfigError
            If a value cannot be read or cannot work.
        """
        known = {key.replace("-", "_"): value for key, value in config.items()}
        given: dict[str, Any] = {
            each.name: None if known[each.name] == "" else known[each.name]
            for each in SETTINGS
            if each.name in known and (known[each.name] != "" or each.optional)
        }
        return cls(**given)


SETTINGS = settings_of(RunConfig)
"""The settings of a run, in the order of the fields."""

OPTION_FIELDS = tuple(each.name for each in SETTINGS if each.has_options)
"""The fields that hold options by name."""


def parse_beta(text: str) -> float | tuple[float, ...]:
    """``"0.5"``, or ``"0.2,0.3,0.5"`` with one for each source."""
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(
            f"beta is '{text}': give a number, or one for each source separated by commas"
        ) from None
    return values[0] if len(values) == 1 else values


def _pairs(options: Options) -> tuple[tuple[str, Any], ...]:
    return tuple(options.items()) if isinstance(options, Mapping) else options
