"""What leaves a site of single batches: levels, by the form of records, and a memory of sketches."""

import json
import math
from logging import ERROR
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, RecordDict
from flwr.common import log

from fda_flower.files import PRIVATE, locked, make_private, write_atomically
from fda_flower.site.asked import Asked, announced, count_numbers, values_in
from fda_flower.site.records import is_in, release_of
from fda_flower.site.words import LONGEST
from fda_flower.wire import protocol

LEVELS = ("none", "norms", "sketch", "full")
"""Per-batch data that a run may request, in order: each level includes those before it."""

SKETCHES = "sketches.json"
"""Name of the memory of sketches in a node's ``state-dir``."""

SHARE = 8
"""Inverse share of a vector's numbers that all its sketches together may have: one in eight."""


def steps_of(reply: RecordDict) -> int:
    """Return the number of steps in a reply, or 0."""
    told = (record.get(protocol.NUM_STEPS) for record in reply.metric_records.values())
    return next((int(steps) for steps in told if isinstance(steps, int | float) and math.isfinite(steps)), 0)


NUMBERS = frozenset({"norm", "variance", "batches", protocol.SKETCH_SIZE, protocol.SKETCH_SEED})
"""Arrays of one number each in a record of gradients."""


def level_of(record: object, numbers: int, steps: int) -> str:
    """Return the level of a record of batch updates or gradients, judged by its arrays.

    A sketch longer than an eighth of the model's `numbers` counts as ``"full"``, and so does anything other
    than one norm, and at most one sketch, for each of the `steps`.
    """
    if not isinstance(record, ArrayRecord):
        return "full"
    rows = ((), (steps,)) if "norms" in record else ((),)
    forms: dict[str, tuple[int, ...]] = {"norms": (steps,), **dict.fromkeys(NUMBERS, ())}
    level = "norms"
    for name, array in record.items():
        values = values_in(array)
        if values is None:
            return "full"
        is_sketch = name == "sketch" and values.ndim > 0 and values.shape[:-1] in rows
        if is_sketch and values.shape[-1] * SHARE <= numbers:
            level = "sketch"
        elif values.shape != forms.get(name):
            return "full"
    return level


def level_in(asked: Asked, reply: RecordDict, name: str, is_strict: bool) -> str:
    """Return the level of any record of a reply.

    If the site `is_strict`, what nobody has declared counts as ``"full"``, and so do a long text and an array
    of a trained model that the message's model lacks, by name and form.
    """
    record, kind = reply[name], asked.message.metadata.message_type
    if name in (protocol.BATCH_UPDATES, protocol.GRADIENTS):
        return level_of(record, asked.numbers, steps_of(reply))
    if not is_strict:
        return LEVELS[0]
    is_known = all(release_of(kind, name, entry) is not None for entry in record)
    if (kind, name) == (protocol.TRAIN, protocol.ARRAYS):
        is_known = is_known and all(is_in(asked.model, *each) for each in record.items())
    return LEVELS[0] if is_known and not any(map(_is_long, (name, *record.values()))) else LEVELS[-1]


def _is_long(value: object) -> bool:
    """Return whether a value has a text that is longer than a name or a reason."""
    texts = value if isinstance(value, list) else [value]
    return any(isinstance(text, str | bytes) and len(text) > LONGEST for text in texts)


def _known(level: object) -> str:
    """Return a level; treat an unknown word as the last one."""
    return str(level) if level in LEVELS else LEVELS[-1]


def sketch_may_leave(memory: Path, model: ArrayRecord, size: int, seed: int) -> bool:
    """Return whether a sketch of this size and seed may leave for a model; if so, remember it.

    The memory has the sizes and seeds of sketches that have left, by the model's number of numbers of any
    type: a server cannot make the same model another one by sending some layers as integers. A server also
    may send one model in many rounds. The sizes of all maps therefore add up, and bound what can be learned
    about a vector in any run; a map that has been used before reveals nothing new.

    Raises an `OSError` or `ValueError` if the file cannot be read or written.
    """
    make_private(memory.parent)
    with locked(memory.with_name(f".{memory.name}.lock")):
        kept = _read(memory)
        maps = kept.setdefault(str(count_numbers(model, "fiub")), [])
        if [size, seed] in maps:
            return True
        maps.append([size, seed])
        if size < 1 or SHARE * sum(length for length, _ in maps) > count_numbers(model):
            return False
        write_atomically(memory, json.dumps(kept).encode(), PRIVATE)
    return True


def _read(memory: Path) -> dict[str, list[list[int]]]:
    try:
        kept = json.loads(memory.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    if not isinstance(kept, dict) or not all(_are_maps(maps) for maps in kept.values()):
        raise ValueError(f"'{memory}' is damaged: restore the file from a copy")
    return kept


def _are_maps(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, list) and [type(number) for number in each] == [int, int] and each[0] > 0
        for each in value
    )


WITHOUT_BATCHES = (protocol.OPEN_SUMS, protocol.MASKED_SUMS, protocol.FEATURES)
"""What a role query may say of a run that requests nothing of single batches."""


def wanted_level(asked: Asked) -> str:
    """Return the most that a message requests of single batches from this site.

    The role query includes it for both roles, a train message for the node itself.
    """
    records = asked.settings
    if asked.kind == "query":
        told = announced(asked)
        return "none" if told in WITHOUT_BATCHES else _known(told)
    if protocol.AGGREGATE in records:
        return "none"
    wanted = [
        value for name in (protocol.BATCH_UPDATES, protocol.GRADIENTS) for value in asked.values_of(name)
    ]
    return max(map(_known, wanted), key=LEVELS.index, default="none")


def refuses_sketch(asked: Asked) -> str | None:
    """Return why a site that allows sketches does not send the requested one; None if it does."""
    folder = asked.site.state_dir
    if folder is None:
        return (
            "the site allows a sketch of each batch, but has no state-dir in which to remember those that "
            'have left: give the node configuration state-dir="..."'
        )
    if asked.kind == "query":
        return None
    if any(values_in(array) is None for array in asked.model.values()):
        return "the message's model has an array that is not of plain numbers"
    told = (protocol.SKETCH_SIZE, protocol.SKETCH_SEED, protocol.SERVER_ROUND)
    size, seed, number = (_only(asked.values_of(setting)) for setting in told)
    if size is None or seed is None or seed != number:
        return (
            f"the run asks for a sketch of size {size} with the seed {seed} in round {number}: the site "
            f"sends sketches whose {protocol.SKETCH_SEED} is the number of the round"
        )
    try:
        if sketch_may_leave(folder / SKETCHES, asked.model, size, seed):
            return None
    except (OSError, ValueError) as error:
        log(ERROR, "This site cannot record which sketches have left it: %s", error)
        return "the site cannot record which sketches have left it, and why is in its SuperNode's output"
    return (
        f"the run asks for a sketch of {size} numbers in round {number}, and the sizes of the sketches of "
        f"all rounds and runs may add up to {asked.numbers // SHARE}, an eighth of the model's numbers: "
        "choose a smaller sketch_size or fewer rounds"
    )


def _only(values: list[Any]) -> int | None:
    """Return the only element of a list if it is an integer, else None."""
    return values[0] if len(values) == 1 and type(values[0]) is int else None
