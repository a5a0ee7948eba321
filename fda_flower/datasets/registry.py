"""The data sets by name. A new one is a file with a `load`, and one line here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from fda_flower.datasets import cifar10, digits, folders, heart, mnist, rbf, table
from fda_flower.datasets.samples import Split
from fda_flower.errors import ConfigError
from fda_flower.options import split_names

Loaded = Split | Mapping[str, Split]
"""The samples of one data set, or of each of its domains."""

DOMAINBED = "DomainBed's download script (https://github.com/facebookresearch/DomainBed)"
OFFICE_CALTECH = "https://github.com/ChristophRaab/Office_Caltech_DA_Dataset (its Caltech renamed caltech)"


@dataclass(frozen=True)
class Dataset:
    """A data set that can be named.

    Attributes
    ----------
    summary : str
        One line for ``fda list``.
    load : callable
        From the folder of data and a seed to its samples; further keyword arguments are its options.
    domains : tuple of str, optional
        Its own domains, if it has any; `load` then returns a `Split` for each of them, in this order. None
        where its option ``domains`` names them.
    shift : str
        The shift that makes domains of it where none is named, unless it has its own.
    """

    summary: str
    load: Callable[..., Loaded]
    domains: tuple[str, ...] | None = ()
    shift: str = "rotate"

    def own_domains(self, options: Mapping[str, str | int | float | bool]) -> tuple[str, ...]:
        """The domains of its own, as they are or as its options name them.

        Raises
        ------
        ConfigError
            If its options have to name them and do not.
        """
        if self.domains is not None:
            return self.domains
        if "domains" not in options:
            raise ConfigError("option 'domains' is missing: name the domains, separated by commas")
        return split_names("option 'domains'", str(options["domains"]))


def _folders(summary: str, folder: str, domains: str, source: str = DOMAINBED) -> Dataset:
    names = tuple(domains.split(", "))
    return Dataset(summary, partial(folders.load, folder, names, source), names)


DATASETS: dict[str, Dataset] = {
    "digits": Dataset("scikit-learn's 1,797 handwritten digits, 8x8; no download", digits.load),
    "fashion-mnist": Dataset("70,000 grey images of clothing, 28x28", mnist.load_fashion_mnist),
    "mnist": Dataset("70,000 handwritten digits, 28x28", mnist.load_mnist),
    "colored-mnist": Dataset("MNIST in two colours, two classes", mnist.load_mnist, shift="color"),
    "cifar-10": Dataset("60,000 colour images of 10 classes, 32x32", cifar10.load, shift="noise"),
    "pacs": _folders("photos and art, 7 classes", "PACS", "art_painting, cartoon, photo, sketch"),
    "vlcs": _folders("four photo collections, 5 classes", "VLCS", "Caltech101, LabelMe, SUN09, VOC2007"),
    "office-home": _folders(
        "photos and art of things, 65 classes", "office_home", "Art, Clipart, Product, Real World"
    ),
    "terra-incognita": _folders(
        "animals at four camera traps, 10 classes",
        "terra_incognita",
        "location_100, location_38, location_43, location_46",
    ),
    "domain-net": _folders(
        "587,000 photos and drawings, 345 classes",
        "domain_net",
        "clipart, infograph, painting, quickdraw, real, sketch",
    ),
    "office-caltech10": _folders(
        "office things, 10 classes", "office_caltech_10", "amazon, caltech, dslr, webcam", OFFICE_CALTECH
    ),
    "heart": Dataset("740 patients of four hospitals, 2 classes", heart.load, tuple(heart.FILES)),
    "images": Dataset("your own images, in folders DOMAIN/CLASS/", folders.load_own, None),
    "table": Dataset("your own tables of numbers, in files DOMAIN.csv", table.load, None),
    "rbf": Dataset("a synthetic regression with a shift to choose", rbf.load, ("source", "target")),
}
