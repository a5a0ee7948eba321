"""What tests of whole runs share: two runs with the same bits, and a run that is cut off."""

import pytest

from fda_flower import run


def untimed(history, *more):
    """Records without the seconds, and what else is named."""
    return [{key: value for key, value in each.items() if key not in ("seconds", *more)} for each in history]


def same_bits(one, other, names=None):
    """Whether two models have the same arrays, of the same types and in the same order; or those `names`."""
    if names is None and list(one) != list(other):
        return False
    names = one if names is None else names
    return all((one[n].dtype, one[n].tobytes()) == (other[n].dtype, other[n].tobytes()) for n in names)


def check_same(one, other, last=0):
    """Two results have the same models, and the same records, all or of the last rounds."""
    assert untimed(one.history[-last:]) == untimed(other.history[-last:])
    assert same_bits(one.model, other.model)


class PowerCutError(Exception):
    """Ends a run after a round."""


def cut_off(number, output, **settings):
    """Run, until the power is cut after a round."""

    def on_round(record):
        if record["round"] == number:
            raise PowerCutError

    with pytest.raises(PowerCutError):
        run(**settings, output=output, on_round=on_round)
