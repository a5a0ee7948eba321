"""The place of a data set of Hugging Face, its division into domains, and its columns as text."""

import datetime

import numpy as np
import pytest
from datasets.arrow_dataset import Dataset
from datasets.dataset_dict import DatasetDict
from datasets.features import ClassLabel
from naming import names
from PIL import Image

from fda_flower.errors import ConfigError
from fda_flower.own_data.hugging_face_source import NumberedRows, Source, check_kind, read_arguments, words

SITES = ClassLabel(names=["x", "y"])


def numbered(**columns):
    """A part of rows with these columns."""
    return NumberedRows.whole(Dataset.from_dict(columns))


def members(options, seed, part=None):
    """The lines of the first partition."""
    part = part or numbered(label=[i % 2 for i in range(60)])
    source = Source(partitioner="DirichletPartitioner", partitioner_options=options)
    return source.domains({"train": part}, seed)["partition-0"]["train"].lines.tolist()


def test_the_seed_says_who_gets_which_rows_unless_the_options_do():
    options = "num_partitions:2,partition_by:label,alpha:5.0,min_partition_size:6"
    first, again, other = (members(options, seed) for seed in (0, 0, 1))
    assert first == again
    assert {*first} != {*other}
    assert members(f"{options},seed:3", 0) == members(f"{options},seed:3", 1)


def test_each_row_of_a_partition_keeps_its_line_and_goes_to_one_domain():
    part = numbered(age=[*range(20)])
    found = Source(partitioner="SizePartitioner", partitioner_options="partition_sizes:[5,15]").domains(
        {"train": part}, 0
    )
    dealt = [each["train"] for each in found.values()]
    assert [len(each.lines) for each in dealt] == [5, 15]
    for each in dealt:
        assert list(each.data["age"]) == (each.lines - 1).tolist()
        assert each.data.column_names == ["age"]
    assert sorted(np.concatenate([each.lines for each in dealt])) == [*range(1, 21)]


@pytest.mark.parametrize("text", ["num_partitions", "num_partitions:", ":4", "a:1,a:2", "a:1,,b:2"])
def test_an_argument_of_a_partitioner_has_a_name_and_a_value(text):
    with pytest.raises(ConfigError, check=names("option 'partitioner_options'", text)):
        read_arguments(text)


@pytest.mark.parametrize(
    ("column", "found"),
    [
        (["a", None, " b"], ["a", "", " b"]),
        ([1.0, float("nan"), float("inf")], ["1.0", "", "inf"]),
        ([True, None], ["True", ""]),
        ([-1, None, 3], ["-1", "", "3"]),
    ],
)
def test_a_missing_value_is_empty_text(column, found):
    assert words(Dataset.from_dict({"x": column}), "x") == found


def test_a_number_that_stands_for_no_class_is_empty_text():
    data = Dataset.from_dict({"site": [0, -1, None, -2, 1]}).cast_column("site", SITES)
    assert words(data, "site") == ["x", "", "", "", "y"]


@pytest.mark.parametrize(
    ("value", "held"),
    [
        ([1, 2], "lists"),
        ({"a": 1}, "dictionaries"),
        (datetime.datetime(2024, 5, 1), "timestamp"),
        (datetime.date(2024, 5, 1), "date32"),
        (datetime.timedelta(1), "duration"),
        (b"a", "bytes"),
    ],
)
def test_a_column_of_no_numbers_and_no_words_is_named_by_what_it_holds(value, held):
    data = Dataset.from_dict({"x": [value, value]})
    with pytest.raises(ConfigError, match=held, check=names("column", "x", "leave it out")):
        check_kind("x", data, "leave it out")


def test_rows_without_a_domain_are_in_none_and_domains_that_look_alike_are_named():
    source = Source(domain="site")
    part = NumberedRows.whole(Dataset.from_dict({"site": [0, -1, None, 1]}).cast_column("site", SITES))
    found = source.domains({"train": part}, 0)
    assert {name: each["train"].lines.tolist() for name, each in found.items()} == {"x": [1], "y": [4]}
    with pytest.raises(ConfigError, check=names("column", "site")):
        source.domains({"train": numbered(site=[None, None])}, 0)
    with pytest.raises(ConfigError, check=names("domains", "a, a ")):
        source.domains({"train": numbered(site=["a", "b", "a "])}, 0)
    with pytest.raises(ConfigError, match="lists", check=names("column", "site")):
        source.domains({"train": numbered(site=[["a"], ["b"]])}, 0)


def test_a_column_to_divide_by_has_a_value_in_each_row():
    part = numbered(label=[0, None, 1, None, 0, 1])
    with pytest.raises(ConfigError, match="line 2 and 1 more", check=names("column", "label")):
        members("num_partitions:2,partition_by:label,alpha:5.0", 0, part)
    with pytest.raises(ConfigError, match="'label'", check=names("column of partition_by", "labell")):
        members("num_partitions:2,partition_by:labell,alpha:5.0", 0, part)


def test_partitioners_of_columns_are_none_of_rows():
    source = Source(partitioner="VerticalEvenPartitioner", partitioner_options="num_partitions:2")
    with pytest.raises(ConfigError, check=names("partitioner", "VerticalEvenPartitioner")):
        source.domains({"train": numbered(a=[1, 2], b=[3, 4])}, 0)


def test_a_saved_format_changes_nothing_and_parts_that_no_option_names_are_told(tmp_path):
    picture = Image.new("RGB", (2, 3))
    data = Dataset.from_dict({"age": [1, 2], "site": ["a", "b"], "picture": [picture, picture]})
    data.set_format("torch", columns=["age"])
    DatasetDict(train=data, test=data, more=data).save_to_disk(str(tmp_path))
    parts, others = Source(domain="site", test_split="test").open(tmp_path)
    assert (list(parts), others) == (["train", "test"], ["more"])
    assert words(parts["test"].data, "age") == ["1", "2"]
    assert words(parts["test"].data, "site") == ["a", "b"]
    assert parts["test"].data["picture"][1]["bytes"].startswith(b"\x89PNG"), "it is not decoded"


def test_no_row_is_to_train_on_and_to_test_on():
    with pytest.raises(ConfigError, check=names("option 'test_split'", "train")):
        Source(domain="site", test_split="train")


def test_a_folder_that_is_not_there_is_no_name_on_the_hub(tmp_path):
    with pytest.raises(ConfigError, check=names("data-dir", tmp_path / "nowhere")):
        Source(domain="site").place(tmp_path / "nowhere")
