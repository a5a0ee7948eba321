"""What a mixture consists of: its settings, what it costs, and what is refused."""

import pytest

from fda_flower.aggregation.mixture import MEMBERS, MixturePlan
from fda_flower.errors import ConfigError


@pytest.mark.parametrize(
    ("plan", "labels", "snapshots"),
    [
        (MixturePlan(), 8, (1, 30)),
        (MixturePlan(), 499, (1, 30)),
        (MixturePlan(), 500, (1, 10)),
        (MixturePlan(epochs=(2, 5, 7)), 500, (2, 5, 7)),
    ],
)
def test_the_longer_snapshot_is_shorter_with_many_labels_unless_epochs_are_given(plan, labels, snapshots):
    assert plan.snapshots(labels) == snapshots


@pytest.mark.parametrize(
    ("plan", "models"),
    [
        # The sources' model, and five each of: the target's own, tuned for 1 epoch, tuned for 30.
        (MixturePlan(), 16),
        (MixturePlan(views="full"), 4),
        (MixturePlan(folds=2), 1 + 3 * 3),
        (MixturePlan(epochs=(1, 2, 3)), 1 + 5 * 4),
        (MixturePlan(members=("sources",)), 1),
        (MixturePlan(members=("target", "prior")), 5),
        (MixturePlan(members=("sources", "blend")), 6),
        (MixturePlan(members=MEMBERS), 1 + 5 * 5),
    ],
)
def test_the_models_of_a_prediction(plan, models):
    assert plan.models == models


@pytest.mark.parametrize(
    ("plan", "labels", "epochs"),
    [
        # All labels, and four times three quarters of them, are 4 epochs of all labels.
        (MixturePlan(), 100, 4 * (12 + 2 * 30)),
        (MixturePlan(), 500, 4 * (12 + 2 * 10)),
        (MixturePlan(folds=3, epochs=(5,)), 100, 3 * (12 + 2 * 5)),
        (MixturePlan(members=("sources", "tuned", "prior")), 100, 4 * 2 * 30),
        (MixturePlan(members=("sources", "tuned", "head")), 100, 4 * 2 * 2 * 30),
        (MixturePlan(members=("blend",)), 100, 4 * 12),
        (MixturePlan(members=("sources",)), 100, 0),
    ],
)
def test_the_epochs_that_the_target_trains_in_12_rounds_with_2_evaluations(plan, labels, epochs):
    assert plan.epochs_of(labels, 12, 2) == epochs


@pytest.mark.parametrize(
    "plan",
    [MixturePlan(), MixturePlan(3, (2, 4), ("sources", "head"), "full"), MixturePlan(members=MEMBERS)],
)
def test_a_plan_travels_as_text(plan):
    assert MixturePlan.from_text(plan.to_text()) == plan


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"folds": 1}, "folds is 1: it must be a whole number of at least 2"),
        ({"epochs": (0, 3)}, r"epochs is \[0, 3\]: give numbers of epochs that grow, such as 1,30"),
        ({"epochs": (3, 3)}, r"epochs is \[3, 3\]"),
        ({"epochs": (1.5,)}, r"epochs is \[1.5\]"),
        ({"epochs": 5}, "epochs is 5: give numbers of epochs that grow, such as 1,30"),
        ({"epochs": (30, 1)}, r"epochs is \[30, 1\]"),
        (
            {"members": ("sources", "best")},
            "unknown member 'best': choose one of blend, head, prior, sources",
        ),
        ({"members": ()}, "members is 'empty': name some of sources, target, tuned, head, blend, prior"),
        ({"members": ("prior",)}, "members is 'prior': name some of .*, and one that is a model"),
        ({"members": ("target", "target")}, "members is 'target, target': name some of .*, each once"),
        ({"views": "some"}, "views is 'some': choose all or full"),
    ],
)
def test_what_cannot_work_is_refused_by_name_value_and_remedy(options, says):
    with pytest.raises(ConfigError, match=says):
        MixturePlan(**options)


def test_each_fold_needs_two_labels():
    MixturePlan(folds=3).check_labels(6)
    with pytest.raises(ConfigError, match="has 5 labelled samples, but a mixture with 3 folds needs 6: give"):
        MixturePlan(folds=3).check_labels(5)
