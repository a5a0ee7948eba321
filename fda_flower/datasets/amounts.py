"""Amounts of samples: a number, or a share of those available."""

from fda_flower.errors import ConfigError

Amount = int | str
"""A number of samples, or a share as text: ``"15%"``."""


def read_amount(name: str, value: object) -> Amount | None:
    """Return the amount that a number or text stands for; None for all samples (None or ``"all"``).

    Raises
    ------
    ConfigError
        If it is neither a whole number of at least 1 nor a share in (0%, 100%]; the message calls it `name`.

    Examples
    --------
    >>> read_amount("target-samples", "50"), read_amount("target-samples", "0.1%")
    (50, '0.1%')
    """
    if value is None or value == "all":
        return None
    text = str(value).strip()
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        raise ConfigError(f"{name} is {value!r}: give a number, or a share such as 15%") from None
    if text.endswith("%"):
        if not 0 < number <= 100:
            raise ConfigError(f"{name} is {text}, a share must be above 0% and at most 100%")
        return text
    if not number.is_integer():
        raise ConfigError(f"{name} is {text}: give a whole number, or a share such as 15%")
    if number < 1:
        raise ConfigError(f"{name} is {text}, at least 1 is needed")
    return int(number)


def count(name: str, amount: Amount | None, total: int) -> int:
    """Return how many of `total` samples an amount stands for.

    Raises
    ------
    ConfigError
        If it is more than `total`, or a share that leaves no sample.
    """
    if amount is None:
        return total
    if isinstance(amount, str):
        wanted = round(float(amount.removesuffix("%")) / 100 * total)
        if wanted < 1:
            raise ConfigError(f"{name} is {amount}, which leaves none of {total} samples: ask for more")
        return wanted
    if amount > total:
        raise ConfigError(f"{name} is {amount}, but there are only {total}: ask for fewer, or for all")
    return amount
