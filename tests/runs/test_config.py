"""What defines a run: every mistake is found before anything is trained, and nothing gets lost in Flower."""

import json
import math
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from naming import names

from fda_flower import ConfigError, RunConfig
from fda_flower.cli.options import read_settings
from fda_flower.clients import LocalTraining
from fda_flower.datasets import SHIFTS
from fda_flower.experiments.folders import config_of
from fda_flower.models import MODELS, Model, Train
from fda_flower.models.small import mlp
from fda_flower.names.options import option_names
from fda_flower.runs.methods import METHODS
from fda_flower.runs.settings import GONE, SETTINGS
from fda_flower.strategies.settings import StrategySettings

NAN = float("nan")


def test_a_list_of_a_method_option_is_the_text_of_a_command_line() -> None:
    file = tomllib.loads("method-options = { epochs = [1, 30], members = ['sources', 'target'] }")
    config = RunConfig(method="mixture", method_options=file["method-options"])
    text = {"epochs": "1,30", "members": "sources,target"}
    assert (
        config
        == RunConfig(method="mixture", method_options=text)
        == RunConfig.from_flower(config.to_flower())
    )


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"method": "FedGP"}, {"method": "fedgp"}),
        ({"method": "FedDA_Auto"}, {"method": "fedda-auto"}),
        ({"method": "fedavg ft"}, {"method": "fedavg-ft"}),
        ({"method": "flower:fedavg"}, {"method": "flower:FedAvg"}),
        ({"dataset": "Heart"}, {"dataset": "heart"}),
        ({"shift": "Rotate", "partition": "EVEN", "model": "MLP"}, {"shift": "rotate", "model": "mlp"}),
    ],
    ids=str,
)
def test_names_are_taken_in_whatever_case(given: dict[str, Any], meant: dict[str, Any]) -> None:
    assert RunConfig(**given) == RunConfig(**meant)


OF_CLASSES = {"class_weights": "balanced", "metric": "auroc"}

