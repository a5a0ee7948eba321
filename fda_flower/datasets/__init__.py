"""Data sets as named sets of domains; `load_federation` is the one way in."""

from fda_flower.datasets.federation import (
    DATASETS,
    Dataset,
    DataSpec,
    Federation,
    load_federation,
)
from fda_flower.datasets.samples import Domain, Samples, Split
from fda_flower.datasets.shifts import SHIFTS, Shift, summary

__all__ = [
    "DATASETS",
    "SHIFTS",
    "DataSpec",
    "Dataset",
    "Domain",
    "Federation",
    "Samples",
    "Shift",
    "Split",
    "load_federation",
    "summary",
]
