"""Data sets as named sets of domains; `load_federation`, and `load_domain` at a site, are the ways in."""

from fda_flower.datasets.amounts import Amount, read_amount
from fda_flower.datasets.federation import Federation, load_domain, load_federation
from fda_flower.datasets.partitions import PARTITIONS, Partition
from fda_flower.datasets.registry import DATASETS, Dataset
from fda_flower.datasets.samples import Domain, Samples, Split, Splits
from fda_flower.datasets.shifts import SHIFTS, Shift, summary
from fda_flower.datasets.spec import DataSpec

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
    "Splits",
    "load_domain",
    "load_federation",
    "read_amount",
    "summary",
]
