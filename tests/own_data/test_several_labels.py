"""Several labels of a sample: columns of 0 and 1 in tables, and in lists of images."""

import csv

import numpy as np
import pytest
from naming import names
from PIL import Image

from fda_flower.datasets import DataSpec, load_federation
from fda_flower.datasets.few_samples import target_problems
from fda_flower.datasets.splitting import strata
from fda_flower.errors import ConfigError
from fda_flower.own_data.check import check

LABELS = ("effusion", "edema", "nodule")
OPTIONS = {"task": "multilabel", "label": ",".join(LABELS)}


def findings(count=40, seed=0):
    """Labels of which the last is rare: two samples have it."""
    held = np.random.default_rng(seed).random((count, 3)) < (0.5, 0.3, 0)
    held[:2, 2] = True
    return held.astype(int)


def write(folder, changed=(), header=("age", *LABELS, "person")):
    """Tables of two sites; `changed` are cells of the first by row and column."""
    folder.mkdir(exist_ok=True)
    for site, name in enumerate("ab"):
        rows = [[40 + i + site, *held, i // 2] for i, held in enumerate(findings(seed=site).tolist())]
        for row, column, value in changed if name == "a" else ():
            rows[row][column] = value
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([header, *rows])
    return folder


def pictures(folder, lists="ab"):
    """Images of two sites with a list for some of them."""
    for site, name in enumerate("ab"):
        (folder / name).mkdir(parents=True)
        held = findings(seed=site).tolist()
        for i in range(len(held)):
            pixels = np.random.default_rng(100 * site + i).integers(0, 255, (8, 8)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{i}.png")
        if name in lists:
            rows = [["file", *LABELS], *([f"{i}.png", *each] for i, each in enumerate(held))]
            with (folder / name / "labels.csv").open("w", newline="") as file:
                csv.writer(file).writerows(rows)
    return folder


def spec_of(dataset, folder, **options):
    return DataSpec(dataset, data_dir=str(folder), dataset_options=tuple((OPTIONS | options).items()))


@pytest.mark.parametrize("dataset", ["table", "images"])
def test_labels_are_read_in_the_order_of_the_option_and_a_rare_one_is_in_both_parts(dataset, tmp_path):
    folder = write(tmp_path, header=("age", *LABELS, "id")) if dataset == "table" else pictures(tmp_path)
    spec = spec_of(dataset, folder, **({"ignore": "id"} if dataset == "table" else {}))
    data = load_federation(spec)
    assert (data.classes, data.class_names, spec.task) == (3, LABELS, "multilabel")
    for site, domain in enumerate(data.domains.values()):
        for samples in (domain.train, domain.test):
            assert (samples.task, samples.y.dtype) == ("multilabel", np.dtype(np.float32))
            assert samples.y[:, 2].sum() == 1
        both = np.concatenate([domain.train.y, domain.test.y])
        assert sorted(both.tolist()) == sorted(findings(seed=site).astype(float).tolist())
    contents = check(spec).domains["a"]
    assert contents.classes == dict(zip(LABELS, findings().sum(axis=0).tolist(), strict=True))


def test_patients_stay_together(tmp_path):
    for domain in load_federation(spec_of("table", write(tmp_path), group="person")).domains.values():
        assert {*domain.train.groups.tolist()}.isdisjoint(domain.test.groups.tolist())


@pytest.mark.parametrize(
    ("cells", "what"),
    [
        ([(3, 2, ""), (9, 2, "NA")], "no label in line 5, column 'edema' (and 1 more line)"),
        ([(3, 2, "-1")], "a label other than 0 and 1 in line 5, column 'edema'"),
        ([(3, 1, "uncertain"), (4, 1, 0.5)], "column 'effusion' (and 1 more line)"),
        ([(3, 1, "yes"), (4, 1, "inf")], "column 'effusion' (and 1 more line)"),
        ([(3, 1, "-inf"), (4, 1, "1e300")], "column 'effusion' (and 1 more line)"),
    ],
)
@pytest.mark.parametrize("dataset", ["table", "images"])
def test_missing_and_uncertain_labels_are_refused_by_column_and_count(dataset, cells, what, tmp_path):
    if dataset == "table":
        folder = write(tmp_path, cells)
    else:
        folder = pictures(tmp_path)
        lines = [line.split(",") for line in (folder / "a/labels.csv").read_text().splitlines()]
        for row, column, value in cells:
            lines[1 + row][column] = str(value)
        (folder / "a/labels.csv").write_text("\n".join(map(",".join, lines)))
    with pytest.raises(ConfigError, match="leave these rows out, or the column out of") as caught:
        load_federation(spec_of(dataset, folder))
    assert what in str(caught.value)
    counts = check(spec_of(dataset, folder)).domains["a"].classes.values()
    assert all(0 <= count <= len(findings()) for count in counts)


@pytest.mark.parametrize(
    ("options", "thing", "remedy"),
    [
        ({"label": "effusion"}, "option 'label'", "label=effusion,edema"),
        ({"label": "effusion,effusion"}, "option 'label'", "each of them once"),
        ({"classes": "yes,no"}, "option 'classes'", "leave it out"),
        ({"label": "effusion,oedema"}, "data file", "'oedema' (did you mean 'edema'"),
        ({"label_mean": 2.0, "label_deviation": 1.0}, "options 'label_mean' and", "task=regression"),
        ({"ignore": "edema"}, "option 'ignore'", "another"),
    ],
)
def test_options_that_contradict_the_task_are_refused(options, thing, remedy, tmp_path):
    with pytest.raises(ConfigError) as caught:
        load_federation(spec_of("table", write(tmp_path), **options))
    assert thing in f"{caught.value.thing}"
    assert remedy in str(caught.value)


def test_a_label_that_all_rows_have_is_refused(tmp_path):
    folder = write(tmp_path)
    for name in "ab":
        path = folder / f"{name}.csv"
        head, *rows = path.read_text().splitlines()
        rows = [",".join([*row.split(",")[:3], "0", row.split(",")[4]]) for row in rows]
        path.write_text("\n".join([head, *rows]))
    with pytest.raises(ConfigError, match="leave it out of the option 'label'"):
        load_federation(spec_of("table", folder))


def test_images_need_a_list_since_a_folder_names_one_class(tmp_path):
    folder = pictures(tmp_path, lists="a")
    with pytest.raises(ConfigError, check=names("domain folder", folder / "b", "labels.csv")):
        load_federation(spec_of("images", folder))


def test_a_column_that_tells_one_label_is_named_with_it(tmp_path):
    folder = tmp_path
    for site, name in enumerate("ab"):
        rows = [[*held, held[1], i] for i, held in enumerate(findings(80, site).tolist())]
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([[*LABELS, "treated", "age"], *rows])
    notes = check(spec_of("table", folder)).notes
    assert any("alone tell 'edema' of every row: treated" in note for note in notes)


def test_a_target_whose_labels_are_too_few_is_told(tmp_path):
    data = load_federation(spec_of("table", write(tmp_path)))
    domain = data.domains["b"]
    assert target_problems(domain.test, domain.train, LABELS) == [
        "8 test samples are too few to judge a model by: give the target at least 10",
        "1 of 3 labels holds for a single sample: nodule",
    ]


def test_strata_are_of_the_rarest_label():
    assert strata(np.array([[1, 0], [1, 1], [0, 0], [1, 0]])).tolist() == [0, 1, 2, 0]
    assert strata(np.zeros((2, 3))).tolist() == [3, 3]


def test_rows_of_hugging_face_have_several_labels(tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = {"age": [*range(80)], "site": ["a", "b"] * 40}
    rows |= dict(zip(LABELS, findings(80).T.tolist(), strict=True))
    datasets.Dataset.from_dict(rows).save_to_disk(tmp_path / "hf")
    data = load_federation(spec_of("hf", tmp_path / "hf", domain="site"))
    assert (data.class_names, data.domains["a"].train.task) == (LABELS, "multilabel")
    both = np.concatenate([each.y for d in data.domains.values() for each in (d.train, d.test)])
    assert sorted(both.tolist()) == sorted(findings(80).astype(float).tolist())
