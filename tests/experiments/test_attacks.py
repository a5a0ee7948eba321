"""Attacks: what a poisoned source sends, which cells have it, and that the rest of a run stays as it is."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from fda_flower import ConfigError, RunConfig
from fda_flower.clients import SourceClient
from fda_flower.datasets import Samples, load_domain
from fda_flower.experiments import load_results, read_experiment, run_experiment
from fda_flower.experiments.attacks import (
    NAMES,
    Attack,
    PoisonedSource,
    brightness_labels,
    flipped_labels,
    norm_of,
    poison_of,
    random_of_same_norm,
    read_attack,
)
from fda_flower.experiments.cell_files import is_done
from fda_flower.experiments.run import run_config
from fda_flower.experiments.runners import RUNNERS, RunRequest
from fda_flower.protocol import EvaluateRequest, TrainRequest, to_record
from fda_flower.server_app import make_model

EVERY = ["flip-sign", "scale:10", "scale:-10", "random", "flip-labels", "other-task"]


@pytest.fixture
def config(small):
    return RunConfig(**{**small, "method": "source-only", "shift": "noise", "rounds": 2})


def client_of(config, name="source-1"):
    federation = load_domain(config.data, name)
    model = make_model(config, federation.shape, federation.classes)
    about = {"classes": federation.classes}
    return SourceClient(federation.domains[name], model, config.source_training, config.seed, about=about)


def sent_by(client, model, **settings):
    """What a client sends in place of the model it gets, as an update in float64, and its reply."""
    reply = client.answer(TrainRequest(to_record(model), {"server-round": 1, **settings}))
    return {name: np.float64(reply.arrays[name]) - model[name] for name in model}, reply


def test_an_update_is_flipped_scaled_or_replaced(config):
    client = client_of(config)
    model = client.layers()
    honest, plain = sent_by(client, model)
    size = norm_of(honest)
    for name, factor in (("flip-sign", -1), ("scale:10", 10), ("scale:-10", -10), ("scale:0.5", 0.5)):
        update, reply = sent_by(Attack(name, ("source-1",)).client(client), model)
        assert reply.metrics == plain.metrics
        for layer in model:
            assert reply.arrays[layer].dtype == np.float32
            np.testing.assert_allclose(update[layer], factor * honest[layer], atol=1e-6)
    random, _ = sent_by(Attack("random", ("source-1",)).client(client), model)
    assert norm_of(random) == pytest.approx(size, rel=1e-5)
    cosine = sum(float((random[layer] * honest[layer]).sum()) for layer in model) / size**2
    assert abs(cosine) < 0.05


def test_noise_follows_from_seed_round_and_domain(config):
    client, model = client_of(config), client_of(config).layers()
    first = Attack("random", ("source-1",), 3).client(client)
    bits = {name: array.tobytes() for name, array in sent_by(first, model)[1].arrays.items()}
    again = {name: array.tobytes() for name, array in sent_by(first, model)[1].arrays.items()}
    assert bits == again
    other = Attack("random", ("source-1",), 4).client(client)
    assert bits != {name: array.tobytes() for name, array in sent_by(other, model)[1].arrays.items()}


def test_guidance_is_poisoned_like_the_update_and_the_rest_is_honest(config):
    client = client_of(config)
    model = client.layers()
    _, plain = sent_by(client, model, guidance=True)
    _, poisoned = sent_by(Attack("flip-sign", ("source-1",)).client(client), model, guidance=True)
    for name, array in plain.records["guidance"].items():
        expected = model[name] - (array - model[name])
        np.testing.assert_allclose(poisoned.records["guidance"][name], expected, atol=1e-6)


def test_buffers_and_evaluations_are_honest(config):
    client = client_of(config)
    attacker = Attack("scale:-10", ("source-1",)).client(client)
    assert isinstance(attacker, PoisonedSource)
    model = {**client.layers(), "bn.running_var": np.ones(2, np.float32)}
    after = {name: array + 1 for name, array in model.items()}
    found = attacker._poisoned(model, after, np.random.default_rng(0))
    assert found["bn.running_var"] is after["bn.running_var"]
    request = EvaluateRequest(to_record(client.layers()))
    assert attacker.judge(request) == client.judge(request)
    assert attacker.answer_evaluation(request) == client.answer_evaluation(request)
    assert attacker.get_properties({}) == client.get_properties({})
    assert {name: a.tobytes() for name, a in attacker.layers().items()} == {
        name: a.tobytes() for name, a in client.layers().items()
    }
    assert (attacker.domain, attacker.role) == (client.domain, "source")


def test_labels_are_flipped_or_of_another_task():
    x = torch.tensor([[0.9, 0.9], [0.1, 0.0], [0.5, 0.5], [0.2, 0.4]])
    samples = Samples(x, torch.tensor([0, 1, 2, 3]))
    assert flipped_labels(samples, 4).tolist() == [3, 2, 1, 0]
    assert brightness_labels(samples, 4).tolist() == [3, 0, 2, 1]
    assert brightness_labels(samples, 2).tolist() == [1, 0, 1, 0]


def test_a_client_trains_on_poisoned_labels_and_keeps_its_test_set(config):
    honest = client_of(config)
    client = Attack("flip-labels", ("source-1",)).client(client_of(config))
    assert isinstance(client, SourceClient)
    assert client.domain.train.y.tolist() == [9 - y for y in honest.domain.train.y.tolist()]
    assert client.domain.train.x is honest.domain.train.x
    assert client.domain.test is honest.domain.test
    assert Attack("flip-labels", ("source-2",)).client(honest) is honest


def test_random_noise_has_the_norm_of_the_update():
    update = {"a": np.array([3.0]), "b": np.array([[0.0, 4.0]])}
    noise = random_of_same_norm(update, np.random.default_rng(0))
    assert norm_of(noise) == pytest.approx(5)
    assert {name: layer.shape for name, layer in noise.items()} == {"a": (1,), "b": (1, 2)}


@pytest.mark.parametrize("attackers", [{}, {"attackers": 0}])
def test_without_attackers_the_bits_are_those_of_a_clean_run(config, attackers):
    assert read_attack({"attack": "random", **attackers}, config) is None
    assert read_attack({"attackers": 3}, config) is None


@pytest.mark.parametrize("name", EVERY)
def test_every_attack_is_of_the_first_sources_and_runs(config, name):
    attack = read_attack({"attack": name, "attackers": 2}, config)
    assert attack is not None
    assert attack.settings() == {"attack": name, "attackers": ["source-1", "source-2"]}
    clean, poisoned = run_config(config), run_config(config, attack=attack)
    assert any(clean.model[n].tobytes() != poisoned.model[n].tobytes() for n in clean.model)
    again = run_config(config, attack=attack)
    assert {n: a.tobytes() for n, a in again.model.items()} == {
        n: a.tobytes() for n, a in poisoned.model.items()
    }
    assert poisoned.history[0]["dropped"] == []


@pytest.mark.slow
def test_on_ray_the_bits_are_the_same(config):
    attack = read_attack({"attack": "random", "attackers": 1}, config)
    here, there = (run_config(config, engine=engine, attack=attack) for engine in ("local", "ray"))
    assert {n: a.tobytes() for n, a in here.model.items()} == {n: a.tobytes() for n, a in there.model.items()}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"attack": "flip", "attackers": 1},
            r"unknown attack 'flip'.*: choose one of flip-labels, ",
        ),
        ({"attack": "scale:much", "attackers": 1}, "attack is 'scale:much': give scale:FACTOR with a number"),
        ({"attack": "scale:inf", "attackers": 1}, "attack is 'scale:inf': give scale:FACTOR"),
        ({"attack": 3, "attackers": 1}, "attack is 3: give one of flip-sign, random, scale:FACTOR"),
        ({"attack": "random", "attackers": 4}, "attackers is 4, but there are 3 sources"),
        ({"attack": "random", "attackers": -1}, "attackers is -1: give the number of sources"),
        ({"attack": "random", "attackers": True}, "attackers is True: give the number"),
    ],
)
def test_what_cannot_be_is_refused(config, given, message):
    with pytest.raises(ConfigError, match=message):
        read_attack(given, config)


def test_a_run_without_clients_or_classes_is_refused(config, small):
    central = replace(config, method="central:erm")
    with pytest.raises(ConfigError, match="method 'central:erm' has no clients"):
        read_attack({"attack": "random", "attackers": 1}, central)
    regression = RunConfig(dataset="rbf", model="sigmoid", method="source-only")
    with pytest.raises(ConfigError, match="attack is 'flip-labels', but 'rbf' has no classes"):
        read_attack({"attack": "flip-labels", "attackers": 1}, regression)
    assert read_attack({"attack": "flip-sign", "attackers": 1}, regression) is not None
    deployed = RunRequest(config, connection="none", output=None, attack=Attack("random", ("source-1",)))
    with pytest.raises(ConfigError, match="needs an output folder"):
        RUNNERS["deploy"](deployed)


def test_no_site_of_a_deployment_attacks(config, tmp_path):
    request = RunRequest(config, tmp_path, connection="none", attack=Attack("random", ("source-1",)))
    with pytest.raises(ConfigError, match="with engine deploy no site attacks"):
        RUNNERS["deploy"](request)


def test_names_are_listed():
    assert [name for name in EVERY if name in NAMES] == ["flip-sign", "random", "flip-labels", "other-task"]
    assert poison_of("scale:2")({"w": np.ones(1)}, np.random.default_rng())["w"] == [2.0]


TEXT = """
title = "Poison"
axis = "Attack"
group-axis = "Attackers"
report = "lost"
figures = ["lost"]

