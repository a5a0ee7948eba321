import sys

import pytest
from naming import names

from fda_flower.errors import ConfigError
from fda_flower.names import EXTRAS
from fda_flower.reporting.trackers import TRACKERS, check_trackers, read_names


def test_names_are_repeated_or_separated_by_commas():
    assert read_names([]) == ()
    assert read_names(["mlflow,wandb", "tensorboard"]) == ("mlflow", "wandb", "tensorboard")
    with pytest.raises(ConfigError, check=names("track", "mlflow,mlflow")):
        read_names(["mlflow", "mlflow"])


def test_an_unknown_tracker_is_named_with_the_one_that_was_meant():
    with pytest.raises(ConfigError, check=names("tracker", "mlfow")):
        check_trackers(["mlfow"])


@pytest.mark.parametrize("name", TRACKERS)
def test_a_tracker_that_is_not_installed_is_an_error_that_says_what_to_install(name, monkeypatch):
    assert EXTRAS[name] == (TRACKERS[name].package,)
    check_trackers([name])
    monkeypatch.setitem(sys.modules, TRACKERS[name].package, None)
    with pytest.raises(ConfigError, check=names("track")):
        check_trackers([name])
