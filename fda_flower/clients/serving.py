"""Serve clients through Flower's messages; a mod lets the target aggregate a round's updates."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from logging import ERROR, INFO
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common import log

from fda_flower.aggregation import (
    AdaptiveRule,
    BatchUpdates,
    CountSketch,
    Evidence,
    Layers,
    Update,
    read_gradients,
)
from fda_flower.errors import ConfigError
from fda_flower.site.gate import SiteGate
from fda_flower.site.node import Site
from fda_flower.site.words import told, words_of
from fda_flower.wire import protocol
from fda_flower.wire.asked import QUESTIONS
from fda_flower.wire.bundles import bundled
from fda_flower.wire.internals import ClientAppCallable, Mod, filled, lacks_evaluation
from fda_flower.wire.numpy_client import NumPyFace, check_count, numbers_in, unpack
from fda_flower.wire.older import NumPyClient
from fda_flower.wire.protocol import (
    EvaluateReply,
    EvaluateRequest,
    TrainReply,
    TrainRequest,
    read_request,
    to_layers,
    to_record,
)
from fda_flower.wire.questions import Question


def aggregate_on_target(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Aggregate the sources' updates with this client's if the server requests it (a Flower mod).

    With ``FedGP(aggregate_on="target")`` the train message holds the sources' models. The app below trains as
    usual; this mod replaces the trained model by the new global one. The client's own update, its batch
    updates or gradients, and β never leave the node; β is logged.

    Examples
    --------
    >>> from flwr.clientapp import ClientApp
    >>> app = ClientApp(mods=[aggregate_on_target])
    """
    if protocol.AGGREGATE not in message.content:
        return call_next(message, context)
    request: dict[str, Any] = dict(message.content.config_records[protocol.AGGREGATE])
    config = protocol.settings_in(message.content, protocol.CONFIG)
    model = to_layers(message.content.array_records[protocol.ARRAYS])
    records, sources, indices = message.content.array_records, list[Update](), range(len(request["betas"]))
    for i, factor in enumerate(request["factors"]):
        numbers = [request[key][i] for key in ("examples", "steps", "learning-rates", "batch-sizes")]
        update = _update(model, records.pop(f"source.{i}"), request["buffers"], *numbers)
        sources.append(update if factor == 1 else update.scaled(factor))
    gradients = [records.pop(f"{protocol.GRADIENTS}.{i}", None) for i in indices]
    reply = call_next(message, context)
    if reply.has_error():
        return reply
    own: Mapping[str, Any] = reply.content.metric_records[protocol.METRICS]
    keys = (protocol.NUM_EXAMPLES, protocol.NUM_STEPS, protocol.LEARNING_RATE, protocol.BATCH_SIZE)
    numbers = [own.get(key, 0) for key in keys]
    target = _update(model, reply.content.array_records[protocol.ARRAYS], request["buffers"], *numbers)
    evidence = _evidence(reply.content, gradients, target, config)
    rule = AdaptiveRule.from_text(str(request["weighing"]))
    result = rule(model, target, sources, np.array(request["betas"], dtype=np.float64), evidence)
    for i, (beta, fallback) in enumerate(zip(result.betas, result.fallbacks, strict=True), start=1):
        log(INFO, "β of source %d: %.4g%s", i, beta, f" (fixed: {fallback})" if fallback else "")
    reply.content[protocol.ARRAYS] = to_record(result.model)
    for name in (protocol.BATCH_UPDATES, protocol.GRADIENTS):
        reply.content.pop(name, None)
    info = dict(reply.content.config_records.get(protocol.INFO, {}))
    reply.content[protocol.INFO] = ConfigRecord({**info, protocol.AGGREGATED_ON: "target"})
    return reply


def _update(
    model: Layers, record: ArrayRecord, buffers: list[str], examples: float, steps: float, *rates: float
) -> Update:
    rate, size = rates
    after = to_layers(record)
    return Update.between(model, after, int(examples), int(steps), rate, buffers, batch_size=int(size))


