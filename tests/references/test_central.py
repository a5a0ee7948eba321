"""The training of centralised references: what it sees, selects, keeps and reports."""

import json
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
import torch
from naming import names
from tensors import tensors
from whole_runs import check_same, cut_off, same_bits

from fda_flower import ConfigError, RunConfig, RunError, compare, run
from fda_flower.clients import LocalTraining
from fda_flower.clients.training import train
from fda_flower.datasets import load_federation
from fda_flower.deployment import rehearse, run_deployed
from fda_flower.files import derive_seed
from fda_flower.records.folder import RunFolder, of_a_round_before
from fda_flower.references import central
from fda_flower.references.central import DISCRIMINATOR, OPTIMIZER, TRAINED, Trainer
from fda_flower.references.losses import Reference
from fda_flower.running.run import Execution, run_config
from fda_flower.runs.methods import CENTRAL, METHODS, PREFIX, check_federated, find_method
from fda_flower.runs.needs import NEEDS
from fda_flower.runs.network import make_model
from fda_flower.server_app import run_server


def reference_class(name) -> type[Reference]:
    return cast(type[Reference], find_method(name).strategy_class)


NAMES = [f"{PREFIX}{name}" for name in CENTRAL]
BLIND = [name for name in NAMES if not reference_class(name).uses_target]
SEEING = [name for name in NAMES if name not in BLIND]
NEEDING = [name for name in SEEING if "unlabelled" in find_method(name).needs]

each_one = pytest.mark.parametrize("method", NAMES)


def trainer_of(method, **settings):
    config = RunConfig(method=method, **settings)
    return Trainer(config, cast(Reference, config.entry.build(**config.strategy_options())))


@pytest.fixture
def steps_of(monkeypatch):
    """Collect the steps that a trainer takes from now on."""

    def collect(trainer):
        seen, losses = [], trainer.reference.losses

        def spy(model, step):
            seen.append(step)
            return losses(model, step)

        monkeypatch.setattr(trainer.reference, "losses", spy)
        return seen

    return collect


@pytest.fixture
def changed(monkeypatch):
    """Replace domains of the federation that the trainer loads; the settings stay as they are."""

    def change(change_domain, *names):
        def load(config):
            data = load_federation(config.data)
            domains = {
                name: change_domain(domain) if name in names else domain
                for name, domain in data.domains.items()
            }
            return replace(data, domains=domains)

        monkeypatch.setattr(central, "all_data", load)

    return change


def shuffled(samples, seed=0):
    order = np.random.default_rng(seed).permutation(len(samples))
    return replace(samples, y=samples.y[order])


# Names


@each_one
def test_a_reference_is_found_by_its_whole_name_only(method):
    assert {*BLIND} == {f"{PREFIX}{name}" for name in ("erm", "coral", "mmd", "dann", "mixup")}
    assert {*NEEDING} < {*SEEING} == {f"{PREFIX}{name}" for name in ("s+t", "ent", "mme")}
    assert {*CENTRAL[method.removeprefix(PREFIX)].needs} <= NEEDS.keys()
    assert find_method(method).title == f"{find_method(method).label} (centralised)"
    for name in (method.removeprefix(PREFIX), *(f"{PREFIX}{name}" for name in METHODS)):
        with pytest.raises(ConfigError, check=names("method")):
            find_method(name)
    assert not any(find_method(name).centralised for name in METHODS)


# Runs


@each_one
def test_every_reference_runs_and_writes_what_other_runs_write(method, small, tmp_path):
    seen = []
    settings = {**small, "method": method, "rounds": 2, "warmup_rounds": 1}
    config = RunConfig(**settings)
    result = run_config(config, Execution(output=tmp_path, on_round=seen.append, outcomes=True))
    lines = RunFolder(tmp_path).read_rounds()
    assert result.history == lines == [*map(of_a_round_before, seen[:-1]), seen[-1]]
    assert [record["warmup"] for record in lines] == [True, False, False]
    assert all(record["held"] is None and record["dropped"] == [] for record in lines)
    assert all(record["train-loss"] > 0 for record in lines)
    summary = json.loads((tmp_path / "summary.json").read_text("utf-8"))
    assert (summary["method"], summary["label"]) == (method, find_method(method).title)
    assert summary["epochs"]["source"] == 3
    assert 0 < summary["baseline"]["accuracy"] < 0.2, "the digits are even"
    for record in lines:
        bits = np.unpackbits(np.frombuffer(bytes.fromhex(record["outcomes"]), np.uint8))
        assert bits.sum() / record["test-examples"] == pytest.approx(record["accuracy"])
    files = ("checkpoint", "config.json", "model.json", "model.safetensors", "rounds.jsonl", "summary.json")
    assert {path.name for path in tmp_path.iterdir()} == {".lock", *files}
    check_same(run_config(config, Execution(outcomes=True)), result)
    assert not same_bits(run(**settings, seed=1).model, result.model)


