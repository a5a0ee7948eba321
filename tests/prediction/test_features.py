"""Features of a frozen body: once a sample, kept in memory and in files, the same bits in any company."""

import os
import weakref
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from naming import names
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import nn

from fda_flower.clients.columns import read_domain
from fda_flower.datasets import Domain, FederatedDataset, Samples, pixels, preparation
from fda_flower.datasets.looks import Look
from fda_flower.datasets.preparation import ImageFiles
from fda_flower.errors import ConfigError, RunError
from fda_flower.models import Train, build_model
from fda_flower.models.kinds import Together, adaptable, with_statistics
from fda_flower.models.split import split
from fda_flower.prediction import features as of_features
from fda_flower.prediction.features import FeatureStore, digest_of, features, federation_features, keys_of

CPU = torch.device("cpu")


class Backbone(nn.Module):
    """Counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.layer = nn.Conv2d(3, 6, 3)
        self.calls = 0

    def forward(self, x):
        self.calls += len(x)
        return self.layer(x).mean(dim=(2, 3))


def images(count=5, noise=0.0):
    x = np.random.default_rng(3).integers(0, 256, (count, 3, 8, 8), np.uint8)
    return Samples(x, np.arange(count), noise)


def made(samples, backbone=None, folder=None):
    backbone = backbone or Backbone()
    return features(backbone, samples, FeatureStore.of(digest_of(backbone), folder), CPU)


def test_each_sample_becomes_a_row_and_keeps_its_label():
    backbone, samples = Backbone(), images()
    found = made(samples, backbone)
    with torch.no_grad():
        expected = backbone(torch.from_numpy(samples.x).float() / 255)
    torch.testing.assert_close(torch.from_numpy(found.x), expected)
    assert np.array_equal(found.y, samples.y)


def test_a_sample_has_the_same_bits_whatever_comes_with_it_and_passes_once():
    backbone, samples = Backbone(), images()
    store = FeatureStore.of(digest_of(backbone), None)
    some = features(backbone, samples.take(np.array([3, 1, 3])), store, CPU)
    assert backbone.calls == 2, "the one that comes twice too"
    everything = features(backbone, samples, store, CPU)
    assert backbone.calls == 5
    assert np.array_equal(some.x, everything.x[[3, 1, 3]])
    assert np.array_equal(everything.x, made(samples).x)


def test_what_is_a_feature_already_passes_around_the_front_and_is_no_part_of_the_key(tmp_path):
    class Beside(nn.Module):
        columns, calls = 2, 0

        def forward(self, x):
            self.calls += 1
            return torch.cat([x[:, :2], x[:, 2:].flip(1) * 2], dim=1)

    backbone = Beside()
    store = FeatureStore.of("some digest", tmp_path)
    first = Samples(np.array([[1, 2, 3, 4, 5]], np.float32), np.array([0]))
    assert features(backbone, first, store, CPU).x.tolist() == [[1, 2, 10, 8, 6]]
    others = Samples(np.array([[7, 8, 3, 4, 5], [1, 2, 5, 4, 3]], np.float32), np.array([0, 1]))
    later = FeatureStore.of("some digest", tmp_path)
    assert features(backbone, others, later, CPU).x.tolist() == [[7, 8, 10, 8, 6], [1, 2, 6, 8, 10]]
    assert backbone.calls == 2


def test_a_later_process_reads_them_and_a_damaged_file_is_computed_again(tmp_path):
    whole = made(images(), folder=tmp_path)
    (file,) = (tmp_path / digest_of(Backbone())[:32]).iterdir()
    assert file.stat().st_mode & 0o77 == 0, "they are private data"
    again = Backbone()
    assert np.array_equal(made(images(), again, tmp_path).x, whole.x)
    assert again.calls == 0
    file.write_bytes(file.read_bytes()[:50])
    assert np.array_equal(made(images(), again, tmp_path).x, whole.x)
    assert again.calls == 5


@pytest.mark.parametrize("change", ["a bit", "no digest", "NaN", "bfloat16"])
def test_a_file_with_other_features_than_were_written_is_not_believed(change, tmp_path):
    whole = made(images(), folder=tmp_path)
    (file,) = (tmp_path / digest_of(Backbone())[:32]).iterdir()
    arrays = load_file(file)
    if change == "a bit":
        content = bytearray(file.read_bytes())
        content[-100] ^= 4
        file.write_bytes(content)
    elif change == "no digest":
        save_file({name: arrays[name] for name in ("keys", "rows")}, file)
    else:
        rows = arrays["rows"] * torch.nan if change == "NaN" else arrays["rows"].bfloat16()
        save_file({**arrays, "rows": rows}, file)
    again = Backbone()
    assert np.array_equal(made(images(), again, tmp_path).x, whole.x)
    assert again.calls == 5


def test_another_body_has_features_of_its_own(tmp_path):
    made(images(), folder=tmp_path)
    other = Backbone()
    nn.init.zeros_(other.layer.weight)
    made(images(), other, tmp_path)
    assert other.calls == 5
    assert len(list(tmp_path.iterdir())) == 2


def test_a_folder_that_cannot_be_written_to_is_left_alone(tmp_path):
    (tmp_path / "file").touch()
    assert np.array_equal(made(images(), folder=tmp_path / "file").x, made(images()).x)


def test_noise_is_drawn_once_and_not_stored(tmp_path):
    found = made(images(noise=0.5), folder=tmp_path)
    assert found.noise == 0
    assert not np.array_equal(found.x, made(images()).x)
    assert np.array_equal(found.x, made(images(noise=0.5)).x)
    assert not list(tmp_path.rglob("*.safetensors"))


def as_files(x, folder):
    paths = tuple(folder / f"{number}.png" for number in range(len(x)))
    for path, image in zip(paths, x, strict=True):
        Image.fromarray(image.transpose(1, 2, 0)).save(path)
    return paths


def test_files_have_the_features_of_their_images_and_are_known_by_their_content(tmp_path, monkeypatch):
    paths = as_files(images().x, tmp_path)
    backbone = Backbone()
    store = FeatureStore.of(digest_of(backbone), None)
    files: Any = ImageFiles(paths, 8)
    found = features(backbone, Samples(files, np.arange(5)), store, CPU)
    np.testing.assert_array_equal(found.x, made(images()).x)
    with monkeypatch.context() as patch:
        patch.setattr(of_features, "_content", pytest.fail)
        features(backbone, Samples(files, np.arange(5)), store, CPU)
    paths[0].write_bytes(paths[1].read_bytes())
    found = features(backbone, Samples(files, np.arange(5)), store, CPU)
    assert np.array_equal(found.x[0], found.x[1])
    assert backbone.calls == 5
    features(backbone, Samples(replace(files, look=Look(12)), np.arange(5)), store, CPU)
    assert backbone.calls == 9, "another depth has other features"


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    paths = [tmp_path / f"{number}.png" for number in range(2)]
    files: Any = ImageFiles(tuple(paths), 8)
    with pytest.raises(ConfigError, match=r"1\.png", check=names("image", paths[0])):
        made(Samples(files, np.arange(2)))


def test_features_that_are_not_finite_are_named():
    backbone = Backbone()
    nn.init.constant_(backbone.layer.weight, torch.inf)
    with pytest.raises(RunError, check=names("network")):
        made(images(), backbone)


def two_statistics():
    network = Together([build_model("blocks_net:net", (3, 8, 8), 3, 0)], adapted=(0,))
    backbone = split(network, Train("linear"), (3, 8, 8)).backbone
    assert backbone is not None
    return backbone


def of_site(noise=0.0, seed=0, **changes):
    x = np.random.default_rng(seed).random((90, 3, 8, 8), np.float32)
    parts: dict[str, Any] = {"train": x[:70], "test": x[80:], "unlabelled": x[70:80], **changes}
    made: Any = {name: Samples(part, np.zeros(len(part), np.int64), noise) for name, part in parts.items()}
    return FederatedDataset({"a": Domain("a", **made)}, "a", 3, (3, 8, 8))


def made_at(site, folder=None, backbone=None):
    backbone = backbone or two_statistics()
    store, counts = FeatureStore.of(digest_of(backbone), folder), list[int]()
    alone = federation_features(backbone, site, store, CPU, lambda _, count: counts.append(count), ["a"])
    return alone.domains["a"], sum(counts)


def test_test_samples_of_domains_that_are_not_tested_pass_no_network():
    other, site = of_site(seed=1).domains["a"], of_site()
    data = replace(site, domains={**site.domains, "b": other})
    backbone, counts = two_statistics(), list[int]()
    store = FeatureStore.of(digest_of(backbone), None)
    both = federation_features(backbone, data, store, CPU, lambda _, count: counts.append(count), ["a"])
    assert counts == [90 + 80]
    assert np.array_equal(both.domains["a"].test.x, made_at(site, backbone=backbone)[0].test.x)
    assert (len(both.domains["b"].test), both.domains["b"].test.x.size) == (len(other.test), 0)
    assert len(both.domains["b"].train.x) == len(other.train)


def test_a_site_has_the_statistics_of_its_own_training_samples():
    backbone, site = two_statistics(), of_site()
    test, inputs = (torch.from_numpy(each.x) for each in (site.domains["a"].test, site.domains["a"].inputs))
    made = torch.from_numpy(made_at(site, backbone=backbone)[0].test.x)
    (plain, own), (public, same) = (each.chunk(2, dim=1) for each in (made, backbone(test)))
    torch.testing.assert_close(plain, public)
    assert torch.equal(public, same)
    network = backbone.bodies[0].network
    with torch.no_grad():
        inner, other = network.trunk(inputs), network.trunk(test)
        layers = [each for each in network.own.modules() if isinstance(each, nn.BatchNorm2d)]
        for layer in layers:
            layer.train()
        order = sorted(range(len(inputs)), key=lambda i: keys_of(inputs[i : i + 1].numpy())[0])
        for batch in (order[:64], order[64:]):
            for layer in layers:
                layer.momentum = 1.0 if batch == order[:64] else 16 / 80
            network.own(inner[batch])
        expected = network.own.eval()(other).flatten(1) * backbone.bodies[0].factor
    torch.testing.assert_close(own, expected, rtol=1e-3, atol=1e-4)


def test_own_statistics_see_no_test_sample_and_no_order():
    site = of_site()
    domain, _ = made_at(site)
    x = site.domains["a"].train.x
    other, _ = made_at(of_site(train=x[::-1], test=x[:4] / 2))
    assert np.array_equal(other.train.x[::-1], domain.train.x)
    assert np.array_equal(other.statistics, domain.statistics)
    for changed in (of_site(train=x[1:]), of_site(noise=0.1), of_site(seed=1)):
        assert not np.array_equal(made_at(changed)[0].statistics, domain.statistics)


@pytest.mark.parametrize("most", [4, 1024])
def test_an_image_is_decoded_once_and_few_are_in_memory(most, tmp_path, monkeypatch):
    """They are the ones that pass, and what the trunk makes of those that statistics are of."""
    decoded, alive, begun = Counter[Any](), list[Any](), list[int]()

    def decode(path, *how):
        decoded[path] += 1
        alive[:] = [each for each in alive if each() is not None]
        assert len(alive) <= 2 * len(os.sched_getaffinity(0))
        image = pixels.decode(path, *how)
        alive.append(weakref.ref(image))
        return image

    def adapted(*arguments):
        results = adapted_of_features(*arguments)
        begun.append(len(results[-1]))
        return results

    adapted_of_features = of_features._adapted
    monkeypatch.setattr(preparation, "decode", decode)
    monkeypatch.setattr(of_features, "_adapted", adapted)
    monkeypatch.setattr(of_features, "MOST_OF_STATISTICS", most)
    paths = as_files(images(41).x, tmp_path)
    parts = {"train": paths[:20], "test": paths[20:28], "unlabelled": paths[28:]}
    site, backbone = of_site(**{name: ImageFiles(each, 8) for name, each in parts.items()}), two_statistics()
    domain, new = made_at(site, backbone=backbone)
    assert (new, decoded, begun) == (41, dict.fromkeys(paths, 1), [min(most, 33)])
    own = with_statistics(backbone, domain.statistics)
    again = features(own, site.domains["a"].train, FeatureStore(None, {}), CPU)
    assert np.array_equal(again.x, domain.train.x), "with another pass through the trunk"
    (usual,), (adapted,) = map(adaptable, (backbone, own))
    assert adapted.trunk is usual.trunk
    assert not torch.equal(adapted.statistics, usual.statistics), "each site has its own"


def test_features_with_own_statistics_are_kept_by_site(tmp_path):
    first, new = made_at(of_site(), tmp_path)
    again, none = made_at(of_site(), tmp_path)
    assert (new, none) == (90, 0)
    assert np.array_equal(first.test.x, again.test.x)
    assert np.array_equal(first.statistics, again.statistics)
    assert read_domain(first, None) is read_domain(first, None), "for all messages of a run"
    assert made_at(of_site(train=of_site().domains["a"].train.x[1:]), tmp_path)[1] == 89


@pytest.mark.parametrize("name", ["conv3x64", "resnet9"])
def test_a_network_without_batch_norm_in_a_block_of_its_own_has_no_statistics(name):
    """The random filters have no blocks; a residual connection goes around the last block of resnet9."""
    with pytest.raises(ConfigError, check=lambda error: error.value == name):
        split(build_model(f"{name}+adabn", (3, 16, 16), 3, 0), Train("linear"), (3, 16, 16), name)
