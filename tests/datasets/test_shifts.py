"""Each shift does to the data what its name says, and refuses what it cannot do."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torchvision.transforms.v2 import functional

from fda_flower.datasets import DATASETS, Dataset, DataSpec, Samples, Split, load_federation
from fda_flower.datasets.shifts import Color, Even, Noise, Rotate
from fda_flower.errors import ConfigError

Register = Callable[[str, Split], None]


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Iterator[Register]:
    """A function that enters a data set in the registry until the test ends."""

    def enter(name: str, split: Split) -> None:
        monkeypatch.setitem(DATASETS, name, Dataset("made for a test", lambda data_dir, seed: split))

    load_federation.cache_clear()
    yield enter
    load_federation.cache_clear()


def constant_images(labels: torch.Tensor, greys: torch.Tensor) -> Samples:
    """Images of 5x5, each of one grey."""
    return Samples(greys[:, None, None, None].expand(-1, 1, 5, 5).clone(), labels)


def images(*shape: int, seed: int = 0) -> Samples:
    x = torch.rand(*shape, generator=torch.Generator().manual_seed(seed))
    return Samples(x, torch.arange(shape[0]) % 10)


# rotate


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (2, 1, 5, 5), (2, 1, 6, 4)])
@pytest.mark.parametrize("angle", [-450.0, -90.0, -0.0, 90.0, 180.0, 630.0, 45.0, 89.5])
def test_rotate_has_the_bits_of_torchvision(shape: tuple[int, ...], angle: float) -> None:
    samples = images(*shape)
    theirs = functional.rotate(samples.x, angle, interpolation=functional.InterpolationMode.BILINEAR)
    ours = Rotate(angle=angle, invert=False).shifted(samples).x
    assert ours.shape == theirs.shape
    assert ours.numpy().tobytes() == theirs.numpy().tobytes()


@pytest.mark.parametrize("shape", [(7, 1, 8, 8), (3, 3, 32, 32), (3, 1, 5, 5)])
@pytest.mark.parametrize("turns", [1, 2, 3])
def test_rotate_by_right_angles_moves_pixels_exactly(shape: tuple[int, ...], turns: int) -> None:
    samples = images(*shape)
    shifted = Rotate(angle=90.0 * turns, invert=False).shifted(samples)
    assert torch.equal(shifted.x, torch.rot90(samples.x, turns, (2, 3)))
    assert torch.equal(shifted.y, samples.y)


def test_rotate_inverts_after_rotating() -> None:
    samples = images(4, 1, 8, 8)
    assert torch.equal(Rotate().shifted(samples).x, 1 - torch.rot90(samples.x, 1, (2, 3)))
    corner = Rotate(angle=45.0).shifted(samples).x[:, :, 0, 0]
    assert torch.equal(corner, torch.ones_like(corner)), "what is rotated in is empty, and empty inverts to 1"


def test_rotate_by_nothing_without_inversion_is_the_identity() -> None:
    samples = images(4, 1, 8, 8)
    assert torch.equal(Rotate(angle=0.0, invert=False).shifted(samples).x, samples.x)


def test_rotate_leaves_the_sources() -> None:
    federation = load_federation(DataSpec("digits", "rotate", (("angle", 0), ("invert", True))))
    plain = load_federation(DataSpec("digits", "rotate", (("angle", 0), ("invert", False))))
    for name in federation.domains:
        ours, others = federation.domains[name], plain.domains[name]
        flip = name == "target"
        for x, y in ((ours.train.x, others.train.x), (ours.test.x, others.test.x)):
            assert torch.equal(x, 1 - y if flip else y), name


# noise


def passes(samples: Samples, seed: int, count: int = 1) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.cat([x for x, _ in samples.batches(32, generator)]) for _ in range(count)]


def noisy(std: float) -> Samples:
    return Noise(std).shifted(constant_images(torch.zeros(2000, dtype=torch.int64), torch.full((2000,), 0.5)))


def test_noise_is_drawn_anew_at_every_access() -> None:
    first, second = passes(noisy(0.4), seed=0, count=2)
    assert not torch.equal(first, second)
    assert abs(float(torch.corrcoef(torch.stack([first.flatten(), second.flatten()]))[0, 1])) < 0.03


def test_noise_has_the_same_bits_from_the_same_generator() -> None:
    assert torch.equal(*passes(noisy(0.4), seed=1), *passes(noisy(0.4), seed=1))
    assert not torch.equal(*passes(noisy(0.4), seed=1), *passes(noisy(0.4), seed=2))


@pytest.mark.parametrize("std", [0.1, 0.4, 1.0])
def test_noise_has_the_deviation_asked_for_and_mean_zero(std: float) -> None:
    (x,) = passes(noisy(std), seed=0)
    assert x.dtype == torch.float32
    assert float((x - 0.5).std()) == pytest.approx(std, rel=0.02)
    assert float((x - 0.5).mean()) == pytest.approx(0, abs=0.02 * std)


def test_noise_of_deviation_zero_is_none() -> None:
    samples = noisy(0.0)
    (x,) = passes(samples, seed=0)
    assert torch.equal(x, samples.x)


def test_noise_is_the_targets_alone_in_training_and_test() -> None:
    federation = load_federation(DataSpec("digits", "noise", (("std", 0.3),), target_samples=5))
    for name, domain in federation.domains.items():
        expected = 0.3 if name == "target" else 0.0
        assert (domain.train.noise, domain.test.noise) == (expected, expected)


# label


def balanced(per_class: int = 100) -> Split:
    y = torch.arange(10).repeat_interleave(per_class)
    samples = constant_images(y, y / 16)
    return Split(samples, samples, 10)


@pytest.mark.parametrize("eta", [0.0, 0.1, 0.25, 0.5])
def test_label_divides_every_class_by_eta(register: Register, eta: float) -> None:
    register("balanced", balanced())
    federation = load_federation(DataSpec("balanced", "label", (("eta", eta),)))
    target, *_ = (domain for name, domain in federation.domains.items() if name == "target")
    sources = [domain for name, domain in federation.domains.items() if name != "target"]
    expected = torch.tensor([round(100 * (eta if label < 3 else 1 - eta)) for label in range(10)])
    trained = sum(torch.bincount(source.train.y, minlength=10) for source in sources)
    assert torch.equal(torch.as_tensor(trained), expected)
    assert torch.equal(torch.bincount(target.train.y, minlength=10), 100 - expected)
    for source in sources:
        assert torch.equal(torch.bincount(source.test.y, minlength=10), expected)
    assert torch.equal(torch.bincount(target.test.y, minlength=10), 100 - expected)


def test_label_at_a_half_gives_target_and_sources_the_same_classes(register: Register) -> None:
    register("balanced", balanced())
    federation = load_federation(DataSpec("balanced", "label", (("eta", 0.5),)))
    counts = torch.bincount(federation.domains["target"].train.y, minlength=10)
    assert torch.equal(counts, torch.full((10,), 50))


def test_label_at_zero_shares_no_class() -> None:
    federation = load_federation(DataSpec("digits", "label", (("eta", 0.0),)))
    target = federation.domains["target"]
    assert set(target.train.y.tolist()) == set(target.test.y.tolist()) == {0, 1, 2}
    for name in ("source-1", "source-2", "source-3"):
        source = federation.domains[name]
        assert set(source.train.y.tolist()) == set(source.test.y.tolist()) == {3, 4, 5, 6, 7, 8, 9}


def test_labelled_target_samples_are_drawn_from_all_its_classes() -> None:
    federation = load_federation(DataSpec("digits", "label", (("eta", 0.0),), target_samples=30))
    counts = torch.bincount(federation.domains["target"].train.y, minlength=3)
    assert int(counts.min()) >= 5


# color


@pytest.fixture
def colored(register: Register) -> dict[str, tuple[Samples, torch.Tensor, torch.Tensor]]:
    """Of each domain all samples, their colours, and the label before it was flipped."""
    y = torch.arange(20_000) % 10
    samples = constant_images(y, (y + 1) / 16)
    register("constant", Split(samples, samples, 10))
    federation = load_federation(DataSpec("constant", "color"))
    assert (federation.classes, federation.shape) == (2, (2, 5, 5))
    found = {}
    for name, domain in federation.domains.items():
        both = Samples(torch.cat([domain.train.x, domain.test.x]), torch.cat([domain.train.y, domain.test.y]))
        color = (both.x[:, 1, 2, 2] > 0).long()
        digit = (both.x[:, :, 2, 2].sum(dim=1) * 16 - 1).round().long()
        found[name] = (both, color, (digit < 5).long())
    return found


Colored = dict[str, tuple[Samples, torch.Tensor, torch.Tensor]]


def test_color_puts_each_image_into_exactly_one_of_two_channels(colored: Colored) -> None:
    for samples, _, _ in colored.values():
        lit = samples.x.flatten(2).gt(0).any(dim=2)
        assert torch.equal(lit.sum(dim=1), torch.ones(len(samples), dtype=torch.int64))
        assert samples.x.flatten(2).gt(0).all(dim=2).sum() == len(samples)


@pytest.mark.parametrize(("name", "share"), [("+90%", 0.9), ("+80%", 0.8), ("-90%", 0.1)])
def test_color_agrees_with_the_label_in_the_share_of_its_name(
    colored: Colored, name: str, share: float
) -> None:
    samples, color, _ = colored[name]
    assert float((color == samples.y).double().mean()) == pytest.approx(share, abs=0.015)


@pytest.mark.parametrize("name", ["+90%", "+80%", "-90%"])
def test_color_flips_a_quarter_of_the_labels_whatever_their_colour(colored: Colored, name: str) -> None:
    samples, color, label = colored[name]
    flipped = (samples.y != label).double()
    assert float(flipped.mean()) == pytest.approx(0.25, abs=0.015)
    agrees = color == samples.y
    assert float(flipped[agrees].mean()) == pytest.approx(float(flipped[~agrees].mean()), abs=0.03)


def test_color_takes_the_mean_of_the_channels_of_a_coloured_image() -> None:
    samples = images(30, 3, 4, 4)
    (domain, *_) = Color().domains(Split(samples, samples, 10), 2, torch.Generator().manual_seed(0))
    grey = {tuple(image.flatten().tolist()) for image in samples.x.mean(dim=1)}
    assert all(tuple(image.flatten().tolist()) in grey for image in domain.train.x.sum(dim=1))


@pytest.mark.parametrize("count", [1, 3])
def test_color_has_two_sources(count: int) -> None:
    with pytest.raises(ConfigError, match=f"shift 'color' has 2 sources, but {count} were asked for"):
        DataSpec("digits", "color", num_sources=count)


def test_color_labels_do_not_depend_on_which_classes_a_part_happens_to_hold() -> None:
    y = torch.arange(20_000) % 8
    samples = constant_images(y, (y + 1) / 16)
    (domain, *_) = Color().domains(Split(samples, samples, 10), 2, torch.Generator().manual_seed(0))
    digit = (domain.train.x[:, :, 2, 2].sum(dim=1) * 16 - 1).round().long()
    assert float((domain.train.y != (digit < 5).long()).double().mean()) == pytest.approx(0.25, abs=0.02)


# how many sources


@pytest.mark.parametrize("shift", ["rotate", "noise", "label"])
def test_more_sources_than_samples_are_refused(shift: str) -> None:
    with pytest.raises(ConfigError, match=r"samples cannot be dealt to \d+ clients: use fewer sources"):
        load_federation(DataSpec("digits", shift, num_sources=2000))


def test_as_many_parts_as_samples_have_one_each() -> None:
    parts = Even().deal(images(6, 1, 2, 2), 6, torch.Generator().manual_seed(0))
    assert [len(part) for part in parts] == [1] * 6
