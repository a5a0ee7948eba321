"""Trackers: where a run's rounds are shown besides its own folder. None of them ever ends a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING

from fda_flower.errors import invalid, unknown
from fda_flower.names.options import read_list, split_names
from fda_flower.names.packages import lazy_exports, missing_extra

if TYPE_CHECKING:
    from fda_flower.reporting.trackers.tracking import TrackedRun, Tracker, Tracking, numbers
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = ["TRACKERS", "TrackedRun", "Tracker", "Tracking", "check_trackers", "numbers", "read_names"]


@dataclass(frozen=True)
class TrackerEntry:
    """A tracker: a line for ``fda list``, the package that it needs, and the path of its class, a `Tracker`.

    `variables` are environment variables that it is called with, unless the user has set them.
    """

    summary: str
    package: str
    tracker: str
    variables: Mapping[str, str] = field(default_factory=dict)


SERVICES = "fda_flower.reporting.trackers.services"
TRACKERS: dict[str, TrackerEntry] = {
    "mlflow": TrackerEntry(
        "MLflow: the SQLite file mlflow.db in the output folder, or MLFLOW_TRACKING_URI",
        "mlflow",
        f"{SERVICES}:MLflow",
        # No telemetry, and no minutes of waiting for a server that is gone.
        {
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
            "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
        },
    ),
    "wandb": TrackerEntry(
        "Weights & Biases: offline, in the output folder, unless WANDB_MODE is set",
        "wandb",
        f"{SERVICES}:WandB",
        {"WANDB_ERROR_REPORTING": "false"},
    ),
    "tensorboard": TrackerEntry(
        "TensorBoard: event files in the run's folder", "tensorboard", f"{SERVICES}:TensorBoard"
    ),
}
"""The trackers by name. A new one is a class and one entry here."""


def read_names(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the names in texts such as ``"mlflow,wandb"``, after `check_trackers`."""
    names = split_names("track", ",".join(texts)) if texts else ()
    check_trackers(names)
    return names


def check_trackers(names: Sequence[str]) -> None:
    """Raise a `ConfigError` if a tracker is unknown, or its package is not installed."""
    for name in read_list("track", names, '["mlflow"]'):
        if name not in TRACKERS:
            raise unknown("tracker", name, TRACKERS)
        package = TRACKERS[name].package
        if find_spec(package) is None:
            raise invalid("track", name, f"it needs {missing_extra(ModuleNotFoundError(name=package))}")