def _evidence(
    content: RecordDict, gradients: list[ArrayRecord | None], target: Update, config: ConfigRecord
) -> Evidence | str | None:
    """Return the inputs of β's estimate, or why they are unusable; None without a request."""
    names = (protocol.GRADIENTS, protocol.BATCH_UPDATES)
    name = next((name for name in names if config.get(name) is not None), None)
    if name is None:
        return None
    sizes = (int(str(config.get(key, 0))) for key in (protocol.SKETCH_SIZE, protocol.SKETCH_SEED))
    sketch, record = CountSketch(*sizes), content.array_records.get(name)
    if name == protocol.GRADIENTS:
        missing = f"it has no ArrayRecord '{name}'"
        own, *others = (missing if each is None else to_layers(each) for each in (record, *gradients))
        return read_gradients(own, others, sketch)
    if record is None:
        return "the target recorded none"
    encoding: Any = config[name]
    length = sum(layer.size for layer in target.parameters.values())
    try:
        return BatchUpdates.from_arrays(to_layers(record), encoding, target.steps, length, sketch)
    except ValueError as error:
        return str(error)


def serve(
    client_fn: Callable[[Context], NumPyClient],
    mods: list[Mod] | None = None,
    app_mods: Sequence[Mod] = (),
    gate: SiteGate = SiteGate(),  # noqa: B008
) -> ClientApp:
    """Return a `ClientApp` that works with the strategies of this package.

    Parameters
    ----------
    client_fn : callable
        Makes the client of a node; it may return ``client.to_client()``. Role and domain are the client's
        attributes ``role`` and ``domain`` (or ``domain.name``), or else from the node configuration.
    mods : list, optional
        Flower's mods around training, such as ``LocalDpMod``, which would refuse other messages. They see
        each train reply before it is aggregated with ``aggregate_on="target"``.
    app_mods : sequence, optional
        Mods around all messages, such as `fda_flower.site.DifferentialPrivacy`, before aggregation as well.
    gate : SiteGate, optional
        Enforces a site's rules, and logs what leaves it.
    """
    app = ClientApp(mods=[bundled, gate, return_errors, aggregate_on_target, *app_mods])

    def make(context: Context) -> Any:
        client = client_fn(context)
        return getattr(client, "numpy_client", client)

    def _made(
        message: Message, context: Context, question: type[Question] | None
    ) -> tuple[Any, TrainRequest]:
        with told():
            request = read_request(message.content, question)
        return make(context), request

    def train(message: Message, context: Context, question: type[Question] | None = None) -> Message:
        client, request = _made(message, context, question)
        content = _answer(client, request).content(request.arrays)
        content[protocol.INFO] = _info(client, context)
        return Message(_for_the_log(content, client, context), reply_to=message)

    def evaluate(message: Message, context: Context, question: type[Question] | None = None) -> Message:
        client, request = _made(message, context, question)
        content = _evaluation(client, request).content()
        return Message(_for_the_log(content, client, context), reply_to=message)

    app.train(mods=mods)(train)
    app.evaluate()(evaluate)
    for question in QUESTIONS.values():
        if question.kind == protocol.TRAIN:
            app.train(question.action, mods=mods)(partial(train, question=question))
        else:
            app.evaluate(question.action)(partial(evaluate, question=question))
    answer_role_query(app, make)
    return app


