"""What is said of labels that are too few."""

import logging

import pytest

from fda_flower import run
from fda_flower.datasets.few_samples import label_problems


def test_labels_of_all_classes_are_no_problem_and_a_long_list_is_cut():
    assert label_problems([0, 1, 0, 1], ["cat", "dog"]) == label_problems([0, 0], ["only"]) == []
    (problem,) = label_problems([0, 0, 1, 1], [f"c{i}" for i in range(20)])
    assert problem.startswith("18 of 20 classes have no label: c2, c3")
    assert problem.endswith("c11 and 8 more")


@pytest.mark.parametrize(
    ("target_samples", "said"), [(3, "8 of 10 classes have no label"), (200, None)], ids=["few", "many"]
)
def test_the_target_warns_before_it_trains(target_samples, said, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("flwr"), "handlers", [caplog.handler])
    with caplog.at_level(logging.WARNING, "flwr"):
        run(method="target-only", model="mlp", rounds=1, target_samples=target_samples, source_samples=8)
    warnings = [text for text in caplog.messages if text.startswith("The target 'target'")]
    assert bool(warnings) == bool(said)
    assert not said or any(said in text for text in warnings)