@pytest.mark.parametrize("method", ["central:dann", "central:mme"])
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_a_resumed_run_has_the_same_bits(method, optimizer, small, tmp_path):
    settings = {**small, "method": method, "optimizer": optimizer, "warmup_rounds": 1}
    whole = run(**settings, rounds=5, output=tmp_path / "whole")
    parts = tmp_path / "parts"
    cut_off(3, parts, **settings, rounds=5)
    check_same(run(**settings, rounds=5, output=parts, resume=True), whole)
    ends = [RunFolder(folder).load_checkpoint() for folder in (tmp_path / "whole", parts)]
    assert ends[0].state.keys() == {TRAINED, OPTIMIZER, DISCRIMINATOR}
    assert bool(ends[0].state[OPTIMIZER]) is (optimizer == "adam")
    assert bool(ends[0].state[DISCRIMINATOR]) is (method == "central:dann")
    assert all(same_bits(ends[0].state[name], ends[1].state[name]) for name in ends[0].state)


def test_a_run_that_broke_off_in_its_first_round_starts_again(small, tmp_path, monkeypatch):
    settings = {**small, "method": "central:mme", "rounds": 2}
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "round", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(**settings, output=tmp_path)
    assert same_bits(run(**settings, output=tmp_path, resume=True).model, run(**settings).model)


def test_a_folder_of_another_reference_or_of_more_rounds_is_refused(small, tmp_path):
    run(**small, method="central:erm", rounds=2, output=tmp_path)
    with pytest.raises(ConfigError, check=names(str(tmp_path))):
        run(**small, method="central:mixup", rounds=2, output=tmp_path, resume=True)
    with pytest.raises(ConfigError, check=names("rounds", 1)):
        run(**small, method="central:erm", rounds=1, output=tmp_path, resume=True)


# What is trained on


def test_erm_with_one_source_is_plain_local_training_with_the_same_batches(small):
    trainer = trainer_of("central:erm", **small, sources=1, rounds=1, epochs=2)
    model, (source,) = make_model(trainer.config, (1, 8, 8), 10), trainer.sources.values()
    assert isinstance(model, torch.nn.Module)
    name, training = source.domain.name, LocalTraining(0.003, 32, epochs=2)
    generator = torch.Generator().manual_seed(derive_seed(0, "train", 1, name))
    steps, loss = train(model, source.domain.train, training, generator)
    record = trainer.round(1, [])
    assert record["sources"][name]["steps"] == steps
    assert record["train-loss"] == pytest.approx(loss, rel=0.01)
    trained = {key: tensor.numpy() for key, tensor in model.state_dict().items()}
    assert same_bits(trained, trainer.reported)


def test_the_optimizer_is_kept_over_the_rounds(small):
    trainer = trainer_of("central:erm", **small)
    steps = [trainer.round(number, [{"warmup": True}])["sources"]["source-1"]["steps"] for number in (1, 2)]
    state = trainer.checkpoint(2).state[OPTIMIZER]
    assert state["0.step"] == sum(steps)


def test_each_step_has_a_batch_of_every_source_and_a_round_one_pass_over_the_largest(
    small, changed, steps_of
):
    changed(lambda domain: replace(domain, train=domain.train.take(np.arange(40))), "source-2")
    trainer = trainer_of("central:mme", **small)
    seen = steps_of(trainer)
    trainer.round(1, [])
    assert len(seen) == 11
    sizes = [[len(y) for _, y in step.sources] for step in seen]
    assert np.sum(sizes, axis=0).tolist() == [337, 220, 337]
    assert {size for _, size, _ in sizes} == {20}
    whole = torch.cat([step.sources[0][0] for step in seen])
    assert len(whole.flatten(1).unique(dim=0)) == len(
        tensors(trainer.sources["source-1"].domain.train)[0].flatten(1).unique(dim=0)
    )
    assert all(len(step.labelled[1]) == 16 for step in seen)
    assert all(60 <= len(step.unlabelled) <= 64 for step in seen)


