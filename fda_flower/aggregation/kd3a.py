"""KD3A: the sources vote on unlabelled samples; a source's weight is its contribution to the votes.

References
----------
Feng et al., "KD3A: Unsupervised Multi-Source Decentralized Domain Adaptation via Knowledge Distillation",
ICML 2021. The formulas follow the authors' code. Whether the paper defines contributions and the consensus of
several supporters in the same way is unverified.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation.updates import Vector

EXACT_UP_TO = 12
"""Largest number of sources with exact contributions; beyond it, they are means over sampled orders."""

ORDERS = 2**EXACT_UP_TO
"""Number of sampled orders times sources."""

SAMPLES_IN_A_BLOCK = 1024


def gate_of(round: int, rounds: int, start: float, end: float) -> float:
    """Return ``g = g0 + (g1 − g0) · r/R`` for the round ``r = 0, 1, ...`` of ``R``; ``g1`` from ``R`` on.

    Examples
    --------
    >>> gate_of(0, 4, 0.5, 0.75), gate_of(2, 4, 0.5, 0.75), gate_of(9, 4, 0.5, 0.75)
    (0.5, 0.625, 0.75)
    """
    return start + (end - start) * min(round / rounds, 1.0)


@dataclass(frozen=True)
class Votes:
    """Predictions of ``N`` sources for ``n`` samples, 8 N bytes a sample.

    `confidences` has ``p_k``, the largest softmax value of each source, float32 in [0, 1], and `classes` has
    ``c_k``, its class, int32; both have shape ``(n, N)``.
    """

    confidences: NDArray[np.float32]
    classes: NDArray[np.int32]

    def consensus(self, gate: float, classes: int) -> tuple[NDArray[np.int64], Vector, NDArray[np.bool_]]:
        """Return pseudo-label ``c* = argmax_c s_c``, confidence ``s_c*`` and mask of each sample.

        ``s_c = Σ p_k`` over the sources that vote for class ``c``. Those with ``p_k > gate`` vote. If there
        are none, all vote, and the mask is False. Among classes of equal score the first one wins.

        Examples
        --------
        >>> p, c = np.array([[0.90, 0.95, 0.85]], np.float32), np.array([[0, 1, 0]], np.int32)
        >>> label, confidence, mask = Votes(p, c).consensus(0.8, classes=2)
        >>> label, confidence.round(4), mask
        (array([0]), array([1.75]), array([ True]))
        """
        p = self.confidences.astype(np.float64)
        passes: NDArray[np.bool_] = np.asarray(p > gate)
        mask: NDArray[np.bool_] = np.logical_or.reduce(passes, axis=1)
        votes = np.where(passes | ~mask[:, None], p, 0.0)
        scores = np.zeros((len(p), classes))
        for k in range(p.shape[1]):
            scores[np.arange(len(p)), self.classes[:, k]] += votes[:, k]
        return scores.argmax(axis=1), scores.max(axis=1), mask

    def qualities(self, gate: float, subsets: list[tuple[int, ...]]) -> Vector:
        """Return the consensus quality of subsets of sources, ``Q(S) = Σ_samples m(S) · s_c*(S)``.

        It is ``Σ_samples max_c Σ_{k∈S} 1[p_k > gate] 1[c_k = c] p_k``, and never falls when a source joins.

        Examples
        --------
        >>> p, c = np.array([[0.90, 0.95, 0.85]], np.float32), np.array([[0, 1, 0]], np.int32)
        >>> Votes(p, c).qualities(0.8, [(), (0,), (0, 1), (0, 2)]).round(4)
        array([0.  , 0.9 , 0.95, 1.75])
        """
        qualities = np.zeros(len(subsets))
        for begin in range(0, len(self.classes), SAMPLES_IN_A_BLOCK):
            block = slice(begin, begin + SAMPLES_IN_A_BLOCK)
            p, classes = self.confidences[block].astype(np.float64), self.classes[block]
            passing = np.where(p > gate, p, 0.0)
            # [n, j, k]: contribution of source k to the score of source j's class
            support = np.where(classes[:, :, None] == classes[:, None, :], passing[:, None, :], 0.0)
            for i, subset in enumerate(subsets):
                if subset:
                    of_subset = support[:, subset][:, :, subset]
                    qualities[i] += of_subset.sum(axis=2).max(axis=1).sum()
        return qualities

    def contributions(self, gate: float, seed: int = 0) -> Vector:
        """Return ``ψ_k``, the Shapley value of each source in the consensus quality, shape ``(N,)``.

        ``ψ_k = Σ_{S ⊆ others} |S|! (N−1−|S|)! / N! · (Q(S ∪ k) − Q(S))``; ``Σψ = Q(all)``. With more than
        `EXACT_UP_TO` sources it is the mean of ``Q(S ∪ k) − Q(S)`` over random orders, drawn by `seed`, where
        ``S`` precedes ``k``.

        Examples
        --------
        >>> p, c = np.array([[0.90, 0.95, 0.85]], np.float32), np.array([[0, 1, 0]], np.int32)
        >>> Votes(p, c).contributions(0.8).round(5)
        array([0.71667, 0.34167, 0.69167])
        """
        number = self.confidences.shape[1]
        if number > EXACT_UP_TO:
            return self._sampled_contributions(gate, np.random.default_rng(seed))
        subsets = [s for size in range(number + 1) for s in combinations(range(number), size)]
        quality = dict(zip(subsets, self.qualities(gate, subsets).tolist(), strict=True))
        values = np.zeros(number)
        for subset in subsets:
            for k in set(range(number)) - set(subset):
                # The quality never falls; the difference of two rounded sums might.
                gain = max(0.0, quality[tuple(sorted((*subset, k)))] - quality[subset])
                values[k] += gain / (number * comb(number - 1, len(subset)))
        return values

    def _sampled_contributions(self, gate: float, generator: "np.random.Generator") -> Vector:
        number = self.confidences.shape[1]
        orders = np.array([generator.permutation(number) for _ in range(max(1, ORDERS // number))])
        subsets = [tuple(sorted(order[:size])) for order in orders.tolist() for size in range(number + 1)]
        gains = np.diff(self.qualities(gate, subsets).reshape(len(orders), number + 1), axis=1)
        values = np.zeros(number)
        np.add.at(values, orders, np.maximum(gains, 0.0))
        return values / len(orders)


def domain_weights(mask_share: float, contributions: Vector) -> Vector:
    """Return the weights of target and sources in a round's mean, the target's first, shape ``(N + 1,)``.

    The target has ``ρ = mask_share / (N + 1)``, where `mask_share` is the share of its samples with a
    confident vote. A source has ``(1 − ρ) ψ_k / Σψ``, or ``(1 − ρ) / N`` if ``Σψ`` is 0, of its contribution
    ``ψ_k ≥ 0``.

    Examples
    --------
    >>> domain_weights(1.0, np.array([0.71667, 0.34167, 0.69167])).round(5)
    array([0.25   , 0.30714, 0.14643, 0.29643])
    """
    number = len(contributions)
    target = mask_share / (number + 1)
    largest = contributions.max()
    scaled = contributions / largest if largest > 0 else np.ones(number)
    return np.array([target, *((1 - target) * scaled / scaled.sum())])


def smoothed_weights(
    before: Mapping[str, float], new: Mapping[str, float], momentum: float
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the weights ``momentum · before + (1 − momentum) · new``, and those to keep for the next round.

    `before` holds the weights kept after the previous round, by domain, empty in the first; `new` has this
    round's, for the participants; `momentum` is in [0, 1). All weights sum to 1. A missing domain keeps its
    share, and the others divide the rest. A new one counts as if it had had its weight before.

    Examples
    --------
    >>> used, kept = smoothed_weights({"a": 0.5, "b": 0.5}, {"a": 0.25, "c": 0.75}, momentum=0.0)
    >>> used, kept
    ({'a': 0.25, 'c': 0.75}, {'b': 0.5, 'a': 0.125, 'c': 0.375})
    """
    old = {domain: before.get(domain, weight) for domain, weight in new.items()}
    total = sum(old.values())
    if total == 0:
        old, total = dict(new), sum(new.values())
    used = {domain: momentum * old[domain] / total + (1 - momentum) * new[domain] for domain in new}
    missing = {domain: weight for domain, weight in before.items() if domain not in new}
    share = max(0.0, 1 - sum(missing.values()))
    return used, {**missing, **{domain: share * weight for domain, weight in used.items()}}
