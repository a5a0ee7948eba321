"""Record the target's per-step updates for auto-weighting."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from numpy.typing import NDArray
from torch import Tensor
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from fda_flower.aggregation import find_buffers
from fda_flower.errors import ConfigError, unknown
from fda_flower.models.devices import widest_float
from fda_flower.wire import protocol
from fda_flower.wire.numpy_client import add_arrays
from fda_flower.wire.protocol import to_layers

Arrays = dict[str, NDArray[Any]]

PART = 2**16
"""Elements recorded at a time, so that they stay in the cache."""


class Part(NamedTuple):
    """A piece of the model: a vector `flat`, and views of it and of the parameters, `before` and `after`."""

    flat: Tensor
    before: list[Tensor]
    after: list[Tensor]


class Recorder:
    """Records ``‖δ_j‖²``, the squared norm of each optimizer step: ``B`` numbers.

    It keeps one copy of the parameters, ``m`` numbers in the order of the state dictionary.
    """

    def __init__(self, parameters: Sequence[Tensor], config: Mapping[str, Any]) -> None:
        self._parts = _cut([parameter.detach() for parameter in parameters])
        self._lengths = [part.flat.numel() for part in self._parts]
        self._norms: list[list[Tensor]] = []

    def step(self) -> None:
        """Record the optimizer's latest step."""
        norms = []
        for index, part in enumerate(self._parts):
            torch._foreach_sub_(part.before, part.after)
            norms.append(torch.linalg.vector_norm(part.flat, dtype=widest_float(part.flat.device)))
            self._keep(index, part.flat)
            torch._foreach_copy_(part.before, part.after)
        self._norms.append(norms)

    def arrays(self) -> Arrays:
        """Return the record of ``B`` steps, in an encoding of `fda_flower.aggregation.batches`."""
        rows = [torch.stack(norms) for norms in self._norms]
        norms = torch.stack(rows) if rows else torch.zeros(0, 1)
        return {"norms": norms.square().sum(dim=1).cpu().numpy().astype(np.float64)}

    def _keep(self, index: int, negative: Tensor) -> None:
        """Keep the data an encoding needs from a part of ``-δ_j``; the first part has index 0."""


def _cut(parameters: Sequence[Tensor]) -> list[Part]:
    """Return copies of the parameters in parts of about `PART` elements."""
    pieces = [
        piece
        for parameter in parameters
        for piece in (torch.split(parameter.view(-1), PART) if parameter.is_contiguous() else [parameter])
    ]
    parts, group = [], list[Tensor]()
    for i, piece in enumerate(pieces):
        group.append(piece)
        sizes = [each.numel() for each in group]
        if i + 1 == len(pieces) or sum(sizes) + pieces[i + 1].numel() > PART:
            flat = torch.cat([each.reshape(-1) for each in group])
            views = torch.split(flat, sizes)
            before = [view.view_as(each) for view, each in zip(views, group, strict=True)]
            parts.append(Part(flat, before, group))
            group = []
    return parts


class SketchRecorder(Recorder):
    """Also records a CountSketch of each step: ``B x k`` numbers."""

    def __init__(self, parameters: Sequence[Tensor], config: Mapping[str, Any]) -> None:
        super().__init__(parameters, config)
        sketch = protocol.sketch_in(config, length := sum(self._lengths))
        self._size = sketch.size
        places = torch.from_numpy(sketch.places(length))
        self._places = torch.split(places.to(self._parts[0].flat.device), self._lengths)
        self._sums: list[Tensor] = []

    def _keep(self, index: int, negative: Tensor) -> None:
        if index == 0:
            widest = widest_float(negative.device)
            self._sums.append(negative.new_zeros(2 * self._size, dtype=widest))
        self._sums[-1].index_add_(0, self._places[index], negative.to(self._sums[-1]))

    def arrays(self) -> Arrays:
        """Return norms and sketches."""
        sums = torch.stack(self._sums) if self._sums else torch.zeros(0, 2 * self._size)
        sketches = sums[:, self._size :] - sums[:, : self._size]
        return {**super().arrays(), "sketch": sketches.cpu().numpy().astype(np.float64)}


class FullRecorder(Recorder):
    """Also records each step itself: ``B x m`` numbers."""

    def __init__(self, parameters: Sequence[Tensor], config: Mapping[str, Any]) -> None:
        super().__init__(parameters, config)
        self._pieces = [np.zeros(0, np.float32)]

    def _keep(self, index: int, negative: Tensor) -> None:
        self._pieces.append(negative.neg().cpu().float().numpy())

    def arrays(self) -> Arrays:
        """Return norms and updates."""
        rows = np.concatenate(self._pieces).reshape(-1, sum(self._lengths))
        return {**super().arrays(), "full": rows}


