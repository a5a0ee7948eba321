"""A Flower mod by which the target aggregates a round's updates in the server's place."""

from logging import INFO
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.common import log

from fda_flower import protocol
from fda_flower.aggregation import (
    AdaptiveRule,
    BatchUpdates,
    CountSketch,
    Evidence,
    GradientForm,
    Layers,
    Update,
    read_gradients,
)
from fda_flower.protocol import to_layers, to_record


def aggregate_on_target(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """A Flower mod: aggregate the sources' updates with this client's, if the server asks for it.

    With ``FedGP(aggregate_on="target")`` the train message holds the sources' models. The app below trains as
    usual; this mod makes the new global model and replaces the trained model by it. The client's own update,
    its batch updates or gradients, and β do not leave the node; β is logged. Other messages pass unchanged.

    Examples
    --------
    >>> from flwr.clientapp import ClientApp
    >>> app = ClientApp(mods=[aggregate_on_target])
    """
    if protocol.AGGREGATE not in message.content:
        return call_next(message, context)
    asked = message.content.config_records[protocol.AGGREGATE]
    config = protocol.settings_in(message.content, protocol.CONFIG)
    model = to_layers(message.content.array_records[protocol.ARRAYS])
    records, indices = message.content.array_records, range(len(_list(asked, "domains")))
    sources = [_update(model, records.pop(f"source.{i}"), asked, i) for i in indices]
    gradients = [records.pop(f"{protocol.GRADIENTS}.{i}", None) for i in indices]
    reply = call_next(message, context)
    if reply.has_error():
        return reply
    target = _own_update(model, reply.content, asked)
    evidence = _evidence(reply.content, gradients, target, config)
    rule = AdaptiveRule.from_text(str(asked["weighing"]))
    result = rule(model, target, sources, np.array(_list(asked, "betas"), dtype=np.float64), evidence)
    for domain, beta, fallback in zip(_list(asked, "domains"), result.betas, result.fallbacks, strict=True):
        log(INFO, "β of %s: %.4g%s", domain, beta, f" (fixed: {fallback})" if fallback else "")
    reply.content[protocol.ARRAYS] = to_record(result.model)
    for name in (protocol.BATCH_UPDATES, protocol.GRADIENTS):
        reply.content.pop(name, None)
    info = dict(reply.content.config_records.get(protocol.INFO, {}))
    reply.content[protocol.INFO] = ConfigRecord({**info, protocol.AGGREGATED_ON: "target"})
    return reply


def _list(asked: ConfigRecord, key: str) -> list[Any]:
    values = asked[key]
    return values if isinstance(values, list) else [values]


def _update(model: Layers, record: ArrayRecord, asked: ConfigRecord, i: int) -> Update:
    examples, steps, rate, batch_size, factor = (
        _list(asked, key)[i] for key in ("examples", "steps", "learning-rates", "batch-sizes", "factors")
    )
    buffers = _list(asked, "buffers")
    update = Update.between(model, to_layers(record), examples, steps, rate, buffers, batch_size=batch_size)
    return update if factor == 1 else update.scaled(factor)


def _own_update(model: Layers, content: RecordDict, asked: ConfigRecord) -> Update:
    metrics = content.metric_records[protocol.METRICS]
    numbers: dict[str, Any] = {
        key: metrics.get(key, 0)
        for key in (protocol.NUM_EXAMPLES, protocol.NUM_STEPS, protocol.LEARNING_RATE, protocol.BATCH_SIZE)
    }
    return Update.between(
        model,
        to_layers(content.array_records[protocol.ARRAYS]),
        int(numbers[protocol.NUM_EXAMPLES]),
        int(numbers[protocol.NUM_STEPS]),
        float(numbers[protocol.LEARNING_RATE]),
        _list(asked, "buffers"),
        batch_size=int(numbers[protocol.BATCH_SIZE]),
    )


def _evidence(
    content: RecordDict, gradients: list[ArrayRecord | None], target: Update, config: ConfigRecord
) -> Evidence | str | None:
    """Return what β is estimated from, or why it cannot be; None if the server did not ask for it."""
    encoding: Any = config.get(protocol.GRADIENTS)
    if encoding is None:
        return _batches(content, target, config)
    length = sum(layer.size for layer in target.parameters.values())
    form = GradientForm(encoding, _sketch(config) if encoding == "sketch" else CountSketch(1, 0), length)
    missing = f"it has no ArrayRecord '{protocol.GRADIENTS}'"
    own, *others = (
        missing if record is None else to_layers(record)
        for record in (content.array_records.get(protocol.GRADIENTS), *gradients)
    )
    return read_gradients(own, others, form)


def _sketch(config: ConfigRecord) -> CountSketch:
    size, seed = config[protocol.SKETCH_SIZE], config[protocol.SKETCH_SEED]
    return CountSketch(int(str(size)), int(str(seed)))


def _batches(content: RecordDict, target: Update, config: ConfigRecord) -> BatchUpdates | str | None:
    """Return the recorded steps, or why they cannot be used; None if the server did not ask for them."""
    encoding: Any = config.get(protocol.BATCH_UPDATES)
    if encoding is None:
        return None
    if protocol.BATCH_UPDATES not in content.array_records:
        return "the target recorded none"
    sketch = _sketch(config) if encoding == "sketch" else None
    length = sum(layer.size for layer in target.parameters.values())
    try:
        arrays = to_layers(content.array_records[protocol.BATCH_UPDATES])
        return BatchUpdates.from_arrays(arrays, encoding, target.steps, length, sketch)
    except ValueError as error:
        return str(error)
