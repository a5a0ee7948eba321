"""The settings of a run, declared once: the command line, Flower's configuration and the guide follow."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, partial
from itertools import groupby
from typing import Any, get_args, get_type_hints

from fda_flower.clients.settings import LocalTraining
from fda_flower.datasets.amounts import Amount
from fda_flower.datasets.spec import DataSpec
from fda_flower.engines import Resources
from fda_flower.metrics import METRICS
from fda_flower.names.options import AboveZero, Count, join_options
from fda_flower.site.config import PrivacySettings
from fda_flower.strategies.settings import StrategySettings

OptionPairs = tuple[tuple[str, Any], ...]
Options = Mapping[str, Any] | OptionPairs
"""Options of a data set, a method, ... by name; as text ``"angle=45 invert=false"``."""


@dataclass(frozen=True)
class Setting:
    """The declaration of one setting.

    Attributes
    ----------
    group, help : str
        Its heading in ``--help`` and in the guide, and a one-line explanation.
    shown : str
        The default in words, if its value does not explain it.
    envvar : str
        Its environment variable on the command line.
    defines_run : bool
        Whether two runs that differ in it are different runs.
    of_steps : bool
        Whether it changes nothing where a method takes no training steps.
    name, hint : str, type
        The field's name and its type; `settings_of` fills them in.
    """

    group: str
    default: Any
    help: str
    shown: str = ""
    envvar: str | None = None
    defines_run: bool = True
    of_steps: bool = False
    name: str = ""
    hint: Any = None

    @property
    def key(self) -> str:
        """Its name in Flower's configuration."""
        return self.name.replace("_", "-")

    @property
    def option(self) -> str:
        """Its name on the command line, in the singular for options, which are given one by one."""
        return f"--{self.key.removesuffix('s') if self.has_options else self.key}"

    @property
    def has_options(self) -> bool:
        """Whether it holds options by name."""
        return bool(self.hint == Options)

    @property
    def optional(self) -> bool:
        """Whether it may be None, which is empty text in Flower's configuration."""
        return type(None) in get_args(self.hint)

    @property
    def plain(self) -> bool:
        """Whether it is only a number or text."""
        return self.hint in (int, float, str, bool, int | None, float | None, str | None)


def setting(group: str, default: Any, help: str, **more: Any) -> Any:
    """Declare a field of a dataclass as a setting; the arguments are the attributes of `Setting`."""
    return field(default=default, metadata={"setting": Setting(group, default, help, **more)})


@cache
def settings_of(cls: type[Any]) -> tuple[Setting, ...]:
    """Return the settings that a dataclass declares, in the order of its fields."""
    hints = get_type_hints(cls)
    return tuple(replace(f.metadata["setting"], name=f.name, hint=hints[f.name]) for f in fields(cls))


GONE = {"select_by": "target"}
"""Settings of earlier versions, with the value that a run still has; its fingerprint keeps them."""


