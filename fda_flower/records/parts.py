"""What made the parts of a run that was resumed: versions, and the kind of CPU."""

from collections.abc import Mapping
from typing import Any

from fda_flower.files import version_changes

VERSIONS, CPU, EARLIER = "versions", "cpu", "earlier"
"""Entries of ``config.json``: of the last part, and of the parts before it by their last round."""

OF_FEATURES = "onnxruntime"
"""The package whose version is noted where it computes features; without it PyTorch does."""


def earlier_parts(before: Mapping[str, Any], now: Mapping[str, Any], done: int) -> tuple[dict[str, Any], str]:
    """Return what made the parts of a run until now, and a sentence on what differs here; empty if nothing.

    Parameters
    ----------
    before, now : Mapping
        The entries of ``config.json``, today and after a run that goes on.
    done : int
        The rounds done; a part without a round is none.

    Examples
    --------
    >>> then = {"versions": {"python": "3.12.1", "torch": "2.6.0"}, "cpu": "Xeon"}
    >>> here = {"versions": {"python": "3.12.1", "torch": "2.9.1"}, "cpu": "Xeon"}
    >>> parts, sentence = earlier_parts(then, here, 2)
    >>> parts
    {'until round 2': {'python': '3.12.1', 'torch': '2.6.0', 'cpu': 'Xeon'}}
    >>> print(sentence)
    until round 2 the run had torch 2.6.0 (here 2.9.1): its numbers may differ from an uninterrupted run's
    >>> earlier_parts({"versions": {"onnxruntime": "1.32.0"}}, {}, 1)[1].partition(":")[0]
    'until round 1 the run had onnxruntime 1.32.0 (here none)'
    """
    parts, then, here = dict(before.get(EARLIER) or {}), _made_with(before), _made_with(now)
    lacking = dict.fromkeys({OF_FEATURES} & (then.keys() | here.keys()), "none")
    changes = version_changes(lacking | then, lacking | here)
    if not (changes and done):
        return parts, ""
    sentence = f"until round {done} the run had {changes}: its numbers may differ from an uninterrupted run's"
    return {**parts, f"until round {done}": then}, sentence


def describe_parts(notes: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each part of a run: what made it.

    Examples
    --------
    >>> describe_parts({"versions": {"torch": "2.9.1"}, "cpu": "Xeon"})
    ['With torch 2.9.1, cpu Xeon.']
    >>> describe_parts({"versions": {"torch": "2.9.1"}, "earlier": {"until round 2": {"torch": "2.6.0"}}})
    ['Until round 2 with torch 2.6.0.', 'With torch 2.9.1.']
    """
    parts = {**(notes.get(EARLIER) or {}), "": _made_with(notes)}
    texts = {when: ", ".join(map(" ".join, part.items())) for when, part in parts.items()}
    return [
        f"{when.capitalize()} with {text}." if when else f"With {text}."
        for when, text in texts.items()
        if text
    ]


def _made_with(entries: Mapping[str, Any]) -> dict[str, str]:
    """Return versions and the CPU in one; earlier versions of this package did not note the CPU."""
    cpu = entries.get(CPU)
    return {**(entries.get(VERSIONS) or {}), **({CPU: cpu} if cpu else {})}
