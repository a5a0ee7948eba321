"""Trackers: where a run's rounds are shown besides its own folder. None of them ever ends a run."""

from typing import TYPE_CHECKING

from fda_flower.lazy import lazy_exports
from fda_flower.trackers.registry import TRACKERS, check_trackers, read_names

if TYPE_CHECKING:
    from fda_flower.trackers.tracked_run import TrackedRun, Tracker
    from fda_flower.trackers.tracking import Tracking
    from fda_flower.trackers.values import numbers
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            **dict.fromkeys(("TrackedRun", "Tracker"), "tracked_run"),
            "Tracking": "tracking",
            "numbers": "values",
        },
    )

__all__ = ["TRACKERS", "TrackedRun", "Tracker", "Tracking", "check_trackers", "numbers", "read_names"]
