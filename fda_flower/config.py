"""What defines a run, checked whole before anything is trained."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch

from fda_flower.clients import LocalTraining
from fda_flower.datasets import Amount, DataSpec, read_amount
from fda_flower.errors import ConfigError, unknown
from fda_flower.methods import METHODS
from fda_flower.models import MODELS
from fda_flower.options import read_options, split_options
from fda_flower.strategies.adaptive import betas_of, check_beta
from fda_flower.strategies.common_options import CommonOptions

OptionPairs = tuple[tuple[str, Any], ...]
Options = Mapping[str, Any] | OptionPairs

OPTION_FIELDS = tuple(f"{kind}_options" for kind in ("dataset", "shift", "partition", "method", "model"))

OPTIONAL = (
    *("shift", "sources", "target", "only_sources", "target_samples", "source_samples", "data_dir"),
    *("beta", "variant", "warmup_rounds", "target_learning_rate", "max_update_norm"),
)
"""Fields that may be None; in Flower's configuration that is empty text."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One method on one federation with one seed.

    Attributes
    ----------
    dataset, shift, partition, method, model, optimizer : str
        Names; ``fda list`` shows them. Default of the shift: the data set's, if it needs one.
    dataset_options, shift_options, partition_options, method_options, model_options : mapping or pairs
        Options of each; as text ``"angle=45 invert=false"``.
    variant : {"reference-code", "paper"}, optional
        The method as the authors' code runs it, or as the paper defines it; `method_options` come on top.
    rounds : int
        Rounds of local training and aggregation, beside the initial ones.
    warmup_rounds : int, optional
        Rounds before them in which the sources alone train. Default: the method's, usually 0.
    learning_rate_factor : float
        Of both learning rates, after the warm-up rounds.
    seed : int
        Decides the data's split, the model's first weights and the order of samples.
    beta : float or sequence, optional
        β of all sources, or one for each in the order of their names. Default: the method's.
    sources : int, optional
        Number of sources. Default: the shift's.
    target : str, optional
        The target's domain. Default: the shift's.
    only_sources : sequence of str, optional
        The sources that take part, by domain; as text ``"photo,sketch"``. Default: all.
    target_samples, source_samples : int or str, optional
        Labelled samples of the target, samples of each source: a number, or a share such as ``"15%"``;
        None or ``"all"`` for all.
    learning_rate, batch_size : float, int
        Of the sources.
    target_learning_rate, target_batch_size : float, int
        Of the target. Default of the rate: the sources'.
    epochs : int
        Passes over a client's samples in a round.
    min_sources : int
        With fewer usable replies of sources the model stays as it is in that round.
    max_held_rounds : int
        The run ends with an error after so many rounds in a row without the target's reply, or without
        `min_sources` of the sources.
    max_update_norm : float, optional
        A limit for the norm of each client's update.
    on_large_update : {"clip", "drop"}
        What happens to a longer one.
    wait_seconds : float
        How long to wait for the clients before the first round.
    round_timeout : float
        Seconds that a client has for its reply.
    device : {"auto", "cpu", "cuda"}
        Where clients train; ``auto`` takes a GPU if there is one.
    threads : int
        Torch's threads of a client.
    data_dir : str, optional
        The folder of data sets.

    Raises
    ------
    ConfigError
        If a name is unknown or a number cannot work.
    """

    dataset: str = "digits"
    dataset_options: Options = ()
    shift: str | None = None
    shift_options: Options = ()
    partition: str = "even"
    partition_options: Options = ()
    method: str = "fedgp-auto"
    method_options: Options = ()
    variant: str | None = None
    rounds: int = 30
    warmup_rounds: int | None = None
    learning_rate_factor: float = 1.0
    seed: int = 0
    beta: float | Sequence[float] | None = None
    sources: int | None = None
    target: str | None = None
    only_sources: Sequence[str] | None = None
    target_samples: Amount | None = 50
    source_samples: Amount | None = None
    model: str = "cnn"
    model_options: Options = ()
    optimizer: str = "adam"
    learning_rate: float = 0.003
    batch_size: int = 16
    target_learning_rate: float | None = None
    target_batch_size: int = 4
    epochs: int = 1
    min_sources: int = 1
    max_held_rounds: int = 3
    max_update_norm: float | None = None
    on_large_update: str = "clip"
    wait_seconds: float = 60.0
    round_timeout: float = 3600.0
    device: str = "auto"
    threads: int = 1
    data_dir: str | None = None

    def __post_init__(self) -> None:
        self._convert_numbers()
        if self.method not in METHODS:
            raise unknown("method", self.method, METHODS)
        if self.model not in MODELS:
            raise unknown("model", self.model, MODELS)
        if self.device not in ("auto", "cpu", "cuda"):
            raise unknown("device", self.device, ("auto", "cpu", "cuda"))
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ConfigError("device is 'cuda', but torch sees no GPU here: use auto or cpu")
        for name in ("wait_seconds", "round_timeout"):
            if not getattr(self, name) > 0:
                called = name.replace("_", "-")
                raise ConfigError(f"{called} is {getattr(self, name):g} seconds, it must be above 0")
        for name in ("rounds", "threads"):
            if getattr(self, name) < 1:
                called = "threads or cpus-per-client" if name == "threads" else name
                raise ConfigError(f"{called} is {getattr(self, name)}, it must be at least 1")
        if self.beta is not None:
            beta = parse_beta(self.beta) if isinstance(self.beta, str) else self.beta
            if isinstance(beta, Mapping):
                raise ConfigError(f"beta is {beta!r}: give one number, or one for each source in order")
            object.__setattr__(self, "beta", check_beta(beta))
        for name in OPTION_FIELDS:
            options = getattr(self, name)
            read = split_options(options) if isinstance(options, str) else dict(options)
            object.__setattr__(self, name, tuple(sorted(read.items())))
        if isinstance(self.only_sources, str):
            object.__setattr__(self, "only_sources", [name.strip() for name in self.only_sources.split(",")])
        if self.only_sources is not None:
            if not isinstance(self.only_sources, Sequence):
                raise ConfigError(f"only-sources is {self.only_sources!r}: give a list of domains")
            object.__setattr__(self, "only_sources", tuple(self.only_sources))
        data = self.data
        for name in ("shift", "shift_options", "dataset_options", "partition_options"):
            object.__setattr__(self, name, getattr(data, name))
        for name in ("target_samples", "source_samples"):
            object.__setattr__(self, name, read_amount(name.replace("_", "-"), getattr(self, name)))
        self._check_model()
        # Making these checks what they are made of.
        _ = self.source_training, self.target_training
        self._check_method()
        if isinstance(self.data.target_samples, int):
            self.check_target_samples(self.data.target_samples)

    def _convert_numbers(self) -> None:
        """Fields to the types that they declare; text and numbers may come from anywhere."""
        free = {"beta", "only_sources", "target_samples", "source_samples", *OPTION_FIELDS}
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in free}
        if none := [name for name, value in given.items() if value is None and name not in OPTIONAL]:
            raise ConfigError(f"{none[0]} is None: give a value, or leave it out")
        known = {name: value for name, value in given.items() if value is not None}
        for name, value in read_options("the run", RunConfig, known, free).items():
            object.__setattr__(self, name, value)

    def _check_model(self) -> None:
        hidden = {"shape", "classes"}
        if not self.model_options:
            return
        options = read_options(
            f"model '{self.model}'", MODELS[self.model].builder, dict(self.model_options), hidden
        )
        object.__setattr__(self, "model_options", tuple(sorted(options.items())))

    def _check_method(self) -> None:
        method, what = METHODS[self.method], f"method '{self.method}'"
        hidden = {*CommonOptions.__annotations__, "beta", "auto"}
        options = read_options(what, method.strategy_class, dict(self.method_options), hidden)
        object.__setattr__(self, "method_options", tuple(sorted(options.items())))
        if self.beta is not None:
            if not method.weighted:
                raise ConfigError(f"{what} has no beta: leave it out, or choose FedDA or FedGP")
            betas_of(self.beta, self.data.source_names)
        if self.variant is not None and self.variant not in method.variants:
            raise unknown("variant", self.variant, method.variants)
        method.build(**self.strategy_options())

    def check_target_samples(self, samples: int) -> None:
        """Raise a `ConfigError` if the estimators of an auto method cannot work with so few."""
        size = self.target_training.batch_size
        if METHODS[self.method].auto and samples < 2 * size:
            raise ConfigError(
                f"the target has {samples} labelled samples, but {self.method} needs two batches of "
                f"{size}: give more samples, a smaller target batch size, or a method with a fixed beta"
            )

    def strategy_options(self) -> dict[str, Any]:
        """Keyword arguments of the method's strategy."""
        method = METHODS[self.method]
        options = dict(method.variants[self.variant]) if self.variant else {}
        options |= dict(self.method_options)
        if isinstance(self.beta, tuple):
            options["beta"] = dict(zip(self.data.source_names, self.beta, strict=True))
        elif self.beta is not None:
            options["beta"] = self.beta
        if self.warmup_rounds is not None:
            options["warmup_rounds"] = self.warmup_rounds
        same = (
            "learning_rate_factor",
            "min_sources",
            "max_held_rounds",
            "max_update_norm",
            "on_large_update",
            "wait_seconds",
        )
        return {**options, **{name: getattr(self, name) for name in same}}

    @property
    def all_rounds(self) -> int:
        """The rounds of a run, the initial ones among them."""
        return self.rounds + METHODS[self.method].build(**self.strategy_options()).warmup_rounds

    @property
    def data(self) -> DataSpec:
        """What defines the federation's data."""
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
            target_samples=None if METHODS[self.method].all_target_labels else self.target_samples,
            source_samples=self.source_samples,
            seed=self.seed,
            data_dir=self.data_dir,
        )

    @property
    def source_training(self) -> LocalTraining:
        """How the sources train."""
        return LocalTraining(self.learning_rate, self.batch_size, self.epochs, self.optimizer)

    @property
    def target_training(self) -> LocalTraining:
        """How the target trains."""
        rate = self.learning_rate if self.target_learning_rate is None else self.target_learning_rate
        return LocalTraining(rate, self.target_batch_size, self.epochs, self.optimizer)

    def fingerprint(self) -> dict[str, Any]:
        """What makes two runs the same, as JSON: everything but how long and where they run."""
        free = {"rounds", "device", "data_dir", "max_held_rounds", "wait_seconds", "round_timeout"}
        return {
            field.name: dict(value) if field.name in OPTION_FIELDS else value
            for field in fields(self)
            if field.name not in free
            for value in [getattr(self, field.name)]
        }

    def to_flower(self) -> dict[str, Any]:
        """The same as a run configuration of Flower's: text and numbers by kebab-case names."""
        return {key.replace("_", "-"): _as_text(value) for key, value in asdict(self).items()}

    @classmethod
    def from_flower(cls, config: Mapping[str, Any]) -> "RunConfig":
        """Read a run configuration of Flower's; keys that are not ours are left to others.

        Raises
        ------
        ConfigError
            If a value cannot be read or cannot work.
        """
        known = {key.replace("-", "_"): value for key, value in config.items()}
        names = {field.name for field in fields(cls)}
        given: dict[str, Any] = {
            name: None if value == "" else value
            for name, value in known.items()
            if name in names and (value != "" or name in OPTIONAL)
        }
        return cls(**given)


def _pairs(options: Options) -> OptionPairs:
    return tuple(options.items()) if isinstance(options, Mapping) else options


def parse_beta(text: str) -> float | tuple[float, ...]:
    """``"0.5"``, or ``"0.2,0.3,0.5"`` with one for each source."""
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(
            f"beta is '{text}': give a number, or one for each source separated by commas"
        ) from None
    return values[0] if len(values) == 1 else values


def _as_text(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, tuple) and value and isinstance(value[0], tuple):
        return " ".join(f"{key}={item}" for key, item in value)
    return ",".join(map(str, value)) if isinstance(value, tuple) else value