# Of the data alone, `tests/datasets/test_spec.py` has them.
MISTAKES: list[tuple[dict[str, Any], str, str]] = [
    ({"method": "fedmagic"}, "method", "fedmagic"),
    *(({"dataset": "rbf", name: value}, name.replace("_", "-"), value) for name, value in OF_CLASSES.items()),
    ({"model": "resnet"}, "model", "resnet"),
    ({"variant": "mine"}, "variant", "mine"),
    ({"device": "tpu"}, "device", "tpu"),
    ({"rounds": 0}, "rounds", "0"),
    *(({"rounds": number}, "option", "rounds") for number in (2.5, "many")),
    ({"rounds": None}, "rounds", "None"),
    ({"batch_size": None}, "batch_size", "None"),
    ({"seed": -1}, "seed", "-1"),
    ({"threads": 0}, "threads", "0"),
    ({"batch_size": 0}, "batch size", "0"),
    ({"target_batch_size": 0}, "batch size", "0"),
    ({"target_learning_rate": 0.0}, "learning rate", "0"),
    ({"min_sources": 0}, "min_sources", "0"),
    ({"min_sources": 99}, "min-sources", "99"),
    ({"max_update_norm": math.inf}, "max_update_norm", "inf"),
    *(({"method_options": options}, "method-options", str(options)) for options in ([1], 5, None)),
    ({"method_options": {1: 2}}, "option", "1"),
    *(
        ({"round_timeout": value}, "round-timeout", text)
        for value, text in ((-5, "-5"), (0, "0"), (NAN, "nan"))
    ),
    ({"beta": 1.5}, "beta", "1.5"),
    ({"beta": "half"}, "beta", "half"),
    ({"beta": {"source-1": 0.5}}, "beta", "source-1"),
    ({"beta": ["half", 0.5, 0.5]}, "beta", "half"),
    ({"beta": (0.5, 0.5, 2)}, "beta", "2"),
    *(({"beta": text}, "beta", text) for text in ("", "0.5,", "0.5;0.5", "0.5 0.5", "true")),
    ({"beta": ()}, "beta", "3 sources (source-1, source-2, source-3)"),
    ({"beta": (0.5, 0.5, 0.5), "shift": "color"}, "beta", "2 sources (+80%, +90%)"),
    ({"beta": (0.5, 0.5, 0.5), "only_sources": ["source-1"]}, "beta", "(source-1)"),
    ({"beta": 0.5, "method": "fedavg"}, "beta", "fedavg"),
    ({"method": "fedavg", "method_options": {"speed": 1}}, "option", "speed"),
    *(({"method_options": {name: 1}}, "option", name) for name in ("beta", "auto", "min_sources")),
    ({"method_options": {"granularity": "atom"}}, "option", "granularity"),
    ({"method_options": {"sketch-size": 0}}, "sketch_size", "0"),
    ({"shift_options": "speed"}, "option", "speed"),
    ({"average": "tail:4", "rounds": 3, "warmup_rounds": 2}, "average", "tail:4"),
    ({"only_sources": "source-1, attic"}, "source", "attic"),
    ({"only_sources": [1, 2]}, "source", "1"),
    ({"only_sources": [None]}, "only-sources", "None"),
    ({"rounds": True}, "option", "rounds"),
    ({"only_sources": []}, "only-sources", "source-1, source-2, source-3"),
    ({"only_sources": 3}, "only-sources", "3"),
    ({"method": "central:erm", "class_weights": "balanced"}, "class-weights", "balanced"),
    ({"method": "ridge", "class_weights": "balanced"}, "class-weights", "balanced"),
    ({"method": "central:erm", "dp_clip": 1.0}, "dp-clip", "1"),
    ({"method": "fada", "dp_clip": 1.0, "dp_allow": "*"}, "dp-clip", "features, identifiers"),
    ({"method": "ridge", "dp_clip": 1.0}, "dp-clip", "give dp-unit patient, or choose"),
    (
        {"method": "kd3a", "dp_clip": 1.0, "dp_allow": "mask-share"},
        "dp-allow",
        "give mask-share,contribution,",
    ),
    ({"method": "groupdro", "dp_clip": 1.0, "dp_allow": "distance"}, "dp-allow", "distance,train-loss"),
    ({"validation": "cv:5", "dp_clip": 1.0, "dp_noise": 1.0}, "validation", "cv:5"),
    ({"validation": 1.5}, "validation", "1.5"),
    ({"patience": 3}, "patience", "3"),
    ({"validation": 0.2, "method": "central:erm"}, "validation", "0.2"),
    ({"validation": 0.2, "patience": 2, "method": "mixture"}, "patience", "2"),
]


@pytest.mark.parametrize(("settings", "thing", "value"), MISTAKES, ids=str)
def test_a_setting_that_cannot_work_is_refused_by_thing_and_value(
    settings: dict[str, Any], thing: str, value: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        RunConfig(**settings)
    assert thing in (caught.value.thing or str(caught.value))
    assert value in str(caught.value)


def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ConfigError, check=names("device", "cuda")):
        RunConfig(device="cuda")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert RunConfig(device="cuda").device == "cuda"


@pytest.mark.parametrize("method", [name for name in METHODS if name not in ("mixture", "knn-per", "ridge")])
def test_two_batches_are_enough_for_an_estimate_and_one_sample_without(method: str) -> None:
    if not getattr(METHODS[method].build(), "auto", False):
        assert RunConfig(method=method, target_samples=1).target_samples == 1
        return
    assert RunConfig(method=method, target_samples=8).target_samples == 8
    assert RunConfig(method=method, target_samples=2, target_batch_size=1).target_samples == 2
    with pytest.raises(ConfigError, check=names("the target", 7)):
        RunConfig(method=method, target_samples=7)