def as_stored(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in a file without those in `GONE`.

    Examples
    --------
    >>> as_stored({"rounds": 3, "select_by": "target"})
    {'rounds': 3}
    """
    return {name: value for name, value in settings.items() if (name, value) not in GONE.items()}


def as_flower(value: Any) -> Any:
    """Return a setting's value for Flower's configuration: text, a number or a truth value."""
    if value is None:
        return ""
    if not isinstance(value, tuple):
        return value
    if value and isinstance(value[0], tuple):
        return join_options(value)
    return ",".join(map(str, value))


def command_options(settings: Iterable[Setting], values: Mapping[str, Any]) -> list[str]:
    """Return the command-line options of the settings that differ from their defaults."""
    words = []
    for each in settings:
        value = values[each.name]
        if value in (each.default, ()):
            continue
        if each.has_options:
            for name, one in value:
                word = str(one).lower() if isinstance(one, bool) else str(one)
                words += [each.option, join_options([(name, word)])]
        elif isinstance(value, bool):
            words.append(each.option if value else f"--no-{each.option.removeprefix('--')}")
        else:
            words += [each.option, "all" if value is None else str(as_flower(value))]
    return words


def flower_table(settings: Iterable[Setting]) -> str:
    """Return ``[tool.flwr.app.config]`` of ``pyproject.toml``: the default of each setting."""
    of_server_app = {"output": "", "resume": False}
    table = {**{each.key: as_flower(each.default) for each in settings}, **of_server_app}
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())


def markdown_table(settings: Iterable[Setting]) -> str:
    """Return the guide's Markdown table of settings; a star marks those that do not define a run."""
    rows = [("setting", "default", "meaning"), ("---",) * 3]
    for group, members in groupby(settings, lambda each: each.group):
        rows.append((f"**{group}**", "", ""))
        for each in members:
            default = each.shown or ("" if each.default in (None, ()) else f"`{each.default}`")
            star = "" if each.defines_run else " \\*"
            rows.append((f"`{each.option}`{star}", default, each.help))
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


_data, _method, _training, _selection, _limit, _privacy, _machine = (
    partial(setting, group)
    for group in ("Data", "Method", "Training", "Selection", "Limits", "Privacy", "Machine")
)

_steps = partial(_training, of_steps=True)

AUTO = "auto"
"""The value that stands for the method, or the network, that fits the data."""


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The fields of a `RunConfig`, which checks them.

    The class that uses a setting declares its default and its bounds; a bound here is of the run's own.
    """

    dataset: str = _data("digits", "Data set; `fda list` shows them.")
    dataset_options: Options = _data(
        DataSpec.dataset_options, "Option of the data set, such as image_size=64."
    )
    shift: str | None = _data(
        DataSpec.shift,
        "How the domains differ; `fda list` shows the shifts.",
        shown="the data set's, if it needs one",
    )
    shift_options: Options = _data(DataSpec.shift_options, "Option of the shift, such as angle=45.")
    partition: str = _data(
        DataSpec.partition, "How samples are divided among the clients; `fda list` shows the partitions."
    )
    partition_options: Options = _data(
        DataSpec.partition_options, "Option of the partition, such as alpha=0.5."
    )
    sources: int | None = _data(DataSpec.num_sources, "Number of sources.", shown="the shift's")
    target: str | None = _data(
        DataSpec.target,
        "Target domain. With all, every site is a target (ridge only).",
        shown="the shift's, or the data set's last",
    )
    only_sources: Sequence[str] | None = _data(
        DataSpec.only_sources, "Sources that take part, separated by commas.", shown="all"
    )
    target_samples: Amount | None = _data(
        "up to 50",
        "Labelled samples of the target: a number, a percentage such as 15%, or all (the default for your "
        "own data).",
    )
    source_samples: Amount | None = _data(
        DataSpec.source_samples, "Samples of each source: a number, a percentage, or all.", shown="all"
    )
    test_samples: Amount | None = _data(
        DataSpec.test_samples, "Test samples of the target: a number, a percentage, or all.", shown="all"
    )
    seed: int = _data(DataSpec.seed, "Seed of all randomness.")
    data_dir: str | None = _data(
        DataSpec.data_dir,
        "Folder of data sets, or one file of tables; without it they are downloaded.",
        envvar="FDA_DATA_DIR",
        defines_run=False,
    )
    method: str = _method(
        AUTO, "Method; auto: ridge, or mixture where a setting rules it out. `fda list` shows all."
    )
    method_options: Options = _method((), "Option of the method, such as magnitude=cosine.")
    variant: str | None = _method(
        None,
        "paper: the method as its paper defines it; reference-code: as the authors' code runs it, of full "
        "batches (only the target trains on the remainder); reference-rules: their rules, with all samples.",
        shown="the method's own defaults",
    )
    beta: float | Sequence[float] | None = _method(
        None,
        "Weight of the sources against the target, from 0 to 1; one, or one per source: 0.2,0.3,0.5.",
        shown="the method's",
    )
    rounds: Count = _method(
        30,
        "Rounds of local training and aggregation; ridge takes one.",
        defines_run=False,
        of_steps=True,
    )
    warmup_rounds: int | None = _method(
        None, "Rounds before the others in which only the sources train.", shown="the method's"
    )
    learning_rate_factor: float = _method(
        StrategySettings.learning_rate_factor,
        "Factor that multiplies all learning rates after the warm-up rounds.",
        of_steps=True,
    )
    average: str | None = _method(
        StrategySettings.average,
        "Also evaluate an average of the rounds' models: ema:0.9 or tail:5.",
        shown="none",
    )
    buffers: str = _method(
        StrategySettings.buffers, "BatchNorm's running statistics in the global model: mean, target or adabn."
    )
    columns: str = _method(
        StrategySettings.columns,
        "What standardises a table's columns: the sources' common mean and deviation, or each site's own.",
    )
    source_mean: str | None = _method(
        None,
        "How to average the sources where a method takes their plain mean: mean, median or trimmed:0.2.",
        shown="median with mixture, else mean",
    )
    model: str = _training(
        AUTO,
        "Network; `fda list` shows them. Your own: package.module:function.",
        shown="one that fits the data set",
    )
    model_options: Options = _training((), "Option of the network, such as weights=imagenet.")
    train: str = _training(
        AUTO,
        "Part of the network that trains: head, linear (a new head), last (block), adapters:RANK, all.",
        shown="head of a pretrained network, else all",
    )
    optimizer: str = _steps(LocalTraining.optimizer, "Optimizer of all clients: adam or sgd.")
    learning_rate: float | None = _steps(
        None, "Learning rate of the sources.", shown="0.003; 0.001 if only a head trains"
    )
    batch_size: int = _steps(16, "Batch size of the sources.")
    target_learning_rate: float | None = _steps(None, "Learning rate of the target.", shown="the sources'")
    target_batch_size: int = _steps(4, "Batch size of the target.")
    epochs: int = _steps(LocalTraining.epochs, "Passes over a client's samples in a round.")
    target_epochs: int | None = _steps(
        None, "The target's passes over its samples in a round.", shown="the sources'"
    )
    class_weights: str = _training(
        LocalTraining.class_weights, "balanced: rare classes weigh more in a client's loss."
    )
    precision: str = _steps("float32", "bf16: train in bfloat16; models are stored and evaluated in float32.")
    validation: str | float | None = _selection(
        DataSpec.validation,
        "The target's labels held out for choosing: a share such as 0.2, or cv:5 for cross-validation.",
        shown="none",
    )
    patience: int | None = _selection(
        StrategySettings.patience,
        "Stop after this many rounds without improvement on the held-out labels.",
        shown="none",
        defines_run=False,
    )
    min_sources: int = _limit(
        StrategySettings.min_sources,
        "Sources that a round needs; with fewer usable replies the model does not change.",
    )
    max_update_norm: float | None = _limit(
        StrategySettings.max_update_norm,
        "Limit on the norm of each client's update; longer updates are scaled down.",
        shown="none",
    )
    round_timeout: AboveZero = _limit(
        3600.0,
        "Seconds a client has to reply in a round, or to report its role at the start.",
        defines_run=False,
    )
    dp_unit: str = _privacy(
        PrivacySettings.dp_unit,
        "What noise hides: site (all data of a client together) or patient (each patient).",
    )
    dp_group: str = _privacy(
        PrivacySettings.dp_group,
        "Who is a patient, with dp-unit patient: row (each row or image), or a value of the option `group`, "
        "such as a column.",
    )
    dp_clip: float | None = _privacy(
        PrivacySettings.dp_clip,
        "Clipping bound (L2 norm) on everything a client releases, or on a patient's gradient.",
        shown="none; 1 where a patient's gradients have noise",
    )
    dp_noise: float = _privacy(
        PrivacySettings.dp_noise,
        "Noise multiplier: the noise's standard deviation, divided by the sensitivity.",
        shown="0; with dp-unit patient it follows from max-epsilon",
    )
    dp_delta: float = _privacy(PrivacySettings.dp_delta, "δ of each client's (ε, δ) guarantee.")
    max_epsilon: float | None = _privacy(
        PrivacySettings.max_epsilon,
        "Privacy budget of a client, which sends nothing that would exceed this ε.",
        shown="none",
        defines_run=False,
    )
    dp_report: str = _privacy(
        PrivacySettings.dp_report, "What an evaluation reports, without noise: none, figures or full."
    )
    dp_open_target: bool = _privacy(
        PrivacySettings.dp_open_target,
        "With dp-unit patient: what the target trains leaves without noise; the sources have noise.",
    )
    dp_allow: str = _privacy(
        PrivacySettings.dp_allow,
        "Metrics in train replies that leave without noise, separated by commas.",
        shown="none",
    )
    evaluate_every: int | None = _machine(
        None,
        "The target evaluates in every Nth round, and in the last 5.",
        shown="often enough to take at most a tenth of the time",
        defines_run=False,
    )
    metric: str | None = _machine(
        StrategySettings.metric,
        f"Headline of tables, pictures and progress: {', '.join(METRICS)}.",
        shown="accuracy; r2 for a regression",
        defines_run=False,
    )
    device: str = _machine(
        "auto",
        "auto, cpu, cuda, mps or xpu; cuda:1 is the second; auto takes a GPU if there is one.",
        defines_run=False,
    )
    threads: int = _machine(Resources.threads, "CPU cores of a client: PyTorch's threads.")


SETTINGS = settings_of(RunSettings)
"""The settings of a run, in the order of the fields."""

OPTION_FIELDS = tuple(each.name for each in SETTINGS if each.has_options)
"""The settings that hold options by name."""
