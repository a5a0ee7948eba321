"""A consortium's own tables."""

from pathlib import Path

import pytest
import torch
from naming import names
from sites import write_table

from fda_flower.datasets.table import OwnTables
from fda_flower.datasets.table_reading import FEWEST
from fda_flower.errors import ConfigError

ROWS = ["1.5,0,3", "2.5,1,3", "3.5,0,3", "4.5,1,3", "5.5,0,3"] * 2


def write(folder: Path, name: str = "a", header: str = "b,label,a", rows: list[str] | None = None) -> Path:
    path = folder / f"{name}.csv"
    path.write_text("\n".join([header, *(ROWS if rows is None else rows)]) + "\n")
    return folder


def test_four_fifths_are_trained_on_and_both_parts_have_all_classes(tmp_path: Path) -> None:
    split = OwnTables(write(tmp_path), 0, "a")["a"]
    assert (len(split.train), len(split.test), split.classes) == (8, 2, 2)
    assert sorted(split.test.y.tolist()) == [0, 1]
    assert split.class_names == ("0", "1")
    assert (split.train.x.dtype, split.train.y.dtype) == (torch.float32, torch.int64)


def test_columns_are_in_alphabetical_order_and_standardised_by_the_training_part(
    tmp_path: Path,
) -> None:
    split = OwnTables(write(tmp_path), 0, "a")["a"]
    assert split.features == ("a", "b")
    assert split.train.x[:, 0].tolist() == [0] * 8, "a constant feature is only centred"
    torch.testing.assert_close(float(split.train.x[:, 1].mean()), 0.0, atol=1e-6, rtol=0)
    torch.testing.assert_close(float(split.train.x[:, 1].std(correction=0)), 1.0)


def test_the_order_of_columns_changes_nothing(tmp_path: Path) -> None:
    first = OwnTables(write(tmp_path), 0, "a")["a"]
    turned = [",".join(reversed(row.split(","))) for row in ROWS]
    second = OwnTables(write(tmp_path, header="a,label,b", rows=turned), 0, "a")["a"]
    assert torch.equal(first.train.x, second.train.x)


