"""The metrics of predicted survival: whether more risk means an earlier event, and how many survive.

Both ask for what happened to patients last seen without the event. They count those who are followed for
more, by ``1/G``, with the censoring curve ``G`` of the test set
(`fda_flower.aggregation.survival.censoring_curve`), which is taken just before a patient's event. At equal
times events come before censorings, so that a patient last seen when another has the event lived longer.

References
----------
Harrell, Califf, Pryor, Lee and Rosati, "Evaluating the yield of medical tests", JAMA 247, 1982; Uno, Cai,
Pencina, D'Agostino and Wei, "On the C-statistics for evaluating overall adequacy of risk prediction
procedures with censored survival data", Statistics in Medicine 30, 2011; Graf, Schmoor, Sauerbrei and
Schumacher, "Assessment and comparison of prognostic classification schemes for survival data", Statistics in
Medicine 18, 1999.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fda_flower.metrics.intervals import quantile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fda_flower.aggregation.survival import Outcomes

    Array = NDArray[np.float64]

BLOCK = 512
"""Patients whose pairs are compared in one step."""


def measure_survival(outputs: "NDArray[Any]", outcomes: "Outcomes") -> dict[str, float]:
    """Return the metrics of a network's outputs, shape ``(n, K)``, by their names in `METRICS`.

    ``c-index`` is Uno's C until the last horizon, ``harrell`` is Harrell's, both of the risk ``1 − mean_k
    S_k``; ``brier`` is the mean of `brier_scores`. All are of the outputs'
    `fda_flower.aggregation.survival.curves_of`. Without two patients who can be compared there is no C, and
    with numbers that are not finite there are no metrics.
    """
    import numpy as np

    from fda_flower.aggregation.survival import curves_of, risk_of

    if not np.isfinite(outputs).all():
        return {}
    curves = curves_of(outputs)
    risk, last = risk_of(curves), outcomes.horizons[-1]
    metrics = {
        "c-index": concordance(risk, outcomes.times, outcomes.events, last, weighed=True),
        "harrell": concordance(risk, outcomes.times, outcomes.events),
        "brier": _mean_brier(curves, outcomes),
    }
    return {name: value for name, value in metrics.items() if value is not None}


def of_curve(outcomes: "Outcomes") -> dict[str, float]:
    """Return the metrics of the model that predicts the test set's own Kaplan-Meier curve for everyone."""
    import numpy as np

    brier = _mean_brier(np.tile(outcomes.curve, (len(outcomes), 1)), outcomes)
    return {"c-index": 0.5, "harrell": 0.5} | ({} if brier is None else {"brier": brier})


def figures_of_curve(outcomes: "Outcomes") -> dict[str, "NDArray[Any]"]:
    """Return the numbers of a test set's ``events`` and ``examples``, and the ``brier`` of `of_curve`.

    The last is NaN where nobody is followed beyond a horizon.
    """
    import numpy as np

    brier = of_curve(outcomes).get("brier", float("nan"))
    return {
        "events": np.array(outcomes.count),
        "examples": np.array(len(outcomes)),
        "brier": np.array(brier, np.float64),
    }


