"""Data sets as named sets of domains; `load_federation` is the one way in."""

from fda_flower.datasets.amounts import Amount, read_amount
from fda_flower.datasets.federation import DataSpec, Federation, load_federation
from fda_flower.datasets.partitions import PARTITIONS, Partition
from fda_flower.datasets.registry import DATASETS, Dataset
from fda_flower.datasets.samples import Domain, Samples, Split
from fda_flower.datasets.shifts import SHIFTS, Shift, summary

__all__ = [
    "DATASETS",
    "PARTITIONS",
    "SHIFTS",
    "Amount",
    "DataSpec",
    "Dataset",
    "Domain",
    "Federation",
    "Partition",
    "Samples",
    "Shift",
    "Split",
    "load_federation",
    "read_amount",
    "summary",
]
