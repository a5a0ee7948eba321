"""What is asked of a run: read by its types, with nothing loaded, and completed once."""

from typing import Any
from unittest.mock import ANY

import pytest
from naming import names

from fda_flower import ConfigError, RunConfig
from fda_flower.runs import completion
from fda_flower.runs.checks import fits
from fda_flower.runs.request import Request


def test_a_request_is_read_by_its_types_and_leaves_open_what_it_does_not_say(monkeypatch):
    monkeypatch.setattr(completion, "DataSpec", None)  # no data are looked at
    words: dict[str, Any] = {"dataset": "Heart", "method": "Auto", "rounds": "5", "target_samples": "all"}
    request = Request(**words, method_options="top=3")  # type: ignore[arg-type]
    assert (request.dataset, request.method, request.rounds) == ("heart", "auto", 5)
    assert (request.method_options, request.target_samples) == ((("top", "3"),), None)
    assert (request.model, request.shift, request.target) == ("auto", None, None)
    mistakes: list[dict[str, Any]] = [{"seed": None}, {"beta": "half"}, {"target_samples": 0.5}]
    for mistake in mistakes:
        ((setting, value),) = mistake.items()
        with pytest.raises(ConfigError, check=names(setting.replace("_", "-"), ANY)) as caught:
            Request(**mistake)
        assert str(value) in str(caught.value)


def test_a_run_is_its_request_completed_and_completes_to_itself():
    request = Request(dataset="heart", method="ridge", rounds=7, epochs=3)
    config = RunConfig.of(request)
    assert (config.model, config.target, config.rounds) == ("hinges", "va", 1)
    assert (config.idle, config.choice) == (("rounds", "epochs"), None)
    again = RunConfig.of(config)
    assert (again, again.data, hash(again)) == (config, config.data, hash(config))
    for name in ("rounds", "idle"):
        with pytest.raises(AttributeError):
            setattr(config, name, 2)


@pytest.mark.parametrize(
    ("settings", "fitting"),
    [
        ({"method": "fedgp"}, True),
        ({"method": "ridge"}, True),
        ({"method": "ridge", "class_weights": "balanced"}, False),
        ({"method": "fedgp", "min_sources": 9}, False),
    ],
    ids=str,
)
def test_whether_another_method_fits_is_asked_without_its_data_being_defined_again(
    settings, fitting, monkeypatch
):
    data = RunConfig(method="fedavg", shift="rotate").data
    monkeypatch.setattr(completion, "DataSpec", None)
    assert fits(Request(shift="rotate", **settings), data) is fitting
