"""The questions of this package's methods, a file for each family, of the name that it has in other rooms."""

from fda_flower.wire.asked import (
    columns,
    describe,
    fada,
    features,
    generalisation,
    kd3a,
    mixture,
    personal,
    personal_layers,
    ridge,
    secure_sums,
)
from fda_flower.wire.questions import QUESTIONS

FAMILIES = (
    columns,
    describe,
    fada,
    features,
    generalisation,
    kd3a,
    mixture,
    personal,
    personal_layers,
    ridge,
    secure_sums,
)

__all__ = ["FAMILIES", "QUESTIONS"]
