"""What the board of methods needs and no other run: regrets, and the synthetic regression ``rbf``."""

from fda_flower.datasets import Dataset

RBF = Dataset(
    "a synthetic regression with a shift to choose",
    "fda_board.rbf:load",
    ("source", "target"),
    regression=True,
    model="sigmoid",
    public=True,
)
