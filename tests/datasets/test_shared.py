"""A federation's data in a file: the same bits, mapped, and none of it left in the process that wrote it."""

import pytest
import torch
from sites import write_images

from fda_flower.datasets import DataSpec, load_domain, load_federation
from fda_flower.datasets.federation import shared_domain, write_shared
from fda_flower.errors import RunError


def test_domains_of_a_shift_are_mapped_with_the_same_bits_and_share_their_test_samples(tmp_path):
    spec, path = DataSpec("digits", num_sources=2, target_samples=20, seed=3), tmp_path / "data.pt"
    write_shared(spec, path)
    assert load_federation.cache_info().currsize == 0
    for name in spec.domain_names:
        ours, loaded = shared_domain(path, name), load_domain(spec, name)
        assert (ours.target, ours.classes, ours.shape) == (loaded.target, loaded.classes, loaded.shape)
        assert list(ours.domains) == [name]
        mine, theirs = ours.domains[name], loaded.domains[name]
        for part in ("train", "test"):
            assert torch.equal(getattr(mine, part).x, getattr(theirs, part).x)
            assert torch.equal(getattr(mine, part).y, getattr(theirs, part).y)
        assert (mine.unlabelled is None) == (theirs.unlabelled is None)
    first, second = (shared_domain(path, f"source-{i}").domains[f"source-{i}"] for i in (1, 2))
    assert first.test.x.data_ptr() == second.test.x.data_ptr()


def test_images_stay_in_their_files(tmp_path):
    for seed, name in enumerate("ab"):
        write_images(tmp_path / name, seed)
    options = (("domains", "a,b"), ("image_size", 16))
    spec = DataSpec("images", dataset_options=options, data_dir=str(tmp_path), target="b")
    write_shared(spec, tmp_path / "data.pt")
    mine, theirs = (
        found.domains["b"] for found in (shared_domain(tmp_path / "data.pt", "b"), load_domain(spec, "b"))
    )
    everything = torch.arange(len(mine.test))
    assert torch.equal(mine.test.x[everything], theirs.test.x[everything])


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    path = tmp_path / "missing" / "data.pt"
    with pytest.raises(RunError, match=r"missing/data.pt' for the clients' processes .* or set TMPDIR"):
        write_shared(DataSpec("digits", num_sources=2), path)