def test_the_split_is_the_seeds_and_the_domains(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_table(tmp_path / f"{name}.csv", 0)
    first, again, other = (OwnTables(tmp_path, seed, "a,b") for seed in (0, 0, 1))
    assert torch.equal(first["a"].test.x, again["a"].test.x)
    assert not torch.equal(first["a"].test.x, other["a"].test.x)
    assert not torch.equal(first["a"].test.x, first["b"].test.x)


def test_a_site_needs_its_own_file_only_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for i, name in enumerate(("a", "b")):
        write_table(tmp_path / f"{name}.csv", i)
    whole = OwnTables(tmp_path, 0, "a,b")["a"]
    assert caplog.messages == []
    (tmp_path / "b.csv").unlink()
    alone = OwnTables(tmp_path, 0, "a,b")
    assert torch.equal(alone["a"].train.x, whole.train.x)
    assert "table: of all domains, only a is here" in caplog.text
    with pytest.raises(ConfigError, match=r"b\.csv' is missing: put the domain's table there"):
        _ = alone["b"]


def test_classes_may_be_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = ["1, yes", "2, no", "3,yes", "4,no", "5,yes"]
    write(tmp_path, header="age,ill", rows=rows)
    split = OwnTables(tmp_path, 0, "a,b", label="ill", classes="no,maybe,yes")["a"]
    assert (split.classes, split.class_names) == (3, ("no", "maybe", "yes"))
    assert sorted([*split.train.y.tolist(), *split.test.y.tolist()]) == [0, 0, 2, 2, 2]
    assert caplog.messages == []


def test_the_classes_without_names_are_those_of_all_files_that_are_there(tmp_path: Path) -> None:
    write(tmp_path, "a")
    write(tmp_path, "b", rows=[row.replace(",1,", ",2.0,") for row in ROWS])
    assert OwnTables(tmp_path, 0, "a,b")["a"].class_names == ("0", "1", "2")


def test_quotes_blank_lines_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    write(tmp_path)
    text = (tmp_path / "a.csv").read_text()
    expected = OwnTables(tmp_path, 0, "a")["a"].train.x
    rewritten = text.replace("b,label,a", '\ufeff"b","label","a"').replace("2.5,1,3\n", '\n"2.5",1, 3\r\n', 1)
    (tmp_path / "a.csv").write_text(rewritten, encoding="utf-8")
    assert torch.equal(OwnTables(tmp_path, 0, "a")["a"].train.x, expected)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("1,0", r"has 2 columns in line 3: fix it, the header has 3"),
        (
            ",0,3",
            r"has no value in line 3, column 'b': fill it in, or remove the line, or the column",
        ),
        ("1,0,NA", r"has no value in line 3, column 'a'"),
        ("1,0,nan", r"has no value in line 3, column 'a'"),
        ("secret,0,3", r"has no number in line 3, column 'b': fix it"),
        ("1,0,inf", r"has no number in line 3, column 'a'"),
        ("1,secret,3", r"not a whole number from 0 to 999 in line 3, column 'label': list them in"),
        ("1,-1,3", r"not a whole number from 0 to 999 in line 3, column 'label'"),
        ("1,0.5,3", r"not a whole number from 0 to 999 in line 3, column 'label'"),
        ("1,,3", r"not a whole number from 0 to 999 in line 3, column 'label'"),
        ("1,1000,3", r"not a whole number from 0 to 999 in line 3, column 'label'"),
    ],
)
def test_a_damaged_file_is_named_with_line_and_column_but_no_value(
    tmp_path: Path, line: str, says: str
) -> None:
    write(tmp_path, rows=[ROWS[0], line, *ROWS])
    with pytest.raises(ConfigError, match=says) as caught:
        _ = OwnTables(tmp_path, 0, "a")["a"]
    assert f"'{tmp_path / 'a.csv'}'" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ("b,ill,a", "has the columns b, ill, a: it needs 'label' .the option 'label'."),
        ("a,label,a", "each of them once"),
        ("b,ill,c", "has the columns b, ill, c: it needs 'label'"),
    ],
)
def test_an_invalid_header_is_an_error_that_says_why(tmp_path: Path, header: str, says: str) -> None:
    write(tmp_path, header=header)
    with pytest.raises(ConfigError, match=says):
        _ = OwnTables(tmp_path, 0, "a")["a"]


def test_an_empty_file_and_one_with_too_few_rows_are_errors(tmp_path: Path) -> None:
    write(tmp_path, rows=ROWS[: FEWEST - 1])
    with pytest.raises(ConfigError, match=r"a\.csv' has 4 rows, at least 5 are needed"):
        _ = OwnTables(tmp_path, 0, "a")["a"]
    (tmp_path / "a.csv").write_text("")
    with pytest.raises(ConfigError, match=r"a\.csv' is empty: give it a header"):
        _ = OwnTables(tmp_path, 0, "a")["a"]


def test_bytes_that_are_not_text_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"label,a\n1,\xe9\n")
    with pytest.raises(ConfigError, match=r"a\.csv' cannot be read .*encoding', such as cp1252"):
        _ = OwnTables(tmp_path, 0, "a")["a"]


def test_a_label_that_is_not_a_class_is_an_error_that_lists_the_classes(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"none of the classes 0, 2, in line 3, column 'label' \(and 3 more lines\): fix it"
    ):
        _ = OwnTables(write(tmp_path), 0, "a", classes="0,2")["a"]


def test_other_columns_on_one_machine_are_an_error_with_both_files(tmp_path: Path) -> None:
    write(tmp_path, "a")
    write(tmp_path, "b", header="b,label,c")
    with pytest.raises(ConfigError, match=r"only one of .*a\.csv' and .*b\.csv' has a, c: give all domains"):
        _ = OwnTables(tmp_path, 0, "a,b")["a"]


def test_without_a_folder_the_error_says_how_to_give_one() -> None:
    with pytest.raises(ConfigError, check=names("data set", "table")):
        OwnTables(None, 0, "a")
