"""What an experiment needs and costs before anything is trained."""

from typing import Any

import pytest
from naming import names
from sites import write_images

from fda_flower import ConfigError
from fda_flower.experiments import plan, plan_experiment
from fda_flower.experiments.definition import experiment_of

PHOTOS: dict[str, Any] = {
    "title": "Photos",
    "seeds": [0, 1],
    "columns": [{"label": "sketch", "target": "sketch"}],
    "rows": [{"label": "FedAvg", "method": "fedavg"}, {"label": "Target Only", "method": "target-only"}],
    "run": {"dataset": "pacs", "dataset-options": {"image_size": 16}, "model": "cnn", "rounds": 3}
    | {"target-samples": "10%", "batch-size": 16, "target-batch-size": 4, "warmup-rounds": 1},
}
DOMAINS = ("art_painting", "cartoon", "photo", "sketch")


@pytest.fixture(autouse=True)
def timed(monkeypatch):
    """Each measurement takes half a second."""
    monkeypatch.setattr(plan, "_timed", lambda work: (work(), 0.5))
    monkeypatch.setattr(plan, "ENOUGH", 0.5)


def planned(data, changes=None, **more):
    experiment = experiment_of("photos", PHOTOS | {"run": PHOTOS["run"] | (changes or {})})
    return plan_experiment(experiment, machine={"data_dir": str(data), "device": "cpu"}, **more)


def write(folder, names=DOMAINS, count=10):
    for seed, name in enumerate(names):
        write_images(folder / "PACS" / name, seed, count=count)


def test_missing_domains_are_named_with_where_to_get_them(tmp_path):
    write(tmp_path, DOMAINS[1:3])
    before = sorted(tmp_path.rglob("*"))
    plan = planned(tmp_path)
    assert [sentence.partition(" is missing")[0] for sentence in plan.missing] == [
        f"the domain folder '{tmp_path / 'PACS' / name}'" for name in ("art_painting", "sketch")
    ]
    assert all("DomainBed" in sentence for sentence in plan.missing)
    assert plan.published
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"attack": "flip-sign"}, ("cell", "FedAvg, sketch")),
        ({"attackers": 1}, ("attackers", 1)),
    ],
)
def test_an_attack_is_refused_as_by_the_runs(tmp_path, settings, error):
    with pytest.raises(ConfigError, check=names(*error)):
        planned(tmp_path, settings=settings)


def test_the_cost_of_a_row_is_that_of_its_steps_and_evaluations_by_hand(tmp_path):
    """Of a domain's 20 images 16 are for training, one step of 0.5 s, and 4 for testing, 1/8 s a round."""
    write(tmp_path)
    plan = planned(tmp_path)
    assert (plan.missing, plan.published, plan.features) == ((), False, 0.0)
    sources, target = 3 * 0.5, 0.5
    wanted = {"Target Only": 3 * target + 1 * sources + 4 / 8, "FedAvg": 3 * target + 4 * sources + 4 / 8}
    assert {cost.row: cost.seconds for cost in plan.rows} == {
        row: pytest.approx(2 * seconds) for row, seconds in wanted.items()
    }
    assert [(cost.row, cost.runs) for cost in plan.rows] == [("Target Only", 2), ("FedAvg", 2)]
    assert plan.seconds == sum(cost.seconds for cost in plan.rows)
    (one,) = planned(tmp_path, only=["FedAvg"], seeds=[0], rounds=6).rows
    assert one.seconds == pytest.approx(6 * target + 7 * sources + 7 / 8)


