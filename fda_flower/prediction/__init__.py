"""A target's predictor: in the evaluation, in a file, and on new samples."""

from typing import TYPE_CHECKING

from fda_flower.names.packages import lazy_exports

if TYPE_CHECKING:
    from fda_flower.prediction.files import About, read_model, write_model
    from fda_flower.prediction.passes import Passes
    from fda_flower.prediction.predictors import PREDICTORS, Mixed, Neighbours, Predictor, Single, Weighted
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "PREDICTORS",
    "About",
    "Mixed",
    "Neighbours",
    "Passes",
    "Predictor",
    "Single",
    "Weighted",
    "read_model",
    "write_model",
]
