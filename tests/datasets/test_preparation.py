"""How raw samples become inputs, kept as JSON."""

import json
from pathlib import Path

import pytest
import torch
from naming import names
from PIL import Image
from sites import write_table

from fda_flower.datasets import DataSpec, load_domain, load_federation
from fda_flower.datasets.preparation import ImagePreparation, Preparation, TablePreparation
from fda_flower.errors import ConfigError


def again(preparation: Preparation) -> Preparation:
    return Preparation.from_json(json.loads(json.dumps(preparation.to_json())))


def test_a_table_is_standardised_as_in_one_go_with_the_same_bits_from_json() -> None:
    x = torch.randn(40, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 7 + 3
    x[:, 2] = 0.1
    train = torch.arange(0, 40, 2)
    columns = dict(zip("edcba", x.unbind(dim=1), strict=True))
    preparation = TablePreparation.fit(columns, train)
    deviation, mean = torch.std_mean(x[train], dim=0, correction=0)
    deviation[2] = 1.0
    expected = ((x - mean) / deviation).float()
    assert preparation.columns == tuple("edcba")
    assert torch.equal(preparation.apply(columns), expected)
    as_lists = {name: column.tolist() for name, column in reversed(columns.items())}
    assert again(preparation) == preparation
    assert torch.equal(again(preparation).apply(as_lists | {"other": [0.0]}), expected)


def test_images_are_decoded_when_indexed(tmp_path: Path) -> None:
    Image.new("L", (6, 4), 100).save(tmp_path / "a.png")
    x = again(ImagePreparation(8)).apply([tmp_path / "a.png"])
    assert x[torch.tensor([0])].tolist() == torch.full((1, 3, 8, 8), 100).tolist()


def test_an_unknown_kind_is_an_error_that_lists_the_known() -> None:
    with pytest.raises(ConfigError, check=names("kind of preparation", "text")):
        Preparation.from_json({"kind": "text"})


def test_each_domain_keeps_its_own(tmp_path: Path) -> None:
    for i, name in enumerate(("a", "b")):
        write_table(tmp_path / f"{name}.csv", i)
    spec = DataSpec("table", data_dir=str(tmp_path), dataset_options=(("domains", "a,b"),), target_samples=9)
    found = {name: domain.preparation for name, domain in load_federation(spec).domains.items()}
    site = load_domain(spec, "b")
    assert isinstance(found["b"], TablePreparation)
    assert found["b"] != found["a"]
    assert found["b"].columns == site.features
    assert site.domains["b"].to(torch.device("cpu")).preparation == found["b"]
    assert load_federation(DataSpec("digits")).domains["target"].preparation is None
