"""Metrics of scores that rank samples with a label above those without it.

NumPy is imported only to compute a metric.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def area_under_roc(scores: "NDArray[np.float64]", positive: "NDArray[np.bool_]") -> float:
    """Return a label's ``(Σ_positive r − p(p+1)/2) / (p (n − p))`` (Hanley and McNeil, Radiology 143, 1982).

    It ranks only the positive samples, in a fraction of scikit-learn's time. Both arrays have shape ``(n,)``,
    with samples of both kinds.
    """
    import numpy as np

    own, ordered = np.sort(scores[positive]), np.sort(scores)
    # Twice the mean of the ranks that equal scores share.
    ranks = np.searchsorted(ordered, own) + np.searchsorted(ordered, own, "right") + 1
    count = len(own)
    return float((ranks.sum() / 2 - count * (count + 1) / 2) / (count * (len(scores) - count)))


def average_precision(scores: "NDArray[np.float64]", positive: "NDArray[np.bool_]") -> float:
    """Return ``Σ_k (R_k − R_{k−1}) P_k`` over the different scores, from the largest on.

    ``R_k`` and ``P_k`` are recall and precision of the samples with at least the ``k``-th score (Davis and
    Goadrich, The relationship between precision-recall and ROC curves, ICML 2006, without interpolation).
    Both arrays have shape ``(n,)``, with a positive sample.

    Examples
    --------
    >>> import numpy as np
    >>> average_precision(np.array([0.9, 0.5, 0.5, 0.1]), np.array([True, True, False, False]))
    0.8333333333333333
    """
    import numpy as np

    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(positive[order])
    last = np.append(np.diff(scores[order]) != 0, True)
    precision = (hits / np.arange(1, len(hits) + 1))[last]
    return float((np.diff(hits[last], prepend=0) * precision).sum() / hits[-1])
