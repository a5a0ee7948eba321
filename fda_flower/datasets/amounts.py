"""Numbers of samples: exact, at most, or a share."""

from fda_flower.errors import invalid
from fda_flower.names.options import as_written

Amount = int | str
"""A number of samples, or as text a share, ``"15%"``, or a limit, ``"up to 50"``."""

UP_TO = "up to "


def read_amount(name: str, value: object) -> Amount | None:
    """Parse an amount; return None for all samples (None or ``"all"``).

    Raise a `ConfigError` on `name` unless it is a whole number of at least 1, alone or after "up to", or a
    share in (0%, 100%].

    Examples
    --------
    >>> [read_amount("target-samples", text) for text in ("50", "0.1%", "up to 50")]
    [50, '0.1%', 'up to 50']
    """
    if value is None or value == "all":
        return None
    text = str(value).strip()
    amount = text.removeprefix(UP_TO)
    try:
        number = float(as_written(amount.removesuffix("%")))
    except ValueError:
        raise invalid(name, value, "give a number, or a share such as 15%") from None
    if amount.endswith("%"):
        if not 0 < number <= 100:
            raise invalid(name, text, "it must be above 0% and at most 100%")
        if amount != text:
            raise invalid(name, text, "give a number after 'up to', or the share alone")
        return text
    if not number.is_integer():
        raise invalid(name, text, "give a whole number, or a share such as 15%")
    if number < 1:
        raise invalid(name, text, "it must be at least 1")
    return int(number) if amount == text else f"{UP_TO}{int(number)}"


def most(amount: Amount | None) -> int | None:
    """Return the largest number that an amount allows; None for a share.

    Examples
    --------
    >>> most(50), most("up to 50"), most("15%")
    (50, 50, None)
    """
    if isinstance(amount, str):
        return int(amount.removeprefix(UP_TO)) if amount.startswith(UP_TO) else None
    return amount


def count(name: str, amount: Amount | None, total: int) -> int:
    """Return an amount of `total` samples as a number; raise a `ConfigError` if it is 0 or above `total`."""
    if amount is None:
        return total
    limit = most(amount)
    if isinstance(amount, str) and limit is not None:
        return min(limit, total)
    if isinstance(amount, str):
        wanted = round(float(amount.removesuffix("%")) / 100 * total)
        if wanted < 1:
            raise invalid(name, amount, "ask for more", f"which leaves none of {total} samples")
        return wanted
    if amount > total:
        raise invalid(name, amount, "ask for fewer, or for all", f"but there are only {total}")
    return amount
