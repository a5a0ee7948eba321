"""Each shift does to the data what its name says, and each partition deals as its name says."""

from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from naming import names
from torchvision.transforms.v2 import functional

from fda_flower.datasets import DATASETS, Dataset, DataSpec, Samples, Split, load_federation
from fda_flower.datasets.drawing import Generator
from fda_flower.datasets.federation import forget
from fda_flower.datasets.shifts import PARTITIONS, Color, Dirichlet, Even, Labels, Noise, Rotate
from fda_flower.errors import ConfigError
from fda_flower.prediction.batches import batches

every_partition = pytest.mark.parametrize("name", list(PARTITIONS))
with_and_without_target = pytest.mark.parametrize("target", [False, True])


def seeded(seed=0):
    return Generator(seed)


def constant_images(labels, greys):
    """Images of 5x5, each of one grey."""
    return Samples(np.tile(greys.astype(np.float32)[:, None, None, None], (1, 1, 5, 5)), labels)


def images(*shape):
    return Samples(np.random.default_rng(0).random(shape, np.float32), np.arange(shape[0]) % 10)


def load(monkeypatch, samples, *shift):
    """The federation of a data set that trains and tests on the same samples."""
    split = Split(samples, samples, 10)
    monkeypatch.setitem(DATASETS, "made", Dataset("made for a test", lambda data_dir, seed: split))
    forget()
    return load_federation(DataSpec("made", *shift))


def classes_of(samples):
    return set(samples.y.tolist())


@pytest.mark.parametrize(
    "shift", [("rotate",), ("rotate", (("angle", 30.0),)), ("noise",), ("label",), ("color",)]
)
def test_images_of_bytes_give_the_domains_of_their_floats(monkeypatch, shift):
    floats = images(200, 1, 6, 6)
    pixels = (255 * floats.x).astype(np.uint8)
    of_bytes = load(monkeypatch, replace(floats, x=pixels), *shift)
    of_floats = load(monkeypatch, replace(floats, x=pixels / np.float32(255)), *shift)
    for name, domain in of_floats.domains.items():
        for part, samples in domain.parts.items():
            found = of_bytes.domains[name].parts[part]
            assert (found.x.dtype, np.array_equal(found.x, samples.x)) == (np.float32, True)
            assert np.array_equal(found.y, samples.y)


# rotate


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (2, 1, 5, 5), (2, 1, 6, 4)])
@pytest.mark.parametrize("angle", [-450.0, -90.0, -0.0, 90.0, 180.0, 270.0, 630.0, 45.0, 89.5])
def test_rotate_has_the_bits_of_torchvision(shape, angle):
    samples = images(*shape)
    theirs = functional.rotate(
        torch.from_numpy(samples.x), angle, interpolation=functional.InterpolationMode.BILINEAR
    )
    shifted = Rotate(angle=angle, invert=False).shifted(samples)
    assert shifted.x.shape == theirs.shape
    assert shifted.x.tobytes() == theirs.numpy().tobytes()
    assert np.array_equal(shifted.y, samples.y)


def test_rotate_inverts_after_rotating_counter_clockwise():
    samples = images(4, 1, 8, 8)
    assert np.array_equal(Rotate().shifted(samples).x, 1 - np.rot90(samples.x, 1, (2, 3)))
    corner = Rotate(angle=45.0).shifted(samples).x[:, :, 0, 0]
    assert np.array_equal(corner, np.ones_like(corner)), "what is rotated in is empty, and empty inverts to 1"


def test_rotate_leaves_the_sources():
    federation, plain = (
        load_federation(DataSpec("digits", "rotate", (("angle", 0), ("invert", invert))))
        for invert in (True, False)
    )
    for name, ours in federation.domains.items():
        others = plain.domains[name]
        for x, y in ((ours.train.x, others.train.x), (ours.test.x, others.test.x)):
            assert np.array_equal(x, 1 - y if name == "target" else y), name


