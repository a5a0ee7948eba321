"""Image folders: their domains, classes and image size, and their samples."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fda_flower.datasets.domains import Split, Splits
from fda_flower.datasets.folders import (
    LISTED,
    check_part,
    found_names,
    is_here,
    own_folder,
    read_domains,
    read_size,
    unusable,
    visible,
)
from fda_flower.datasets.looks import EACH, MOST, Depth, Look, LookOptions
from fda_flower.datasets.pixels import (
    bits_in,
    depth_of,
    describe_bits,
    describe_greys,
    describe_lossy,
    faults,
)
from fda_flower.datasets.preparation import CHANNELS, ImageFiles, ImagePreparation, files_of
from fda_flower.datasets.registry import FULL_SIZE, Sources
from fda_flower.datasets.samples import Samples
from fda_flower.datasets.splitting import divide, divide_classes, numbered, tell_lacking
from fda_flower.datasets.units import Grouping, in_several_classes, in_several_domains
from fda_flower.errors import ConfigError, invalid
from fda_flower.files import derive_seed
from fda_flower.names.options import split_names, with_options
from fda_flower.names.registry import check_alike
from fda_flower.names.tasks import Task
from fda_flower.own_data.between_domains import check_classes
from fda_flower.own_data.image_folder import (
    ImageFolder,
    Picture,
    check_loose,
    is_image,
    left_out,
    named_by_files,
    repeated,
    told_by_tag,
)
from fda_flower.own_data.image_list import (
    ListedImages,
    ListOptions,
    check_domain,
    domains_of,
    from_one,
    list_in,
    no_list,
    read_list,
)
from fda_flower.own_data.image_names import OR_CLASSES, check_masks, told_by_names
from fda_flower.own_data.image_sizes import LARGEST, Size, common_size, describe_sizes, sizes_of
from fda_flower.own_data.labels import MULTILABEL, of_one, several_in
from fda_flower.own_data.survey import Survey, Surveyed
from fda_flower.own_data.table_options import labels_in


def complete(
    folder: Path | None, options: Mapping[str, Any], target: str | None, only_sources: Sources = None
) -> dict[str, Any]:
    """Return the missing options that follow from a folder: domains and image size.

    Every folder in it is a domain: loading the data refuses one without images.
    """
    missing: dict[str, Any] = {}
    given = {name: _text(options[name]) for name in READ_AHEAD if name in options}
    load_own(Path(), 0, "-", **given)  # also where no image is
    if folder is None or not is_here(folder, options):
        return missing
    if "domains" not in options:
        wanted = "a folder for each domain, and in it one for each class"
        missing["domains"] = ",".join(
            found_names("images", folder, domains_in(folder, given.get("domain", "")), wanted)
        )
    if "image_size" not in options:
        data = load_own(folder, 0, _text({**options, **missing}["domains"]), **given)
        there, look = data.survey, data.look
        if sizes := sizes_of((each.classes for each in there.domains.values()), look):
            missing["image_size"] = "x".join(map(str, common_size(sizes)))
        else:
            there.problems.raise_first()
            paths = [each.place / path for each in there.domains.values() for path in each.images[:1]]
            _ = files_of(paths, 1, look)[:]  # names the damage
    return missing


READ_AHEAD = ("group", "label", "task", "domain", "window", "frame", "slice")
"""Options that say what there is, or how large it is."""


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def domains_in(folder: Path, domain: str) -> list[str]:
    """Return the domains that a folder holds: of a list for all of them, or folders."""
    if (path := list_in(folder)) is not None:
        return domains_of(path, domain)
    return [path.name for path in visible(folder) if path.is_dir()]


MEMORY_LIMIT = 4 * 2**30
"""The most bytes of decoded images to hold in memory; larger data sets are read batch by batch."""


def load(
    folder: str,
    domains: tuple[str, ...],
    source: str,
    data_dir: Path | None,
    seed: int,
    image_size: int = FULL_SIZE,
    classes: str = "",
    depth: Depth = "auto",
) -> Splits:
    """Return the domains, each with four fifths of every class for training and a fifth for testing.

    Images are `ImageFiles` of the shape ``(n, 3, image_size, image_size)``, small if all of them take at most
    `MEMORY_LIMIT`. Raise a `ConfigError` if a folder is missing or has no image, an image is damaged, or an
    option is invalid.

    `data_dir` contains the data set's `folder`, from `source`, with a subfolder for each of `domains`, which
    is read on access. The seed and the domain's name draw the test images. `classes` are in the order of
    their numbers; by default they are the folders with images in any domain present, by name.
    """
    remedy = f"get it from {source}, and put it there"
    if data_dir is None:
        raise ConfigError(
            f"{folder} cannot be downloaded: get it from {source}, and give the folder that holds "
            f"'{folder}' with --data-dir (FDA_DATA_DIR)",
            thing="data set",
            value=folder,
        )
    root = data_dir.expanduser() / folder
    if not root.is_dir():
        raise unusable("data folder", root, "is missing", remedy)
    if image_size < 1:
        what = f"option 'image_size' of {folder} is {image_size}, it must be at least 1"
        raise ConfigError(what, thing="option 'image_size'", value=image_size)
    seen = ImageOptions(depth=depth)
    return ImageFolders(folder, root, domains, remedy, seed, (image_size, image_size), classes, seen=seen)


@dataclass(frozen=True, kw_only=True)
class ImageOptions(LookOptions):
    """The options of one's own images: how they are looked at, and the columns of a list of them."""

    label: str = "label"
    task: Literal["classes", "multilabel"] = "classes"
    domain: str = ""

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of several labels; empty for classes."""
        return labels_in(self.label, self.task) if self.task == "multilabel" else ()


@with_options(ImageOptions)
def load_own(
    data_dir: Path | None,
    seed: int,
    domains: str,
    image_size: str | int = "",
    classes: str = "",
    group: str = "",
    **options: Any,
) -> "OwnImages":
    """Return the user's images, whose domains are folders in `data_dir`, or named by a list; see `load`.

    `image_size` is ``64``, or a height and width, ``48x64``. Default: the `common_size` of the images.
    `group` says which images are of one patient, as `Grouping.read` does, or names the column of a list.
    Default: each is of another, and all frames of a file are of one. `options` are `ImageOptions`.
    """
    names = read_domains(domains)
    root = own_folder("images", data_dir)
    size = read_size(str(image_size)) if image_size else None
    remedy = "put the domain's images there, in a folder for each class"
    return OwnImages("images", root, names, remedy, seed, size, classes, group, ImageOptions(**options))


class ImageFolders(Surveyed[ImageFolder]):
    """The domains of a data set: folders in `root`."""

    def __init__(
        self,
        name: str,
        root: Path,
        domains: tuple[str, ...],
        remedy: str,
        seed: int,
        size: Size | None,
        classes: str,
        group: str = "",
        seen: ImageOptions = ImageOptions(),
    ) -> None:
        super().__init__(domains, self._split)
        self._grouping, self._group, self._bits = Grouping.read(group), group, dict[str, Counter[int]]()
        self._seen, self.look, self._labels = seen, seen.look(), seen.labels
        self.name, self._root, self._remedy, self._seed, self._given = name, root, remedy, seed, size
        names = split_names("option 'classes'", classes) if classes else ()
        self._classes = tuple(check_part("option 'classes'", name) for name in names)
        if self._labels and self._classes:
            why = "but the task is multilabel, which has no classes"
            raise invalid("option 'classes'", classes, "leave it out", why)

    def _survey(self) -> Survey[ImageFolder]:
        survey = Survey[ImageFolder]()
        self._read_folders(survey)
        self._check_names(survey)
        return survey

    def _read_folders(self, survey: Survey[ImageFolder]) -> None:
        """Read the domains' folders."""
        loose = [path for path in visible(self._root) if not path.is_dir()] if self._root.is_dir() else []
        with survey.problems.caught():
            check_loose(self._root, loose)
        others, empty = [path for path in loose if not is_image(path)], list[Path]()
        for name in self.here:
            if (self._root / name).is_dir():
                with survey.problems.caught():
                    folder = survey.domains[name] = self._folder(self._root / name, survey)
                    others += map(folder.place.joinpath, folder.others)
                    empty += map(folder.place.joinpath, folder.empty)
                    folder.check("domain folder", self._remedy)
                    self._check_classes(folder)
        survey.notes += left_out(
            *([path.relative_to(self._root) for path in each] for each in (others, empty))
        )

    def _folder(self, place: Path, survey: Survey[ImageFolder]) -> ImageFolder:
        return ImageFolder.read(place, self._grouping, self.look)

    def _check_names(self, survey: Survey[ImageFolder]) -> None:
        """Check the names of domains and classes, and set the classes."""
        with survey.problems.caught():
            check_alike("domain folders", survey.domains)
        if self._labels:
            self._number_labels(survey)
            return
        with survey.problems.caught():
            check_alike(
                "class folders", (label for folder in survey.domains.values() for label in folder.classes)
            )
        classes = {*self._classes, *(label for folder in survey.domains.values() for label in folder.classes)}
        if len(survey.domains) == len(self) and len(classes) == 1:
            what = f"holds images of a single class, {', '.join(classes)}"
            with survey.problems.caught():
                raise unusable("data folder", self._root, what, "add those of another class")
        survey.classes = tuple(sorted(classes))

    def _number_labels(self, survey: Survey[ImageFolder]) -> None:
        """Set several labels and their numbers; add to problems one that is the same for all images."""
        survey.labels = self._labels
        survey.numbers = {
            name: np.array(list(map(from_one, folder.words))) for name, folder in survey.domains.items()
        }
        if len(survey.domains) == len(self) and not survey.problems:
            every = np.concatenate([*survey.numbers.values()])
            same = [label for label, held in zip(self._labels, every.T, strict=True) if len({*held}) == 1]
            if same:
                what = f"has labels that are the same for all images: {', '.join(same)}"
                remedy = "leave them out of the option 'label', or add images in which they differ"
                with survey.problems.caught():
                    raise unusable("data folder", self._root, what, remedy)

    def inputs(self, options: Mapping[str, Any]) -> str:
        """Decode all images, and return their sizes in words."""
        domains, by_look = self.survey.domains, dict[Look, list[Path]]()
        images = {
            name: [path for each in folder.classes.values() for path in each]
            for name, folder in domains.items()
        }
        if self.look.window is not None:
            self.survey.notes += describe_greys(images, self.look)
        for domain, paths in images.items():
            by_look.setdefault(self._look_of(domain), []).extend(paths)
            self.survey.notes += describe_lossy(domain, paths)
        for look, all_paths in by_look.items():
            for problem in faults(all_paths, look):
                self.survey.problems.add(problem)
        return describe_sizes(sizes_of((each.classes for each in domains.values()), self.look), options)

    def _look_of(self, domain: str) -> Look:
        return self._seen.look(depth_of(self._bits_in(domain)) if self._seen.depth == "auto" else MOST)

    @property
    def _there(self) -> dict[str, ImageFolder]:
        return self.sound.domains

    @cached_property
    def _size(self) -> Size:
        sizes = (
            Counter[Size]()
            if self._given
            else sizes_of((each.classes for each in self._there.values()), self.look)
        )
        return self._given or (common_size(sizes) if sizes else (LARGEST, LARGEST))

    def _missing(self, domain: str) -> ConfigError:
        siblings = visible(self._root) if self._root.is_dir() else []
        folders = ", ".join(path.name for path in siblings if path.is_dir()) or "nothing"
        what = f"is missing (found: {folders})"
        return unusable("domain folder", self._root / domain, what, self._remedy)

    def _split(self, domain: str) -> Split:
        if domain not in self._there:
            raise self._missing(domain)
        folder = self._there[domain]
        labels = self._labels or self._classes_of(domain)
        height, width = self._size
        preparation = self._preparation(domain)
        names = folder.pictures if self._labels else labels
        pictures = [(one, name) for name in names for one in folder.pictures.get(name, ())]
        images = [one for one, _ in pictures]
        if self._labels:
            y = np.array([from_one(name) for _, name in pictures], np.float32)
        else:
            y = np.array([labels.index(name) for _, name in pictures], np.int64)
        task: Task = "multilabel" if self._labels else "classes"
        patients = self._patients(folder, images)
        groups = numbered(patients) if patients else None
        total = sum(each.samples for each in self._there.values())
        small = total * CHANNELS * height * width <= MEMORY_LIMIT
        numbered_frames = self.look.frame == EACH

        def samples(positions: NDArray[np.int64]) -> Samples:
            chosen = [images[i] for i in positions.tolist()]
            frames = tuple(one.frame for one in chosen) if numbered_frames else ()
            paths, look = tuple(one.path for one in chosen), preparation.look
            x: Any = ImageFiles(paths, preparation.size, small=small, look=look, frames=frames)
            owners = None if groups is None else groups[positions]
            return Samples(x, y[positions], groups=owners, what=task)

        seed, where = derive_seed(self._seed, domain), f"domain '{domain}'"
        if groups is None and not self._labels:
            train, test = divide_classes(y, len(labels), seed)
            tell_lacking(where, y, {"training": train, "test": test}, labels, self.note)
        else:
            train, test = divide(y, seed, where, groups=patients, classes=labels, note=self.note)
        return Split(samples(train), samples(test), len(labels), labels, preparation=preparation)

    def _classes_of(self, domain: str) -> tuple[str, ...]:
        """Return all classes, and note those that a domain lacks."""
        files, there = self._there[domain].classes, [each.classes for each in self._there.values()]
        labels = self._classes or tuple(sorted({label for each in there for label in each}))
        if missing := [label for label in labels if label not in files and not self._is_told(label)]:
            self.note(f"{self.name}: domain {domain} has no image of {', '.join(missing)}")
        if not self._classes and len(self._there) == 1 < len(self):
            self.note(of_one(self.name, domain, len(labels)))
        return labels

    def _patients(self, folder: ImageFolder, pictures: Sequence[Picture]) -> list[str]:
        """Return the patient of each sample or, of several frames of a file, the file; empty if unknown."""
        if folder.names_patients:
            return [one.patient for one in pictures]
        return [str(one.path) for one in pictures] if self.look.frame == EACH else []

    def _preparation(self, domain: str) -> ImagePreparation:
        height, width = self._size
        size, found = height if height == width else (height, width), [] if self._given else ["image_size"]
        if self._seen.depth == "auto":
            found.append("depth")
            if note := describe_bits(self._bits_in(domain)):
                self.note(f"{self.name}: domain {domain}: {note}")
        return ImagePreparation(size, self._look_of(domain).depth, tuple(found), *self._seen.of_volumes)

    def _bits_in(self, domain: str) -> Counter[int]:
        """Count a domain's images of 16 bits by the bits that they use, once."""
        if domain not in self._bits:
            paths = (path for each in self.survey.domains[domain].classes.values() for path in each)
            self._bits[domain] = bits_in(paths)
        return self._bits[domain]

    def _is_told(self, label: str) -> bool:
        """Return whether a note of the survey has the class, if it is not at all domains."""
        return False

    def _check_classes(self, folder: ImageFolder) -> None:
        if self._classes and (others := [name for name in folder.classes if name not in self._classes]):
            listed = f"which the option 'classes' does not list ({', '.join(self._classes)})"
            what = f"has images of {', '.join(others)}, {listed}"
            raise unusable("domain folder", folder.place, what, "list all classes, or remove these images")