@pytest.mark.parametrize("method", ["fedda-auto", "fedda-joint", "fedgp-auto"])
def test_a_source_needs_two_batches_for_its_gradients(method: str) -> None:
    options = {"estimate_at": "start"}
    assert RunConfig(method=method, method_options=options, source_samples=32).source_samples == 32
    assert RunConfig(method=method, source_samples=31).source_samples == 31
    with pytest.raises(ConfigError, check=names("each source", 31, "estimate_at=training")):
        RunConfig(method=method, method_options=options, source_samples=31)
    with pytest.raises(ConfigError, check=names("'far'", 31)):
        RunConfig(method=method, method_options=options).check_samples("source", "'far'", 31)
    assert RunConfig(method="fedda", method_options=options, source_samples=1).source_samples == 1


@pytest.mark.parametrize(
    ("beta", "read"),
    [(1, 1.0), ("0.25", 0.25), (" 0, 0.5 ,1", (0.0, 0.5, 1.0)), ([0.1, 0.2, 0.3], (0.1, 0.2, 0.3))],
)
def test_beta_is_kept_as_plain_numbers(beta: Any, read: Any) -> None:
    config = RunConfig(beta=beta, method="fedgp")
    assert config.beta == read
    # By name, so that a source that is missing moves no other's.
    named = dict(zip(config.data.source_names, read, strict=True)) if isinstance(read, tuple) else read
    assert config.strategy_options()["beta"] == named
    hash(config)


def test_source_and_target_train_with_their_own_settings() -> None:
    config = RunConfig(learning_rate=0.1, batch_size=8, target_batch_size=2, epochs=3, optimizer="sgd")
    expected = LocalTraining(0.1, 8, 3, "sgd", "even")
    assert config.source_training == expected
    assert config.target_training == replace(expected, batch_size=2)
    other = replace(config, target_learning_rate=0.2, target_epochs=5, variant="reference-code")
    assert other.source_training == replace(expected, batches="drop-last")
    assert other.target_training == LocalTraining(0.2, 2, 5, "sgd", "keep-last")


def test_options_may_be_given_in_any_order_as_pairs_and_as_text() -> None:
    first = RunConfig(shift_options={"invert": False, "angle": 45})
    for options in ((("angle", 45), ("invert", False)), "angle=45 invert=false"):
        other = RunConfig(shift_options=options)  # type: ignore[arg-type]
        assert other == first
        assert hash(other) == hash(first)
    assert first.data.shift_object == SHIFTS["rotate"](angle=45.0, invert=False)  # type: ignore[call-arg]


def test_sources_may_be_named_in_a_list_or_in_text() -> None:
    config = RunConfig(only_sources=" source-3 , source-1 ", beta=(0.1, 0.2), method="fedgp")
    assert config == replace(config, only_sources=["source-3", "source-1"])
    assert config.only_sources == ("source-3", "source-1")
    assert config.data.source_names == ["source-1", "source-3"]
    hash(config)


def test_all_the_settings_of_the_data_reach_it() -> None:
    given: dict[str, Any] = {"dataset": "cifar-10", "partition": "labels", "seed": 3, "data_dir": "/data"}
    given |= {"only_sources": ("source-1",), "source_samples": "15%", "target_samples": 9}
    config = RunConfig(**given, partition_options={"k": "2", "target": "true"})
    spec = config.data
    assert {name: getattr(spec, name) for name in given} == given
    assert (spec.shift, spec.dataset_options) == ("noise", ())
    assert spec.partition_options == (("k", 2), ("target", True))
    assert spec == replace(config, method="fedavg", rounds=1, model="mlp").data
    regression = RunConfig(dataset="rbf", dataset_options={"samples": "500"})
    assert ("samples", 500) in regression.data.dataset_options


@pytest.mark.parametrize("samples", [50, "15%", 1, None])
def test_the_oracle_trains_on_all_of_the_target_whatever_is_labelled(samples: Any) -> None:
    config = RunConfig(method="oracle", target_samples=samples)
    assert config.target_samples == samples
    assert config.data.target_samples is None
    assert RunConfig(method="target-only", target_samples=samples).data.target_samples == samples


