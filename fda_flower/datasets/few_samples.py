"""Reasons why a target's labelled samples are too few."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fda_flower.aggregation import LEAST_EVENTS
from fda_flower.datasets.folders import LISTED
from fda_flower.errors import ConfigError
from fda_flower.metrics import rare_headline
from fda_flower.names.words import count_of

if TYPE_CHECKING:
    from fda_flower.datasets.samples import Samples


FEWEST_TESTS = 10
"""A target with fewer test samples, or patients of them, is warned."""


def label_problems(
    labels: Sequence[int], names: Sequence[str], patients: Sequence[int] | None = None
) -> list[str]:
    """Return a sentence for each reason why a model cannot learn all classes, with the counts.

    `labels` are the labelled samples' classes, as positions in `names`, and `patients` whose they are.

    Examples
    --------
    >>> label_problems([0, 0, 0, 1], ["cat", "dog", "eel"])
    ['1 of 3 classes has a single label: dog', '1 of 3 classes has no label: eel']
    >>> label_problems([1, 1], ["cat", "dog"])
    ['all 2 labels are of one class, dog: a model can learn no other from them']
    """
    owners = range(len(labels)) if patients is None else patients
    counts = Counter(label for label, _ in {*zip(labels, owners, strict=True)})
    if len(counts) == 1 and len(names) > 1:
        (only,) = counts
        return [
            f"all {len(labels)} labels are of one class, {names[only]}: a model can learn no other from them"
        ]
    rare = {
        what: [name for i, name in enumerate(names) if counts[i] == count]
        for count, what in (
            (1, "a single label" if patients is None else "labels of one patient"),
            (0, "no label"),
        )
    }
    problems = []
    for what, classes in rare.items():
        more = f" and {len(classes) - LISTED} more" if len(classes) > LISTED else ""
        have = f"{len(classes)} of {len(names)} classes {'has' if len(classes) == 1 else 'have'}"
        problems += [f"{have} {what}: {', '.join(classes[:LISTED])}{more}"] if classes else []
    return problems


def labels_problems(
    labels: Sequence[Sequence[float]], names: Sequence[str], patients: Sequence[int] | None = None
) -> list[str]:
    """Return a sentence for each reason why a model cannot learn some of several labels, 0 or 1.

    Examples
    --------
    >>> labels_problems([[0, 1, 0], [0, 1, 1], [0, 0, 1]], ["nodule", "edema", "mass"])
    ['1 of 3 labels holds for no sample: nodule']
    >>> labels_problems([[1, 1], [0, 1]], ["nodule", "edema"])
    ['1 of 2 labels holds for a single sample: nodule', '1 of 2 labels holds for all samples: edema']
    """
    owners = range(len(labels)) if patients is None else patients
    held = [{owner for row, owner in zip(labels, owners, strict=True) if row[i]} for i in range(len(names))]
    rare = {
        "no sample": [len(each) == 0 for each in held],
        "a single sample" if patients is None else "samples of one patient": [
            len(each) == 1 for each in held
        ],
        "all samples": [all(row[i] for row in labels) for i in range(len(names))],
    }
    problems = []
    for what, are in rare.items():
        these = [name for name, is_so in zip(names, are, strict=True) if is_so]
        more = f" and {len(these) - LISTED} more" if len(these) > LISTED else ""
        hold = f"{len(these)} of {len(names)} labels {'holds' if len(these) == 1 else 'hold'}"
        problems += [f"{hold} for {what}: {', '.join(these[:LISTED])}{more}"] if these else []
    return problems


FEWEST_FOLLOWED = 5
"""A source with fewer patients who are followed to the last horizon would make labels of chance."""


def check_horizons(domain: str, samples: "Samples", is_source: bool) -> None:
    """Raise a `ConfigError` if too few patients are followed to the last horizon; it has no count of them.

    At a source they are fewer than `FEWEST_FOLLOWED`, at a target none. Other samples pass.
    """
    if samples.outcomes is None:
        return
    last, remedy = samples.outcomes.horizons[-1], "choose smaller horizons, or leave the site out"
    if not samples.outcomes.at_risk:
        what = f"the horizon {last:g} is after the last time at the site '{domain}'"
        raise ConfigError(what, thing="option 'horizons'", value=last, remedy=remedy)
    if is_source and samples.outcomes.at_risk < FEWEST_FOLLOWED:
        what = f"at the site '{domain}' fewer than {FEWEST_FOLLOWED} patients are followed to the horizon"
        raise ConfigError(f"{what} {last:g}", thing="option 'horizons'", value=last, remedy=remedy)


def few_events(train: "Samples") -> bool:
    """Return whether patients who are followed have too few events to leave one out."""
    return train.outcomes is not None and train.outcomes.count < LEAST_EVENTS


def few_tests(samples: int, units: int) -> list[str]:
    """Return a sentence if a target has too few test samples, or units of these, such as patients.

    Examples
    --------
    >>> few_tests(4, 4)
    ['4 test samples are too few to judge a model by: give the target at least 10']
    >>> few_tests(40, 4)[0].partition(": ")[2]
    'give the target at least 10 patients'
    """
    if units >= FEWEST_TESTS:
        return []
    are = f"{count_of(samples, units, 'test sample')} {'is' if samples == 1 else 'are'}"
    what = "" if units == samples else " patients"
    return [f"{are} too few to judge a model by: give the target at least {FEWEST_TESTS}{what}"]


def rare_headline_of(train: "Samples", classes: int) -> str | None:
    """Return the headline that a rare class asks for among labels; see `fda_flower.metrics.rare_headline`."""
    if train.task != "classes":
        return None
    counts = Counter(train.y.tolist())
    return rare_headline([counts[label] for label in range(max(classes, max(counts, default=-1) + 1))])


def target_problems(test: "Samples", train: "Samples", names: Sequence[str]) -> list[str]:
    """Return a sentence for each reason why a target's samples are too few.

    `names` are the classes' or several labels'; empty for other tasks.
    """
    patients = None if train.groups is None else train.groups.tolist()
    reasons = labels_problems if train.task == "multilabel" else label_problems
    rare = reasons(train.y.tolist(), names, patients) if names else []
    return few_tests(len(test), test.units) + rare
