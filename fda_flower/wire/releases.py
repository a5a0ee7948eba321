"""What leaves a site, by kind.

An answer's field says its kind in its type, a question the kind of the model in its reply, and the tables
here the kinds of what any reply holds. The site's rules, its noise and its log read nothing else.
"""

from collections.abc import Mapping
from enum import StrEnum


class Release(StrEnum):
    """A kind of what leaves a site, by what it says of the site's rows."""

    NOTHING = "nothing"
    """Settings, names and numbers that do not follow from data."""
    COUNTS = "counts"
    """Numbers of samples, patients and steps."""
    WORDS = "words"
    """Texts of the data: names of classes and columns."""
    FIGURES = "figures"
    """Numbers that judge a model, and the weights that they choose."""
    MODEL = "model"
    """A model after training. The update of a few short steps is a sum of gradients, see `OF_SUMS`."""
    BATCHES = "batches"
    """Updates or gradients of single batches, or sketches of them; norms of them are one number each."""
    SUMS = "sums"
    """Sums over rows, and what anyone can solve for them: means, covariances."""
    HEAD = "head"
    """A layer fitted to sums of rows, and its numbers: whoever chooses what is added to the sums has them."""
    SAMPLES = "samples"
    """Numbers of each sample, such as its features, from which it can be reconstructed."""
    MASKED = "masked"
    """Keys, shares and masked sums, which say nothing of one site alone."""


OF_SUMS = frozenset({Release.SUMS, Release.HEAD, Release.BATCHES, Release.MODEL})
"""The kinds that are functions of sums of rows: of a class with one row they may hold that row."""

METRICS: Mapping[str, Release] = {
    **dict.fromkeys(("num-examples", "num-steps"), Release.COUNTS),
    **dict.fromkeys(("learning-rate", "batch-size"), Release.NOTHING),
}
"""The kinds of the metrics of any reply that are no figures."""

INFO: Mapping[str, Release] = {
    **dict.fromkeys(("domain", "role", "aggregated-on", "evaluates"), Release.NOTHING),
    **dict.fromkeys(("frozen-weights", "runtime-of-features"), Release.NOTHING),
    **dict.fromkeys(
        ("gated", "refused", "problem", "regression", "task", "shape", "classes", "columns"), Release.NOTHING
    ),
    **dict.fromkeys(("epsilon", "delta", "uncovered", "of-patients"), Release.NOTHING),
    **dict.fromkeys(("examples", "unlabelled", "test-examples", "validation-examples"), Release.COUNTS),
    **dict.fromkeys(("groups", "test-groups", "validation-groups", "headline", "few-events"), Release.COUNTS),
    **dict.fromkeys(("class-names", "features"), Release.WORDS),
}
"""The kinds of the entries of ``info``: what the role query tells, and what any reply repeats."""

RECORDS: Mapping[str, Mapping[str, Release]] = {
    "train": {
        "arrays": Release.MODEL,
        "batch-updates": Release.BATCHES,
        "gradients": Release.BATCHES,
    },
    "evaluate": dict.fromkeys(("outcomes", "confusion"), Release.FIGURES),
}
"""The kinds of the records of arrays in the replies to plain messages, by type of message."""
