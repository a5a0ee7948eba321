"""What is wrong with the samples of a client, though they can be used."""

from collections import Counter
from collections.abc import Sequence

LISTED = 10
"""The most classes that a message lists."""

FEWEST_TESTS = 10
"""A target with fewer test samples is warned."""


def label_problems(labels: Sequence[int], names: Sequence[str]) -> list[str]:
    """Return what keeps a model from learning all classes, a sentence each, with the counts.

    Parameters
    ----------
    labels : sequence of int
        The class of each labelled sample.
    names : sequence of str
        The names of all classes.

    Examples
    --------
    >>> label_problems([0, 0, 0, 1], ["cat", "dog", "eel"])
    ['1 of 3 classes has a single label: dog', '1 of 3 classes has no label: eel']
    >>> label_problems([1, 1], ["cat", "dog"])
    ['all 2 labels are of one class, dog: a model can learn no other from them']
    """
    counts = Counter(labels)
    if len(counts) == 1 and len(names) > 1:
        (only,) = counts
        return [
            f"all {len(labels)} labels are of one class, {names[only]}: a model can learn no other from them"
        ]
    single = [name for i, name in enumerate(names) if counts[i] == 1]
    absent = [name for i, name in enumerate(names) if counts[i] == 0]
    return [
        f"{len(found)} of {len(names)} classes {'has' if len(found) == 1 else 'have'} {what}: {_list(found)}"
        for found, what in ((single, "a single label"), (absent, "no label"))
        if found
    ]


def few_tests(samples: int) -> list[str]:
    """Return a sentence for a target with too few test samples; none for one with enough.

    Examples
    --------
    >>> few_tests(4)
    ['4 test samples are too few to judge a model by: give the target at least 10']
    """
    if samples >= FEWEST_TESTS:
        return []
    counted = f"{samples} test sample{' is' if samples == 1 else 's are'}"
    return [f"{counted} too few to judge a model by: give the target at least {FEWEST_TESTS}"]


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more