# noise


def passes(samples, seed, count=1):
    generator = torch.Generator().manual_seed(seed)
    return [torch.cat([x for x, _ in batches(samples, 32, generator)]).numpy() for _ in range(count)]


def noisy(std):
    return Noise(std).shifted(constant_images(np.zeros(2000, np.int64), np.full(2000, 0.5)))


def test_noise_is_drawn_anew_at_every_access_from_the_generator():
    first, second = passes(noisy(0.4), seed=0, count=2)
    assert not np.array_equal(first, second)
    assert abs(np.corrcoef(first.flatten(), second.flatten())[0, 1]) < 0.03
    assert np.array_equal(passes(noisy(0.4), seed=0)[0], first)
    assert not np.array_equal(passes(noisy(0.4), seed=2)[0], first)


@pytest.mark.parametrize("std", [0.0, 0.1, 0.4, 1.0])
def test_noise_has_the_deviation_asked_for_and_mean_zero(std):
    (x,) = passes(noisy(std), seed=0)
    assert x.dtype == np.float32
    assert float((x - 0.5).std()) == pytest.approx(std, rel=0.02)
    assert float((x - 0.5).mean()) == pytest.approx(0, abs=0.02 * std)


def test_noise_is_the_targets_alone_in_training_and_test():
    federation = load_federation(DataSpec("digits", "noise", (("std", 0.3),), target_samples=5))
    for name, domain in federation.domains.items():
        assert domain.train.noise == domain.test.noise == (0.3 if name == "target" else 0.0)


# label


@pytest.mark.parametrize("eta", [0.0, 0.1, 0.25, 0.5])
def test_label_divides_every_class_by_eta(monkeypatch, eta):
    y = np.repeat(np.arange(10), 100)
    federation = load(monkeypatch, constant_images(y, y / 16), "label", (("eta", eta),))
    target, *sources = (federation.domains[name] for name in ("target", "source-1", "source-2", "source-3"))
    expected = np.array([round(100 * (eta if label < 3 else 1 - eta)) for label in range(10)])
    trained = np.stack([np.bincount(source.train.y, minlength=10) for source in sources])
    assert np.array_equal(trained.sum(axis=0), expected)
    assert all(np.array_equal(np.bincount(source.test.y, minlength=10), expected) for source in sources)
    for part in (target.train, target.test):
        assert np.array_equal(np.bincount(part.y, minlength=10), 100 - expected)


def test_labelled_target_samples_are_drawn_from_all_its_classes():
    federation = load_federation(DataSpec("digits", "label", (("eta", 0.0),), target_samples=30))
    counts = np.bincount(federation.domains["target"].train.y, minlength=3)
    assert counts.min() >= 5


# color


@pytest.fixture
def colored(monkeypatch):
    """Of each domain all samples, their colours, and the label before it was flipped."""
    y = np.arange(20_000) % 10
    federation = load(monkeypatch, constant_images(y, (y + 1) / 16), "color")
    assert (federation.classes, federation.shape) == (2, (2, 5, 5))
    found = {}
    for name, domain in federation.domains.items():
        both = domain.train.joined(domain.test)
        digit = (both.x[:, :, 2, 2].sum(axis=1) * 16 - 1).round().astype(int)
        found[name] = (both, (both.x[:, 1, 2, 2] > 0).astype(int), (digit < 5).astype(int))
    return found


@pytest.mark.parametrize(("name", "share"), [("+90%", 0.9), ("+80%", 0.8), ("-90%", 0.1)])
def test_color_agrees_with_the_label_in_the_share_of_its_name_and_flips_a_quarter(colored, name, share):
    samples, color, label = colored[name]
    lit = samples.x > 0
    assert (
        lit.all(axis=(2, 3)).sum(axis=1).tolist()
        == lit.any(axis=(2, 3)).sum(axis=1).tolist()
        == [1] * len(samples)
    )
    agrees, flipped = color == samples.y, samples.y != label
    assert float(agrees.mean()) == pytest.approx(share, abs=0.015)
    assert float(flipped.mean()) == pytest.approx(0.25, abs=0.015)
    assert float(flipped[agrees].mean()) == pytest.approx(float(flipped[~agrees].mean()), abs=0.03)


