"""The data sets by name. Add one with a file that has a `load` function, and a line here.

Loaders are named, not imported: only the data set in use is loaded.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fda_flower.datasets.folders import read_size
from fda_flower.errors import ConfigError
from fda_flower.models.tokens import NAME
from fda_flower.names.registry import Registry, resolve

if TYPE_CHECKING:
    from fda_flower.datasets.domains import Split

DOMAINBED = "DomainBed's download script (https://github.com/facebookresearch/DomainBed)"
Options = Mapping[str, Any]
Sources = tuple[str, ...] | None

OFFICE_CALTECH = "https://github.com/ChristophRaab/Office_Caltech_DA_Dataset (rename its Caltech to caltech)"


@dataclass(frozen=True)
class Dataset:
    """An entry of the table of data sets.

    Attributes
    ----------
    summary : str
        One line for ``fda list``.
    load : str or callable
        A function, or ``"module:function"``, from the data folder and a seed to a `Split`, or to a mapping
        with a `Split` for each domain; further keyword arguments are its options.
    domains : tuple of str, optional
        Its own domains in order, if it has any. None if its option ``domains`` names them.
    shift : str
        The default shift of a data set without domains of its own.
    arguments : tuple
        Leading arguments of `load`, before the folder and the seed.
    regression : bool
        Whether its labels are numbers; an option ``task=regression`` makes them so too.
    mask : bool
        Whether these numbers are the pixels of a mask, 0 or 1, so that ``dice`` measures a model.
    complete : str or callable, optional
        A function, or ``"module:function"``, from the folder, the given options, the target's domain and the
        only sources, if they are given, to further options that follow from the folder.
    model : str or callable
        The default network, or a function from the options to its name.
    public : bool
        Whether its samples are published, so that a run may choose all its options at a site, too.
    published : tuple of two int, optional
        The numbers of its images, in all domains, and classes, for estimates of costs without it.
    """

    summary: str
    load: "str | Callable[..., Split | Mapping[str, Split]]"
    domains: tuple[str, ...] | None = ()
    shift: str = "rotate"
    arguments: tuple[Any, ...] = ()
    regression: bool = False
    mask: bool = False
    complete: "str | Callable[[Path | None, Options, str | None, Sources], Options] | None" = None
    model: str | Callable[[Options], str] = "cnn"
    public: bool = False
    published: tuple[int, int] | None = None

    @property
    def is_own(self) -> bool:
        """Whether the data are the user's own: domains follow from them, and all labels are used."""
        return self.domains is None

    @cached_property
    def loader(self) -> "Callable[..., Split | Mapping[str, Split]]":
        """The function `load` with its leading arguments, imported on first use."""
        return partial(resolve(self.load), *self.arguments)


FULL_SIZE = 224
"""Height and width to which such a data set's images are resized by default."""

LARGE = 64
"""Height and width, in pixels, from which two convolutions see too little of an image."""


def network_for_images(options: Mapping[str, Any]) -> str:
    """Return the network for images whose size the options give."""
    if "image_size" not in options:
        raise ConfigError(
            "the size of the images is not known here, so no network can be chosen: give it by "
            "--dataset-option image_size=64, or choose the network by --model",
            thing="option 'image_size'",
        )
    return "cnn" if min(read_size(str(options["image_size"]))) < LARGE else "efficientnet-lite0"


def network_for_rows(options: Mapping[str, Any]) -> str:
    """Return the network for rows, with a text if the options name its column."""
    return NAME if options.get("text") else "mlp"


def network_for_inputs(options: Mapping[str, Any]) -> str:
    """Return the network for images, if the options give their size, else for rows."""
    return (network_for_images if "image_size" in options else network_for_rows)(options)


def network_for_folders(options: Mapping[str, Any]) -> str:
    """Return the network for images in folders."""
    return network_for_images({"image_size": FULL_SIZE, **options})


def _ours(summary: str, load: str, *domains: str, **more: Any) -> Dataset:
    settings = {"domains": domains, **more}
    public = settings["domains"] is not None
    return Dataset(summary, f"fda_flower.{load}", public=public, **settings)


def _folders(
    summary: str, folder: str, domains: str, published: tuple[int, int], source: str = DOMAINBED
) -> Dataset:
    names = tuple(domains.split(", "))
    more = {"arguments": (folder, names, source), "model": network_for_folders, "published": published}
    return _ours(summary, "own_data.images:load", *names, **more)


DATASETS: Registry[Dataset] = Registry(
    "datasets",
    Dataset,
    {
        "digits": _ours(
            "scikit-learn's 1,797 handwritten digits, 8x8; no download",
            "datasets.torchvision_sets:load_digits_set",
        ),
        "fashion-mnist": _ours(
            "70,000 grey images of clothing, 28x28", "datasets.torchvision_sets:load_fashion_mnist"
        ),
        "mnist": _ours("70,000 handwritten digits, 28x28", "datasets.torchvision_sets:load_mnist"),
        "colored-mnist": _ours(
            "MNIST in two colours, two classes", "datasets.torchvision_sets:load_mnist", shift="color"
        ),
        "cifar-10": _ours(
            "60,000 colour images of 10 classes, 32x32",
            "datasets.torchvision_sets:load_cifar10",
            shift="noise",
        ),
        "pacs": _folders(
            "photos and art, 7 classes", "PACS", "art_painting, cartoon, photo, sketch", (9_991, 7)
        ),
        "vlcs": _folders(
            "four photo collections, 5 classes", "VLCS", "Caltech101, LabelMe, SUN09, VOC2007", (10_729, 5)
        ),
        "office-home": _folders(
            "photos and art of things, 65 classes",
            "office_home",
            "Art, Clipart, Product, Real World",
            (15_588, 65),
        ),
        "terra-incognita": _folders(
            "animals at four camera traps, 10 classes",
            "terra_incognita",
            "location_100, location_38, location_43, location_46",
            (24_788, 10),
        ),
        "domain-net": _folders(
            "587,000 photos and drawings, 345 classes",
            "domain_net",
            "clipart, infograph, painting, quickdraw, real, sketch",
            (586_575, 345),
        ),
        "office-caltech10": _folders(
            "office things, 10 classes",
            "office_caltech_10",
            "amazon, caltech, dslr, webcam",
            (2_533, 10),
            OFFICE_CALTECH,
        ),
        "heart": _ours(
            "740 patients of four hospitals, 2 classes",
            "datasets.heart:load",
            *("cleveland", "hungary", "switzerland", "va"),
            model="mlp",
        ),
        "images": _ours(
            "your own images, in folders DOMAIN/CLASS/",
            "own_data.images:load_own",
            domains=None,
            complete="fda_flower.own_data.images:complete",
            model=network_for_images,
        ),
        "table": _ours(
            "your own tables, in files DOMAIN.csv",
            "own_data.table:OwnTables",
            domains=None,
            complete="fda_flower.own_data.table_options:complete",
            model=network_for_rows,
        ),
        "hf": _ours(
            "a Hugging Face data set, from the hub or a folder",
            "own_data.hugging_face:HuggingFace",
            domains=None,
            complete="fda_flower.own_data.hugging_face:complete",
            model=network_for_inputs,
        ),
    },
)
"""The data sets by name; another package adds its own with an entry point ``fda_flower.datasets``."""
