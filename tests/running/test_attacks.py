"""Attacks: what a poisoned source sends, which cells have it, and that the rest of a run stays as it is."""

import json
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
from flwr.app import RecordDict
from naming import names
from whole_runs import same_bits

from fda_flower import ConfigError, RunConfig
from fda_flower.clients import SourceClient
from fda_flower.clients.private_state import PrivateState
from fda_flower.datasets import Samples, load_domain
from fda_flower.experiments import load_results, read_experiment, run_experiment
from fda_flower.running.attacks import (
    ASLEEP,
    Attack,
    PoisonedSource,
    Sight,
    brightness_labels,
    flipped_labels,
    norm_of,
    poison_of,
    read_attack,
)
from fda_flower.running.run import RUNNERS, Execution, run_config
from fda_flower.runs.network import make_model
from fda_flower.wire.asked.personal import Guide
from fda_flower.wire.protocol import EvaluateRequest, TrainRequest, to_record

EVERY = [
    *("flip-sign", "scale:-10", "random", "alie:1.5", "ipm:0.5", "sleeper", "drift", "copy-drift"),
    *("rate-lie", "examples-lie", "flip-labels", "other-task"),
]


@pytest.fixture
def config(small):
    return RunConfig(**{**small, "method": "source-only", "shift": "noise", "rounds": 2})


others = Mock(side_effect=AssertionError("no other client is asked"))


def client_of(config, name="source-1"):
    federation = load_domain(config.data, name)
    model = make_model(config, federation.shape, federation.classes)
    about = {"classes": federation.classes}
    return SourceClient(federation.domains[name], model, config.source_training, config.seed, about=about)


def attacker_of(config, name, sources=("source-1",), seed=0):
    """The client of source-1 as an attack has it."""
    return Attack(name, sources, seed).client(client_of(config), lambda name: client_of(config, name))


def sent_by(client, model, number=1, question=None):
    """What a client sends in place of the model it gets, as an update in float64, and its reply."""
    reply = client.train_reply(TrainRequest(to_record(model), {"server-round": number}, question=question))
    return {name: np.float64(reply.arrays[name]) - model[name] for name in model}, reply


def test_an_update_is_flipped_or_replaced_by_noise_that_follows_from_the_seed(config):
    client = client_of(config)
    model = client.layers()
    honest, plain = sent_by(client, model)
    update, reply = sent_by(attacker_of(config, "flip-sign"), model)
    assert reply.metrics == plain.metrics
    for layer in model:
        assert reply.arrays[layer].dtype == np.float32
        np.testing.assert_allclose(update[layer], -honest[layer], atol=1e-6)
    random, first = sent_by(attacker_of(config, "random", seed=3), model)
    size = norm_of(honest)
    assert norm_of(random) == pytest.approx(size, rel=1e-5)
    cosine = sum(float((random[layer] * honest[layer]).sum()) for layer in model) / size**2
    assert abs(cosine) < 0.05
    assert same_bits(first.arrays, sent_by(attacker_of(config, "random", seed=3), model)[1].arrays)
    assert not same_bits(first.arrays, sent_by(attacker_of(config, "random", seed=4), model)[1].arrays)


def test_buffers_and_evaluations_are_honest(config):
    client = client_of(config)
    attacker = attacker_of(config, "scale:-10")
    assert isinstance(attacker, PoisonedSource)
    request = EvaluateRequest(to_record(client.layers()))
    assert attacker.local_evaluate(request) == client.local_evaluate(request)
    assert attacker.get_properties({}) == client.get_properties({})
    assert same_bits(attacker.layers(), client.layers())
    assert (attacker.domain, attacker.role) == (client.domain, "source")


def test_labels_are_flipped_or_of_another_task():
    x = np.array([[0.9, 0.9], [0.1, 0.0], [0.5, 0.5], [0.2, 0.4]], np.float32)
    samples = Samples(x, np.arange(4))
    assert flipped_labels(samples, 4).tolist() == [3, 2, 1, 0]
    assert brightness_labels(samples, 4).tolist() == [3, 0, 2, 1]
    assert brightness_labels(samples, 2).tolist() == [1, 0, 1, 0]


def test_a_client_trains_on_poisoned_labels_and_keeps_its_test_set(config):
    honest, client = client_of(config), attacker_of(config, "flip-labels")
    assert isinstance(client, SourceClient)
    assert client.domain.train.y.tolist() == [9 - y for y in honest.domain.train.y.tolist()]
    assert client.domain.train.x is honest.domain.train.x
    assert client.domain.test is honest.domain.test
    assert Attack("flip-labels", ("source-2",)).client(honest, others) is honest


def seen(update, team=(), last=(0.0, 0.0), back=(0.0, 0.0), number=1):
    """What an attacker knows, with one layer of two numbers."""
    update, last, back, *team = ({"w": np.array(each)} for each in (update, last, back, *team))
    return Sight(update, lambda: team, last, back, number, np.random.default_rng(0))


