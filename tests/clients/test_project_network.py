"""Networks that return more than a tensor, and batches of keywords, in a project's own loop."""

from collections import OrderedDict, UserDict, namedtuple
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from naming import names
from torch import nn
from torch.utils.data import DataLoader

from fda_flower.clients import MixturePlan, batch_gradients, mix_on_target
from fda_flower.clients.project_network import labels_of, logits_in, outputs_for
from fda_flower.errors import ConfigError

Pair = namedtuple("Pair", ["aux", "logits"])


class Output(OrderedDict):
    """As a ModelOutput of transformers: a mapping with attributes, without those that are None."""

    def __init__(self, **entries):
        super().__init__((name, value) for name, value in entries.items() if value is not None)

    def __getattr__(self, name):
        return self.get(name)


FORMS = {
    "tensor": (lambda z, loss: z, lambda given: given, lambda given: None),
    "object": (lambda z, loss: SimpleNamespace(loss=loss, logits=z), lambda o: o.logits, lambda o: o.loss),
    "model output": (
        lambda z, loss: Output(loss=loss, logits=z, states=z),
        lambda o: o.logits,
        lambda o: o.loss,
    ),
    "dictionary": (lambda z, loss: {"loss": loss, "logits": z}, lambda o: o["logits"], lambda o: o["loss"]),
    "segmentation": (lambda z, loss: {"aux": z + 1, "out": z}, lambda o: o["out"], lambda o: o["aux"]),
    "first entry": (lambda z, loss: {"scores": z, "more": z + 1}, lambda o: o["scores"], lambda o: o["more"]),
    "tuple": (lambda z, loss: (z, z + 1), lambda o: o[0], lambda o: o[1]),
    "list": (lambda z, loss: [z, z + 1], lambda o: o[0], lambda o: o[1]),
    "named tuple": (lambda z, loss: Pair(z + 1, z), lambda o: o.logits, lambda o: o.aux),
}
"""By form: how a network returns its logits and loss, and what is there of the logits and of the rest."""


class Net(nn.Module):
    """A linear network of keywords, which returns its logits in a form."""

    def __init__(self, form):
        super().__init__()
        torch.manual_seed(0)
        self.form, self.linear = form, nn.Linear(2, 2)

    def forward(self, input_ids, attention_mask=None, labels=None):
        z = self.linear(input_ids if attention_mask is None else input_ids * attention_mask)
        return FORMS[self.form][0](z, None if labels is None else nn.functional.cross_entropy(z, labels))


def samples(n=40):
    y = torch.arange(n) % 2
    x = torch.randn(n, 2, generator=torch.Generator().manual_seed(0)) + 3 * y[:, None].float() - 1.5
    rows = zip(x, y, strict=True)
    return [{"input_ids": a, "attention_mask": torch.ones(2), "labels": b} for a, b in rows]


def mix(form, loader, **options):
    def train(model, part, epochs):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in (batch for _ in range(epochs) for batch in part):
            optimizer.zero_grad()
            z = FORMS[form][1](model(batch["input_ids"], batch["attention_mask"]))
            nn.functional.cross_entropy(z, batch["labels"]).backward()
            optimizer.step()

    plan = MixturePlan(folds=2, epochs=(1,))
    return mix_on_target(Net(form), Net(form), loader, train, epochs=1, plan=plan, **options)


@pytest.mark.parametrize("form", [form for form in FORMS if form != "tensor"])
def test_a_mixture_of_networks_that_return_more_has_their_form_and_the_bits_of_plain_ones(form):
    loader = DataLoader(samples(), batch_size=8)
    mixture, plain = mix(form, loader), mix("tensor", loader)
    assert mixture.trained.mixture.weights == plain.trained.mixture.weights
    batch = next(iter(loader))
    given, expected = mixture(**batch), plain(**batch)
    assert torch.equal(FORMS[form][1](given), expected)
    loss = nn.functional.cross_entropy(expected, batch["labels"])
    has_loss = form in ("object", "model output", "dictionary")
    torch.testing.assert_close(FORMS[form][2](given), loss if has_loss else None)


