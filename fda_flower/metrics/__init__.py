"""The metrics of a model on a test set: names, definitions and intervals.

NumPy is imported only to compute a metric.
"""

from fda_flower.metrics.classes import (
    ECE_BINS,
    by_class,
    calibration_error,
    confusion,
    of_most_frequent,
    units_by_class,
)
from fda_flower.metrics.intervals import (
    CONFIDENCE,
    effective_size,
    interval,
    paired_interval,
    paired_shares,
    share_interval,
    share_size,
)
from fda_flower.metrics.labels import (
    by_label,
    figures_of_labels,
    of_shares,
    probabilities_of_labels,
    units_by_label,
)
from fda_flower.metrics.limits import intervals_of, measure_with_intervals
from fda_flower.metrics.measuring import Judge, measure
from fda_flower.metrics.names import (
    ASKED,
    EFFECTIVE,
    FEW_CASES,
    HIGH,
    INTERVALS,
    LIMITS,
    LOW,
    METRICS,
    RARE,
    ROUNDING,
    SET_METRICS,
    SETS,
    UNITS,
    Metric,
    few_cases,
    full_title,
    headline_metric,
    intervals_in,
    metric_names,
    rare_headline,
)
from fda_flower.metrics.ranking import paired_aurocs
from fda_flower.metrics.regression import dice, of_mean
from fda_flower.metrics.sets import measure_intervals, measure_sets

__all__ = [
    "ASKED",
    "CONFIDENCE",
    "ECE_BINS",
    "EFFECTIVE",
    "FEW_CASES",
    "HIGH",
    "INTERVALS",
    "LIMITS",
    "LOW",
    "METRICS",
    "RARE",
    "ROUNDING",
    "SETS",
    "SET_METRICS",
    "UNITS",
    "Judge",
    "Metric",
    "by_class",
    "by_label",
    "calibration_error",
    "confusion",
    "dice",
    "effective_size",
    "few_cases",
    "figures_of_labels",
    "full_title",
    "headline_metric",
    "interval",
    "intervals_in",
    "intervals_of",
    "measure",
    "measure_intervals",
    "measure_sets",
    "measure_with_intervals",
    "metric_names",
    "of_mean",
    "of_most_frequent",
    "of_shares",
    "paired_aurocs",
    "paired_interval",
    "paired_shares",
    "probabilities_of_labels",
    "rare_headline",
    "share_interval",
    "share_size",
    "units_by_class",
    "units_by_label",
]