TEAM = [(1.0, 0.0), (3.0, 0.0), (5.0, 6.0)]
SD = np.sqrt([8 / 3, 8.0])  # of three numbers around means of 3 and 2


@pytest.mark.parametrize(
    ("name", "sight", "expected"),
    [
        ("flip-sign", seen((3.0, 4.0)), (-3, -4)),
        ("scale:10", seen((3.0, 4.0)), (30, 40)),
        ("alie:1.5", seen(TEAM[0], TEAM), np.array([3, 2]) - 1.5 * SD),
        ("alie:1.5", seen(TEAM[0], TEAM[:1]), TEAM[0]),
        ("ipm:0.5", seen(TEAM[0], TEAM), (-1.5, -1)),
        ("ipm:3", seen(TEAM[0], TEAM), (-9, -6)),
        ("sleeper", seen((3.0, 4.0), last=(1.0, 2.0), number=ASLEEP), (1, 2)),
        ("sleeper", seen((3.0, 4.0), last=(1.0, 2.0), number=ASLEEP + 1), (-30, -40)),
        ("drift", seen((3.0, 4.0), back=(0.0, -10.0)), (0, -5)),
        ("drift", seen((3.0, 4.0)), (0, 0)),
        ("copy-drift", seen((3.0, 4.0), last=(1.0, 2.0), back=(0.0, -10.0)), (1, -3)),
        ("rate-lie", seen((3.0, 4.0)), (-30, -40)),
        ("examples-lie", seen((3.0, 4.0)), (-3, -4)),
    ],
)
def test_what_is_sent_follows_from_what_the_attacker_knows(name, sight, expected):
    np.testing.assert_allclose(poison_of(name)(sight)["w"], expected)


def test_a_team_knows_its_own_honest_updates(config):
    model = client_of(config).layers()
    honest = [
        sent_by(client_of(config, name), model, question=Guide(keep=False))[1]
        for name in ("source-1", "source-3")
    ]
    attacker = attacker_of(config, "ipm:3", ("source-1", "source-3"))
    _, reply = sent_by(attacker, model, question=Guide(keep=False))
    for read in (lambda reply: reply.arrays, lambda reply: reply.answer.guidance):
        for name, layer in read(reply).items():
            mean = sum(read(each)[name] - np.float64(model[name]) for each in honest) / 2
            np.testing.assert_allclose(layer, model[name] - 3 * mean, atol=1e-5)


def test_an_attacker_remembers_the_models_that_it_received(config):
    first = client_of(config).layers()
    second, third = ({name: layer + by for name, layer in first.items()} for by in (1, 3))
    state = RecordDict()

    def sent(name, model, number):
        client = client_of(config)
        client.private_state = PrivateState(state)  # a client is made for each message; what it keeps stays
        return sent_by(Attack(name, ("source-1",)).client(client, others), model, number)[0]

    for model, number, expected in ((first, 1, 0), (second, 2, 1), (third, 3, 2)):
        for layer in sent("sleeper", model, number).values():
            np.testing.assert_allclose(layer, expected, atol=1e-6)
    back = sent("drift", second, 4)
    assert all((layer < 0).all() for layer in back.values())
    honest, _ = sent_by(client_of(config), second, 4)
    assert norm_of(back) == pytest.approx(norm_of(honest), rel=1e-4)


def test_lies_are_told_in_replies_and_with_the_role(config):
    model, honest = client_of(config).layers(), client_of(config)
    _, plain = sent_by(honest, model)
    _, rate = sent_by(attacker_of(config, "rate-lie"), model)
    assert rate.metrics == {**plain.metrics, "learning-rate": 1e4}
    assert rate.examples == plain.examples
    attacker = attacker_of(config, "examples-lie")
    _, examples = sent_by(attacker, model)
    assert (examples.examples, examples.metrics) == (10**9, plain.metrics)
    assert attacker.get_properties({}) == {**honest.get_properties({}), "examples": 10**9}


def test_without_attackers_or_an_attack_the_bits_are_those_of_a_clean_run(config):
    assert read_attack({"attack": "random", "attackers": 0}, config) is None
    assert read_attack({"attackers": 3}, config) is None


@pytest.mark.parametrize("name", EVERY)
def test_every_attack_is_of_the_first_sources_and_runs(config, name):
    attack = read_attack({"attack": name, "attackers": 2}, config)
    assert attack is not None
    assert attack.settings() == {"attack": name, "attackers": ["source-1", "source-2"]}
    clean, poisoned = run_config(config), run_config(config, Execution(attack=attack))
    assert not same_bits(clean.model, poisoned.model)
    assert same_bits(run_config(config, Execution(attack=attack)).model, poisoned.model)
    dropped = [each["domain"] for each in poisoned.history[0]["dropped"]]
    assert dropped == (["source-1", "source-2"] if name == "rate-lie" else [])


