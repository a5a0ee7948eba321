"""Every method for projects on Flower's older server API, ``flwr.server.strategy``."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from logging import WARNING
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message
from flwr.common import log
from flwr.serverapp.strategy import Result

from fda_flower.errors import ConfigError, invalid
from fda_flower.legacy.grid import (
    ClientError,
    ManagerGrid,
    NamedProxy,
    arrays_of,
    check_request,
    evaluate_reply,
    fit_reply,
    instruction,
    parameters_of,
)
from fda_flower.names.options import read_list
from fda_flower.records.folder import check_same_model
from fda_flower.strategies.base import DomainAdaptationStrategy
from fda_flower.strategies.flowers_options import FlowersOptions, made_by
from fda_flower.wire import private
from fda_flower.wire.internals import error_reply, numbered, task_identity
from fda_flower.wire.older import (
    ClientManager,
    ClientProxy,
    EvaluateIns,
    EvaluateRes,
    FitIns,
    FitRes,
    NDArrays,
    Parameters,
    Scalar,
    Strategy,
)
from fda_flower.wire.older import parameters_to_ndarrays as to_ndarrays

MakeConfig = Callable[[int], dict[str, Scalar]]
MetricsFn = Callable[[list[tuple[int, dict[str, Scalar]]]], dict[str, Scalar]]
EvaluateFn = Callable[[int, NDArrays, dict[str, Scalar]], tuple[float, dict[str, Scalar]] | None]
Failures = Sequence[tuple[ClientProxy, Any] | BaseException]


class LegacyStrategy(Strategy, metaclass=FlowersOptions):
    """Run a strategy of this package in ``ServerAppComponents(strategy=...)`` or an older ``Server``.

    This class only translates: the wrapped strategy checks and aggregates replies and writes records, as with
    the Message API. Clients are plain ``NumPyClient`` objects under ``ClientApp(client_fn=...)``, whose
    ``get_properties`` reports a ``domain`` and, unless the strategy has ``target=``, a ``role``. Arrays
    that a method needs in addition to the model are metrics of ``fit``, bytes in NumPy's file format, such as
    ``batch-updates.norms`` for auto-weighting; see `fda_flower.clients.TargetClient`.

    Parameters
    ----------
    strategy : DomainAdaptationStrategy
        The method. With ``output=RunFolder(..., resume=True)``, rounds continue from the checkpoint.
    initial_parameters : Parameters, optional
        The initial model. Default: the model of one of the clients.
    names : Sequence[str], optional
        Names of the arrays, such as ``list(model.state_dict())``. They identify buffers and are stored in
        checkpoints; `FedDWA` needs them. Default: ``"0"``, ``"1"``, ...; then the strategy's
        ``buffer_names`` must list all buffers, as in ``["3", "4"]``.
    on_fit_config_fn, on_evaluate_config_fn : callable, optional
        Maps a round to further settings for the clients.
    evaluate_fn : callable, optional
        Takes round, arrays and an empty dictionary; returns the server's loss and metrics.
    fit_metrics_aggregation_fn, evaluate_metrics_aggregation_fn : callable, optional
        Maps pairs of examples and metrics, of all clients that trained or of the target that evaluated, to
        metrics that are added to the history.
    fraction_fit, min_fit_clients, min_available_clients : optional
        The strategy's options `fraction_train`, `min_train_nodes` and `wait_for`.

    Raises
    ------
    ConfigError
        If the method needs more than the older API offers; raised here or at the start of round 1.

    Examples
    --------
    >>> from fda_flower.legacy import LegacyStrategy
    >>> from fda_flower.strategies import FedGP
    >>> from flwr.server import ServerAppComponents, ServerConfig
    >>> strategy = LegacyStrategy(FedGP(target="3", auto=True))
    >>> components = ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=30))
    """

    def __init__(
        self,
        strategy: DomainAdaptationStrategy,
        initial_parameters: Parameters | None = None,
        *,
        names: Sequence[str] | None = None,
        on_fit_config_fn: MakeConfig | None = None,
        on_evaluate_config_fn: MakeConfig | None = None,
        evaluate_fn: EvaluateFn | None = None,
        fit_metrics_aggregation_fn: MetricsFn | None = None,
        evaluate_metrics_aggregation_fn: MetricsFn | None = None,
        fraction_fit: float | None = None,
        min_fit_clients: int | None = None,
        min_available_clients: int | None = None,
    ) -> None:
        private.check([private.OLDER])
        _check_it_works(strategy)
        strategy.change(
            fraction_train=fraction_fit,
            min_train_nodes=min_fit_clients,
            wait_for=min_available_clients,
            columns="own",
        )
        self.strategy = strategy
        self.initial_parameters = initial_parameters
        self._names = None if names is None else read_list("names", names, '["w", "b"]')
        self.on_fit_config_fn, self.on_evaluate_config_fn = on_fit_config_fn, on_evaluate_config_fn
        self.evaluate_fn = evaluate_fn
        self.fit_metrics_aggregation_fn = fit_metrics_aggregation_fn
        self.evaluate_metrics_aggregation_fn = evaluate_metrics_aggregation_fn
        self._done = 0
        self._times: list[float] = []
        self._sent: dict[str, Message] = {}

    # The older server calls these methods in this order.

    def initialize_parameters(self, client_manager: ClientManager) -> Parameters | None:
        """Wait for the clients, query their roles, and return the model of the checkpoint or `__init__`."""
        strategy, result, parameters = self.strategy, Result(), self.initial_parameters
        before = strategy.take_up(None if parameters is None else self._whole_arrays(parameters))
        self._done = strategy.resume(result) or before
        if self._done > before:
            if parameters is not None:
                check_same_model(result.arrays, self._whole_arrays(parameters))
            parameters = parameters_of(result.arrays)
        self._grid = ManagerGrid(client_manager)
        with task_identity():
            strategy.connect(self._grid)
            for request in strategy.preview(result.arrays, self._done, self._grid):
                check_request(request)
        return parameters

    def evaluate(self, server_round: int, parameters: Parameters) -> tuple[float, dict[str, Scalar]] | None:
        """Return loss and metrics of `evaluate_fn`, if given."""
        if self.evaluate_fn is None:
            return None
        result = self.evaluate_fn(self._done + server_round, to_ndarrays(parameters), {})
        if result is not None and server_round > 0:
            self.strategy.record["server"] = {"loss": result[0], **result[1]}
        return result

    def configure_fit(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, FitIns]]:
        """Return the clients that train this round, with their instructions."""
        if server_round == 1:
            self.strategy.begin(self._whole_arrays(parameters), self._done)
        self._times = [time.perf_counter()]
        sent = self._send(self.strategy.configure_train, server_round, parameters, self.on_fit_config_fn)
        if not sent:  # the server skips such a round
            self.aggregate_fit(server_round, [], [])
        return [(proxy, FitIns(*instruction(message))) for proxy, message in sent]

    def aggregate_fit(
        self, server_round: int, results: list[tuple[ClientProxy, FitRes]], failures: Failures
    ) -> tuple[Parameters | None, dict[str, Scalar]]:
        """Return the new model, or None if it is unchanged, and metrics."""
        self._times.append(time.perf_counter())
        names = self._names or ()
        replies = [fit_reply(self._sent[proxy.cid], result, names) for proxy, result in results]
        replies += self._failed(failures)
        arrays, metrics = self.strategy.aggregate_train(self._done + server_round, replies)
        self._times.append(time.perf_counter())
        own = made_by(self.fit_metrics_aggregation_fn, dict, _metrics_of(results))
        return parameters_of(arrays) if arrays else None, {**_scalars(metrics), **own}

    def configure_evaluate(
        self, server_round: int, parameters: Parameters, client_manager: ClientManager
    ) -> list[tuple[ClientProxy, EvaluateIns]]:
        """Return the target, if it is connected, with its instructions."""
        configure, make_config = self.strategy.configure_evaluate, self.on_evaluate_config_fn
        sent = self._send(configure, server_round, parameters, make_config)
        if not sent:  # the server will not call `aggregate_evaluate`
            self.strategy.finish_round(self.strategy.num_rounds, *self._times)
        return [(proxy, EvaluateIns(*instruction(message))) for proxy, message in sent]

    def aggregate_evaluate(
        self, server_round: int, results: list[tuple[ClientProxy, EvaluateRes]], failures: Failures
    ) -> tuple[float | None, dict[str, Scalar]]:
        """Return loss and metrics of the target, and finish the round."""
        replies = [evaluate_reply(self._sent[proxy.cid], result) for proxy, result in results]
        replies += self._failed(failures)
        metrics = _scalars(self.strategy.aggregate_evaluate(self._done + server_round, replies))
        with task_identity():
            self.strategy.evaluate_further()
        self.strategy.finish_round(self.strategy.num_rounds, *self._times)
        loss = metrics.pop("loss", None)
        own = made_by(self.evaluate_metrics_aggregation_fn, dict, _metrics_of(results))
        return None if loss is None else float(loss), {**metrics, **own}

    def _send(
        self,
        configure: Callable[..., Iterable[Message]],
        server_round: int,
        parameters: Parameters,
        make_config: MakeConfig | None,
    ) -> list[tuple[NamedProxy, Message]]:
        number = self._done + server_round
        arrays = arrays_of(parameters, self._names or ())
        with task_identity():
            config = ConfigRecord(dict(make_config(number)) if make_config else {})
            messages = configure(number, arrays, config, self._grid)
            sent = [(self._grid.proxy(each.metadata.dst_node_id), each) for each in numbered(messages)]
        self._sent = {proxy.cid: message for proxy, message in sent}
        return sent

    def _failed(self, failures: Failures) -> Iterator[Message]:
        for failure in failures:
            if isinstance(failure, ClientError):
                yield error_reply(self._sent[failure.cid], str(failure))
            elif isinstance(failure, tuple):
                proxy, result = failure
                yield error_reply(self._sent[proxy.cid], result.status.message)
            else:
                log(WARNING, "A client failed: %r", failure)

    def _whole_arrays(self, parameters: Parameters) -> ArrayRecord:
        """Return the arrays with types and shapes; raise a `ConfigError` if names or buffers are unclear."""
        arrays = to_ndarrays(parameters)
        names = [str(i) for i in range(len(arrays))] if self._names is None else self._names
        if len(names) != len(arrays):
            message = f"{len(names)} names for {len(arrays)} arrays"
            raise ConfigError(message, thing="names", value=names, remedy="give one name for each array")
        known = self._names is not None or self.strategy.buffer_names is not None
        for name, array in zip(names, arrays, strict=True):
            if not known and not np.issubdtype(array.dtype, np.floating):
                why = f"array '{name}' is not of floats, so it is a buffer, but arrays have no names here"
                remedy = "give names=list(model.state_dict()), or list all buffers in buffer_names=[...]"
                raise ConfigError(why, thing="array", value=name, remedy=remedy)
        return ArrayRecord({name: Array(array) for name, array in zip(names, arrays, strict=True)})


def _check_it_works(strategy: DomainAdaptationStrategy) -> None:
    """Raise a `ConfigError` if a strategy needs anything that Flower's older server cannot do."""
    name, remedy = type(strategy).__name__, "leave it out, or use the Message API"
    if strategy.asks_again:
        why = f"{name} sends its clients two requests a round, which Flower's older server cannot"
        other = "use the Message API, or aggregate_on='server' if it is 'target'"
        raise ConfigError(why, thing="strategy", value=name, remedy=other)
    if strategy.ends_with_an_evaluation:
        why = "but Flower's older server does not say which round is the last"
        message = f"{name} evaluates on its target in the last round, {why}"
        other = "use the Message API, or final_head_epochs=0 if it is above 0"
        raise ConfigError(message, thing="strategy", value=name, remedy=other)
    if (every := strategy.evaluate_every) > 1:
        why = "but Flower's older server does not say which rounds are the last"
        raise invalid("evaluate_every", every, remedy, why)
    if strategy.patience is not None:
        raise ConfigError(
            "Flower's older server runs all rounds: leave out patience, or use the Message API",
            thing="patience",
        )


def _scalars(metrics: Mapping[str, Any] | None) -> dict[str, Scalar]:
    return dict(metrics or {})


def _metrics_of(results: list[tuple[ClientProxy, Any]]) -> list[tuple[int, dict[str, Scalar]]]:
    """Return each client's number of examples and its metrics."""
    return [(result.num_examples, result.metrics) for _, result in results]