def test_epochs_of_the_head_alone_cost_its_steps(tmp_path, monkeypatch):
    """A round has 10 epochs of the head and one of the body; the target trains its final head for 10."""
    monkeypatch.setattr(plan, "train", lambda *_, part: part)
    monkeypatch.setattr(plan, "ENOUGH", 0.125)
    monkeypatch.setattr(plan, "_timed", lambda work: (work(), 0.125 if work() == "head" else 0.5))
    write(tmp_path)
    fedrep = experiment_of("photos", PHOTOS | {"rows": [{"label": "FedRep", "method": "fedrep"}]})
    (row,) = plan_experiment(fedrep, machine={"data_dir": str(tmp_path), "device": "cpu"}, seeds=[0]).rows
    target, source = 3 * 0.5 + 40 * 0.125, (3 + 1) * 0.5 + 30 * 0.125
    assert row.seconds == pytest.approx(target + 3 * source + 4 / 8)


def test_without_the_data_random_images_stand_for_the_published_number(tmp_path):
    """9,991 in 4 domains: 499 tests, 1,996 for training, of these 200 labels: 125 and 50 batches."""
    plan = planned(tmp_path)
    assert plan.published
    (cheap, dear) = plan.rows
    steps, forward = 3 * 125 * 0.5, 0.5 / 16
    assert dear.seconds == pytest.approx(2 * (3 * 50 * 0.5 + 4 * steps + 4 * 499 * forward))
    assert cheap.seconds == pytest.approx(2 * (3 * 50 * 0.5 + 1 * steps + 4 * 499 * forward))


def test_missing_weights_are_named_and_random_ones_measured(tmp_path):
    write(tmp_path)
    changes: dict[str, Any] = {
        "model": "resnet18",
        "model-options": {"weights": str(tmp_path / "none.pth")},
    }
    changes |= {"dataset-options": {"image_size": 32}, "train": "all", "batch-size": 4}
    plan = planned(tmp_path, changes, only=["Target Only"])
    (sentence,) = plan.missing
    assert "none.pth' cannot be read" in sentence
    assert not plan.published
    assert all(cost.seconds > 0 for cost in plan.rows)


def test_a_frozen_body_computes_features_once(tmp_path):
    """4 of 80 images, less the sources' 12 for testing, take half a second."""
    write(tmp_path)
    plan = planned(tmp_path, {"model": "conv3x64", "train": "head"})
    assert plan.features == pytest.approx((80 - 12) / 4 * 0.5)
    assert plan.seconds == pytest.approx(plan.features + sum(cost.seconds for cost in plan.rows))
    closed = experiment_of("photos", PHOTOS | {"rows": [{"label": "Ridge", "method": "ridge"}]})
    changes = {"model": "conv3x64", "warmup_rounds": 0}
    (row,) = plan_experiment(closed, settings=changes, machine={"data_dir": str(tmp_path)}).rows
    assert (row.row, row.seconds) == ("Ridge", 0.0)


def test_cells_that_cannot_run_are_named_with_the_reason_and_cost_nothing(tmp_path):
    """Of a target's 16 images for training 17 cannot be labelled; with all labelled none is left for KD3A."""
    write(tmp_path)
    rows = {"rows": [{"label": "KD3A", "method": "kd3a"}, {"label": "CORAL", "method": "central:coral"}]}
    cases: tuple[tuple[dict[str, Any], list[str], list[str]], ...] = (
        ({"target_samples": 17}, [], ["target-samples is 17, but there are only 16"]),
        ({"target_samples": 16}, ["CORAL"], ["'kd3a' needs unlabelled training samples"]),
        ({"only_sources": "photo"}, [], ["'central:coral' needs at least two sources"]),
        (
            {"model": "logistic"},
            [],
            ["'kd3a' needs a network with layers", "'central:coral' needs a network"],
        ),
    )
    for changes, rest, reasons in cases:
        plan = plan_experiment(
            experiment_of("photos", PHOTOS | rows),
            settings=changes | {"warmup_rounds": 0},
            machine={"data_dir": str(tmp_path), "device": "cpu"},
        )
        assert plan.missing == ()
        assert all(reason in sentence for reason, sentence in zip(reasons, plan.refused, strict=True))
        assert not rest or [cost.row for cost in plan.rows] == rest
