"""Trackers: where a run's rounds are shown besides its own folder. None of them ever ends a run."""

from typing import TYPE_CHECKING

from fda_flower.names import lazy_exports
from fda_flower.reporting.trackers.registry import TRACKERS, check_trackers, read_names

if TYPE_CHECKING:
    from fda_flower.reporting.trackers.tracking import TrackedRun, Tracker, Tracking, numbers
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = ["TRACKERS", "TrackedRun", "Tracker", "Tracking", "check_trackers", "numbers", "read_names"]