def concordance(
    risk: "Array",
    times: "Array",
    events: "NDArray[np.bool_]",
    until: float | None = None,
    weighed: bool = False,
    counts: "Array | None" = None,
) -> float | None:
    """Return the share of pairs of patients in which the one with the earlier event has more risk.

    A patient with an event is compared with all whose times are later, and with those last seen at that very
    time; two events at one time are not compared.

    Parameters
    ----------
    risk, times, events : array
        Of each patient, shape ``(n,)``. Equal risks count half.
    until : float, optional
        Only events before this time count. Default: all.
    weighed : bool
        Whether a pair counts ``1/G²`` just before its event (Uno's C), not once (Harrell's C).
    counts : array, optional
        How often each patient is in the sample, shape ``(n,)``, as in a bootstrap. Default: once.

    Returns
    -------
    float, optional
        None without two patients who can be compared.

    Examples
    --------
    >>> import numpy as np
    >>> times, events = np.array([1.0, 2.0, 2.0, 4.0]), np.array([True, True, False, True])
    >>> concordance(np.array([0.9, 0.2, 0.2, 0.4]), times, events)
    0.7
    """
    import numpy as np

    from fda_flower.aggregation.survival import censoring_curve

    counts = np.ones(len(times)) if counts is None else counts
    first = events & (counts > 0) & (times < (np.inf if until is None else until))
    weights = counts.astype(np.float64)
    if weighed:
        drawn = np.repeat(np.arange(len(times)), counts.astype(np.int64))
        weights[first] /= censoring_curve(times[drawn], events[drawn], times[first], just_before=True) ** 2
    right = comparable = 0.0
    for rows in np.array_split(np.flatnonzero(first), -(-int(first.sum()) // BLOCK) or 1):
        own = times[rows, None]
        later = (times > own) | ((times == own) & ~events)
        more = (risk < risk[rows, None]) + 0.5 * (risk == risk[rows, None])
        right += float(weights[rows] @ ((later * more) @ counts))
        comparable += float(weights[rows] @ (later @ counts))
    return right / comparable if comparable > 0 else None


def brier_scores(curves: "Array", outcomes: "Outcomes") -> "Array":
    """Return the Brier score at each horizon, shape ``(K,)``; NaN where nobody is followed beyond it.

    ``1/n Σ_i [S_i(h)² 1{t_i ≤ h, e_i}/G(t_i−) + (1 − S_i(h))² 1{t_i > h}/G(h)]``, in which the weights of
    patients have the mean 1.
    """
    import numpy as np

    from fda_flower.aggregation.survival import censoring_curve

    times, events = outcomes.times, outcomes.events
    before = 1 / np.where(events, censoring_curve(times, events, times, just_before=True), 1.0)
    horizons = np.array(outcomes.horizons)
    beyond = times[:, None] > horizons
    followed = censoring_curve(times, events, horizons)
    weights = (events[:, None] & ~beyond) * before[:, None] + beyond / np.where(followed > 0, followed, 1.0)
    scores = np.mean(weights * np.square(beyond - curves), axis=0)
    return np.where(beyond.any(axis=0), scores, np.nan)


def _mean_brier(curves: "Array", outcomes: "Outcomes") -> float | None:
    """Return the mean over the horizons beyond which somebody is followed; None without any."""
    import numpy as np

    scores = brier_scores(curves, outcomes)
    known = np.isfinite(scores)
    return float(scores[known].mean()) if known.any() else None


DRAWS, PAIRS = 1000, 4e9
"""Bootstrap samples, and the most pairs of patients that are compared in all of them."""

SEED, FEWEST_EVENTS = 0, 3
"""Of the bootstrap samples, the same in each run; and the fewest events of an interval."""


def bootstrapped(
    risks: "Sequence[Array]",
    outcomes: "Outcomes",
    seed: int,
    until: float | None = None,
    weighed: bool = False,
) -> "Array":
    """Return `concordance` of each of some risks in bootstrap samples of patients, shape ``(draws, risks)``.

    Each sample has its own censoring curve, and is the same for all risks, so that their differences are
    paired. Samples without two patients to compare are left out.
    """
    import numpy as np

    n = len(outcomes)
    rng, draws = np.random.default_rng(seed), int(max(min(DRAWS, PAIRS / n**2), DRAWS / 10))
    counts = rng.multinomial(n, np.full(n, 1 / n), draws).astype(np.float64)
    order = np.lexsort((~outcomes.events, outcomes.times))
    times, events, counts = outcomes.times[order], outcomes.events[order], counts[:, order]
    first = np.flatnonzero(events & (times < (np.inf if until is None else until)))
    weights = counts[:, first]
    if weighed:
        weights = weights / np.square(_censoring(times, events, counts)[:, first])
    own = times[first, None]
    later = ((times > own) | ((times == own) & ~events)).astype(np.float64)
    comparable = np.einsum("bi,bi->b", weights, counts @ later.T)
    shares = []
    for risk in (each[order] for each in risks):
        more = (risk < risk[first, None]) + 0.5 * (risk == risk[first, None])
        shares.append(np.einsum("bi,bi->b", weights, counts @ (later * more).T))
    some = comparable > 0
    return np.asarray(np.stack(shares, axis=1)[some] / comparable[some, None])


def _censoring(times: "Array", events: "NDArray[np.bool_]", counts: "Array") -> "Array":
    """Return ``G`` just before each patient's time, in samples with `counts`, shape ``(draws, n)``.

    Patients are in the order of times, at equal ones first those with the event.
    """
    import numpy as np

    at_risk = counts[:, ::-1].cumsum(axis=1)[:, ::-1]
    lost = np.where(events, 0.0, counts)
    factors = 1 - np.divide(lost, at_risk, out=np.zeros_like(counts), where=at_risk > 0)
    curve = np.concatenate([np.ones((len(counts), 1)), factors.cumprod(axis=1)], axis=1)
    # Who is in a sample has a curve above 0 until then; of others it does not matter.
    return np.asarray(np.maximum(curve[:, np.searchsorted(times, times)], 1e-100))


def intervals_of_survival(
    outputs: "NDArray[Any]", outcomes: "Outcomes", units: "NDArray[Any] | None" = None
) -> dict[str, tuple[float, float]]:
    """Return the 95% intervals of the metrics of `measure_survival` that have one: ``c-index``, ``harrell``.

    It is symmetric for ``log(C/(1 − C))``, with the deviation over bootstrap samples and Student's quantile
    for as many patients as have the event. In 300 simulated test sets each, with 5 to 130 events, it holds
    the truth in 92% to 99%, the percentile interval in 88% to 96%. A patient is a sample: `units` change
    nothing.
    """
    import numpy as np

    from fda_flower.aggregation.survival import curves_of, risk_of

    if not np.isfinite(outputs).all():
        return {}
    risk, last, limits = risk_of(curves_of(outputs)), outcomes.horizons[-1], dict[str, tuple[float, float]]()
    for name, until, weighed in (("c-index", last, True), ("harrell", None, False)):
        value = concordance(risk, outcomes.times, outcomes.events, until, weighed)
        counted = outcomes.events & (outcomes.times < (np.inf if until is None else until))
        if value is None or not 0 < value < 1 or counted.sum() < FEWEST_EVENTS:
            continue
        spread = float(bootstrapped([risk], outcomes, SEED, until, weighed).std())
        middle = np.log(value / (1 - value))
        half = quantile(int(counted.sum()) - 1) * spread / (value * (1 - value))
        low, high = (float(1 / (1 + np.exp(-end))) for end in (middle - half, middle + half))
        limits[name] = low, high
    return limits


def gain_of_c(
    alone: "NDArray[Any]", together: "NDArray[Any]", outcomes: "Outcomes", units: "NDArray[Any] | None" = None
) -> tuple[float, float] | None:
    """Return the 95% interval of the difference of two outputs' C-index on the same patients.

    It is likewise, but symmetric for the difference; None for fewer than three events.
    """
    from fda_flower.aggregation.survival import curves_of, risk_of

    risks, last = [risk_of(curves_of(each)) for each in (alone, together)], outcomes.horizons[-1]
    values = [concordance(risk, outcomes.times, outcomes.events, last, weighed=True) for risk in risks]
    events = int((outcomes.events & (outcomes.times < last)).sum())
    if values[0] is None or values[1] is None or events < FEWEST_EVENTS:
        return None
    drawn = bootstrapped(risks, outcomes, SEED, last, weighed=True)
    half = quantile(events - 1) * float((drawn[:, 1] - drawn[:, 0]).std())
    return values[1] - values[0] - half, values[1] - values[0] + half
