"""The one table of trackers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from fda_flower.errors import invalid, unknown
from fda_flower.names import missing_extra, split_names

if TYPE_CHECKING:
    from fda_flower.reporting.trackers.tracking import TrackedRun, Tracker


@dataclass(frozen=True)
class TrackerEntry:
    """An entry of the table.

    Attributes
    ----------
    summary : str
        One line for ``fda list``.
    package : str
        What has to be installed.
    tracker : str
        ``"module:Class"`` of its `Tracker`, imported on first use.
    variables : Mapping
        Environment variables that it is imported and called with, unless the user has set them.
    """

    summary: str
    package: str
    tracker: str
    variables: Mapping[str, str] = field(default_factory=dict)

    def begin(self, run: "TrackedRun") -> "Tracker":
        """Begin, or go on with, the run."""
        tracker: Tracker = resolve_name(f"fda_flower.reporting.trackers.{self.tracker}")(run)
        return tracker


TRACKERS: dict[str, TrackerEntry] = {
    "mlflow": TrackerEntry(
        "MLflow: the SQLite file mlflow.db in the output folder, or MLFLOW_TRACKING_URI",
        "mlflow",
        "mlflow:MLflow",
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
        "wandb:WandB",
        {"WANDB_ERROR_REPORTING": "false"},
    ),
    "tensorboard": TrackerEntry(
        "TensorBoard: event files in the run's folder", "tensorboard", "tensorboard:TensorBoard"
    ),
}
"""The trackers by name. A new one is a file and one entry here."""


def read_names(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the names in texts such as ``"mlflow,wandb"``; a `ConfigError` as of `check_trackers`."""
    names = split_names("track", ",".join(texts)) if texts else ()
    check_trackers(names)
    return names


def check_trackers(names: Sequence[str]) -> None:
    """Raise a `ConfigError` if a tracker is unknown, or its package is not installed."""
    for name in names:
        if name not in TRACKERS:
            raise unknown("tracker", name, TRACKERS)
        package = TRACKERS[name].package
        try:
            found = find_spec(package) is not None
        except ValueError:  # Python's word for a module that is set to None
            found = False
        if not found:
            raise invalid("track", name, f"it needs {missing_extra(ModuleNotFoundError(name=package))}")