def test_color_takes_the_mean_of_the_channels_of_a_coloured_image():
    samples = images(30, 3, 4, 4)
    (domain, *_) = Color().domains(Split(samples, samples, 10), 2, seeded())
    grey = {tuple(image.flatten().tolist()) for image in samples.x.mean(axis=1)}
    assert all(tuple(image.flatten().tolist()) in grey for image in domain.train.x.sum(axis=1))


def test_color_labels_do_not_depend_on_which_classes_a_part_happens_to_hold():
    y = np.arange(20_000) % 8
    samples = constant_images(y, (y + 1) / 16)
    (domain, *_) = Color().domains(Split(samples, samples, 10), 2, seeded())
    digit = (domain.train.x[:, :, 2, 2].sum(axis=1) * 16 - 1).round().astype(int)
    assert float((domain.train.y != (digit < 5)).mean()) == pytest.approx(0.25, abs=0.02)


# Partitions


def numbered(*per_class):
    """So many samples of each class; each holds its number, by which it is recognised."""
    y = np.repeat(np.arange(len(per_class)), per_class)
    return Samples(np.arange(len(y), dtype=np.float32)[:, None], y)


def numbers(samples):
    return samples.x.flatten().astype(int).tolist()


def dealt(partition, samples, sources, seed=0, target=False):
    """The numbers of the samples of each client, the target's last."""
    if not target:
        return [numbers(part) for part in partition.deal(samples, sources, seeded(seed))]
    parts, mine = partition.deal_with_target(samples, sources, seeded(seed))
    return [numbers(part) for part in [*parts, mine]]


@every_partition
@with_and_without_target
@pytest.mark.parametrize("sources", [1, 3, 7])
def test_no_sample_is_given_twice_and_the_generator_decides_who_gets_what(name, target, sources):
    samples, before = numbered(40, 61, 50, 33), torch.get_rng_state()
    deal = partial(dealt, PARTITIONS[name](), samples, sources, target=target)
    everybody = deal(5)
    assert len(everybody) == sources + target
    assert all(everybody), "nobody is without samples"
    given_out = sorted(chain(*everybody))
    assert len(set(given_out)) == len(given_out)
    # With labels, a class that no source has is left out.
    assert name == "labels" or given_out == list(range(184))
    assert deal(5) == everybody
    assert all(ours != theirs for ours, theirs in zip(everybody, deal(6), strict=True))
    for part in PARTITIONS[name]().deal(samples, sources, seeded()):
        assert np.array_equal(part.y, samples.y[part.x.flatten().astype(int)])
    assert torch.equal(torch.get_rng_state(), before)


@every_partition
@with_and_without_target
def test_too_few_samples_are_an_error_that_says_what_to_do(name, target):
    with pytest.raises(ConfigError) as caught:
        dealt(PARTITIONS[name](), numbered(1, 1, 1), 4, target=target)
    assert "use fewer sources" in caught.value.remedy


def test_even_parts_are_even_and_random_and_the_last_is_the_targets():
    parts = dealt(Even(), numbered(5, 6), 4)
    assert sorted(map(len, parts), reverse=True) == [3, 3, 3, 2]
    assert parts != [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10]]
    assert dealt(Even(), numbered(5, 6), 3, target=True) == parts
    assert [len(part) for part in dealt(Even(), numbered(6), 6)] == [1] * 6


