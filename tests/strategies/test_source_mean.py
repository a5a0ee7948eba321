"""`source_mean`: where it takes the place of the sources' mean, and who refuses it."""

from typing import Any

import pytest
from naming import names

from fda_flower import ConfigError, RunConfig
from fda_flower.aggregation import Mean, Median, TrimmedMean
from fda_flower.experiments.run import run_config
from fda_flower.runs.methods import METHODS, find_method
from fda_flower.strategies import FedAvg, Mixture, SourceOnly
from fda_flower.strategies.averaging import read_source_mean

AVERAGING = ["source-only", "feddaf", "irm", "mixture"]
SMALL: dict[str, Any] = {
    "model": "mlp",
    "target_samples": 16,
    "batch_size": 32,
    "shift": "noise",
    "source_samples": 40,
}


def bits(result):
    return {name: array.tobytes() for name, array in result.model.items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mean", Mean()),
        ("median", Median()),
        ("trimmed", TrimmedMean(0.2)),
        ("trimmed:0.34", TrimmedMean(0.34)),
    ],
)
def test_words(text, expected):
    assert read_source_mean(text) == expected


@pytest.mark.parametrize("text", ["", "Median", "median:0.2", "trimmed:", "trimmed:half", "trimmed:0.5"])
def test_other_words_are_refused_with_the_remedy(text):
    message = f"source_mean is '{text}': give mean, median, or trimmed:SHARE with a share between 0 and 0.5"
    with pytest.raises(ConfigError, match=message):
        SourceOnly(source_mean=text)


@pytest.mark.parametrize("method", METHODS)
def test_a_method_takes_it_if_it_averages_sources_or_warms_up(method):
    entry = find_method(method)
    assert entry.strategy_class.averages_sources == (method in AVERAGING)
    if method in AVERAGING or method == "finetune-offline":
        assert entry.build(source_mean="median").settings()["source-mean"] == "median"
    else:
        with pytest.raises(ConfigError, check=names("source_mean", "median")):
            entry.build(source_mean="median")
    assert "source-mean" not in entry.build(source_mean="mean").settings()
    assert entry.build(source_mean="median", warmup_rounds=1).mean_of_sources == Median()


def test_a_centralised_reference_refuses_it():
    with pytest.raises(ConfigError, check=names("source_mean", "median")):
        RunConfig(method="central:erm", source_mean="median")
    assert RunConfig(method="central:erm").fingerprint()["source_mean"] == "mean"


def test_the_default_of_mixture_is_the_median_and_of_the_others_the_mean():
    for method, expected in (("mixture", Median()), ("source-only", Mean()), ("feddaf", Mean())):
        assert find_method(method).build().mean_of_sources == expected
        assert find_method(method).build(source_mean="mean").mean_of_sources == Mean()
    one, two = (RunConfig(method="mixture", source_mean=text) for text in (None, "median"))
    assert one.fingerprint() == two.fingerprint()
    assert one.fingerprint() != RunConfig(method="mixture", source_mean="mean").fingerprint()


@pytest.mark.parametrize("method", ["source-only", "feddaf", "mixture"])
def test_the_median_of_three_is_the_trimmed_mean_and_not_the_mean(method):
    found = [
        bits(run_config(RunConfig(**SMALL, method=method, rounds=2, source_mean=text)))
        for text in ("mean", "median", "trimmed:0.3")
    ]
    assert found[0] != found[1] == found[2]


def test_it_averages_the_warm_up_of_every_method():
    settings: dict[str, Any] = {**SMALL, "rounds": 1, "warmup_rounds": 1}
    records = [
        run_config(RunConfig(**settings, method=method, source_mean=text)).history[0]
        for method, text in (("fedavg", "median"), ("source-only", "median"), ("fedavg", "mean"))
    ]
    losses = [record["loss"] for record in records]
    assert losses[0] == losses[1] != losses[2]


def test_weights_have_no_say_in_a_median():
    found = [
        bits(
            run_config(
                RunConfig(
                    **{**SMALL, "source_samples": None},
                    method="source-only",
                    rounds=1,
                    partition="dirichlet",
                    source_mean="median",
                    method_options={"source_weights": weights},
                )
            )
        )
        for weights in ("examples", "uniform")
    ]
    assert found[0] == found[1]


def test_it_is_an_option_of_strategies_in_a_project_of_their_own():
    assert Mixture(source_mean="median").mean_of_sources == Median()
    assert FedAvg(source_mean="trimmed:0.1", warmup_rounds=2).mean_of_sources == TrimmedMean(0.1)
