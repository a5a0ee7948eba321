"""The settings that a search tries: what is read, and what is refused."""

import pytest
from naming import names
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from fda_flower.errors import ConfigError
from fda_flower.experiments.definition import merged
from fda_flower.experiments.spaces import grid, read_space, read_spaces, settings_of_trial


@pytest.mark.parametrize(
    ("text", "distribution"),
    [
        ("learning-rate=log:1e-4..1e-2", FloatDistribution(1e-4, 1e-2, log=True)),
        ("learning-rate=0..1", FloatDistribution(0.0, 1.0)),
        ("epochs=1..5", IntDistribution(1, 5)),
        ("batch-size=log:4..64", IntDistribution(4, 64, log=True)),
        ("method-option.mu=0.1..10", FloatDistribution(0.1, 10.0)),
        ("method-option.folds=2..5", IntDistribution(2, 5)),
        ("target-epochs=1..3", IntDistribution(1, 3)),
        ("optimizer=adam, sgd", CategoricalDistribution(("adam", "sgd"))),
    ],
)
def test_values_have_the_type_of_their_setting(text, distribution):
    assert read_space(text) == (text.partition("=")[0], distribution)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("learning-rate", ("search", "learning-rate", "NAME=VALUES")),
        ("=1..2", ("search", "=1..2", "NAME=VALUES")),
        ("speed=1..2", ("setting to search", "speed", "average, batch-size")),
        ("seed=1,2", ("setting to search", "seed")),
        ("validation=0.1,0.2", ("setting to search", "validation")),
        ("rounds=1..5", ("setting to search", "rounds")),
        ("method-options=1,2", ("setting to search", "method-options")),
        ("learning-rate=log:0.1", ("search of learning-rate", "log:0.1", "lowest..highest")),
        ("learning-rate=1..0.1", ("search of learning-rate", "1..0.1", "below its highest")),
        ("learning-rate=log:0..0.1", ("search of learning-rate", "log:0..0.1", "above 0")),
        ("learning-rate=a..b", ("search of learning-rate", "a..b", "two numbers")),
        ("learning-rate=1..2..3", ("search of learning-rate", "1..2..3", "two numbers")),
        ("learning-rate=0..inf", ("search of learning-rate", "0..inf", "finite")),
        ("epochs=1..2.5", ("search of epochs", "1..2.5", "whole")),
        ("optimizer=1..2", ("search of optimizer", "1..2", "list")),
        ("batch-size=4,4", ("search of batch-size", "4,4", "once")),
        ("", ("search", None)),
        ("epochs=1,2 epochs=3,4", ("search", "epochs")),
    ],
)
def test_a_bad_space_is_refused_by_name(text, error):
    with pytest.raises(ConfigError, check=names(*error)):
        read_spaces(text.split())


def test_a_trial_changes_options_one_by_one():
    own = settings_of_trial({"method-option.mu": 0.5, "epochs": 2})
    changed = merged({"method_options": {"k": 1}, "epochs": 1}, own)
    assert changed == {"method_options": {"k": 1, "mu": 0.5}, "epochs": 2}
    a_range, lists = read_spaces(["learning-rate=0..1"]), read_spaces(["epochs=1,2", "batch-size=4,8"])
    assert (grid(a_range, 100), grid(lists, 3)) == ([], []), "too many"
