"""What is packed for other processes has the same bits there, and shares its memory."""

import numpy as np
import pytest
from flwr.app import RecordDict
from sites import write_images, write_sites

from fda_flower.datasets import DataSpec, load_domain, load_federation
from fda_flower.datasets.federation import of_domain
from fda_flower.engines.packing import pack, pack_app, unpack
from fda_flower.wire.arrays import to_record

pytest.importorskip("ray")


def elsewhere(packed):
    """As it is in another process, which cannot write to it."""
    body, buffers = packed
    return body, [memoryview(bytes(buffer.raw())) for buffer in buffers]


def test_domains_of_a_shift_have_the_same_bits_and_share_their_test_samples():
    spec = DataSpec("digits", num_sources=2, target_samples=20, seed=3)
    whole = unpack(elsewhere(pack_app(load_federation(spec))))
    for name in spec.domain_names:
        ours, loaded = of_domain(whole, name), load_domain(spec, name)
        assert (ours.target, ours.classes, ours.shape) == (loaded.target, loaded.classes, loaded.shape)
        mine, theirs = ours.domains[name], loaded.domains[name]
        for part in ("train", "test", "unlabelled"):
            own, other = getattr(mine, part), getattr(theirs, part)
            assert own is other is None or (np.array_equal(own.x, other.x) and np.array_equal(own.y, other.y))
    first, second = (whole.domains[f"source-{i}"].test.x for i in (1, 2))
    assert first is second


def test_images_stay_in_their_files(tmp_path):
    write_sites(write_images, tmp_path, "ab")
    options = (("domains", "a,b"), ("image_size", 16))
    spec = DataSpec("images", dataset_options=options, data_dir=str(tmp_path), target="b")
    whole = unpack(elsewhere(pack_app(load_federation(spec))))
    mine, theirs = (found.domains["b"] for found in (whole, load_domain(spec, "b")))
    everything = np.arange(len(mine.test))
    assert np.array_equal(mine.test.x[everything], theirs.test.x[everything])


def test_what_travels_separately_is_put_in_its_place():
    model = to_record({"w": np.ones(9, np.float32)})
    body, buffers = pack(RecordDict({"a": model, "b": model}), {id(model): 0})
    assert buffers == []
    found = unpack((body, buffers), [model])
    assert found["a"] is found["b"] is model
