"""What a column's cells are: numbers, words, dates, numbers with a unit, numbers of patients, or nothing."""

from pathlib import Path

import numpy as np
import pytest
from naming import names

from fda_flower.errors import ConfigError
from fda_flower.own_data.column import Column
from fda_flower.own_data.table import OwnTables

DATE, PAIR, UNIT, CODE = "a date", "two numbers", "a number with a unit", "a word that tells rows apart"
TIME = "a time or a duration"


def write(folder, **columns):
    """Write a table for each domain, with a feature, the column `bp` and a label."""
    for name, cells in columns.items():
        rows = [f"{i % 7},{cell},{i % 2}" for i, cell in enumerate(cells)]
        (folder / f"{name}.csv").write_text("\n".join(["age,bp,label", *rows]) + "\n", encoding="utf-8")
    return folder


def column(*texts):
    return Column("bp", texts, Path("a.csv"), np.arange(len(texts)))


def tables(folder, **options):
    return OwnTables(folder, 0, options.pop("domains", "a,b"), **options)


def problems(splits):
    return [
        (each.what, each.column, each.line, each.count) for each in splits.survey.problems.entries.values()
    ]


NUMBERS = [str(100 + i % 9) for i in range(40)]
CODES = [f"P{i:04}" for i in range(40)]


@pytest.mark.parametrize(
    ("cells", "form"),
    [
        (["2024-05-01", "2024-06-13", "?"], DATE),
        (["01.05.2024", "13.06.2024"], DATE),
        (["5/1/24", "6/13/24"], DATE),
        (["2024-05-01T10:00:00Z", "2024-05-01 10:30"], DATE),
        (["10:30", "8:15 pm"], TIME),
        (["126:00:00", "-1:30:00"], TIME),
        (["PT1H30M", "P1DT2H"], TIME),
        (["05/2024", "2024-06"], DATE),
        (["1 May 2024", "13. Juni 2024", "June 3, 2024"], DATE),
        (["120/80", "135/85"], PAIR),
        (["120_80", "135_85"], PAIR),
        (["145 mmHg", "150 mmHg"], UNIT),
        (["1,5 mg/dl", "2,5 mg/dl", "none"], UNIT),
        (["12%", "30%"], UNIT),
        (["$12", "$ 30"], UNIT),
        (["<5", "<7.5"], UNIT),
        (CODES, CODE),
        ([f"name {letter}" for letter in "abcdefghijklmnopqrst"], CODE),
        ([f"{i % 30}-{i % 25}" for i in range(150)], CODE),
        (["none", "some", "much"], None),
        (["1st", "2nd", "21st"], None),
        (["3a", "3b", "4a", "4b"], None),
        (["20-30", "30-40", "20-30"], None),
        (["1 low", "2 high"], None),
        (["T1", "T2", "T3"] * 10, None),
    ],
)
def test_words_are_recognised_by_their_form(cells, form):
    found = column(*cells).form
    assert (found and found.what) == form


@pytest.mark.parametrize("options", [{}, {"categorical": "onehot"}])
@pytest.mark.parametrize(
    ("cells", "form"),
    [
        ([f"{1 + i % 28}.5.2024" for i in range(40)], DATE),
        ([f"202405{10 + i % 20}" for i in range(40)], DATE),
        ([f"{each} mmHg" for each in NUMBERS], UNIT),
        (CODES, CODE),
    ],
)
def test_each_form_has_its_own_problem_with_its_place(tmp_path, cells, form, options):
    write(tmp_path, a=cells, b=cells)
    assert problems(tables(tmp_path, **options)) == [(form, "bp", 2, 40)] * 2
    listed = {"categories": "bp:" + "|".join(sorted({*cells}))} if form != CODE else {"ignore": "bp"}
    assert problems(tables(tmp_path, **listed, **options)) == []


@pytest.mark.parametrize("options", [{}, {"categorical": "onehot"}, {"missing": "mean"}])
def test_a_column_of_words_at_some_sites_only_is_named(tmp_path, options):
    write(tmp_path, a=NUMBERS, b=NUMBERS, c=[f"{each} mmHg" for each in NUMBERS])
    splits = tables(tmp_path, domains="a,b,c", **options)
    with pytest.raises(ConfigError, check=names("column", "bp", "ignore=bp")) as error:
        _ = splits["a"]
    assert "numbers in a.csv, b.csv, but text in c.csv (a number with a unit?)" in str(error.value)
    assert "mmHg" not in str(error.value)
    assert len(splits.survey.problems.entries) == 1