@pytest.mark.parametrize(
    ("returned", "kind"),
    [
        (torch.tensor(0.5), "Tensor"),
        ((torch.tensor(0.5), torch.ones(2, 2)), "tuple"),
        ({}, "dict"),
        ({"logits": "cat"}, "dict"),
        (SimpleNamespace(scores=torch.ones(2, 2)), "SimpleNamespace"),
        (None, "NoneType"),
    ],
)
def test_outputs_that_are_not_clear_are_named(returned, kind):
    with pytest.raises(ConfigError, check=names("network", kind, remedy=".logits")):
        logits_in(returned)


def test_outputs_of_more_than_a_row_for_each_sample_are_refused_before_anything_is_trained():
    loader = DataLoader(samples(), batch_size=8)
    with pytest.raises(ConfigError, check=names("outputs", [40, 1, 2])):
        mix("tensor", loader, predict=lambda model, part: torch.ones(40, 1, 2))


@pytest.mark.parametrize("given", [{}, {"labels": torch.zeros(40, 3, dtype=torch.long)}])
def test_several_labels_of_a_sample_are_refused_before_anything_is_trained(given):
    rows = [{**each, "labels": each["labels"].repeat(3)} for each in samples()]
    loader = DataLoader(rows, batch_size=8)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, check=names("labels", [len(given.get("labels", rows[:8])), 3])):
        mix("tensor", loader, **given)


class Takes(nn.Module):
    """A network whose forward is a function, which weighs a by 1 and b by 10."""

    def __init__(self, forward):
        super().__init__()
        self.forward = forward


A, B, Y = torch.tensor([[1.0]]), torch.tensor([[2.0]]), torch.tensor([1])


@pytest.mark.parametrize(
    ("forward", "batch", "expected"),
    [
        (lambda a, b: a + 10 * b, {"b": B, "a": A, "labels": Y}, 21),
        (lambda a, b: a + 10 * b, ({"b": B, "a": A}, Y), 21),
        (lambda a, b: a + 10 * b, UserDict(b=B, a=A, label=Y), 21),
        (lambda **named: named["a"] + 10 * named["b"], {"b": B, "a": A, "labels": Y}, 21),
        (lambda image, mask: image + 10 * mask, {"mask": B, "image": A, "label": Y}, 21),
        (lambda first: first, {"image": A, "id": B, "label": Y}, 1),
        (lambda first, **named: first, {"pixel_values": A, "labels": Y}, 1),
        (lambda *args: args[0], {"img": A, "label": Y}, 1),
        (lambda first: first, (A, Y), 1),
    ],
)
def test_a_batchs_entries_are_passed_by_keyword_where_the_network_has_them(forward, batch, expected):
    assert outputs_for(Takes(forward), batch).item() == expected
    assert labels_of(batch).tolist() == [1]


@pytest.mark.parametrize(
    ("forward", "batch"),
    [
        (lambda first: first, {"a": A, "b": B, "labels": Y}),
        (lambda a, text: a, {"a": A, "text": ["one"], "labels": Y}),
        (lambda first: first, {"labels": Y}),
    ],
)
def test_entries_that_the_network_does_not_have_and_texts_are_named(forward, batch):
    with pytest.raises(ConfigError, check=names("batches", sorted(batch))):
        outputs_for(Takes(forward), batch)


@pytest.mark.parametrize("form", ["tuple", "model output"])
def test_gradients_are_those_of_the_logits_of_dictionaries_as_of_pairs(form):
    config = {"gradients": "sketch", "sketch-size": 4, "sketch-seed": 0}
    loader = DataLoader(samples(), batch_size=8)
    pairs = [(batch["input_ids"], batch["labels"]) for batch in loader]
    loss = nn.functional.cross_entropy
    expected = batch_gradients(Net("tensor"), pairs, loss, config).arrays
    np.testing.assert_equal(batch_gradients(Net(form), loader, loss, config).arrays, expected)