@each_one
def test_of_the_target_it_sees_what_it_needs_and_never_the_test_set(method, small, changed):
    settings = {**small, "method": method, "rounds": 3}
    plain, kept = run(**settings), ("validation", "selected", "train-loss", "sources")

    def run_with(change):
        changed(change, "target")
        return run(**settings)

    blind = run_with(lambda domain: replace(domain, test=shuffled(domain.test)))
    assert same_bits(plain.model, blind.model)
    chosen = [[[record.get(key) for key in kept] for record in each.history] for each in (plain, blind)]
    assert chosen[0] == chosen[1]
    assert plain.accuracies != blind.accuracies
    other = run_with(lambda domain: replace(domain, train=shuffled(domain.train)))
    assert same_bits(plain.model, other.model) is (method in BLIND)
    dark = run_with(
        lambda domain: replace(domain, unlabelled=replace(domain.unlabelled, x=1 - domain.unlabelled.x))
    )
    assert same_bits(plain.model, dark.model) is (method not in NEEDING)


@each_one
def test_in_warm_up_rounds_the_sources_alone_are_trained_on(method, small):
    head = method in SEEING
    settings = {**small, "warmup_rounds": 2}
    result = run(**settings, method=method, rounds=1)
    assert [record["target"] is None for record in result.history[:2]] == [True, True]
    plain = run(**settings, method="central:s+t" if head else "central:erm", rounds=1)
    assert [r["train-loss"] for r in result.history[:2]] == [r["train-loss"] for r in plain.history[:2]]
    assert (result.history[2]["target"] is not None) is head


def test_the_learning_rate_factor_holds_after_the_warm_up(small):
    settings = {**small, "method": "central:erm", "warmup_rounds": 1, "rounds": 1}
    trainers = [trainer_of(**settings, learning_rate_factor=factor) for factor in (1.0, 0.1)]
    rates = []
    for trainer in trainers:
        for number in (1, 2):
            trainer.round(number, [{"warmup": True}])
            rates.append(trainer.optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([0.003, 0.003, 0.003, 0.0003])


# What is selected


def rows_in(x):
    return sorted(x.reshape(len(x), -1).tolist())


def test_a_fifth_of_each_source_is_held_out_and_never_trained_on(small, steps_of):
    trainer = trainer_of("central:erm", **small)
    seen = steps_of(trainer)
    record = trainer.round(1, [])
    whole = load_federation(trainer.config.data)
    for i, (name, client) in enumerate(trainer.sources.items()):
        parts = client.domain.train, client.domain.test
        count = len(whole.domains[name].train)
        assert [len(part) for part in parts] == [count - round(count / 5), round(count / 5)]
        together = np.concatenate([part.x for part in parts])
        assert rows_in(together) == rows_in(whole.domains[name].train.x)
        trained = torch.cat([step.sources[i][0] for step in seen]).numpy()
        assert rows_in(trained) == rows_in(parts[0].x)
        assert record["sources"][name]["examples"] == len(parts[0])


def test_of_a_source_with_patients_a_fifth_of_these_is_held_out(small, changed):
    changed(lambda source: replace(source, train=of_patients(source.train)), "source-1")
    held = trainer_of("central:erm", **small).sources["source-1"].domain
    train, test = (set(part.groups.tolist()) for part in (held.train, held.test))
    assert (train & test, len(test)) == (set(), round(len(train | test) / 5))

    def of_one(source):
        return replace(source, train=replace(source.train, groups=np.zeros_like(source.train.y)))

    changed(of_one, "source-1")
    with pytest.raises(ConfigError, match="of 1 patient", check=names("source", "source-1")):
        trainer_of("central:erm", **small)


def of_patients(samples):
    return replace(samples, groups=np.arange(len(samples)) % 30)


@pytest.mark.parametrize("method", ["central:erm", "central:mixup"])
def test_the_reported_model_is_that_of_the_best_round_on_the_held_out_samples(method, small, tmp_path):
    settings = {**small, "learning_rate": 0.03, "warmup_rounds": 1}
    result = run(**settings, method=method, rounds=7, output=tmp_path / "run")
    chosen = [record["selected"] for record in result.history]
    assert chosen != list(range(1, 9)), "not always the last one"
    for number, record in enumerate(result.history, 1):
        each = [entry["validation"] for entry in record["sources"].values()]
        assert record["validation"] == pytest.approx(np.mean(each))
        first = 1 if record["warmup"] else 2
        values = [result.history[i - 1]["validation"] for i in range(first, number + 1)]
        assert record["selected"] == first + values.index(max(values))
        assert record["accuracy"] == result.history[record["selected"] - 1]["accuracy"]
    last = result.history[-1]
    short = tmp_path / "short"
    run(**settings, method=method, rounds=last["selected"] - 1, output=short)
    assert same_bits(result.model, RunFolder(short).load_checkpoint().state[TRAINED])


def test_adaptation_reports_the_last_round_and_holds_nothing_out(small):
    trainer = trainer_of("central:mme", **small)
    assert len(trainer.sources["source-1"].domain.train) == 337
    record = trainer.round(1, [])
    assert not {"validation", "selected"} & record.keys()
    assert same_bits(trainer.reported, trainer.checkpoint(1).state[TRAINED])


# Bad input


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"method": "central:nope"}, ("method", "central:nope")),
        ({"method": "central:erm", "average": "ema:0.9"}, ("average", "ema:0.9")),
        ({"method": "central:mme", "max_update_norm": 1.0}, ("max_update_norm", 1.0)),
        ({"method": "central:mme", "source_mean": "median"}, ("source_mean", "median")),
        ({"method": "central:erm", "buffers": "adabn"}, ("buffers", "adabn")),
        ({"method": "central:mme", "evaluate_every": 2}, ("evaluate_every", 2)),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(settings, error):
    with pytest.raises(ConfigError, check=names(*error)):
        RunConfig(**settings)