@pytest.mark.parametrize("mark", ["", "NA", "none"])
@pytest.mark.parametrize("options", [{}, {"missing": "mean"}, {"missing": "mean", "categorical": "onehot"}])
def test_a_column_without_a_value_at_a_site_is_named(tmp_path, options, mark):
    write(tmp_path, a=NUMBERS, b=[mark] * 40)
    assert problems(tables(tmp_path, **options)) == [("no value in the whole column", "bp", 2, 40)]


def test_none_is_a_category_where_others_are_words(tmp_path):
    write(tmp_path, a=["none", "some"] * 20, b=["none"] * 40)
    assert tables(tmp_path, categorical="onehot")["b"].features == ("age", "bp=none", "bp=some")


@pytest.mark.parametrize(
    ("name", "cells", "said"),
    [
        ("bp", range(1000, 1040), True),
        ("bp", [*range(20, 40), *range(20)], False),
        ("patient id", [*range(20, 40), *range(20)], True),
        ("PatientID", [*range(20, 40), *range(20)], True),
        ("bp", [10_000 + i * 7919 % 90_000 for i in range(40)], True),
        ("acid", [*range(20, 40), *range(20)], False),
        ("patient id", [*range(20)] * 2, False),
    ],
)
def test_columns_that_seem_to_number_patients_are_said(tmp_path, caplog, name, cells, said):
    for path in write(tmp_path, a=cells, b=cells).glob("*.csv"):
        path.write_text(path.read_text().replace("bp", name, 1))
    assert name in tables(tmp_path)["a"].features
    assert ("'group' or 'ignore'" in caplog.text) == said


@pytest.mark.parametrize("labels", [CODES, [f"2024-05-{10 + i % 9}" for i in range(40)]])
def test_a_label_that_is_another_in_each_row_or_a_date_is_named(tmp_path, labels):
    write(tmp_path, a=labels, b=labels)
    with pytest.raises(ConfigError, check=names("label", "bp", "another column")):
        _ = tables(tmp_path, label="bp")["a"]


@pytest.mark.parametrize("option", ["label", "group", "text", "categories", "ignore"])
def test_an_option_with_a_misspelt_column_offers_the_near_one(tmp_path, option):
    write(tmp_path, a=NUMBERS, b=NUMBERS)
    value = {"label": "lable", "categories": "agee:1|2"}.get(option, "agee")
    near = "label" if option == "label" else "age"
    file = names("data file", tmp_path / "a.csv")
    check = names("column of the option 'ignore'", "agee") if option == "ignore" else file
    with pytest.raises(ConfigError, match=f"did you mean '{near}'", check=check):
        _ = tables(tmp_path, **{option: value})["a"]


def test_names_with_a_comma_stand_in_quotation_marks(tmp_path):
    rows = [f'{i},"Roe, W{i % 3}","{"ill, mild" if i % 2 else "well"}"' for i in range(20)]
    (tmp_path / "a.csv").write_text("\n".join(['age,"doctor, ward","state, then"', *rows]) + "\n")
    given = {"domains": "a", "label": "state, then"}
    assert tables(tmp_path, ignore='"doctor, ward"', **given)["a"].features == ("age",)
    with pytest.raises(
        ConfigError, match='"doctor, ward"', check=names("column of the option 'ignore'", "doctor")
    ):
        _ = tables(tmp_path, ignore="doctor, ward", **given)["a"]
    listed = '"doctor, ward":"Roe, W0"|"Roe, W1"|"Roe, W2"'
    found = tables(tmp_path, categories=listed, classes='well,"ill, mild"', **given)["a"]
    assert (len(found.features), found.class_names) == (4, ("well", "ill, mild"))


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("1,5", True),
        ("1.5", False),
        (",5e3", True),
        ("1.234,5", True),
        ("1,234,567", True),
        ("1\u202f234", True),
        ("1'234", True),
        ("1_000", True),
        ("'40'", True),
        ("'40.5", True),
        ("'f'", False),
        ("120_80", False),
        ("12.05.2020", False),
        ("1 mg", False),
        ("", False),
    ],
)
def test_numbers_with_other_marks_are_told_from_words(text, marked):
    assert column(text, "?", "5", text).marked.tolist() == [marked, False, False, marked]
