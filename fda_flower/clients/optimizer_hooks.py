"""Record the optimizer steps of any training loop, and add them to its reply."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import wraps
from typing import Any, overload

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from torch import Tensor
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from fda_flower import protocol
from fda_flower.aggregation import find_buffers
from fda_flower.clients.numpy_client import add_arrays
from fda_flower.clients.recorder import make_recorder
from fda_flower.errors import ConfigError
from fda_flower.protocol import to_layers

Train = Callable[[Message, Context], Message]


class RecordedUpdates:
    """The recorded steps of an optimizer; `record_updates` makes it.

    Attributes
    ----------
    steps : int
        ``K``, the number of calls of ``optimizer.step()``. A call of LBFGS is one step, however often it
        evaluates its closure; a step that a gradient scaler skips does not count.
    learning_rate : float
        ``η``, the mean over steps, so that ``K η`` is the sum of a schedule's rates; if parameter groups have
        different rates, the mean over parameters.
    """

    def __init__(
        self, optimizer: Optimizer, config: Mapping[str, Any], parameters: Iterable[Tensor] | None
    ) -> None:
        chosen = _trained_by(optimizer) if parameters is None else list(parameters)
        self._recorder = make_recorder(chosen, config)
        self.steps, self.learning_rate = 0, 0.0

    def step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Record a step; the optimizer calls this as its hook."""
        self.steps += 1
        self.learning_rate += (_rate(optimizer) - self.learning_rate) / self.steps
        if self._recorder is not None:
            self._recorder.step()

    def add_to(self, reply: RecordDict | dict[str, Any]) -> None:
        """Add the recorded steps to a train reply.

        Parameters
        ----------
        reply : RecordDict or dict
            The content of a reply: ``num-steps`` and ``learning-rate`` go into its record ``metrics``, the
            steps, if the server asked for them, into an `ArrayRecord` ``batch-updates``. Or the metrics that
            the ``fit`` of a `NumPyClient` returns, for a client served by `fda_flower.clients.serve`.
        """
        numbers = {protocol.NUM_STEPS: self.steps, protocol.LEARNING_RATE: self.learning_rate}
        if isinstance(reply, dict):
            reply |= numbers
        else:
            metrics = reply.metric_records.get(protocol.METRICS, MetricRecord())
            reply[protocol.METRICS] = MetricRecord({**metrics, **numbers})
        arrays = {} if self._recorder is None else self._recorder.arrays()
        add_arrays(reply, protocol.BATCH_UPDATES, arrays)


@overload
def record_updates(
    training: Optimizer, config: Mapping[str, Any] = ..., parameters: Iterable[Tensor] | None = ...
) -> AbstractContextManager[RecordedUpdates]: ...


@overload
def record_updates(training: Train) -> Train: ...


def record_updates(
    training: Optimizer | Train,
    config: Mapping[str, Any] | None = None,
    parameters: Iterable[Tensor] | None = None,
) -> AbstractContextManager[RecordedUpdates] | Train:
    """Record the optimizer's steps: a context manager around a loop, or a decorator of a train function.

    Parameters
    ----------
    training : Optimizer or callable
        The optimizer, which is hooked inside the context. Or the app's train function, which makes one
        optimizer for all parameters that are sent; the recorded steps are then added to its reply.
    config : Mapping, optional
        The ``config`` of the train message, by which the server asks for batch updates. Default: only the
        number of steps and the learning rate are recorded, which is enough for a source.
    parameters : Iterable[Tensor], optional
        The parameters that are sent, in the order of the arrays. Default: the optimizer's parameters in the
        optimizer's order, which is the same after ``Adam(model.parameters())``. Needed if the optimizer lacks
        some that are sent (frozen ones), or holds them in groups.

    Raises
    ------
    ConfigError
        If the config asks for an unknown encoding; if a decorated function uses two optimizers, or one that
        does not hold the parameters that the server sent, in their order.

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
    optimizer: Optimizer, config: Mapping[str, Any], parameters: Iterable[Tensor] | None = None
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
            record for record in message.content.config_records.values() if protocol.BATCH_UPDATES in record
        )
        config = next(settings, ConfigRecord())
        arrays = next(iter(message.content.array_records.values()))
        found: list[tuple[Optimizer, RecordedUpdates]] = []

        def begin(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            if not found:
                if protocol.BATCH_UPDATES in config:
                    _check_shapes(optimizer, arrays)
                found.append((optimizer, stack.enter_context(_recording(optimizer, config))))
            if optimizer is not found[0][0]:
                raise ConfigError(
                    "the train function uses more than one optimizer: use "
                    "`with record_updates(optimizer, config)` around the steps of one"
                )

        with ExitStack() as stack:
            stack.callback(register_optimizer_step_pre_hook(begin).remove)
            reply = train(message, context)
        if not reply.has_error():
            for _, updates in found:
                updates.add_to(reply.content)
        return reply

    return recorded


def _check_shapes(optimizer: Optimizer, record: ArrayRecord) -> None:
    sent = to_layers(record)
    buffers = find_buffers(sent)
    expected = [array.shape for name, array in sent.items() if name not in buffers]
    if [tuple(parameter.shape) for parameter in _trained_by(optimizer)] != expected:
        raise ConfigError(
            "the optimizer does not have the parameters that the server sent, in their order: use "
            "`with record_updates(optimizer, config, parameters)` and give it those that are sent"
        )


def _trained_by(optimizer: Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _rate(optimizer: Optimizer) -> float:
    """The mean rate of the parameters; exact, not rounded, where all groups have the same."""
    mean, total = 0.0, 0
    for group in optimizer.param_groups:
        size = sum(parameter.numel() for parameter in group["params"])
        total += size
        mean += (float(group.get("lr") or 0.0) - mean) * (size / total if total else 0.0)
    return mean
