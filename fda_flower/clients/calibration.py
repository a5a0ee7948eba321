"""The held-out scores of a target's labels, which it keeps until their model is evaluated."""

from fda_flower.aggregation import Calibration, Layers
from fda_flower.clients.private_state import PrivateState
from fda_flower.files import checksum

NAME = "calibration"
"""Name in `PrivateState`."""


def keep_calibration(private_state: PrivateState, model: Layers, calibration: Calibration | None) -> None:
    """Keep the scores of a fitted model, if there are any."""
    if calibration is not None:
        private_state.save(NAME, calibration.to_arrays(), {"model": checksum({}, model)})


def kept_calibration(private_state: PrivateState, model: Layers) -> Calibration | None:
    """Return the kept scores if they are this model's, and not of one that a site's noise has changed."""
    saved = private_state.load(NAME)
    if saved is None or saved[1]["model"] != checksum({}, model):
        return None
    return Calibration.from_arrays(saved[0])
