"""What defines a run, checked whole before anything is trained."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch

from fda_flower.clients import LocalTraining
from fda_flower.datasets import DataSpec
from fda_flower.errors import ConfigError, unknown
from fda_flower.models import MODELS
from fda_flower.options import read_options, split_options
from fda_flower.strategies import METHODS
from fda_flower.strategies.base import CommonOptions
from fda_flower.strategies.weighting import betas_of, check_beta

OptionPairs = tuple[tuple[str, Any], ...]

OPTIONAL = ("beta", "sources", "target", "target_samples", "target_learning_rate", "data_dir")
"""Fields that may be None; in Flower's configuration that is empty text."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One method on one federation with one seed.

    Attributes
    ----------
    dataset, shift, method, model, optimizer : str
        Names; ``fda list`` shows them.
    shift_options, method_options : mapping or pairs
        Options of the shift and of the method's strategy; as text ``"angle=45 invert=false"``.
    rounds : int
        Rounds of local training and aggregation.
    seed : int
        Decides the data's split, the model's first weights and the order of samples.
    beta : float or sequence, optional
        β of all sources, or one for each in the order of their names. Default: the method's.
    sources : int, optional
        Number of sources. Default: the shift's.
    target : str, optional
        The target's domain. Default: the shift's.
    target_samples : int, optional
        Labelled samples of the target; None for all it has.
    learning_rate, batch_size : float, int
        Of the sources.
    target_learning_rate, target_batch_size : float, int
        Of the target. Default of the rate: the sources'.
    epochs : int
        Passes over a client's samples in a round.
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
    shift: str = "rotate"
    shift_options: Mapping[str, Any] | OptionPairs = ()
    method: str = "fedgp-auto"
    method_options: Mapping[str, Any] | OptionPairs = ()
    rounds: int = 30
    seed: int = 0
    beta: float | Sequence[float] | None = None
    sources: int | None = None
    target: str | None = None
    target_samples: int | None = 50
    model: str = "cnn"
    optimizer: str = "adam"
    learning_rate: float = 0.003
    batch_size: int = 16
    target_learning_rate: float | None = None
    target_batch_size: int = 4
    epochs: int = 1
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
        for name in ("rounds", "threads"):
            if getattr(self, name) < 1:
                called = "threads or cpus-per-client" if name == "threads" else name
                raise ConfigError(f"{called} is {getattr(self, name)}, it must be at least 1")
        if self.beta is not None:
            beta = parse_beta(self.beta) if isinstance(self.beta, str) else self.beta
            if isinstance(beta, Mapping):
                raise ConfigError(f"beta is {beta!r}: give one number, or one for each source in order")
            object.__setattr__(self, "beta", check_beta(beta))
        for name in ("shift_options", "method_options"):
            options = getattr(self, name)
            read = split_options(options) if isinstance(options, str) else dict(options)
            object.__setattr__(self, name, tuple(sorted(read.items())))
        object.__setattr__(self, "shift_options", self.data.shift_options)
        # Making these checks what they are made of.
        _ = self.source_training, self.target_training
        self._check_method()
        if self.target_samples is not None:
            self.check_target_samples(self.target_samples)

    def _convert_numbers(self) -> None:
        """Fields to the types that they declare; text and numbers may come from anywhere."""
        free = {"beta", "shift_options", "method_options"}
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in free}
        if none := [name for name, value in given.items() if value is None and name not in OPTIONAL]:
            raise ConfigError(f"{none[0]} is None: give a value, or leave it out")
        known = {name: value for name, value in given.items() if value is not None}
        for name, value in read_options("the run", RunConfig, known, free).items():
            object.__setattr__(self, name, value)

    def _check_method(self) -> None:
        build, what = METHODS[self.method].build, f"method '{self.method}'"
        hidden = {*CommonOptions.__annotations__, "beta", "auto"}
        options = read_options(what, build, dict(self.method_options), hidden)
        object.__setattr__(self, "method_options", tuple(sorted(options.items())))
        if self.beta is not None:
            if not METHODS[self.method].weighted:
                raise ConfigError(f"{what} has no beta: leave it out, or choose FedDA or FedGP")
            betas_of(self.beta, self.data.source_names)
        build(**self.strategy_options())

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
        beta = {} if self.beta is None else {"beta": self.beta}
        return {**dict(self.method_options), **beta}

    @property
    def data(self) -> DataSpec:
        """What defines the federation's data."""
        return DataSpec(
            dataset=self.dataset,
            shift=self.shift,
            shift_options=tuple(self.shift_options),  # type: ignore[arg-type]
            num_sources=self.sources,
            target=self.target,
            target_samples=self.target_samples,
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

    def identity(self) -> dict[str, Any]:
        """What makes two runs the same, as JSON: everything but how long and where they run."""
        free = {"rounds", "device", "data_dir"}
        return {
            field.name: dict(value) if field.name.endswith("_options") else value
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
