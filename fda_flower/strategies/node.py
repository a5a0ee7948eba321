"""A client of the federation, and what it tells of itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

SHARED = ("class-names", "classes", "features", "shape")
"""What the data of all nodes must have in common, where they tell it."""


@dataclass(frozen=True)
class Node:
    """A client of the federation.

    Attributes
    ----------
    id : int
        Flower's id of its node.
    domain : str
        Its domain.
    is_target : bool
        Whether it is the target.
    info : Mapping
        All that it tells; this package's clients tell ``domain``, ``role``, ``examples`` (labelled samples
        to train on), ``shape`` of a sample, ``classes`` (their number), ``class-names``, and ``features``
        (the columns of a table).
    """

    id: int
    domain: str
    is_target: bool
    info: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def role(self) -> str:
        """``"target"`` or ``"source"``."""
        return "target" if self.is_target else "source"


def conflict(one: Node, other: Node) -> str | None:
    """Why two nodes cannot both take part, and what to do about it; None if they can."""
    if one.domain == other.domain:
        return f"2 nodes serve the domain '{one.domain}': give each client its own"
    if one.is_target and other.is_target:
        claims = ", ".join(f"'{node.domain}' (node {node.id})" for node in (one, other))
        return f"2 nodes claim to be the target, exactly one may: {claims}"
    for key in SHARED:
        told, told_too = one.info.get(key), other.info.get(key)
        if None not in (told, told_too) and told != told_too:
            return (
                f"'{one.domain}' and '{other.domain}' do not have the same {key.replace('-', ' ')}: "
                f"{_difference(one, told, other, told_too)}; give all sites the same"
                + (", or name all classes by the data set's option 'classes'" if "class" in key else "")
            )
    return None


def _difference(one: Node, told: object, other: Node, told_too: object) -> str:
    if not (_is_names(told) and _is_names(told_too)):
        return f"{told} and {told_too}"
    only = (
        f"only '{node.domain}' has {', '.join(name for name in ours if name not in others)}"
        for node, ours, others in ((one, told, told_too), (other, told_too, told))
        if set(ours) - set(others)
    )
    return "; ".join(only) or f"{', '.join(told)} and {', '.join(told_too)}"


def _is_names(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)