[run]
model = "mlp"
shift = "noise"
rounds = 1
target-samples = 16
batch-size = 64

[[groups]]
label = "2 of 3"
attackers = 2

[[columns]]
label = "none"

[[columns]]
label = "flip"
attack = "flip-sign"

[[rows]]
label = "Source Only"
method = "source-only"

[[rows]]
label = "Bulyan"
method = "flower:Bulyan"
method-options = { num_malicious_nodes = 1 }
"""


def test_cells_of_an_experiment_are_attacked_or_refused_and_say_so(tmp_path, in_process):
    file = tmp_path / "poison.toml"
    file.write_text(TEXT, encoding="utf-8")
    experiment, folder = read_experiment(file), tmp_path / "out"
    assert run_experiment(experiment, folder) == {}
    found = json.loads((folder / "cells" / "2_of_3-Source_Only-flip-seed0.json").read_text(encoding="utf-8"))
    attack = {"attack": "flip-sign", "attackers": ["source-1", "source-2"]}
    assert attack.items() <= found["config"].items()
    clean = json.loads((folder / "cells" / "2_of_3-Source_Only-none-seed0.json").read_text(encoding="utf-8"))
    assert "attack" not in clean["config"]
    results = load_results(folder)
    assert {place[1:] for place in results.refused} == {("Bulyan", "none"), ("Bulyan", "flip")}
    assert results.cuts == []
    assert "aggregates nothing for 4 clients with num_malicious_nodes=1" in next(
        iter(results.refused.values())
    )
    done = []
    assert run_experiment(experiment, folder, on_progress=done.append) == {}
    assert done == []  # no cell was run again
    config, place = experiment.config(experiment.places[1], 0, {}), folder / "cells"
    with pytest.raises(ConfigError, match=r"another configuration .*attack: 'flip-sign' there"):
        is_done(place / "2_of_3-Source_Only-flip-seed0.json", config)
    file.write_text(TEXT.replace("attackers = 2", "attackers = 5"), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"cell '2 of 3, Source Only, none': attackers is 5"):
        read_experiment(file)
    file.write_text(TEXT.replace('"flip-sign"', '"flip-sing"'), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"unknown attack 'flip-sing' \(did you mean 'flip-sign'\?\)"):
        read_experiment(file)
