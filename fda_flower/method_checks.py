"""Whether a method can work as the settings of a run say."""

from typing import TYPE_CHECKING, Any

from fda_flower.errors import ConfigError, unknown
from fda_flower.options import read_options
from fda_flower.strategies.adaptive import betas_of, check_beta
from fda_flower.strategies.common_options import CommonOptions
from fda_flower.strategies.selection import check_selection

if TYPE_CHECKING:
    from fda_flower.config import RunConfig


def check_method(config: "RunConfig") -> dict[str, Any]:
    """Return the run's settings ``method_options`` and ``beta``, read and checked.

    Raises
    ------
    ConfigError
        If the method does not have them, or cannot work with another setting of the run.
    """
    method, what = config.entry, f"method '{config.method}'"
    hidden = {*CommonOptions.__annotations__, "beta", "auto"}
    options = read_options(what, method.strategy_class, dict(config.method_options), hidden)
    read: dict[str, Any] = {"method_options": tuple(sorted(options.items()))}
    if config.beta is not None:
        read["beta"] = check_beta(config.beta)
        if not method.weighted:
            raise ConfigError(f"{what} has no beta: leave it out, or choose FedDA or FedGP")
        betas_of(read["beta"], config.data.source_names)
    if config.variant is not None and config.variant not in method.variants:
        raise unknown("variant", config.variant, method.variants)
    _check_class_weights(config)
    return read


def check_strategy(config: "RunConfig") -> None:
    """Raise a `ConfigError` if the method's strategy cannot work with another setting of the run."""
    what, strategy = f"method '{config.method}'", config.entry.build(**config.strategy_options())
    strategy.model_average.check(config.rounds)
    check_selection(
        what,
        strategy,
        validation=config.validation,
        folds=0 if config.held_out is None else config.held_out.folds,
        select_by=config.select_by,
        patience=config.patience,
    )
    if config.proximal and strategy.sets_penalty:
        raise ConfigError(
            f"proximal is {config.proximal}, but {what} sets the penalty itself: leave it out, and give "
            "the method's own option, such as mu of fedprox"
        )
    if isinstance(config.data.target_samples, int):
        config.check_samples("target", "the target", config.data.target_samples)
    if isinstance(config.source_samples, int):
        config.check_samples("source", "each source", config.source_samples)


def _check_class_weights(config: "RunConfig") -> None:
    if config.class_weights == "none":
        return
    what = f"class-weights is '{config.class_weights}'"
    if config.regression:
        raise ConfigError(
            f"{what}, but '{config.dataset}' is a regression, which has no classes: leave it out"
        )
    if config.entry.centralised:
        raise ConfigError(
            f"{what}, but '{config.method}' has no local training to weigh them in: leave it out"
        )