def make_recorder(parameters: Sequence[Tensor], config: Mapping[str, Any]) -> Recorder | None:
    """Return the recorder that a train message's `config` requests, or None.

    The parameters are the model's, in the order of its state dictionary. The config has ``batch-updates``
    (``"norms"``, ``"sketch"`` or ``"full"``) and, with ``"sketch"``, ``sketch-size`` and ``sketch-seed``.
    """
    encoding = config.get(protocol.BATCH_UPDATES)
    if encoding is None:
        return None
    if encoding not in RECORDERS:
        raise unknown("encoding of batch updates", encoding, RECORDERS)
    return RECORDERS[encoding](parameters, config)


RECORDERS = {"norms": Recorder, "sketch": SketchRecorder, "full": FullRecorder}
"""Recorders by encoding."""

Train = Callable[[Message, Context], Message]

Sent = Mapping[str, Tensor] | Iterable[Tensor]
"""What travels: a state dictionary, or its parameters in their order."""


class RecordedUpdates:
    """The recorded steps of an optimizer, made by `record_updates`.

    ``shapes`` has the shape of each recorded parameter. ``steps``, ``K``, counts calls of
    ``optimizer.step()``, except those skipped by a gradient scaler.
    ``learning_rate``, ``η``, is the mean over steps and parameters, so that ``K η`` sums a schedule's rates.
    """

    def __init__(self, optimizer: Optimizer, config: Mapping[str, Any], parameters: Sent | None) -> None:
        chosen = _trained_by(optimizer) if parameters is None else _parameters_in(parameters)
        self._recorder = make_recorder(chosen, config)
        self.shapes = [tuple(parameter.shape) for parameter in chosen]
        self.steps, self.learning_rate = 0, 0.0

    def step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Record a step; registered as the optimizer's hook."""
        self.steps += 1
        self.learning_rate += (_rate(optimizer) - self.learning_rate) / self.steps
        if self._recorder is not None:
            self._recorder.step()

    def add_to(self, reply: RecordDict | dict[str, Any]) -> None:
        """Add ``num-steps``, ``learning-rate`` and, if requested, the steps to a train reply.

        The reply is the content of a message, or the metrics returned by the ``fit`` of a `NumPyClient`.
        """
        numbers = {protocol.NUM_STEPS: self.steps, protocol.LEARNING_RATE: self.learning_rate}
        if isinstance(reply, dict):
            reply |= numbers
        else:
            metrics = reply.metric_records.get(protocol.METRICS, MetricRecord())
            reply[protocol.METRICS] = MetricRecord({**metrics, **numbers})
        arrays = {} if self._recorder is None else self._recorder.arrays()
        add_arrays(reply, protocol.BATCH_UPDATES, arrays)


def record_updates(
    training: Optimizer | Train,
    config: Mapping[str, Any] | None = None,
    parameters: Sent | None = None,
) -> Any:
    """Record the optimizer's steps, as a context manager around a loop or a decorator of a train function.

    Parameters
    ----------
    training : Optimizer or callable
        The optimizer, for a context that yields `RecordedUpdates`. Or the app's train function, which must
        create one optimizer with the parameters that travel; the steps are then added to its reply.
    config : Mapping, optional
        The ``config`` of the train message, where the server requests batch updates. Default: record only
        the number of steps and the learning rate, which suffices for a source.
    parameters : Mapping[str, Tensor] or Iterable[Tensor], optional
        The state dictionary that travels, ``model.state_dict()``; or the parameters in it, in its order, each
        as often as it is there. Default: the optimizer's; for a decorated function, those with
        ``requires_grad`` if only these travel, and a shared one under each of its names. Required if the
        optimizer lacks some that travel (frozen ones), holds them in groups or, around the steps, if the
        network uses one twice.

    Raises
    ------
    ConfigError
        If the config requests an unknown encoding; or if a decorated function uses two optimizers, or one
        without the parameters that the server sent, in their order.

    Examples
    --------
    >>> import torch
    >>> weight = torch.nn.Parameter(torch.tensor([3.0]))
    >>> optimizer = torch.optim.SGD([weight], lr=0.5)
    >>> with record_updates(optimizer, {"batch-updates": "norms"}) as updates:
    ...     (2 * weight).sum().backward()
    ...     optimizer.step()
    >>> reply = RecordDict()
    >>> updates.add_to(reply)
    >>> dict(reply["metrics"]), reply["batch-updates"]["norms"].numpy()
    ({'num-steps': 1, 'learning-rate': 0.5}, array([1.]))
    """
    if isinstance(training, Optimizer):
        return _recording(training, config or {}, parameters)
    return _decorated(training)


@contextmanager
def _recording(
    optimizer: Optimizer, config: Mapping[str, Any], parameters: Sent | None = None
) -> Iterator[RecordedUpdates]:
    updates = RecordedUpdates(optimizer, config, parameters)
    hook = optimizer.register_step_post_hook(updates.step)
    try:
        yield updates
    finally:
        hook.remove()