class OwnImages(ImageFolders):
    """The user's images in folders or lists, with sentences on repeated ones, masks and patients."""

    def _survey(self) -> Survey[ImageFolder]:
        survey = super()._survey()
        folders = survey.domains
        with survey.problems.caught():
            survey.notes += check_classes(survey.classes_by_domain, bool(self._classes))
        survey.notes += repeated(folders.values())
        names = {
            f"{domain}/{label}": [path.name for path in paths]
            for domain, folder in folders.items()
            for label, paths in folder.classes.items()
        }
        grouped = all(each.names_patients for each in folders.values())
        by_tag = [] if grouped else told_by_tag(folders.values())
        survey.notes += [*by_tag, *told_by_names(names, grouped=grouped or bool(by_tag))]
        patients = named_by_files(folders)
        survey.notes += in_several_domains(patients)
        for name, groups in patients.items():
            if groups and not self._labels:
                survey.notes += in_several_classes(name, groups, folders[name].words)
        return survey

    def _is_told(self, label: str) -> bool:
        return any(label in each.classes for each in self.survey.domains.values())

    @cached_property
    def _list(self) -> Path | None:
        """The list of the images of all domains, if there is one."""
        return list_in(self._root)

    def _read_folders(self, survey: Survey[ImageFolder]) -> None:
        """Read the domains of a list for all, or else their folders, which may have lists of their own."""
        if self._list is not None:
            with survey.problems.caught():
                self._read_list(self._list, survey)
            return
        with survey.problems.caught():
            check_masks("data folder", self._root, self.here)
        super()._read_folders(survey)
        lists = [each for each in survey.domains.values() if isinstance(each, ListedImages)]
        columns = {"domain": self._seen.domain, "label": "" if lists or self._labels else self._seen.label}
        for option, name in columns.items():
            if name not in ("", ImageOptions.label):
                with survey.problems.caught():
                    raise no_list(self._root, option, name)

    def _read_list(self, path: Path, survey: Survey[ImageFolder]) -> None:
        check_domain(path, self._seen.domain)
        folder = ImageFolder.read(self._root, look=self.look)
        there = read_list(path, folder, self._columns, survey.problems, survey.notes)
        for name, each in there.items():
            if name in self.here:
                survey.domains[name] = each
                with survey.problems.caught():
                    each.check("list of images", "add rows of it")
                    self._check_classes(each)

    def _folder(self, place: Path, survey: Survey[ImageFolder]) -> ImageFolder:
        if (path := list_in(place)) is None:
            if self._labels:
                columns = ", ".join(["file", *self._labels])
                remedy = f"put a table '{place / 'labels.csv'}' there with the columns {columns}"
                raise unusable("domain folder", place, "has no list of its images' several labels", remedy)
            return super()._folder(place, survey)
        folder, options = ImageFolder.read(place, look=self.look), replace(self._columns, domain="")
        there = read_list(path, folder, options, survey.problems, survey.notes)
        return there.get("", ListedImages(place, (), (), ()))

    def _check_names(self, survey: Survey[ImageFolder]) -> None:
        """Check the names of folders, too: masks and several labels are refused."""
        super()._check_names(survey)
        several = {*several_in(survey.classes)} - {*self._classes}
        for folder in survey.domains.values():
            if isinstance(folder, ListedImages):
                continue
            with survey.problems.caught():
                unlisted = (name for name in folder.classes if name not in self._classes)
                check_masks("domain folder", folder.place, unlisted, OR_CLASSES)
            if names := sorted(several & folder.classes.keys()):
                with survey.problems.caught():
                    what = f"has folders of several labels: {', '.join(names[:LISTED])}"
                    raise unusable("domain folder", folder.place, what, MULTILABEL)

    def _missing(self, domain: str) -> ConfigError:
        if self._list is None:
            return super()._missing(domain)
        there = ", ".join(self._there) or "none"
        return unusable(
            "list", self._list, f"has no row of the domain '{domain}' (but of {there})", "add some"
        )

    @property
    def _columns(self) -> ListOptions:
        return ListOptions(self._labels or (self._seen.label,), self._group, self._seen.domain, self._classes)