def return_errors(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Ensure that errors reach the server (a Flower mod).

    Flower's own mods address an error to the node itself, so the server would wait until its timeout.
    """
    reply = call_next(message, context)
    if reply.has_error() and reply.metadata.reply_to_message_id != message.metadata.message_id:
        return Message(reply.error, reply_to=message)
    return reply


def answer_role_query(app: ClientApp, client_fn: Callable[[Context], Any] | None = None) -> None:
    """Let an existing `ClientApp` answer the strategies' role query.

    The answer comes from the node configuration (``--node-config 'role="target" domain="a"'``). In a
    simulation the domain is the ``partition-id``, and the strategy's ``target`` names the target. If a node's
    client cannot be made, for example because its data are missing, it answers with the ``problem``.

    Parameters
    ----------
    app : ClientApp
        With its own train function.
    client_fn : callable, optional
        Makes a client whose ``role``, ``domain`` and, for a `NumPyClient`, properties are sent instead.
    """

    @app.query("role")
    def role(message: Message, context: Context) -> Message:
        try:
            client = None if client_fn is None else client_fn(context)
            properties = client.get_properties({}) if isinstance(client, NumPyClient) else {}
            info = ConfigRecord({**properties, **_info(client, context)})
            if lacks_evaluation(app):
                info[protocol.EVALUATES] = False
        except Exception as error:  # the server's operator reads the reason
            log(ERROR, "This node cannot take part", exc_info=error)
            info = _info(None, context)
            info[protocol.PROBLEM] = words_of(error, Site.of(context))
        if Site.of(context).has_ungated_rules:
            info[protocol.GATED] = False
        return Message(RecordDict({protocol.INFO: info}), reply_to=message)


def _for_the_log(content: RecordDict, client: Any, context: Context) -> RecordDict:
    """Add what a site's own log says of a reply: the numbers of samples and units, such as patients."""
    domain, site = getattr(client, "domain", None), Site.of(context)
    rules = site.rules
    if site.state_dir is None and not (rules.min_samples or rules.min_per_class):
        return content
    counts = dict[str, int]()
    for name, samples in (("", getattr(domain, "train", None)), ("test-", getattr(domain, "test", None))):
        if samples is not None and (units := getattr(samples, "units", None)) is not None:
            counts |= {f"{name}samples": len(samples), f"{name}units": int(units)}
    if rules.min_per_class and (fewest := _fewest(getattr(domain, "train", None))) is not None:
        counts[protocol.FEWEST] = fewest
    if counts:
        content[protocol.LOGGED] = ConfigRecord({**counts})
    return content


def _fewest(samples: Any) -> int | None:
    """Return the fewest units of a class that has any; None if the labels are no classes."""
    if samples is None or not len(samples) or samples.task != "classes":
        return None
    y = samples.y
    units = np.arange(len(y)) if samples.groups is None else samples.groups
    _, counts = np.unique(np.unique(np.stack([y, units]), axis=1)[0], return_counts=True)
    return int(counts.min())


def _info(client: Any, context: Context) -> ConfigRecord:
    info = Site.of(context).about()
    if (domain := getattr(client, "domain", None)) is not None:
        info["domain"] = str(getattr(domain, "name", domain))
    if (role := getattr(client, "role", None)) is not None:
        info["role"] = str(role)
    return filled(ConfigRecord(), info)


def _answer(client: Any, request: TrainRequest) -> TrainReply:
    """Return a client's reply; other authors' `NumPyClient` classes put further arrays into metrics."""
    if isinstance(client, NumPyFace) and type(client).fit is NumPyFace.fit:
        return client.train_reply(request)
    _check_plain(client, request)
    parameters, examples, metrics = client.fit(request.arrays.to_numpy_ndarrays(), dict(request.config))
    check_count(len(parameters), len(request.arrays))
    arrays = dict(zip(request.arrays, map(np.asarray, parameters), strict=True))
    return TrainReply(arrays, _count(examples), numbers_in(metrics), unpack(metrics))


def _evaluation(client: Any, request: EvaluateRequest) -> EvaluateReply:
    if isinstance(client, NumPyFace) and type(client).evaluate is NumPyFace.evaluate:
        return client.evaluate_reply(request)
    _check_plain(client, request)
    if getattr(type(client), "evaluate", None) is NumPyClient.evaluate:  # Flower's, which returns zeros
        name = type(client).__name__
        raise ConfigError(f"{name} does not implement `evaluate`", thing="client", value=name)
    loss, examples, metrics = client.evaluate(request.arrays.to_numpy_ndarrays(), dict(request.config))
    numbers = numbers_in({"loss": float(loss), **metrics})
    return EvaluateReply(_count(examples), numbers, unpack(metrics))


def _check_plain(client: Any, request: EvaluateRequest) -> None:
    """Raise a `ConfigError` if a client whose class is not ours is asked a question."""
    if request.question is not None:
        action, name = request.question.action, type(client).__name__
        remedy = "let it be a SourceClient or TargetClient, or answer with a function of your app's own, "
        remedy += f'@app.{request.question.kind}("{action}")'
        raise ConfigError(f"{name} has no answer to '{action}'", thing="client", value=name, remedy=remedy)


def _count(examples: Any) -> Any:
    """Return a number of examples; one that is not whole stays as it is, for the server to refuse."""
    number = float(examples)
    return int(examples) if number.is_integer() else number