def _decorated(train: Train) -> Train:
    @wraps(train)
    def recorded(message: Message, context: Context) -> Message:
        settings = (
            record
            for record in message.content.config_records.values()
            if record.get(protocol.BATCH_UPDATES) is not None
        )
        config = next(settings, ConfigRecord())
        sent = _parameters_sent(next(iter(message.content.array_records.values()))) if config else {}
        optimizers, recorded = list[Optimizer](), list[RecordedUpdates]()

        def begin(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            if not optimizers:
                optimizers.append(optimizer)
                choices: list[Any] = _may_travel(optimizer, [*sent.values()]) if config else []
                recordings = (_recording(optimizer, config, each) for each in choices or [None])
                recorded.extend(map(stack.enter_context, recordings))
            if optimizer is not optimizers[0]:
                raise ConfigError(
                    "the train function uses more than one optimizer: use "
                    "`with record_updates(optimizer, config)` around the steps of one",
                    thing="optimizer",
                )

        with ExitStack() as stack:
            stack.callback(register_optimizer_step_pre_hook(begin).remove)
            reply = train(message, context)
        if recorded and not reply.has_error():
            _returned(recorded, sent, reply.content).add_to(reply.content)
        return reply

    return recorded


def _parameters_sent(record: ArrayRecord) -> Arrays:
    sent = to_layers(record)
    buffers = find_buffers(sent)
    return {name: array for name, array in sent.items() if name not in buffers}


def _may_travel(optimizer: Optimizer, sent: Sequence[NDArray[Any]]) -> list[list[Tensor]]:
    """Return the optimizer's parameters that may travel: all or the unfrozen ones, in the form that is sent.

    If the reply returns only the unfrozen ones, these may also be fewer than were sent. Those of a head that
    stays with the client are not among the values sent.
    """
    shapes = [array.shape for array in sent]
    held = _trained_by(optimizer)
    trained = [parameter for parameter in held if parameter.requires_grad]
    every = [each for each in (held, trained) if [parameter.shape for parameter in each] == shapes]
    fewer = [each for each in (held, trained) if len(each) < len(sent)]
    every += [each for each in (_by_values(parameters, sent) for parameters in fewer) if each]
    every += [each for each in [_among_values(held, sent)] if each and len(held) > len(sent)]
    rest = iter(shapes)
    in_order = all(any(parameter.shape == shape for shape in rest) for parameter in trained)
    part = [trained] if in_order and len(trained) < len(sent) else []
    if not (every or part):
        raise _does_not_fit()
    return every[:1] + part


def _returned(found: Sequence[RecordedUpdates], sent: Arrays, reply: RecordDict) -> RecordedUpdates:
    """Return the updates of the parameters that a reply returns, all of those sent or a part."""
    names: Iterable[str] = next(iter(reply.array_records.values()), sent)
    shapes = [sent[name].shape for name in sent if name in names]
    for updates in found:
        if not sent or updates.shapes == shapes:
            return updates
    raise _does_not_fit()


def _does_not_fit() -> ConfigError:
    return ConfigError(
        "the optimizer does not have the parameters that the server sent, in their order: use "
        "`with record_updates(optimizer, config, model.state_dict())` around the steps, and give it what is "
        "sent",
        thing="parameters",
    )


def _by_values(parameters: Sequence[Tensor], sent: Sequence[NDArray[Any]]) -> list[Tensor]:
    """Return the parameter of each array; empty if the values, before a first step, do not tell it.

    A parameter that a network uses twice is one of the optimizer's, but sent under two names.
    """
    values = [parameter.detach().cpu().double().numpy() for parameter in parameters]
    alike = [tuple(i for i, value in enumerate(values) if np.array_equal(value, array)) for array in sent]
    counts = Counter(alike)
    if any(len(places) not in (1, count) for places, count in counts.items()):
        return []
    turns = {places: cycle(places) for places in counts}
    order = [next(turns[places]) for places in alike]
    return [parameters[i] for i in order] if list(dict.fromkeys(order)) == [*range(len(values))] else []


def _among_values(parameters: Sequence[Tensor], sent: Sequence[NDArray[Any]]) -> list[Tensor]:
    """Return the parameters whose values are sent; empty if these are not the arrays, one by one."""
    values = [parameter.detach().cpu().numpy() for parameter in parameters]
    places = [i for i, value in enumerate(values) if any(np.array_equal(value, array) for array in sent)]
    is_same = len(places) == len(sent) and all(map(np.array_equal, [values[i] for i in places], sent))
    return [parameters[i] for i in places] if is_same else []


def _parameters_in(sent: Sent) -> list[Tensor]:
    if not isinstance(sent, Mapping):
        return list(sent)
    kinds = {name: np.zeros(0, float if each.is_floating_point() else int) for name, each in sent.items()}
    buffers = find_buffers(kinds)
    return [each for name, each in sent.items() if name not in buffers]


def _trained_by(optimizer: Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _rate(optimizer: Optimizer) -> float:
    """Return the mean rate of unfrozen parameters; exact, not rounded, if all groups have the same."""
    mean, total = 0.0, 0
    for group in optimizer.param_groups:
        size = sum(parameter.numel() for parameter in group["params"] if parameter.requires_grad)
        total += size
        mean += (float(group.get("lr") or 0.0) - mean) * (size / total if total else 0.0)
    return mean
