"""Aggregation rules and estimators on NumPy arrays, without Flower and torch."""

from fda_flower.aggregation.adaptive import AdaptiveResult, AdaptiveRule, Evidence, JointRule
from fda_flower.aggregation.averaging import Average, MovingAverage, TailAverage
from fda_flower.aggregation.batches import ENCODINGS, BatchUpdates, Encoding
from fda_flower.aggregation.estimation import (
    BetaRule,
    Estimates,
    beta_fedda,
    beta_fedda_reference,
    beta_fedgp,
    beta_fedgp_reference,
    beta_fedgp_thresholded,
    estimate,
)
from fda_flower.aggregation.feddaf import blend, functional_distance, gradient_similarity
from fda_flower.aggregation.feddwa import distance_weights, guidance_distances, personal_model
from fda_flower.aggregation.generalisation import groupdro_weights, vrex_weights
from fda_flower.aggregation.geometry import Geometry
from fda_flower.aggregation.gradients import (
    GRADIENT_ENCODINGS,
    GradientEncoding,
    GradientForm,
    MeanGradient,
    StartGradients,
    read_gradients,
)
from fda_flower.aggregation.joint import joint_weights
from fda_flower.aggregation.kd3a import Votes, domain_weights, gate_of, smoothed_weights
from fda_flower.aggregation.knn import best_weight, choose_weight, mixed_scores, neighbour_probabilities
from fda_flower.aggregation.layers import Layers, is_finite
from fda_flower.aggregation.mixture import (
    PRIOR,
    Mixture,
    fit_mixture,
    log_softmax,
    prior_outputs,
    stratified_folds,
)
from fda_flower.aggregation.robust import Mean, Median, SourceMean, TrimmedMean
from fda_flower.aggregation.rules import (
    Coefficients,
    FedDA,
    FedGP,
    alignment,
    alignment_by_size,
    combine,
    mean_update,
)
from fda_flower.aggregation.sketch import CountSketch
from fda_flower.aggregation.theory import (
    delta_error_fedda,
    delta_error_fedgp,
    delta_error_source_only,
    delta_error_target_only,
    delta_errors,
    predicted_best_rule,
)
from fda_flower.aggregation.update import SourceWeights, Update, find_buffers, source_weights

__all__ = [
    "ENCODINGS",
    "GRADIENT_ENCODINGS",
    "PRIOR",
    "AdaptiveResult",
    "AdaptiveRule",
    "Average",
    "BatchUpdates",
    "BetaRule",
    "Coefficients",
    "CountSketch",
    "Encoding",
    "Estimates",
    "Evidence",
    "FedDA",
    "FedGP",
    "Geometry",
    "GradientEncoding",
    "GradientForm",
    "JointRule",
    "Layers",
    "Mean",
    "MeanGradient",
    "Median",
    "Mixture",
    "MovingAverage",
    "SourceMean",
    "SourceWeights",
    "StartGradients",
    "TailAverage",
    "TrimmedMean",
    "Update",
    "Votes",
    "alignment",
    "alignment_by_size",
    "best_weight",
    "beta_fedda",
    "beta_fedda_reference",
    "beta_fedgp",
    "beta_fedgp_reference",
    "beta_fedgp_thresholded",
    "blend",
    "choose_weight",
    "combine",
    "delta_error_fedda",
    "delta_error_fedgp",
    "delta_error_source_only",
    "delta_error_target_only",
    "delta_errors",
    "distance_weights",
    "domain_weights",
    "estimate",
    "find_buffers",
    "fit_mixture",
    "functional_distance",
    "gate_of",
    "gradient_similarity",
    "groupdro_weights",
    "guidance_distances",
    "is_finite",
    "joint_weights",
    "log_softmax",
    "mean_update",
    "mixed_scores",
    "neighbour_probabilities",
    "personal_model",
    "predicted_best_rule",
    "prior_outputs",
    "read_gradients",
    "smoothed_weights",
    "source_weights",
    "stratified_folds",
    "vrex_weights",
]
