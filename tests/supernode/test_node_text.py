"""A node configuration is read whole, or not at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fda_flower.errors import ConfigError
from fda_flower.supernode.node_text import read_node_config
from fda_flower.wire.internals import node_config


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("domain='New York' dp-noise=2.0", {"domain": "New York", "dp-noise": 2.0}),
        ('a="x = y #1"\n\tb=true c=1e3 d.e=0', {"a": "x = y #1", "b": True, "c": 1000.0, "d.e": 0}),
    ],
)
def test_a_text_is_read_as_flower_reads_it(text, found):
    assert read_node_config(text) == found == node_config(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "dp-noise = 2.0 a=1",
            "--node-config is 'dp-noise = 2.0', which Flower leaves out: write NAME=VALUE",
        ),
        ("a=1 dp-noise =2.0", "'dp-noise =2.0'"),
        ("dp-noise= 2.0", "'dp-noise= 2.0'"),
        ("a=1, b=2", "'a=1,', which cannot be read"),
        ("a=1 # min-samples=3", "'#'"),
        ("a=1#min-samples=3", "'#'"),
        ('domain="north"#min-samples=3', "'#'"),
        ('domain="north', "'domain=\"north'"),
        ("domain=north", "'domain=north', which cannot be read"),
        ("a=1 a=1", "two values of 'a'"),
        ("a=[1,2]", "a text with commas"),
        ("node.conf", "call it NAME.toml"),
        ("none.toml", "'none.toml' cannot be read"),
    ],
)
def test_a_text_of_which_a_part_would_be_lost_is_an_error(text, words):
    with pytest.raises(ConfigError) as refused:
        read_node_config(text)
    assert words in str(refused.value)


@given(st.text("ab=.#'\"1\n ,", max_size=14))
def test_whatever_is_read_is_all_that_the_text_says(text):
    """Each character is of a name, of its value, or blank."""
    try:
        found = read_node_config(text)
    except ConfigError:
        return
    assert found == node_config(text)
    assert sum(1 for char in text if char in "a1b") <= sum(
        len(f"{name}{value}") for name, value in found.items()
    )


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ('apps = ["sha256:1", "sha256:2"]', "entry 'apps' of the node configuration"),
        ('"a.b" = 1\n[a]\nb = 2', "two values of 'a.b', 1 and 2"),
        ("domain = north", "cannot be read"),
        ("\ufeffa = 1", "which Flower cannot read"),
    ],
)
def test_a_file_of_which_a_part_would_be_lost_is_an_error(file, words, tmp_path):
    path = tmp_path / "node.toml"
    path.write_text(file, encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        read_node_config(str(path))
    assert words in str(refused.value)


def test_a_file_is_read_as_flower_reads_it(tmp_path):
    path = tmp_path / "node.toml"
    path.write_text('domain = "north"\n[mine]\nx = 1.5', encoding="utf-8")
    assert read_node_config(str(path)) == {"domain": "north", "mine.x": 1.5} == node_config(str(path))
