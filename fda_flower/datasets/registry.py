"""The data sets by name. A new one is a file with a `load`, and one line here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fda_flower.datasets import digits, mnist
from fda_flower.datasets.samples import Split

Loaded = Split | Mapping[str, Split]
"""The samples of one data set, or of each of its domains."""


@dataclass(frozen=True)
class Dataset:
    """A data set that can be named.

    Attributes
    ----------
    summary : str
        One line for ``fda list``.
    load : callable
        From the folder of data and a seed to its samples; further keyword arguments are its options.
    domains : tuple of str
        Its own domains, if it has any; `load` then returns a `Split` for each of them, in this order.
    shift : str
        The shift that makes domains of it where none is named, unless it has its own.
    """

    summary: str
    load: Callable[..., Loaded]
    domains: tuple[str, ...] = ()
    shift: str = "rotate"


DATASETS: dict[str, Dataset] = {
    "digits": Dataset("scikit-learn's 1,797 handwritten digits, 8x8; no download", digits.load),
    "fashion-mnist": Dataset("70,000 grey images of clothing, 28x28", mnist.load_fashion_mnist),
    "mnist": Dataset("70,000 handwritten digits, 28x28", mnist.load_mnist),
    "colored-mnist": Dataset("MNIST in two colours, two classes", mnist.load_mnist, shift="color"),
}
