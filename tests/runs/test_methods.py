"""The table of methods."""

from typing import Any

import pytest
from naming import names

from fda_flower import ConfigError, RunConfig
from fda_flower.runs.methods import FLOWER, METHODS, find_method, run_names
from fda_flower.strategies.method import MethodHooks

BY_STEPS = (
    *("fedavg", "fedavg-ft", "fedda", "fedda-auto", "fedda-joint", "fedgp", "fedgp-auto", "fedomg"),
    *("fedprox", "knn-per", "mixture", "source-only"),
)


def test_what_can_have_noise_for_each_patient_follows_from_the_messages_of_a_method():
    noise = {name: each.noise for name, each in METHODS.items()}
    assert {name: kind for name, kind in noise.items() if kind} == {
        "ridge": "sums",
        **dict.fromkeys(BY_STEPS, "steps"),
    }
    assert {each.noise for each in FLOWER.values()} == {None}


@pytest.mark.parametrize(("method", "says"), [("groupdro", "losses"), ("ditto", "no noise that protects")])
def test_a_method_whose_replies_have_no_such_noise_is_refused_with_the_reason(method, says):
    protected: dict[str, Any] = {"dp_unit": "patient", "dp_group": "row", "dp_noise": 1.0}
    with pytest.raises(ConfigError, match=f"{says}.*choose one of source-only", check=names("dp-unit")):
        RunConfig(method=method, model="logistic", **protected)


def test_the_table_says_which_methods_conclude_anything():
    methods = {name: find_method(name) for name in run_names()}
    federated = {name: each for name, each in methods.items() if not each.centralised}
    own = {n for n, m in federated.items() if m.strategy_class.conclusion is not MethodHooks.conclusion}
    assert {name for name, each in methods.items() if each.concludes} == own