@pytest.mark.parametrize(
    ("settings", "rounds"),
    [
        ({}, 5),
        ({"warmup_rounds": 3}, 8),
        ({"warmup_rounds": 0}, 5),
        ({"method": "finetune-offline"}, 55),
        ({"method": "finetune-offline", "warmup_rounds": 2}, 7),
        ({"method": "ridge"}, 1),
        ({"method": "fedavg", "warmup_rounds": 2, "variant": "reference-code"}, 7),
    ],
    ids=str,
)
def test_all_rounds_are_the_initial_ones_and_the_others(settings: dict[str, Any], rounds: int) -> None:
    assert RunConfig(rounds=5, **settings).all_rounds == rounds


@pytest.mark.parametrize(
    ("settings", "source", "target"),
    [
        ({"method": "fedavg"}, 10, 10),
        ({"method": "source-only"}, 10, 0),
        ({"method": "target-only"}, 0, 10),
        ({"method": "finetune-offline", "warmup_rounds": 3}, 6, 10),
        ({"method": "feddwa", "warmup_rounds": 3}, 26, 20),
        ({"method": "ditto", "warmup_rounds": 3}, 16, 20),
        ({"method": "ditto", "method_options": {"global_branch": "none"}}, 10, 10),
        ({"method": "kd3a", "warmup_rounds": 3}, 16, 10),
        ({"method": "ridge", "warmup_rounds": 3}, 6, 0),
        ({"method": "fedbn", "warmup_rounds": 3}, 16, 10),
        ({"method": "fedrep", "warmup_rounds": 3}, 5 * 11 + 6, 5 * 11 + 10),
        ({"method": "fedrep", "method_options": {"head_epochs": 3, "final_head_epochs": 0}}, 5 * 4, 5 * 4),
    ],
    ids=str,
)
def test_the_epochs_of_a_whole_run_by_role(settings: dict[str, Any], source: int, target: int) -> None:
    config = RunConfig(rounds=5, epochs=2, **settings)
    assert config.training_epochs(50) == {"source": source, "target": target}


@pytest.mark.parametrize(
    ("settings", "source", "target"),
    [
        ({"method": "fedavg"}, 0, 0),
        ({"method": "central:erm"}, 0, 0),
        ({"method": "fedrep", "warmup_rounds": 3}, 5 * 10, 5 * 10 + 10),
        ({"method": "fedavg-ft", "method_options": {"tune": "head"}}, 0, 10),
        ({"method": "mixture"}, 0, 0),
        ({"method": "mixture", "method_options": {"members": "sources,head", "every": 2}}, 0, 4 * 30 * 3),
    ],
    ids=str,
)
def test_the_epochs_in_which_the_head_trains_alone(
    settings: dict[str, Any], source: int, target: int
) -> None:
    config = RunConfig(rounds=5, epochs=2, **settings)
    assert config.epochs_of_head(50) == {"source": source, "target": target}


def test_a_variant_is_the_methods_settings_and_options_come_on_top() -> None:
    config = RunConfig(method="fedgp", variant="reference-code", method_options={"granularity": "model"})
    own = {each.name: each.default for each in SETTINGS}
    common = {name: own[name] for name in option_names(StrategySettings) if own[name] is not None}
    assert config.strategy_options() == {
        **{"granularity": "model", "magnitude": "reference-code", "beta_formula": "reference-code"},
        **common,
    }
    paper = {"updates": "aligned", "source_weights": "uniform"}
    given: dict[str, Any] = {"learning_rate_factor": 0.1, "warmup_rounds": 2}
    config = RunConfig(method="fedda-auto", variant="paper", **given)
    assert config.strategy_options() == {**paper, **common, **given}


