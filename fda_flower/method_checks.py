"""Whether a method can work as the settings of a run say."""

from collections.abc import Mapping, Sequence
from typing import Any

from fda_flower.errors import ConfigError, unknown
from fda_flower.methods import Method
from fda_flower.options import read_options
from fda_flower.strategies.adaptive import betas_of, check_beta
from fda_flower.strategies.common_options import COMMON

Beta = float | Sequence[float]


def read_method(
    method: Method, what: str, options: Mapping[str, Any], variant: str | None
) -> tuple[tuple[str, Any], ...]:
    """Return a method's options as sorted pairs; `what` names the method in messages.

    Raises
    ------
    ConfigError
        If the method does not have an option or the variant, or an option's value cannot work.
    """
    hidden = {*COMMON, "beta", "auto"}
    if variant is not None and variant not in method.variants:
        raise unknown("variant", variant, method.variants)
    return tuple(sorted(read_options(what, method.strategy_class, dict(options), hidden).items()))


def read_beta(method: Method, what: str, beta: Beta, sources: Sequence[str]) -> Any:
    """Return a method's β, one number or one for each source; a `ConfigError` if it cannot work."""
    read = check_beta(beta)
    if not method.weighted:
        raise ConfigError(f"{what} has no beta: leave it out, or choose FedDA or FedGP")
    betas_of(read, sources)
    return read


def check_class_weights(words: str, method: Method, what: str, dataset: str, regression: bool) -> None:
    """Raise a `ConfigError` if classes are to be weighed where there are none, or no local training."""
    if words == "none":
        return
    if regression:
        raise ConfigError(
            f"class-weights is '{words}', but '{dataset}' is a regression, which has no classes: leave it out"
        )
    if method.centralised:
        raise ConfigError(
            f"class-weights is '{words}', but {what} has no local training to weigh them in: leave it out"
        )
