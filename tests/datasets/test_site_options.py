"""A run neither redirects a site to other data nor loosens how it reads its own."""

import inspect
from pathlib import Path
from typing import Any

import pytest
from naming import names

from fda_flower.datasets import DataSpec, load_domain
from fda_flower.datasets.folders import OPTIONS_FILE, read_domains
from fda_flower.datasets.registry import DATASETS
from fda_flower.datasets.site_options import AGREED, HIDDEN, choices_of
from fda_flower.errors import ConfigError

SECRET = "Aalto"
OWN = {"table": "", "images": "", "hf": 'domain = "site"'}
OTHERS = [
    (dataset, name)
    for dataset in OWN
    for name in inspect.signature(DATASETS[dataset].loader).parameters
    if name not in (*AGREED, *HIDDEN)
]
"""Every option that sites do not agree on through a run: a new one is among them."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A site's own table, beside one of another study, in which the words of its labels are others."""
    for name, words in (("north", "yes no"), ("south", f"{SECRET} no")):
        label = words.split()
        rows = [f"{i % 7}.5,{label[i % 2]},{SECRET}" for i in range(40)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["age,label,surname", *rows]))
    return tmp_path


def at_north(folder: Path | None, dataset: str = "table", **options: Any) -> DataSpec:
    given = {"domains": "north,south", "classes": "no,yes", **options}
    where = None if folder is None else str(folder)
    return DataSpec(dataset, data_dir=where, dataset_options=tuple(given.items()), site="north")


@pytest.mark.parametrize(("dataset", "option"), OTHERS, ids="-".join)
def test_a_run_sets_no_option_that_its_site_decides(dataset: str, option: str, tmp_path: Path) -> None:
    (tmp_path / OPTIONS_FILE).write_text(OWN[dataset])
    default = inspect.signature(DATASETS[dataset].loader).parameters[option].default
    choices = {"task": "multilabel", "categorical": "onehot", "decimal": "comma", "declared": "value"}
    value = choices.get(option, f"a:{SECRET}" if option == "categories" else SECRET)
    at_north(tmp_path, dataset, **{option: "site" if (dataset, option) == ("hf", "domain") else default})
    with pytest.raises(ConfigError, check=names(f"option '{option}'", None, OPTIONS_FILE)) as refused:
        at_north(tmp_path, dataset, **{option: value})
    assert SECRET not in str(refused.value)


def test_a_run_says_how_images_are_looked_at_unless_the_site_does(tmp_path: Path) -> None:
    given = {"window": "40,400", "frame": "all", "slice": "axial:3", "image_size": 8}
    read = dict(at_north(tmp_path, "images", **given).dataset_options)
    assert (read["window"], read["frame"], read["slice"]) == ("40,400", "all", "axial:3")
    (tmp_path / OPTIONS_FILE).write_text('group = "PatientID"\nwindow = "0,100"')
    for options in ({"window": "40,400"}, {"group": "folder"}):
        with pytest.raises(ConfigError, check=names(f"option '{next(iter(options))}'", None, OPTIONS_FILE)):
            at_north(tmp_path, "images", image_size=8, **options)


def test_what_the_site_sets_wins_and_a_run_may_only_say_the_same(folder: Path) -> None:
    (folder / OPTIONS_FILE).write_text('ignore = ["surname", "visit"]\nmissing = "mean"')
    for options in ({}, {"ignore": "surname, visit"}, {"missing": "mean", "encoding": ""}):
        read = dict(at_north(folder, **options).dataset_options)
        assert (read["ignore"], read["missing"]) == ("surname,visit", "mean")
    for name, value in {"ignore": "", "missing": "refuse"}.items():
        with pytest.raises(ConfigError, check=names(f"option '{name}'")):
            at_north(folder, **{name: value})
    assert choices_of(DATASETS["table"].loader, str(folder)) == [
        name for name in ("domains", "classes", "label_mean", "label_deviation", "depth", "horizons")
        if name in inspect.signature(DATASETS["table"].loader).parameters
    ]  # fmt: skip


def test_only_the_sites_own_file_counts(folder: Path) -> None:
    data = load_domain(at_north(folder, ignore="surname"), "north")
    assert (data.class_names, data.shape) == (("no", "yes"), (1,))
    everywhere = DataSpec("table", data_dir=str(folder), dataset_options=(("ignore", "surname"),))
    assert load_domain(everywhere, "north").class_names == (SECRET, "no", "yes"), "one machine reads both"


@pytest.mark.parametrize("dataset", OWN)
def test_classes_leave_only_as_a_list(dataset: str, tmp_path: Path) -> None:
    (tmp_path / OPTIONS_FILE).write_text(OWN[dataset])
    with pytest.raises(ConfigError, check=names("option 'classes'", None, "classes=")):
        at_north(tmp_path, dataset, classes="")
    (tmp_path / OPTIONS_FILE).write_text(f'{OWN[dataset]}\nclasses = "a,b"')
    with pytest.raises(ConfigError, check=names("option 'classes'", None, OPTIONS_FILE)):
        at_north(tmp_path, dataset, classes=f"a,{SECRET}")
    assert dict(at_north(tmp_path, dataset, classes="a, b").dataset_options)["classes"] == "a,b"


def test_a_regression_at_a_site_needs_the_scale_on_which_all_agree(tmp_path: Path) -> None:
    (tmp_path / OPTIONS_FILE).write_text('task = "regression"')
    with pytest.raises(ConfigError, check=names("option 'label_mean'")):
        at_north(tmp_path, classes="")
    spec = at_north(tmp_path, classes="", label_mean=3, label_deviation=2)
    assert dict(spec.dataset_options)["label_mean"] == 3


@pytest.mark.parametrize(
    "name", ["../x", "a/b", "/a", "..", ".", ".a", "./a", "a\\b", "C:a", "a\x00", "a\nb"]
)
@pytest.mark.parametrize("dataset", OWN)
def test_a_domain_is_no_way_out_of_the_folder_of_data(dataset: str, name: str, tmp_path: Path) -> None:
    (tmp_path / OPTIONS_FILE).write_text(OWN[dataset])
    with pytest.raises(ConfigError, check=names("option 'domains'", name, "slashes")):
        read_domains(f"north,{name}")
    with pytest.raises(ConfigError, check=names("option 'domains'")):
        at_north(tmp_path, dataset, domains=f"north,{name}")
    with pytest.raises(ConfigError, check=names("option 'classes'")):
        DATASETS["images"].loader(Path("/nowhere"), 0, domains="a,b", classes=f"x,{name}")


@pytest.mark.parametrize(
    "path", ["/", "..", "../x", "data/../..", "nowhere", "user/name", "https://h/x", "/tmp"]
)
def test_a_site_reads_a_data_set_of_hugging_face_below_its_folder_alone(path: str, tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    own = 'domain = "site"\npath = "{}"'
    (tmp_path / OPTIONS_FILE).write_text(own.format("inside"))
    at_north(tmp_path, "hf", path="inside")
    (tmp_path / OPTIONS_FILE).write_text(own.format(path))
    with pytest.raises(ConfigError, check=names("option 'path'")):
        at_north(tmp_path, "hf")


def test_a_site_has_a_domain_and_a_folder_of_its_own(folder: Path) -> None:
    with pytest.raises(ConfigError, check=names("data-dir", None, "a run names no folder")):
        at_north(None)
    with pytest.raises(ConfigError, check=names("domain", None, "a run does not say")):
        DataSpec("table", data_dir=str(folder), site="")
    assert DataSpec("digits", site="").lists_classes, "public samples need neither"
