"""Aggregation rules and estimators on NumPy arrays, without Flower and torch."""

from fda_flower.aggregation.adaptive import AdaptiveResult, AdaptiveRule, Evidence, JointRule
from fda_flower.aggregation.batches import BatchUpdates, CountSketch, Encoding
from fda_flower.aggregation.columns import Columns, Moments, columns_out_of_line
from fda_flower.aggregation.conformal import Calibration, labels_for, sets_of
from fda_flower.aggregation.estimation import (
    Estimates,
    beta_fedda,
    beta_fedda_reference,
    beta_fedgp,
    beta_fedgp_filter_aware,
    beta_fedgp_reference,
    estimate,
)
from fda_flower.aggregation.fada import attention, identifier_form
from fda_flower.aggregation.features import (
    ClassGaussians,
    choose_share,
    class_priors,
    head_in,
    linear_head,
    shape_of_head,
    with_head,
)
from fda_flower.aggregation.gradients import read_gradients
from fda_flower.aggregation.joint import joint_weights, matched_step
from fda_flower.aggregation.kd3a import Votes, domain_weights, gate_of, smoothed_weights
from fda_flower.aggregation.logistic import Heads, fit_logistic, names_of_heads, usual_factor
from fda_flower.aggregation.mixture import PRIOR, Mixture, fit_mixture, prior_outputs, stratified_folds
from fda_flower.aggregation.personal import (
    blend,
    choose_weight,
    distance_weights,
    functional_distance,
    gradient_similarity,
    groupdro_weights,
    guidance_distances,
    mixed_scores,
    nearness_weights,
    neighbour_probabilities,
    personal_model,
    vrex_weights,
)
from fda_flower.aggregation.private_sums import (
    CentredSums,
    PrivateSums,
    change_of_patient,
    check_deviation,
    multipliers,
)
from fda_flower.aggregation.ridge import (
    LEAST_LABELS,
    Paths,
    RidgeFit,
    fit_ridge,
    fit_temperature,
    paths_of,
)
from fda_flower.aggregation.ridge_kinds import (
    Kind,
    KindsFit,
    by_kind,
    fit_kinds,
    joined_head,
    split_rows,
    widths_of,
    with_kinds,
)
from fda_flower.aggregation.rules import (
    Average,
    FedDA,
    FedGP,
    Mean,
    Median,
    MovingAverage,
    SourceMean,
    TailAverage,
    TrimmedMean,
    combine,
    mean_update,
)
from fda_flower.aggregation.slopes import (
    LEAST_EVENTS,
    SLOPES,
    CentredRows,
    Level,
    SlopesFit,
    fit_slopes,
    names_of_slopes,
)
from fda_flower.aggregation.sums import Sums, to_rows, to_targets
from fda_flower.aggregation.survival import Outcomes
from fda_flower.aggregation.updates import (
    Geometry,
    Layers,
    SourceWeights,
    Update,
    find_buffers,
    is_finite,
    source_weights,
)

# fmt: off
__all__ = [
    "LEAST_EVENTS", "LEAST_LABELS", "PRIOR", "SLOPES", "AdaptiveResult", "AdaptiveRule", "Average",
    "BatchUpdates", "Calibration", "CentredRows", "CentredSums", "ClassGaussians", "Columns", "CountSketch",
    "Encoding", "Estimates", "Evidence", "FedDA", "FedGP", "Geometry", "Heads", "JointRule", "Kind",
    "KindsFit", "Layers", "Level", "Mean", "Median", "Mixture", "Moments", "MovingAverage", "Outcomes",
    "Paths", "PrivateSums", "RidgeFit", "SlopesFit", "SourceMean", "SourceWeights", "Sums", "TailAverage",
    "TrimmedMean", "Update", "Votes", "attention", "beta_fedda", "beta_fedda_reference", "beta_fedgp",
    "beta_fedgp_filter_aware", "beta_fedgp_reference", "blend", "by_kind", "change_of_patient",
    "check_deviation", "choose_share", "choose_weight", "class_priors", "columns_out_of_line", "combine",
    "distance_weights", "domain_weights", "estimate", "find_buffers", "fit_kinds", "fit_logistic",
    "fit_mixture", "fit_ridge", "fit_slopes", "fit_temperature", "functional_distance", "gate_of",
    "gradient_similarity", "groupdro_weights", "guidance_distances", "head_in", "identifier_form",
    "is_finite", "joined_head", "joint_weights", "labels_for", "linear_head", "matched_step", "mean_update",
    "mixed_scores", "multipliers", "names_of_heads", "names_of_slopes", "nearness_weights",
    "neighbour_probabilities", "paths_of", "personal_model", "prior_outputs", "read_gradients", "sets_of",
    "shape_of_head", "smoothed_weights", "source_weights", "split_rows", "stratified_folds", "to_rows",
    "to_targets", "usual_factor", "vrex_weights", "widths_of", "with_head", "with_kinds",
]
# fmt: on
