"""What `fda data check` finds."""

from dataclasses import replace
from pathlib import Path

import pytest
from naming import names
from sites import write_images, write_table

from fda_flower.datasets import DataSpec
from fda_flower.datasets.check import check_images, check_table, find_dataset, sizes_of
from fda_flower.errors import ConfigError


def test_the_data_set_follows_from_the_content(tmp_path: Path) -> None:
    write_table(tmp_path / "tables/a.csv", 0)
    write_table(tmp_path / "parts/train/a.csv", 0)
    (tmp_path / "parts/test").mkdir()
    write_images(tmp_path / "images/a", 0)
    write_images(tmp_path / "both/a", 0)
    write_table(tmp_path / "both/a.csv", 0)
    assert [find_dataset(tmp_path / name) for name in ("tables", "parts", "images")] == [
        *("table", "table", "images")
    ]
    for folder, says in (
        (tmp_path / "both", "holds both tables and"),
        (tmp_path, "holds neither tables nor"),
    ):
        with pytest.raises(ConfigError, match=says):
            find_dataset(folder)
    with pytest.raises(ConfigError, check=names("folder")):
        find_dataset(tmp_path / "nowhere")


def test_all_problems_of_tables_are_found_at_once(tmp_path: Path) -> None:
    rows = [f"{i},{i},{i % 2}" for i in range(10)]
    (tmp_path / "good.csv").write_text("\n".join(["age,size,label", *rows]))
    (tmp_path / "gaps.csv").write_text("\n".join(["age,size,label", ",x,1", "?,1.5,2", "3,4", *rows]))
    (tmp_path / "few.csv").write_text("age,size,label\n1,2,0\n")
    (tmp_path / "other.csv").write_text("\n".join(["age,weight,label", ",y,0", "1,2,five", *rows]))
    (tmp_path / "bytes.csv").write_bytes(b"age,size,label\n\xff,1,0\n")
    options = dict(DataSpec("table", data_dir=str(tmp_path)).dataset_options)
    found = check_table(tmp_path, options)
    shown = found.problems.by_kind()
    assert shown["2 columns: fix it, the header has 3"] == [f"{tmp_path / 'gaps.csv'}: line 4"]
    for says in ("cannot be read", "only one of the data files"):
        assert any(says in kind for kind in shown), says
    assert shown["1 rows, at least 5 are needed: get more"] == [str(tmp_path / "few.csv")]
    (gaps,) = (places for kind, places in shown.items() if kind.startswith("no value"))
    assert gaps[0] == f"{tmp_path / 'gaps.csv'}: age, line 2 and 1 more line"
    assert gaps[1:] == [f"{tmp_path / 'other.csv'}: age, line 2"]
    (labels,) = (places for kind, places in shown.items() if kind.startswith("a label"))
    assert labels == [f"{tmp_path / 'other.csv'}: label, line 3"]
    assert found.domains["good"].classes == {"0": 5, "1": 5}


def test_missing_values_are_counted_by_column(tmp_path: Path) -> None:
    rows = [f"{i or '?'},{i},{i % 2}" for i in range(10)]
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("\n".join(["age,size,label", *rows]))
    options = {"domains": "a,b", "missing": "mean", "task": "regression"}
    found = check_table(tmp_path, options)
    assert not found.problems
    assert (found.domains["a"].missing, found.domains["a"].classes) == ({"age": 1}, {})
    assert found.inputs == "2 columns: age, size"
    spec = DataSpec("table", dataset_options=tuple(options.items()), data_dir=str(tmp_path), target_samples=5)
    assert sizes_of(spec, found.problems) == {"a": ("8", "2"), "b": ("5 + 3 unlabelled", "2")}
    more = replace(spec, target_samples=50, source_samples=60)
    assert sizes_of(more, found.problems) == {}
    assert [kind[:21] for kind in found.problems.by_kind()] == [
        "source-samples is 60,",
        "target-samples is 50,",
    ]


def test_damaged_images_and_sizes_are_found(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_images(tmp_path / name, 0)
    (tmp_path / "a/ant/0.png").write_text("damaged")
    (tmp_path / "b/bee/1.png").write_text("damaged")
    found = check_images(tmp_path, {"domains": "a, b", "image_size": "8x8"})
    assert [name.partition("' is damaged")[0][-9:] for name in found.problems.by_kind()] == [
        "ant/0.png",
        "bee/1.png",
    ]
    assert found.domains["a"].classes == {"ant": 10, "bee": 10}
    assert found.inputs == "images of 8x8: 38; brought to 8x8"