@pytest.mark.parametrize(
    "there", [{"workers": 2}, pytest.param({"engine": "ray"}, marks=pytest.mark.slow)], ids=str
)
def test_the_bits_are_the_same_in_every_engine(config, there):
    """What is drawn, what a team knows, and what an attacker remembers."""
    for name in ("random", "ipm:3", "copy-drift"):
        attack = read_attack({"attack": name, "attackers": 2}, config)
        one, two = (
            run_config(config, Execution(attack=attack)),
            run_config(config, Execution(attack=attack, **there)),
        )
        assert same_bits(one.model, two.model)


@pytest.mark.parametrize(
    ("attack", "attackers", "error"),
    [
        ("flip", 1, ("attack", "flip", "flip-labels")),
        ("scale:much", 1, ("attack", "scale:much", "scale:FACTOR")),
        ("scale:inf", 1, ("attack", "scale:inf", "scale:FACTOR")),
        ("ipm", 1, ("attack", "ipm")),
        ("columns", 1, ("attack", "columns")),
        (3, 1, ("attack", 3, "flip-sign")),
        ("random", 4, ("attackers", 4, "3 at most")),
        ("random", -1, ("attackers", -1)),
        ("random", True, ("attackers", True)),
        ("random", None, ("attackers", None)),
        ("flip", 0, ("attack", "flip")),
    ],
)
def test_what_cannot_be_is_refused(config, attack, attackers, error):
    with pytest.raises(ConfigError, check=names(*error)):
        read_attack({"attack": attack} | ({} if attackers is None else {"attackers": attackers}), config)


def test_a_run_without_clients_or_classes_or_of_a_deployment_has_no_attack(config, tmp_path):
    central = replace(config, method="central:erm")
    with pytest.raises(ConfigError, check=names("attack", "random")):
        read_attack({"attack": "random", "attackers": 1}, central)
    sums = replace(config, method="ridge", model="logistic")
    assert read_attack({"attack": "flip-labels", "attackers": 1}, sums)
    with pytest.raises(ConfigError, check=names("attack", "random")):
        read_attack({"attack": "random", "attackers": 1}, sums)
    regression = RunConfig(dataset="rbf", model="sigmoid", method="source-only")
    with pytest.raises(ConfigError, check=names("attack", "flip-labels")):
        read_attack({"attack": "flip-labels", "attackers": 1}, regression)
    assert read_attack({"attack": "flip-sign", "attackers": 1}, regression) is not None
    for output, error in ((None, ("output folder",)), (tmp_path, ("attack", "random"))):
        how = Execution(output=output, connection="none", attack=Attack("random", ("source-1",)))
        with pytest.raises(ConfigError, check=names(*error)):
            RUNNERS["deploy"](config, how)


TEXT = """
title = "Poison"
axis = "Attack"
group-axis = "Attackers"

groups = [{ label = "2 of 3", attackers = 2 }]
columns = [{ label = "none" }, { label = "flip", attack = "flip-sign" }]
rows = [
    { label = "Source Only", method = "source-only" },
    { label = "Bulyan", method = "flower:Bulyan", method-options = { num_malicious_nodes = 1 } },
]

[run]
model = "mlp"
shift = "noise"
rounds = 1
target-samples = 16
batch-size = 64
"""


def test_cells_of_an_experiment_are_attacked_or_refused_and_say_so(tmp_path, in_process):
    file = tmp_path / "poison.toml"
    file.write_text(TEXT, encoding="utf-8")
    experiment, folder = read_experiment(file), tmp_path / "out"
    assert run_experiment(experiment, folder) == {}
    run, clean = (
        json.loads((folder / "runs" / f"2_of_3-Source_Only-{name}-seed0" / "config.json").read_text())["run"]
        for name in ("flip", "none")
    )
    attack = {"attack": "flip-sign", "attackers": ["source-1", "source-2"]}
    assert attack.items() <= run.items()
    assert "attack" not in clean
    results = load_results(folder)
    assert {place[1:] for place in results.refused} == {("Bulyan", "none"), ("Bulyan", "flip")}
    assert results.cuts == []
    assert "cannot aggregate 4 clients with num_malicious_nodes=1" in next(iter(results.refused.values()))
    done = []
    assert run_experiment(experiment, folder, on_progress=done.append) == {}
    assert done == []  # no cell was run again
    file.write_text(TEXT.replace("flip-sign", "drift"), encoding="utf-8")
    with pytest.raises(ConfigError, check=names(str(folder / "runs" / "2_of_3-Source_Only-flip-seed0"))):
        run_experiment(read_experiment(file), folder)
