"""What a method needs is checked before training; the error names method, need and remedy."""

from dataclasses import replace

import pytest
from naming import names
from torch import nn

from fda_flower.errors import ConfigError
from fda_flower.models import build_model
from fda_flower.models.parts import head_of
from fda_flower.models.structure import structure_of
from fda_flower.runs.methods import METHODS
from fda_flower.runs.needs import NEEDS, Facts, check_needs


def facts(model="mlp", sources=3, unlabelled=10, task="classes", body=True, **options):
    shape = (3, 16, 16) if model == "resnet9" else (4,)
    network = build_model(model, shape, 2, 0, options)
    if not body:
        network.requires_grad_(False)
        head_of(network).requires_grad_(True)
    return Facts(structure_of(network), model, sources, unlabelled, task)


GOOD_AND_BAD = {
    "body": (facts(), facts("logistic"), "choose another model"),
    "frozen body": (facts(body=False), facts(), "--train head"),
    "trained body": (facts(), facts(body=False), "train some of them"),
    "head": (facts(), replace(facts(), network=structure_of(nn.Conv1d(1, 1, 1))), "'head'"),
    "batch-norm": (facts("resnet9", width=1), facts(), "resnet9"),
    "unlabelled": (facts(), facts(unlabelled=0), "lower target-samples"),
    "classes": (facts(), facts(task="regression"), "choose another data set"),
    "rows": (facts(), replace(facts(), has_rows=False), "choose a pretrained network"),
    "no several labels": (facts(), facts(task="multilabel"), "choose ridge"),
    "two sources": (facts(sources=2), facts(sources=1), "add a source"),
}


def test_the_needs_of_methods_are_known_and_have_a_case_here():
    assert {need for method in METHODS.values() for need in method.needs} <= NEEDS.keys()
    assert GOOD_AND_BAD.keys() == NEEDS.keys()


@pytest.mark.parametrize("name", NEEDS)
def test_the_error_names_method_need_and_remedy(name):
    good, bad, remedy = GOOD_AND_BAD[name]
    check_needs("some", [name], good)
    with pytest.raises(ConfigError, check=names("method", "some", remedy)):
        check_needs("some", [name], bad)


def test_a_target_that_does_not_say_how_many_it_has_is_trusted():
    check_needs("some", ["unlabelled"], facts(unlabelled=None))