def test_a_small_alpha_is_more_uneven_than_a_large_one():
    def unevenness(alpha):
        """The mean over clients of the largest share that a class has of a client's samples."""
        parts = Dirichlet(alpha).deal(numbered(*[200] * 5), 4, seeded())
        return sum(float(np.bincount(part.y).max()) / len(part) for part in parts) / 4

    assert unevenness(0.1) > unevenness(1.0) > unevenness(1000.0)
    for part in Dirichlet(1e9).deal(numbered(100, 200), 4, seeded()):
        assert np.bincount(part.y).tolist() == [25, 50]


@pytest.mark.parametrize("partition", [Dirichlet(0.1), Labels(2)], ids=str)
def test_the_target_has_an_even_share_of_all_whatever_the_sources_have(partition):
    _, target = partition.deal_with_target(numbered(*[100] * 4), 4, seeded())
    assert len(target) == 80
    assert classes_of(target) == {0, 1, 2, 3}


@given(k=st.integers(1, 6), sources=st.integers(1, 9), seed=st.integers(0, 2**16))
def test_each_source_has_exactly_k_classes(k, sources, seed):
    parts = Labels(k).deal(numbered(*[30] * 6), sources, seeded(seed))
    assert [len(classes_of(part)) for part in parts] == [k] * sources
    for client, part in enumerate(parts):
        assert client % 6 in classes_of(part), "the classes in turn, so that six clients hold all"


def test_a_class_is_shared_evenly_by_those_who_hold_it():
    parts = Labels(2).deal(numbered(60, 60), 3, seeded())
    assert [np.bincount(part.y).tolist() for part in parts] == [[20, 20]] * 3
    alone = Labels(1).deal(numbered(3, 4, 5), 3, seeded())
    assert [sorted(numbers(part)) for part in alone] == [[0, 1, 2], [3, 4, 5, 6], [7, 8, 9, 10, 11]]
    (part,) = Labels(1).deal(numbered(3, 4), 1, seeded())
    assert sorted(numbers(part)) == [0, 1, 2], "a class that no client holds is left out"


def test_with_target_the_target_is_one_more_client_of_k_classes():
    samples = numbered(*[60] * 5)
    parts, target = Labels(2, target=True).deal_with_target(samples, 3, seeded())
    assert [len(classes_of(part)) for part in [*parts, target]] == [2] * 4
    assert 3 in classes_of(target)
    assert dealt(Labels(2, target=True), samples, 3, target=True) == dealt(Labels(2), samples, 4)


def test_a_client_without_samples_and_more_classes_than_there_are_are_refused():
    with pytest.raises(ConfigError, check=names("partition", "dirichlet", "use fewer sources")):
        Dirichlet(0.01).deal(numbered(50, 50), 4, seeded())
    assert len(Labels(3).deal(numbered(9, 9, 9), 2, seeded())) == 2
    with pytest.raises(ConfigError, check=names("option 'k' of partition 'labels'", 4)):
        Labels(4).deal(numbered(9, 9, 9), 2, seeded())


@with_and_without_target
def test_a_target_of_few_classes_is_tested_on_these_alone(target):
    options = (("k", 3), ("target", target))
    spec = DataSpec("digits", "noise", partition="labels", partition_options=options, num_sources=4)
    domains = dict(load_federation(spec).domains)
    mine, whole = domains.pop("target"), domains["source-1"].test
    for domain in domains.values():
        assert len(classes_of(domain.train)) == 3
        assert classes_of(domain.test) == set(range(10))
    assert len(classes_of(mine.train)) == (3 if target else 10)
    assert len(mine.test) == sum(int((whole.y == label).sum()) for label in classes_of(mine.train))
    assert classes_of(mine.test) == classes_of(mine.train)


def test_the_label_shift_deals_the_sources_share_by_the_partition():
    spec = DataSpec(
        "digits", "label", (("eta", 0.5),), num_sources=5, partition="labels", partition_options=(("k", 2),)
    )
    for name, domain in load_federation(spec).domains.items():
        assert len(classes_of(domain.train)) == (10 if name == "target" else 2), name
