"""A run as a node sees it, by the node's configuration."""

from typing import Any

import pytest

from fda_flower import RunConfig
from fda_flower.client_app import at_node, make_client
from fda_flower.clients import SourceClient
from fda_flower.errors import ConfigError
from fda_flower.methods import METHODS

CONFIG = RunConfig(dataset="heart", model="logistic", target="va", data_dir="/of/the/run")


@pytest.mark.parametrize(
    ("node", "domain"),
    [
        ({"domain": "hungary"}, "hungary"),
        ({"domain": "hungary", "role": "source"}, "hungary"),
        ({"domain": "va", "role": "target"}, "va"),
        ({"partition-id": 3, "num-partitions": 4}, "va"),
        ({"partition-id": 3, "domain": "hungary", "role": "source"}, "hungary"),
    ],
)
def test_a_node_has_its_domain(node: dict[str, Any], domain: str) -> None:
    assert at_node(CONFIG, node) == (CONFIG, domain)


def test_a_nodes_folder_of_data_wins_over_the_runs() -> None:
    config, _ = at_node(CONFIG, {"domain": "va", "data-dir": "/of/the/site"})
    assert config.data.data_dir == "/of/the/site"
    assert config.fingerprint() == CONFIG.fingerprint()


@pytest.mark.parametrize(
    ("node", "says"),
    [
        ({"role": "source"}, 'no domain: give it domain="...", one of cleveland, hungary, switzerland, va'),
        ({"role": "target", "partition-id": 3}, "the node configuration has no domain"),
        ({}, "the node configuration has no domain"),
        ({"domain": "va", "role": "source"}, "domain 'va' has role 'source', but the run's target is 'va'"),
        (
            {"domain": "hungary", "role": "target"},
            "'hungary' has role 'target', but the run's target is 'va'",
        ),
        ({"partition-id": 4}, r"more nodes than the run has domains \(cleveland, .*\): use 4"),
    ],
)
def test_a_configuration_that_does_not_fit_the_run_is_refused(node: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        at_node(CONFIG, node)


def test_domains_and_classes_with_spaces_reach_a_node() -> None:
    options = {"domains": "Rome,New York", "classes": "big cat,dog"}
    config = RunConfig(dataset="images", dataset_options=options, model="mlp")
    sent = RunConfig.from_flower(config.to_flower())
    assert sent == config
    assert at_node(sent, {"domain": "New York", "role": "target"})[1] == "New York"


@pytest.mark.parametrize("method", METHODS)
def test_a_run_has_the_target_that_its_method_needs(method: str) -> None:
    config = RunConfig(method=method, model="mlp", device="cpu")
    assert type(make_client(config, "target")) is METHODS[method].client_class("target")
    assert type(make_client(config, "source-1")) is SourceClient
