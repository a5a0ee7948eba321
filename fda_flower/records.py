"""The record of a round: one line of ``rounds.jsonl``, and what displays show of it."""

import logging
from typing import Any, TypedDict

COSTS = logging.getLogger("flwr.costs")
"""The log of what a method costs, which `fda run` prints even where it hides the rest of Flower's log."""

Record = dict[str, Any]
"""A JSON object."""

ClientRecord = TypedDict(
    "ClientRecord",
    {
        "domain": str,
        "examples": int,
        "steps": int,
        "train-loss": float | None,
        "norm": float,
        "clipped": float,
        "fallback": str | None,
        "beta": float,
        "cosine": float,
        "kept": float,
        "sigma2": float,
        "d2": float,
        "tau2-d2": float,
        "delta": float,
        "weight": float,
        "penalty": float,
        "loss-at-start": float,
        "sim": float | None,
        "theta": float | None,
        "alpha": float | None,
        "mask-share": float,
        "contribution": float,
        "local-part": float,
        "accuracy": float,
        "loss": float,
        "outcomes": str,
        "test-examples": int,
        "validation": float,
    },
    total=False,
)
"""What a round's record holds of one client; ``docs/user-guide.md`` explains each field."""

RoundRecord = TypedDict(
    "RoundRecord",
    {
        "round": int,
        "warmup": bool,
        "held": str | None,
        "target": ClientRecord | None,
        "sources": dict[str, ClientRecord],
        "dropped": list[dict[str, str]],
        "missing": list[dict[str, str]],
        "bytes-received": int,
        "lam": float,
        "accuracy": float,
        "loss": float,
        "outcomes": str,
        "test-examples": int,
        "mixture": dict[str, Any],
        "accuracy-global": float,
        "loss-global": float,
        "lambda": float,
        "oracle-lambda": float,
        "accuracy-oracle-lambda": float,
        "accuracy-final-head": float,
        "loss-final-head": float,
        "metrics": dict[str, Any],
        "evaluation-failed": str,
        "accuracy-average": float,
        "outcomes-average": str,
        "test-examples-average": int,
        "loss-average": float,
        "metrics-average": dict[str, Any],
        "evaluation-failed-average": str,
        "server": dict[str, Any],
        "train-loss": float,
        "validation": float,
        "selected": int,
        "selected-by": str,
        "seconds": dict[str, float],
    },
    total=False,
)
"""One line of ``rounds.jsonl``; ``docs/user-guide.md`` explains each field."""


def source_weight(entry: ClientRecord | Record) -> float | None:
    """Return the weight of a source against the target: its β or its joint weight; None without either.

    Examples
    --------
    >>> source_weight({"beta": 0.5}), source_weight({"weight": 0.2}), source_weight({})
    (0.5, 0.2, None)
    """
    return entry.get("beta", entry.get("weight"))


def headline(record: RoundRecord | Record) -> str:
    """Return the target's accuracy in words, or its metrics by whatever names they have.

    Examples
    --------
    >>> headline({"accuracy": 0.734}), headline({"metrics": {"eval_acc": 0.5}}), headline({})
    ('target accuracy 73.4%', 'target eval_acc 0.5', 'target not evaluated')
    >>> headline({"evaluation-failed": "no reply within the timeout"})
    'target accuracy unknown'
    >>> headline({"accuracy": 0.734, "accuracy-average": 0.75})
    'target accuracy 73.4%, average 75.0%'
    """
    if record.get("accuracy") is not None:
        average = record.get("accuracy-average")
        beside = "" if average is None else f", average {100 * average:.1f}%"
        return f"target accuracy {100 * record['accuracy']:.1f}%{beside}"
    others = ", ".join(f"{key} {value:.4g}" for key, value in record.get("metrics", {}).items())
    if others:
        return f"target {others}"
    asked = {"loss", "evaluation-failed", "mixture"} & record.keys()
    return "target accuracy unknown" if asked else "target not evaluated"
