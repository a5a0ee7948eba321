"""Delta errors: how far the update of a rule is from the target's true gradient, and what follows.

References
----------
Jiang et al., ICLR 2024: Definition 3.2 and Theorem 3.6; Theorem 4.2 (FedDA), Section 4 (the baselines),
Appendix A.4 before equation 2 (FedGP with its filter), Theorem A.1 (one step).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fda_flower.aggregation.estimation import Estimates, beta_fedda, beta_fedgp_filter_aware
from fda_flower.aggregation.updates import Vector


def delta_errors(
    beta: float,
    sigma2: float,
    d2: float,
    tau2_d2: float,
    parameters: int,
    delta: float = 1.0,
    gradient2: float = 0.0,
) -> dict[str, float]:
    """Return bounds on each rule's Delta error for one source, by the method's name.

    These are ``d²``, the bias of the source; ``σ²``, the variance of the target; ``(1−β)² σ² + β² d²``
    (equation 1); and ``((1−β)² + (2β−β²)δ̄/m) σ² + β² (δ̄ τ²d² + (1−δ̄)‖g_T‖²)`` (Appendix A.4), for ``m``
    parameters. With ``δ̄ = 1``, the default, the last is equation 2.

    Parameters
    ----------
    beta, sigma2, d2, tau2_d2
        As in `Estimates`.
    parameters : int
        ``m``.
    delta : float
        ``δ̄``, the share of the target's gradients that agree with the source's, which FedGP's filter keeps.
    gradient2 : float
        ``‖g_T‖²``, of the target's true gradient.

    Examples
    --------
    >>> delta_errors(0.5, sigma2=4.0, d2=8.0, tau2_d2=4.0, parameters=3)
    {'source-only': 8.0, 'target-only': 4.0, 'fedda': 3.0, 'fedgp': 3.0}
    """
    variance = (1 - beta) ** 2 + (2 * beta - beta**2) * delta / parameters
    bias = delta * tau2_d2 + (1 - delta) * gradient2
    return {
        "source-only": d2,
        "target-only": sigma2,
        "fedda": delta_error_affine(1 - beta, 1 - beta, sigma2, d2),
        "fedgp": variance * sigma2 + beta**2 * bias,
    }


def delta_error_affine(smallest: float, largest: float, sigma2: float, d2: float) -> float:
    """Return the bound of Theorem 3.6 on the Delta error of a rule of your own, for one source.

    It holds for rules that are affine in the target's gradient and return ``g`` if both gradients are ``g``.
    `smallest` and `largest` bound the eigenvalues ``λ`` of the linear map of the target's gradient: the error
    is at most ``max(λ²) σ² + max((1−λ)²) d²``. FedDA attains it with ``λ = 1 − β``.

    Examples
    --------
    >>> delta_error_affine(0.25, 0.75, sigma2=4.0, d2=8.0)
    6.75
    """
    variance = max(smallest**2, largest**2)
    bias = max((1 - smallest) ** 2, (1 - largest) ** 2)
    return variance * sigma2 + bias * d2


def predicted_best_rule(errors: Mapping[str, float]) -> str:
    """Return the rule with the smallest Delta error; on a tie, the first, which is the simplest.

    Examples
    --------
    >>> predicted_best_rule(delta_errors(0.5, sigma2=1.0, d2=100.0, tau2_d2=100.0, parameters=1000))
    'target-only'
    """
    return min(errors, key=lambda rule: math.inf if math.isnan(errors[rule]) else errors[rule])


def labels_worth(e: Estimates, samples: float) -> float:
    """Return the number of the target's labels that serve as well as the source alone, ``n σ̂²/d̂²``.

    With that number the target's variance is the source's bias. `samples` is ``n``, the number behind the
    estimate. Infinite where the source cannot be told from the target (``d̂² ≤ 0``).

    Examples
    --------
    >>> labels_worth(Estimates(sigma2=4.0, d2=8.0, target2=10.0), samples=50)
    25.0
    """
    return math.inf if e.d2 <= 0 else samples * e.sigma2 / e.d2


def errors_of_round(
    estimates: Sequence[Estimates], alphas: Vector, betas: Mapping[str, Vector], parameters: int
) -> dict[str, float]:
    """Return `delta_errors` of a round, averaged over the sources with ``α``, and ``gradient``, ``‖g_T‖²``.

    Squares are estimated without bias, and count as 0 where the estimate is below 0.

    Parameters
    ----------
    estimates : Sequence[Estimates]
        Of each source; sources without an estimate do not count.
    alphas : Vector
        Shape ``(N,)``.
    betas : Mapping[str, Vector]
        β of each source by rule, shape ``(N,)``. Default: the best by the estimates.
    parameters : int
        ``m``.
    """
    gradient2 = max(estimates[0].target2 - estimates[0].sigma2, 0.0)
    rows, weights = [], []
    for i, (e, alpha) in enumerate(zip(estimates, alphas.tolist(), strict=True)):
        e = replace(e, d2=float(np.maximum(e.d2, 0)), tau2_d2=float(np.maximum(e.tau2_d2, 0)))
        if math.isnan(e.d2):
            continue
        best = {"fedda": beta_fedda(e), "fedgp": beta_fedgp_filter_aware(e)}
        used = {rule: float(betas[rule][i]) if rule in betas else beta for rule, beta in best.items()}
        error = delta_errors(used["fedda"], e.sigma2, e.d2, e.tau2_d2, parameters)
        filtered = delta_errors(used["fedgp"], e.sigma2, e.d2, e.tau2_d2, parameters, e.delta, gradient2)
        rows.append({**error, "fedgp": filtered["fedgp"]})
        weights.append(alpha)
    if not rows:
        return {}
    means = {rule: float(np.average([row[rule] for row in rows], weights=weights)) for rule in rows[0]}
    return {**means, "gradient": gradient2}