@pytest.mark.parametrize("name", ["reference-code", "paper"])
def test_variants_are_those_of_other_methods_and_change_nothing(name):
    assert "variant" not in RunConfig(method="central:coral", variant=name).strategy_options()


@pytest.mark.parametrize(
    ("method", "settings", "thing"),
    [
        *((f"central:{name}", {"model": "logistic"}, "method") for name in ("coral", "dann", "mme", "s+t")),
        *((f"central:{name}", {"sources": 1}, "method") for name in ("dann", "mixup")),
        ("central:ent", {"target_samples": None}, "method"),
        ("central:s+t", {"dataset": "rbf", "model": "sigmoid"}, "method"),
        ("central:erm", {"source_samples": 1}, "source"),
    ],
)
def test_data_or_a_network_that_cannot_work_are_refused_before_anything_is_written(
    method, settings, thing, small, tmp_path
):
    with pytest.raises(ConfigError, check=lambda error: error.thing == thing):
        run(**{**small, "method": method, **settings}, rounds=1, output=tmp_path / "run")
    assert not (tmp_path / "run").exists() or not list((tmp_path / "run").iterdir())


def test_a_model_that_is_not_finite_ends_the_run(small):
    with pytest.raises(RunError, check=names("model", remedy="learning rate")):
        run(**{**small, "optimizer": "sgd", "learning_rate": 1e30}, method="central:erm", rounds=1)


def test_a_regression_is_selected_by_r2(small):
    settings = {**small, "dataset": "rbf", "dataset_options": {"samples": 300}, "model": "sigmoid"}
    result = run(**settings, method="central:erm", rounds=2, learning_rate_factor=1)
    assert result.history[0]["validation"] <= 1
    assert "outcomes" not in result.history[0]
    assert result.history[-1]["mean-of-labels"]["r2"] == 0


def test_where_clients_have_to_train_a_reference_is_refused(small, tmp_path):
    method = "central:erm"
    config = RunConfig(**small, method=method)
    for use in (
        lambda: check_federated(method),
        lambda: run(**small, method=method, engine="ray"),
        lambda: run(**small, method=method, engine="deploy", connection="nowhere", output=tmp_path),
        lambda: run_deployed(config, "nowhere", tmp_path),
        lambda: rehearse(config, tmp_path / "new"),
        lambda: run_server(None, config),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigError, check=names("method", method)):
            use()
    assert list(tmp_path.iterdir()) == []


# Comparisons and tables


def test_a_comparison_says_which_rows_are_centralised(small, tmp_path, in_process):
    settings = {**small, "rounds": 1, "method_options": {"lam": 0.5}, "beta": 0.5}
    methods = ["fedda", "central:erm", "central:mme"]
    done = compare(methods, [0], tmp_path / "out", **settings)
    assert done.failures == {}
    assert done.results.rows == ["FedDA", "ERM (centralised)", "MME (centralised)"]
    assert "| MME (centralised) |" in (tmp_path / "out" / "report.md").read_text("utf-8")
    configs = [json.loads(path.read_text("utf-8")) for path in (tmp_path / "out").glob("runs/*/config.json")]
    assert {c["run"]["method"]: c["run"]["method_options"] for c in configs} == {
        **{"fedda": {}, "central:erm": {}, "central:mme": {"lam": 0.5}}
    }