def test_options_of_the_model_are_read_checked_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(shape: tuple[int, ...], classes: int, depth: int = 1, bias: bool = True) -> Any:
        return mlp(shape, classes)

    monkeypatch.setitem(MODELS, "deep", Model("made for a test", build))
    config = RunConfig(model="deep", model_options={"depth": "3", "bias": "no"})
    assert config.model_options == (("bias", False), ("depth", 3))
    assert RunConfig.from_flower(config.to_flower()) == config
    for options in ({"width": 3}, {"depth": "many"}, {"classes": 3}):
        with pytest.raises(ConfigError, check=names("option", *options)):
            RunConfig(model="deep", model_options=options)


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "mixture", "method_options": {"epochs": "1,30", "student": "true"}},
        {"method": "fedprox", "method_options": {"mu": 1}},
        {"method": "fedda", "beta": (0, 1, 0.5)},
        {"method": "finetune-offline", "warmup_rounds": 2},
        {"method": "ridge", "dataset": "heart", "target": "all", "dp_unit": "site"},
    ],
)
def test_a_run_is_read_from_what_it_has_stored_as_it_began(settings: dict[str, Any]) -> None:
    config = RunConfig(**settings)
    read = RunConfig.recorded(json.loads(json.dumps(config.settings())))
    assert read.to_flower() == config.to_flower()
    assert (read.data, read.all_rounds) == (config.data, config.all_rounds)


def test_the_identity_is_json_and_leaves_out_how_long_and_where() -> None:
    config = RunConfig(beta=(0.1, 0.2, 0.3), shift_options={"angle": 45}, data_dir="/data", validation=0.2)
    identity = config.fingerprint()
    assert json.loads(json.dumps(identity))["shift_options"] == {"angle": 45}
    elsewhere: dict[str, Any] = {"rounds": 3, "device": "cpu", "data_dir": None}
    elsewhere |= {"round_timeout": 7.0, "patience": 5, "max_epsilon": None}
    assert set(identity) - set(GONE) == set(config.settings()) - set(elsewhere) - {"evaluate_every"}
    assert identity["metric"] == "accuracy"
    assert RunConfig(metric="ece").fingerprint() == RunConfig().fingerprint(), "nothing is chosen by it"
    assert replace(config, **elsewhere).fingerprint() == identity
    assert replace(config, seed=1).fingerprint() != identity


CONFIGS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"variant": "", "warmup-rounds": "", "only-sources": ""}),
    ({"method": "fedgp", "beta": 0.25}, {"beta": 0.25}),
    ({"method": "fedda", "beta": (0.2, 0.3, 0.5)}, {"beta": "0.2,0.3,0.5"}),
    ({"beta": 0.1 + 0.2}, {"beta": 0.1 + 0.2}),
    ({"method_options": {"batch_update_encoding": "full", "filter": "no"}}, {}),
    ({"shift_options": {"angle": "45", "invert": "false"}}, {"shift-options": "angle=45.0 invert=False"}),
    ({"shift": "color", "target": "+80%", "seed": 12345}, {"target": "+80%"}),
    ({"optimizer": "sgd", "learning_rate": 1e-5, "target_learning_rate": 0.0001}, {"learning-rate": 1e-5}),
    ({"model": "mlp", "device": "cpu", "threads": 3, "data_dir": "/some where/data", "rounds": 7}, {}),
    ({"variant": "reference-code"}, {"variant": "reference-code"}),
    ({"variant": "paper", "method": "fedda", "method_options": {"updates": "raw"}}, {}),
    ({"warmup_rounds": 2, "learning_rate_factor": 1e-3}, {"warmup-rounds": 2, "learning-rate-factor": 1e-3}),
    ({"average": "tail:3", "rounds": 3}, {"average": "tail:3"}),
    ({"dataset": "rbf", "dataset_options": {"shift": 0.25}}, {"dataset-options": "shift=0.25"}),
    (
        {"partition": "labels", "partition_options": {"k": "2", "target": "yes"}},
        {"partition-options": "k=2 target=True"},
    ),
    ({"partition": "dirichlet", "partition_options": {"alpha": 0.3}, "shift": "label"}, {}),
    (
        {"dataset": "office-home", "target": "Art", "only_sources": ["Real World", "Product"]},
        {"only-sources": "Real World,Product"},
    ),
    ({"only_sources": ("source-3", "source-1"), "beta": (0.1, 0.2), "method": "fedgp"}, {}),
    ({"source_samples": "0.1%", "method": "oracle", "target_samples": 3}, {"source-samples": "0.1%"}),
    ({"source_samples": "all", "target_samples": "15%"}, {"source-samples": ""}),
    ({"method": "fedda", "target_samples": None}, {}),
    ({"dataset": "images", "model": "mlp", "dataset_options": {"domains": "Rome,New York"}}, {}),
]


