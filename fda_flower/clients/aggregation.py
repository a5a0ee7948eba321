"""The target combines a round's updates in the server's place: what a mod of its app does."""

from logging import INFO
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.common.logger import log
from numpy.typing import NDArray

from fda_flower.aggregation import AdaptiveRule, BatchUpdates, CountSketch, Layers, Update

AGGREGATE = "aggregate"


def aggregate_on_target(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """A Flower mod: combine the sources' updates with this client's, where the server asks for it.

    With ``FedGP(aggregate_on="target")`` the train message holds the sources' models. The app below trains as
    ever; this mod makes the new global model of all of them and puts it in the place of the trained one.
    The client's own update, its batch updates and β stay here; β is logged. Other messages pass.

    Examples
    --------
    >>> from flwr.clientapp import ClientApp
    >>> app = ClientApp(mods=[aggregate_on_target])
    """
    if AGGREGATE not in message.content.config_records:
        return call_next(message, context)
    asked = message.content.config_records[AGGREGATE]
    config = message.content.config_records.get("config", ConfigRecord())
    model = _layers(message.content.array_records["arrays"])
    sources = [
        _update(model, message.content.array_records.pop(f"source.{i}"), asked, i)
        for i in range(len(_list(asked, "domains")))
    ]
    reply = call_next(message, context)
    if reply.has_error():
        return reply
    target = _own_update(model, reply.content, asked)
    batches = _batches(reply.content, target, config)
    weighing = AdaptiveRule.from_text(str(asked["weighing"]))
    weighed = weighing(model, target, sources, np.array(_list(asked, "betas"), dtype=np.float64), batches)
    for domain, beta, fallback in zip(_list(asked, "domains"), weighed.betas, weighed.fallbacks, strict=True):
        log(INFO, "β of %s: %.4g%s", domain, beta, f" (fixed: {fallback})" if fallback else "")
    reply.content["arrays"] = ArrayRecord({name: Array(array) for name, array in weighed.model.items()})
    reply.content.pop("batch-updates", None)
    info = dict(reply.content.config_records.get("info", {}))
    reply.content["info"] = ConfigRecord({**info, "aggregated-on": "target"})
    return reply


def _layers(record: ArrayRecord) -> dict[str, NDArray[Any]]:
    return {name: array.numpy() for name, array in record.items()}


def _list(asked: ConfigRecord, key: str) -> list[Any]:
    values = asked[key]
    return values if isinstance(values, list) else [values]


def _update(model: Layers, record: ArrayRecord, asked: ConfigRecord, i: int) -> Update:
    examples, steps, rate, factor = (
        _list(asked, key)[i] for key in ("examples", "steps", "learning-rates", "factors")
    )
    update = Update.between(model, _layers(record), examples, steps, rate, _list(asked, "buffers"))
    return update if factor == 1 else update.scaled(factor)


def _own_update(model: Layers, content: RecordDict, asked: ConfigRecord) -> Update:
    metrics = content.metric_records["metrics"]
    numbers: dict[str, Any] = {
        key: metrics.get(key, 0) for key in ("num-examples", "num-steps", "learning-rate")
    }
    return Update.between(
        model,
        _layers(content.array_records["arrays"]),
        int(numbers["num-examples"]),
        int(numbers["num-steps"]),
        float(numbers["learning-rate"]),
        _list(asked, "buffers"),
    )


def _batches(content: RecordDict, target: Update, config: ConfigRecord) -> BatchUpdates | str | None:
    """What this client recorded of its steps; why it cannot be used; None if it was not asked for."""
    encoding: Any = config.get("batch-updates")
    if encoding is None:
        return None
    if "batch-updates" not in content.array_records:
        return "the target recorded none"
    sketch = None
    if encoding == "sketch":
        size, seed = config["sketch-size"], config["sketch-seed"]
        sketch = CountSketch(int(str(size)), int(str(seed)))
    length = sum(layer.size for layer in target.parameters.values())
    try:
        arrays = _layers(content.array_records["batch-updates"])
        return BatchUpdates.from_arrays(arrays, encoding, target.steps, length, sketch)
    except ValueError as error:
        return str(error)
