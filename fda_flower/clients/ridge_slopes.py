"""Ridge's target where patients are followed: heads near the sources."""

from typing import Any

from fda_flower.aggregation import LEAST_EVENTS, Layers, Level, Outcomes, Paths, SlopesFit, fit_slopes
from fda_flower.aggregation.sums import Array, unpack
from fda_flower.errors import ConfigError
from fda_flower.names.words import counted


def fit_from_slopes(
    rows: Array, labels: Array, outcomes: Outcomes, start: Layers, paths: Paths
) -> tuple[dict[str, SlopesFit], dict[str, Any]]:
    """Fit a target's heads with the sources, from these alone and, given enough events, without them.

    Returns the fits by the names of their held-out metrics in an answer, and the other numbers of that.
    Raises a `ConfigError` if there are too few events to weigh heads by leaving one out.
    """
    level = Level(start["level_x"], start["level_y"], start["deviation"])
    gram = unpack(start["gram"]) if "gram" in start else None
    sides: dict[str, Paths] = {"held_out": paths, "held_out_sources": "sources", "held_out_target": "target"}
    if outcomes.count < LEAST_EVENTS:
        if paths != "sources":
            what = f"the target has {counted(outcomes.count, 'event')}, and leaving one out needs"
            remedy = "give more, or take the sources' layer by --method-option paths=sources"
            thing = "events"
            raise ConfigError(f"{what} {LEAST_EVENTS}", thing=thing, value=outcomes.count, remedy=remedy)
        del sides["held_out_target"]
    fits = {
        name: fit_slopes(rows, labels, outcomes.count, start["solution"], level, gram, side)
        for name, side in sides.items()
    }
    fit = fits["held_out"].fit
    heads = zip(fit.heads, fit.weights.tolist(), strict=True)
    numbers: dict[str, Any] = {"temperature": 1.0, "events": outcomes.count, "horizons": outcomes.horizons}
    numbers["weights"] = {head.name: weight for head, weight in heads}
    if fit.source_weight is not None:
        numbers["source_weight"] = fit.source_weight
    return fits, numbers