@pytest.mark.parametrize(("settings", "written"), CONFIGS, ids=str)
def test_a_config_comes_back_from_flower_and_from_text_alone_as_it_was(
    settings: dict[str, Any], written: dict[str, Any]
) -> None:
    config = RunConfig(**settings)
    flower = config.to_flower()
    assert {key: flower[key] for key in written} == written
    assert all(type(value) in (str, int, float, bool) for value in flower.values())
    assert not any("_" in key for key in flower)
    assert len(flower) == len(SETTINGS)
    again = RunConfig.from_flower(flower)
    assert again == config == RunConfig.from_flower({key: str(value) for key, value in flower.items()})
    assert again.data == config.data
    assert again.strategy_options() == config.strategy_options()
    assert again.to_flower() == flower


def test_keys_of_others_are_left_alone_and_ours_have_dashes_or_underscores() -> None:
    flower = {"num-server-rounds": 3, "output": "runs/a", "resume": True, "fraction-train": 0.5, "seed": 4}
    assert RunConfig.from_flower(flower) == RunConfig(seed=4)
    assert RunConfig.from_flower({"batch-size": 5}) == RunConfig.from_flower({"batch_size": 5})
    empty = dict.fromkeys(("rounds", "learning-rate", "model", "shift"), "")
    assert RunConfig.from_flower(empty) == RunConfig()


NUMBERS = {"domains": "a,b", "task": "regression", "label_mean": 0.0, "label_deviation": 1.0}
CLASSES = {"classes": "dog,elephant,giraffe,guitar,horse,house,person"}
OF_PATIENTS = {"dp_unit": "patient", "dp_group": "row", "dp_noise": 1.0, "dp_open_target": True}
PACS_OF_PATIENTS = {"dataset": "pacs", "target": "sketch", "dataset_options": CLASSES, **OF_PATIENTS}


@pytest.mark.parametrize(
    ("settings", "model"),
    [
        ({}, "logistic+conv3x64"),
        ({"model": "logistic"}, "logistic"),
        ({"model": "cnn", "train": "head"}, "cnn"),
        ({"model": "resnet18", "model_options": {"weights": "imagenet"}}, "resnet18"),
        ({"model": "efficientnet-lite0", "train": "head"}, "efficientnet-lite0"),
        ({"model": "efficientnet-lite0"}, "efficientnet-lite0"),
        ({"dataset": "rbf"}, "fourier"),
        ({"dataset": "heart"}, "hinges"),
        ({"dataset": "heart", "model": "logistic"}, "logistic"),
        ({"dataset": "table", "dataset_options": NUMBERS}, "hinges+fourier"),
        ({"dataset": "pacs", "target": "sketch"}, "efficientnet-lite0+adabn"),
        (PACS_OF_PATIENTS, "efficientnet-lite0"),
    ],
    ids=str,
)
def test_a_method_may_train_a_linear_layer_of_any_network(settings: dict[str, Any], model: str) -> None:
    config = RunConfig(method="ridge", **settings)
    assert (config.model, config.trained, config.rounds) == (model, Train("linear"), 1)
    assert RunConfig(**{**config.settings(), "data_dir": None}) == config


@pytest.mark.parametrize(
    ("settings", "thing"),
    [
        ({"model": "cnn"}, "model"),
        ({"model": "resnet18"}, "model"),
        ({"model": "efficientnet-lite0", "train": "last"}, "train"),
        ({"train": "all"}, "train"),
        ({"target_samples": 1}, "the target"),
        ({**PACS_OF_PATIENTS, "model": "efficientnet-lite0+adabn"}, "model"),
    ],
    ids=str,
)
def test_such_a_method_refuses_random_weights_and_other_parts(settings: dict[str, Any], thing: str) -> None:
    with pytest.raises(ConfigError, check=names(thing)):
        RunConfig(method="ridge", **settings)


