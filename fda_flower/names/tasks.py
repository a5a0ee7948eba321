"""What a model predicts: the tasks, by the values of the option ``task``."""

from typing import Literal

Task = Literal["classes", "regression", "survival", "multilabel"]

TASKS: dict[Task, str] = {
    "classes": "classes",
    "regression": "a regression",
    "survival": "survival",
    "multilabel": "several labels",
}
"""The tasks, each in words."""

NUMBERS: tuple[Task, ...] = ("regression", "survival")
"""The tasks whose outputs are numbers, which a data set scales for a network."""
