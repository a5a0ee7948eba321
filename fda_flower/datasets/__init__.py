"""Data sets as named sets of domains; load them with `load_federation` or, at a site, `load_domain`."""

from typing import TYPE_CHECKING

from fda_flower.names.packages import lazy_exports

if TYPE_CHECKING:
    from fda_flower.datasets.amounts import Amount, read_amount
    from fda_flower.datasets.domains import Domain, Split, Splits
    from fda_flower.datasets.federation import FederatedDataset, load_domain, load_federation
    from fda_flower.datasets.registry import DATASETS, Dataset
    from fda_flower.datasets.samples import Samples
    from fda_flower.datasets.shifts import PARTITIONS, SHIFTS, Partition, Shift, summary
    from fda_flower.datasets.spec import DataSpec
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "DATASETS",
    "PARTITIONS",
    "SHIFTS",
    "Amount",
    "DataSpec",
    "Dataset",
    "Domain",
    "FederatedDataset",
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