PATIENTS = {"dp_unit": "patient", "dp_group": "row", "max_epsilon": 4.0, "model": "logistic"}


@pytest.mark.usefixtures("by_the_rule")
@pytest.mark.parametrize(
    ("settings", "method"),
    [
        ({}, "ridge"),
        ({"method": "Auto", "model": "conv3x64"}, "ridge"),
        ({"model": "cnn"}, "mixture"),
        ({"model": "cnn", "train": "head"}, "ridge"),
        ({"train": "all"}, "mixture"),
        ({"class_weights": "balanced"}, "mixture"),
        ({"dataset": "heart"}, "ridge"),
        ({"dataset": "heart", "model": "logistic"}, "ridge"),
        ({"dataset": "heart", "model": "mlp"}, "mixture"),
        ({"dataset": "heart", "train": "all"}, "mixture"),
        ({"dataset": "heart", "class_weights": "balanced"}, "mixture"),
        ({"dataset": "table", "dataset_options": NUMBERS}, "ridge"),
        ({"dataset": "heart", "target": "all"}, "ridge"),
        ({"dataset": "rbf"}, "ridge"),
        ({"dp_clip": 1.0, "dp_noise": 1.0}, "mixture"),
        ({**PATIENTS, "dp_open_target": True}, "ridge"),
        ({**PATIENTS, "dp_open_target": True, "dp_clip": 2.0}, "mixture"),
        (PATIENTS, "mixture"),
    ],
    ids=str,
)
def test_a_run_that_names_no_method_has_the_one_that_fits(settings: dict[str, Any], method: str) -> None:
    config = RunConfig(**settings)
    assert config.method == method
    assert str(config.choice).startswith(f"Method auto: {method}, since ")
    again = RunConfig.from_flower(config.to_flower())
    assert (again, again.choice) == (config, None)
    assert RunConfig.from_flower({**config.to_flower(), "method": ""}) == config


@pytest.mark.parametrize(
    ("settings", "idle"),
    [
        ({"method": "ridge"}, []),
        ({"method": "ridge", "rounds": 1}, []),
        ({"method": "ridge", "rounds": 500, "epochs": 3}, ["rounds", "epochs"]),
        ({"method": "ridge", "target_learning_rate": 0.1}, ["target-learning-rate"]),
        ({"method": "ridge", "rounds": 500, "epochs": 3, "warmup_rounds": 2}, ["rounds"]),
        ({"method": "mixture", "epochs": 3}, []),
    ],
    ids=str,
)
def test_settings_that_change_nothing_without_training_steps_are_named(
    settings: dict[str, Any], idle: list[str]
) -> None:
    config = RunConfig(**settings)
    assert [*config.idle] == idle
    assert all(name in config.remarks[-1] for name in idle)
    assert bool(config.remarks) == bool(idle)


@pytest.mark.usefixtures("by_the_rule")
def test_an_option_that_the_fitting_method_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigError, check=names("beta", 0.5)):
        RunConfig(beta=0.5)


def test_a_run_of_an_earlier_version_is_the_same_as_today(tmp_path: Path) -> None:
    """Its folder names settings that are gone, so it goes on, and repeats from its configuration."""
    stored = RunConfig(rounds=3).settings() | GONE
    (tmp_path / "config.json").write_text(json.dumps({"settings": stored}))
    assert RunConfig(rounds=3).fingerprint().items() >= GONE.items()
    assert config_of(stored) == RunConfig(**read_settings(tmp_path / "config.json")) == RunConfig(rounds=3)
    (tmp_path / "config.json").write_text(json.dumps({"settings": stored | {"select_by": "sources"}}))
    with pytest.raises(ConfigError, check=names(str(tmp_path / "config.json"))):
        read_settings(tmp_path / "config.json")
