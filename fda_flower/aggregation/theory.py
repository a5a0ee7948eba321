"""Delta errors: the theory's prediction of which rule suits a setting.

References
----------
Jiang et al., ICLR 2024: Theorem 4.2 (FedDA), equation 2 (FedGP), Section 4 (the baselines).
"""

import math
from collections.abc import Mapping


def delta_error_source_only(d2: float) -> float:
    """Return ``d²``, the bias of the source."""
    return d2


def delta_error_target_only(sigma2: float) -> float:
    """Return ``σ²``, the variance of the target."""
    return sigma2


def delta_error_fedda(beta: float, sigma2: float, d2: float) -> float:
    """Return ``(1−β)² σ² + β² d²`` (equation 1).

    Examples
    --------
    >>> delta_error_fedda(0.5, sigma2=4.0, d2=8.0)
    3.0
    """
    return (1 - beta) ** 2 * sigma2 + beta**2 * d2


def delta_error_fedgp(beta: float, sigma2: float, tau2_d2: float, parameters: int) -> float:
    """Return ``((1−β)² + (2β−β²)/m) σ² + β² τ²d²`` (equation 2), for ``m`` parameters.

    Examples
    --------
    >>> delta_error_fedgp(0.5, sigma2=4.0, tau2_d2=4.0, parameters=3)
    3.0
    """
    variance = (1 - beta) ** 2 + (2 * beta - beta**2) / parameters
    return variance * sigma2 + beta**2 * tau2_d2


def delta_errors(
    beta: float, sigma2: float, d2: float, tau2_d2: float, parameters: int
) -> Mapping[str, float]:
    """Return bounds on the error of each rule for one source, by the name of the method."""
    return {
        "source-only": delta_error_source_only(d2),
        "target-only": delta_error_target_only(sigma2),
        "fedda": delta_error_fedda(beta, sigma2, d2),
        "fedgp": delta_error_fedgp(beta, sigma2, tau2_d2, parameters),
    }


def predicted_best_rule(beta: float, sigma2: float, d2: float, tau2_d2: float, parameters: int) -> str:
    """Return the rule with the smallest Delta error; on a tie, the simplest.

    Examples
    --------
    >>> predicted_best_rule(0.5, sigma2=1.0, d2=100.0, tau2_d2=100.0, parameters=1000)
    'target-only'
    """
    errors = delta_errors(beta, sigma2, d2, tau2_d2, parameters)
    return min(errors, key=lambda rule: math.inf if math.isnan(errors[rule]) else errors[rule])
