"""Checks of a method against the settings of a run, where no other test has them."""

import pytest

from fda_flower import RunConfig
from fda_flower.errors import ConfigError


@pytest.mark.parametrize("setting", [{"class_weights": "balanced"}], ids=str)
def test_a_centralised_reference_has_no_local_training_to_change(setting):
    (name,) = setting
    with pytest.raises(
        ConfigError, match=f"^{name.replace('_', '-')} is .*'central:erm' has no .*: leave it out"
    ):
        RunConfig(method="central:erm", **setting)
