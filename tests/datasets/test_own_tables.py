"""Tables as consortia have them: separators, encodings, words, missing values, parts, groups, regressions."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fda_flower.datasets import DataSpec, Split, load_domain, load_federation
from fda_flower.datasets.preparation import Preparation, TablePreparation
from fda_flower.datasets.table import OwnTables
from fda_flower.datasets.table_reading import MOST_CATEGORIES, Problems, read_table
from fda_flower.errors import ConfigError
from fda_flower.prediction.model import columns_for

ROWS = [["40", "f", "1"], ["50", "m", "0"], ["60", "f", "1"], ["70", "m", "0"], ["80", "f", "1"]] * 4


def write(
    folder: Path,
    name: str = "a",
    header: str = "age,sex,label",
    rows: list[list[str]] | None = None,
    separator: str = ",",
    suffix: str = ".csv",
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [header.replace(",", separator), *(separator.join(row) for row in rows or ROWS)]
    (folder / f"{name}{suffix}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def numbers(**changed: str) -> list[list[str]]:
    """Rows of numbers, some of which are changed by the number of the row."""
    rows = [[str(i), str(i * i), str(i % 2)] for i in range(20)]
    for cell, value in changed.items():
        row, column = cell.removeprefix("r").split("c")
        rows[int(row)][int(column)] = value
    return rows


def one(folder: Path, **options: Any) -> Split:
    return OwnTables(folder, 0, "a", **options)["a"]


# Files


@pytest.mark.parametrize(
    ("separator", "suffix"), [(";", ".csv"), ("\t", ".tsv"), ("|", ".txt"), ("\t", ".txt")]
)
def test_the_separator_is_that_of_the_header(tmp_path: Path, separator: str, suffix: str) -> None:
    expected = one(write(tmp_path / "comma", rows=numbers())).train.x
    found = one(write(tmp_path / "other", rows=numbers(), separator=separator, suffix=suffix)).train.x
    assert torch.equal(found, expected)


def test_utf_16_with_its_mark_and_a_named_encoding_are_read(tmp_path: Path) -> None:
    write(tmp_path, header="größe,sex,label", rows=numbers())
    text = (tmp_path / "a.csv").read_text(encoding="utf-8")
    for encoding, option in (("utf-16", ""), ("cp1252", "cp1252")):
        (tmp_path / "a.csv").write_bytes(text.encode(encoding))
        assert one(tmp_path, encoding=option).features == ("größe", "sex")
    with pytest.raises(ConfigError, match=r"cannot be read .*'encoding', such as cp1252"):
        one(tmp_path)
    with pytest.raises(ConfigError, match=r"cannot be read .unknown encoding: nope"):
        one(tmp_path, encoding="nope")


def test_quotes_hold_separators_and_what_is_no_end_of_a_line_ends_none(tmp_path: Path) -> None:
    rows = "".join(f'{i},"a\x85b\u2028c\x0b",{i % 2}\r\n' for i in range(10))
    text = f'"age; in years; at admission",note,label\r\n{rows}'
    (tmp_path / "a.csv").write_bytes(text.encode("utf-8-sig"))
    for encoding in ("", "utf-8"):
        table = read_table(tmp_path / "a.csv", encoding)
        assert table.header == ["age; in years; at admission", "note", "label"], "without the mark"
        assert (table.texts["note"][9], table.lines.tolist()) == ("a\x85b\u2028c", list(range(2, 12)))


def test_rows_of_other_lengths_are_told_with_all_else(tmp_path: Path) -> None:
    write(tmp_path, rows=[["1", "2"], *numbers(r3c0=""), ["1"], ["1"]])
    problems = Problems()
    table = read_table(tmp_path / "a.csv", problems=problems)
    assert (len(table), table.lines[0]) == (20, 3)
    assert [(each.what, each.line, each.count) for each in problems.found.values()] == [
        ("2 columns", 2, 1),
        ("1 columns", 23, 2),
    ]


def test_decimal_commas_are_named_and_read_if_an_option_says_so(tmp_path: Path) -> None:
    write(tmp_path, rows=numbers(r1c0="1,5", r3c0="2,5"), separator=";")
    with pytest.raises(
        ConfigError, match=r"has a decimal comma in line 3, column 'age' \(and 1 more line\): .*decimal=comma"
    ):
        one(tmp_path)
    split = one(tmp_path, decimal="comma")
    preparation = split.preparation
    x = torch.cat([split.train.x, split.test.x])[:, 0] * preparation.deviation[0] + preparation.mean[0]
    assert sorted(x.tolist())[1:4] == pytest.approx([1.5, 2, 2.5], abs=1e-4)
    assert sorted([*split.train.y.tolist(), *split.test.y.tolist()]) == [0] * 10 + [1] * 10


def test_domains_are_the_tables_of_the_first_suffix_that_a_folder_has(tmp_path: Path) -> None:
    for name in ("south", "north"):
        write(tmp_path, name, rows=numbers())
    (tmp_path / "readme.txt").write_text("about")
    spec = DataSpec("table", data_dir=str(tmp_path))
    assert spec.domain_names == ["north", "south"]
    assert spec.target_name == "south"
    assert dict(spec.dataset_options) == {"domains": "north,south"}
    assert list(load_federation(spec).domains) == ["north", "south"]


def test_a_folder_without_tables_and_names_that_options_cannot_hold_are_errors(tmp_path: Path) -> None:
    (tmp_path / "notes.md").touch()
    with pytest.raises(
        ConfigError, match=r"'table' finds no domain in .* holds notes.md: put a file for each"
    ):
        DataSpec("table", data_dir=str(tmp_path))
    write(tmp_path, "a,b", rows=numbers())
    with pytest.raises(ConfigError, match=r"the domain 'a,b' .* has a comma, .*: rename it"):
        DataSpec("table", data_dir=str(tmp_path))


def test_a_server_without_data_needs_the_names_of_the_domains(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'domains' is missing: .* give the folder that holds them"):
        DataSpec("table")
    with pytest.raises(ConfigError, match=r"nowhere', which is not a folder .* name the domains"):
        DataSpec("table", data_dir=str(tmp_path / "nowhere"))


# Classes


def test_words_are_classes_by_name_over_all_files(tmp_path: Path) -> None:
    write(tmp_path, "a", rows=[[*row[:2], "ill" if row[2] == "1" else "none"] for row in numbers()])
    write(tmp_path, "b", rows=[[*row[:2], "cured"] for row in numbers()])
    splits = OwnTables(tmp_path, 0, "a,b")
    assert splits["a"].class_names == splits["b"].class_names == ("cured", "ill", "none")
    assert set(splits["b"].train.y.tolist()) == {0}


def test_a_site_alone_has_to_be_told_classes_that_are_words_and_names_none(tmp_path: Path) -> None:
    write(tmp_path, "a", rows=[[*row[:2], "secret"] for row in numbers()])
    with pytest.raises(ConfigError, match="is a word, and other sites may have others: list all") as caught:
        _ = OwnTables(tmp_path, 0, "a,b")["a"]
    assert "secret" not in str(caught.value)
    assert OwnTables(tmp_path, 0, "a,b", classes="secret,open")["a"].classes == 2


def test_a_column_of_too_many_words_is_no_label(tmp_path: Path) -> None:
    rows = [[str(i), "1", f"name {i}"] for i in range(1001)]
    with pytest.raises(ConfigError, match="is one of 1001 different words: name another column"):
        one(write(tmp_path, rows=rows))


# Words and missing values


def test_words_are_refused_and_the_error_names_the_ways_out_but_no_word(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"a word in line 2, column 'sex' .*categorical=onehot.*ignore"
    ) as caught:
        one(write(tmp_path, rows=[[row[0], "secret", row[2]] for row in ROWS]))
    assert "secret" not in str(caught.value)


def test_categories_are_features_of_their_own_over_all_files(tmp_path: Path) -> None:
    write(tmp_path, "a")
    write(tmp_path, "b", rows=[[row[0], "other", row[2]] for row in ROWS])
    splits = OwnTables(tmp_path, 0, "a,b", categorical="onehot")
    assert splits["a"].features == splits["b"].features == ("age", "sex=f", "sex=m", "sex=other")
    preparation = splits["a"].preparation
    assert isinstance(preparation, TablePreparation)
    x = preparation.apply({"age": [60.0, 60.0], "sex": ["f", ""]}) * torch.tensor(
        preparation.deviation
    ) + torch.tensor(preparation.mean)
    torch.testing.assert_close(x, torch.tensor([[60.0, 1, 0, 0], [60.0, 0, 0, 0]]), atol=1e-5, rtol=0)


def test_a_preparation_with_categories_comes_back_from_json(tmp_path: Path) -> None:
    import json

    preparation = one(write(tmp_path), categorical="onehot", missing="mean").preparation
    assert preparation is not None
    again = Preparation.from_json(json.loads(json.dumps(preparation.to_json())))
    assert again == preparation
    assert hash(again) == hash(preparation)


def test_a_site_alone_has_to_be_told_categories(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(
        ConfigError, match=r"'sex' .* holds words, and other .*categories=sex:A\|B.*ignore=sex"
    ):
        _ = OwnTables(tmp_path, 0, "a,b", categorical="onehot")["a"]
    split = OwnTables(tmp_path, 0, "a,b", categories="sex:f|m|x")["a"]
    assert split.features == ("age", "sex=f", "sex=m", "sex=x")
    with pytest.raises(ConfigError, match="none of the known categories in line 3, column 'sex'"):
        _ = OwnTables(tmp_path, 0, "a,b", categories="sex:f|x")["a"]


@pytest.mark.parametrize("text", ["sex", "sex:", ":f|m", "sex:f|f", "sex:f||m"])
def test_categories_in_another_form_are_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"option 'categories' is .*: give columns with their categories"):
        one(write(tmp_path), categories=text)


def test_names_are_no_categories(tmp_path: Path) -> None:
    rows = [[str(i), f"name {i}", str(i % 2)] for i in range(MOST_CATEGORIES + 1)]
    with pytest.raises(ConfigError, match=r"has 101 different words, more than 100: .* ignore=sex"):
        one(write(tmp_path, rows=rows), categorical="onehot")
    assert one(tmp_path, ignore="sex").features == ("age",)


def test_a_single_word_among_numbers_stays_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no number in line 4, column 'age': fix it"):
        one(write(tmp_path, rows=numbers(r2c0="12o")), categorical="onehot")


def test_missing_numbers_become_the_mean_of_the_domains_own_training_rows(tmp_path: Path) -> None:
    rows = [[str(i), "" if i % 4 == 0 else str(i), str(i % 2)] for i in range(20)]
    write(tmp_path, rows=rows)
    with pytest.raises(
        ConfigError, match=r"no value in line 2, column 'sex' \(and 4 more lines\).*missing=mean"
    ):
        one(tmp_path)
    split = one(tmp_path, missing="mean")
    preparation = split.preparation
    assert isinstance(preparation, TablePreparation)
    ages = split.train.x[:, 0].double() * preparation.deviation[0] + preparation.mean[0]
    kept = [age for age in ages.round().tolist() if age % 4]
    assert preparation.fill[1] == pytest.approx(sum(kept) / len(kept))
    filled = split.train.x[[age % 4 == 0 for age in ages.round().tolist()], 1]
    torch.testing.assert_close(filled, torch.zeros(len(filled)), atol=1e-6, rtol=0)


def test_a_column_without_any_value_at_a_site_is_zero(tmp_path: Path) -> None:
    split = one(write(tmp_path, rows=[[row[0], "?", row[2]] for row in numbers()]), missing="mean")
    assert split.features == ("age", "sex")
    assert set(split.train.x[:, 1].tolist()) == {0.0}


# Which rows are for testing


def test_a_column_split_says_which_rows_are_for_testing(tmp_path: Path) -> None:
    rows = [[*row, "Test" if i < 3 else "train"] for i, row in enumerate(numbers())]
    split = one(write(tmp_path, header="age,sex,label,split", rows=rows))
    assert split.features == ("age", "sex")
    assert (len(split.train), len(split.test)) == (17, 3)
    rows[4][3] = "later"
    with pytest.raises(ConfigError, match="neither 'train' nor 'test' in line 6, column 'split': fix it"):
        one(write(tmp_path, header="age,sex,label,split", rows=rows))
    with pytest.raises(ConfigError, match="domain 'a' has no row for the part 'test'"):
        one(write(tmp_path, header="age,sex,label,split", rows=[[*row, "train"] for row in numbers()]))


def test_a_column_split_of_numbers_is_a_feature(tmp_path: Path) -> None:
    assert one(write(tmp_path, header="age,split,label", rows=numbers())).features == ("age", "split")


def test_folders_train_and_test_divide_the_rows(tmp_path: Path) -> None:
    for part, count in (("train", 12), ("test", 8)):
        for name in ("a", "b"):
            write(tmp_path / part, name, rows=numbers()[:count])
    spec = DataSpec("table", data_dir=str(tmp_path))
    assert spec.domain_names == ["a", "b"]
    domain = load_federation(spec).domains["a"]
    assert (len(domain.train), len(domain.test)) == (12, 8)


@pytest.mark.parametrize("classes", [2, 20])
def test_the_rows_of_a_group_stay_together(tmp_path: Path, classes: int) -> None:
    rows = [[f"p{i // 4}", str(i), str(i % classes)] for i in range(40)]
    split = one(write(tmp_path, header="patient,age,label", rows=rows), group="patient")
    assert split.features == ("age",)
    preparation = split.preparation
    groups = [
        {round(x * preparation.deviation[0] + preparation.mean[0]) // 4 for x in part.x[:, 0].tolist()}
        for part in (split.train, split.test)
    ]
    assert len(groups[1]) == 2
    assert groups[0] | groups[1] == set(range(10))
    assert not groups[0] & groups[1]


def test_a_group_that_is_no_column_or_a_single_one_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the columns age, sex, label: the option 'group' names 'patient'"):
        one(write(tmp_path), group="patient")
    with pytest.raises(ConfigError, match="domain 'a' has 1 group"):
        one(write(tmp_path, rows=[["same", *row[1:]] for row in numbers()]), group="age")


# Regression


def test_a_regression_has_numbers_in_units_of_the_sources_deviation(tmp_path: Path) -> None:
    for name, start in (("a", 100), ("b", 200), ("c", 10_000)):
        write(tmp_path, name, rows=[[str(i), str(-i), str(start + i)] for i in range(20)])
    spec = DataSpec("table", dataset_options=(("task", "regression"),), data_dir=str(tmp_path))
    assert spec.is_regression
    assert spec.target_name == "c"
    options = dict(spec.dataset_options)
    assert (options["label_mean"], options["label_deviation"]) == (160.0, 50.3), "the target has no say"
    named = (("domains", "a, b, c"), ("task", "regression"))
    spaced = DataSpec("table", dataset_options=named, data_dir=str(tmp_path), target="c")
    assert dict(spaced.dataset_options)["label_mean"] == 160.0, "a name has no spaces around it"
    federation = load_federation(spec)
    assert (federation.classes, federation.class_names) == (1, ())
    y = federation.domains["a"].train.y
    assert (y.dtype, y.shape) == (torch.float32, (16, 1))
    assert set((y * 50.3 + 160.0).round().flatten().tolist()) < set(range(100, 120))
    options.pop("label_mean")
    again = DataSpec("table", dataset_options=tuple(options.items()), data_dir=str(tmp_path))
    assert "label_mean" not in dict(again.dataset_options)


def test_labels_that_are_no_numbers_are_named(tmp_path: Path) -> None:
    write(tmp_path, rows=[[*row[:2], "secret"] for row in numbers()])
    with pytest.raises(ConfigError, match="a label that is no number in line 2, column 'label'") as caught:
        one(tmp_path, task="regression")
    assert "secret" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"option 'label_deviation' is 0.0: it must be above 0"):
        one(tmp_path, task="regression", label_deviation=0.0)


def test_constant_labels_have_no_scale(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path, name, rows=[[*row[:2], "7"] for row in numbers()])
    spec = DataSpec("table", dataset_options=(("task", "regression"),), data_dir=str(tmp_path))
    assert load_domain(spec, "a").domains["a"].train.y.unique().tolist() == [7.0]


def test_numbers_that_are_no_classes_point_to_the_regression(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"whole number from 0 to 999 in line 5.*task=regression"):
        one(write(tmp_path, rows=numbers(r3c2="0.5")))


# New rows for a model that was trained


def test_new_rows_are_read_and_prepared_as_those_that_the_model_was_trained_on(tmp_path: Path) -> None:
    rows = [["" if i == 3 else f"{i},5", "fm"[i % 2], str(i % 2)] for i in range(20)]
    write(tmp_path, rows=rows, separator=";")
    split = one(tmp_path, missing="mean", categorical="onehot", decimal="comma")
    preparation = split.preparation
    assert isinstance(preparation, TablePreparation)
    table = read_table(tmp_path / "a.csv")
    x = preparation.apply(columns_for(table, preparation, decimal_comma=True))
    every = {tuple(row) for part in (split.train, split.test) for row in part.x.tolist()}
    assert {tuple(row) for row in x.tolist()} == every
    for header, row, says in (
        ("age,sex", "x,f", "no number in line 2, column 'age'"),
        ("age,sex", "1,other", "none of the known categories in line 2, column 'sex': the model knows f, m:"),
        ("age,sex", '"1,5",f', "a decimal comma in line 2, column 'age': write a point, as in the tables"),
    ):
        (tmp_path / "new.csv").write_text(f"{header}\n{row}\n")
        with pytest.raises(ConfigError, match=says):
            columns_for(read_table(tmp_path / "new.csv"), preparation)


def test_outputs_of_a_regression_and_labels_are_each_others_inverse() -> None:
    preparation = TablePreparation(("age",), (0.0,), (1.0,), label_mean=50.0, label_deviation=10.0)
    outputs = preparation.outputs(torch.tensor([40.0, 70.0]))
    assert outputs.tolist() == [[-1.0], [2.0]]
    assert preparation.labels(outputs).tolist() == [[40.0], [70.0]]


def test_a_patients_rows_are_held_out_together(tmp_path: Path) -> None:
    rows = [[f"P{i // 2}", str(i), str(i // 2 % 2)] for i in range(80)]
    for name in ("a", "b"):
        write(tmp_path, name, header="patient,age,label", rows=rows)
    options = (("group", "patient"),)
    spec = DataSpec(
        "table", dataset_options=options, data_dir=str(tmp_path), validation="0.25", target_samples=48
    )
    domain = load_domain(spec, "b").domains["b"]
    assert domain.validation is not None
    train, held = domain.train.groups, domain.validation.groups
    assert train is not None
    assert held is not None
    assert held.tolist()
    assert not {*train.tolist()} & {*held.tolist()}
