"""The Flower server app that ``flwr run`` starts, simulated or deployed."""

import logging
import math
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Result

from fda_flower.datasets import FederatedDataset, load_federation
from fda_flower.deployment.results import sending
from fda_flower.engines import PollingGrid
from fda_flower.errors import RunError, invalid, keep_to_one_line
from fda_flower.models import TORCH
from fda_flower.models.exchange import Exchange
from fda_flower.models.structure import Structure, structure_of
from fda_flower.names.packages import require
from fda_flower.names.words import listed
from fda_flower.records.folder import ANSWERS
from fda_flower.records.record import COSTS, LAST, NOTHING_MORE, Record, Recording, without_model
from fda_flower.reporting.alike import described_in, write_alike
from fda_flower.reporting.summary import PARAMETERS, summarise_run, write_summary
from fda_flower.runs.completion import has_rows
from fda_flower.runs.config import RunConfig
from fda_flower.runs.made_with import made_with
from fda_flower.runs.methods import check_federated
from fda_flower.runs.model_folder import DATA, write_global_model
from fda_flower.runs.needs import NEEDS, Facts, check_needs
from fda_flower.runs.network import all_data, answers_of, backbone_of, digest_of_frozen, make_model
from fda_flower.strategies import DomainAdaptationStrategy, RunFolder
from fda_flower.strategies.nodes import Node
from fda_flower.wire.internals import check_grid, is_deployed, seconds_to_connect
from fda_flower.wire.protocol import FROZEN, LABELLED, RUNTIME, TEST, to_record

KEYS = "keys"
"""Entry of ``config.json``: the fingerprints of the sites' registered keys, by domain."""

MOST_SECONDS = 60.0
"""Time that a run waits for all its domains; it begins without those that are late."""

MOST_NUMBERS = 1 << 28
"""Most numbers of a sample: a node must not make the server build a model that its memory does not hold."""

FORM = ("shape", "classes", "class-names", "features", FROZEN, RUNTIME)
"""Properties that nodes report: the form of their data, the digest of the network's frozen weights, and what
computes its features."""


def run_server(
    grid: Grid,
    config: RunConfig,
    output: RunFolder | None = None,
    recording: Recording = NOTHING_MORE,
) -> tuple[Result, list[Record]]:
    """Run a method over a grid; the nodes report the form of their data, since the server has none.

    Returns
    -------
    tuple[Result, list[Record]]
        Flower's result, and the record of each round.

    Raises
    ------
    ConfigError, RunError
        If a setting cannot work with the nodes' data, or nodes are missing or inconsistent.
    """
    check_federated(config.method)
    held_out = config.held_out
    if held_out is not None and held_out.in_turn and recording.validation is None:
        fold = f"fold:1/{held_out.folds}"
        remedy = f"use `fda run` with --engine local or ray, or hold out one fold, such as {fold}"
        raise invalid("validation", held_out, remedy, "which takes several runs")
    strategy = config.entry.build(
        **config.strategy_options(),
        wait_for=len(config.data.domain_names),
        wait_seconds=min(MOST_SECONDS, seconds_to_connect(grid)),
        seed=config.seed,
        output=output,
        on_round=recording.on_round,
        validation=recording.validation,
        outcomes=recording.outcomes,
    )
    strategy.schedules = {"source": config.source_training, "target": config.target_training}
    strategy.nodes.by_name = True
    strategy.nodes.expected = config.data.domain_names
    strategy.connect(grid, config.round_timeout)
    if config.evaluate_every is None and config.validation is None:
        _choose_evaluations(strategy, config.all_rounds)
    for node in strategy.nodes.connected:
        examples = node.info.get("examples")
        if isinstance(examples, int):
            config.check_samples(node.role, f"'{node.domain}'", examples)
    if config.entry.trains_on_features:
        check_runtimes(strategy.nodes.connected)
    form = form_of_data(strategy.nodes.connected)
    shape, classes = tuple(form["shape"]), form["classes"]
    model = make_model(config, shape, classes)
    frozen = digest_of_frozen(config, shape, classes, model)
    if form.get(FROZEN, frozen) != frozen:
        raise RunError(
            f"the frozen weights of the network '{config.model}' differ between nodes and server: give "
            "all the same file, pinned as `fda weights FILE` says, and the same versions of its package and "
            "of torch",
            thing="frozen weights",
            value=config.model,
        )
    if output is not None:
        output.note(DATA, form)
        output.note(ANSWERS, answers_of(config, shape, classes))
        if keys := strategy.nodes.keys(grid):
            output.note(KEYS, keys)
    target = strategy.nodes.target
    unlabelled = target.info.get("unlabelled") if target else None
    has_backbone = backbone_of(config, shape, classes) is not None
    known = unlabelled if isinstance(unlabelled, int) else None
    check_run_needs(config, structure_of(model), known, has_backbone)
    exchange = Exchange.of(model)
    strategy.buffer_names = exchange.buffers(model)
    initial = [to_record(exchange.layers(model))]
    del model  # lets `start` free the arrays after the first round
    result = strategy.start(grid, initial.pop(), config.all_rounds, config.round_timeout)
    return result, strategy.history


def _choose_evaluations(strategy: DomainAdaptationStrategy, rounds: int) -> None:
    epochs = {role: strategy.schedules[role].epochs for role in strategy.trains}
    every = evaluation_interval(strategy.nodes.connected, epochs)
    if every is None:
        COSTS.info(
            "The target evaluates in each round, since not all nodes report how many samples they have"
        )
        return
    strategy.evaluate_every, strategy.num_rounds = every, rounds
    if not all(strategy.evaluates_in(number) for number in range(1, rounds + 1)):
        COSTS.info(
            "The target evaluates every %d rounds, and in the last %d, to save time "
            "(in each: --evaluate-every 1)",
            every,
            LAST,
        )


def evaluation_interval(nodes: Iterable[Node], epochs: Mapping[str, int]) -> int | None:
    """Return the least interval, in rounds, with which evaluations take at most a tenth of the time.

    Time follows from the numbers of samples that the nodes report: a test is one pass forward; each of the
    `epochs` of a role that trains is one forward and one back, three times as long. None if a node does not
    report them.

    Examples
    --------
    >>> target = Node(0, "t", True, {"examples": 100, "test-examples": 10_000})
    >>> source = Node(1, "s", False, {"examples": 900, "test-examples": 10_000})
    >>> evaluation_interval([target, source], {"source": 1, "target": 1})
    30
    """
    trained, tested = 0, 0
    for node in nodes:
        samples, tests = node.info.get(LABELLED), node.info.get(TEST)
        if not (isinstance(samples, int) and isinstance(tests, int)):
            return None
        trained += samples * epochs.get(node.role, 0)
        tested += tests * node.is_target
    return max(1, math.ceil(9 * tested / (3 * trained))) if trained > 0 else 1


def check_data(config: RunConfig) -> tuple[FederatedDataset, Structure]:
    """Load all data and the initial network's structure; raise a `ConfigError` if they are unusable."""
    if config.privacy.of_patients and config.entry.noise == "steps":
        require("opacus")
    federation = load_federation(config.data)
    for name, domain in federation.domains.items():
        role = "target" if name == federation.target else "source"
        config.check_samples(role, f"'{name}'", len(domain.train))
        if config.privacy.of_patients:
            domain.check_patients()
    network = structure_of(make_model(config, federation.shape, federation.classes))
    target = federation.domains.get(federation.target)
    unlabelled = None if target is None else target.unlabelled
    has_backbone = backbone_of(config, federation.shape, federation.classes) is not None
    check_run_needs(config, network, 0 if unlabelled is None else len(unlabelled), has_backbone)
    return all_data(config), network


def check_run_needs(
    config: RunConfig, network: Structure, unlabelled: int | None, has_backbone: bool
) -> None:
    """Raise a `ConfigError` if a run's method needs another network, or other data."""
    sources, rows = len(config.data.source_names), has_rows(config, config.data)
    facts = Facts(network, config.model, sources, unlabelled, config.task, has_backbone, rows)
    check_needs(config.method, config.needs, facts)
    if config.privacy.of_patients and not NEEDS["frozen body"].is_met(facts):
        why = "but its noise is on the gradients of one linear layer, and the network trains something else"
        raise invalid("dp-unit", config.dp_unit, "choose --train head, or the model logistic", why)


def check_runtimes(nodes: Iterable[Node]) -> None:
    """Raise a `RunError` unless the same package computes all nodes' features; usually it is PyTorch."""
    runtimes = dict[str, list[str]]()
    for node in nodes:
        runtimes.setdefault(str(node.info.get(RUNTIME, TORCH)), []).append(node.domain)
    if len(runtimes) > 1:
        named = "; ".join(f"{runtime} at {listed(domains)}" for runtime, domains in sorted(runtimes.items()))
        raise RunError(
            f"the sites' features are computed by different packages ({named}), and differ by about 1e-5: "
            "install the extra images of the same version at all sites, and run with --device cpu, or choose "
            "--method ridge, which trains on no features",
            thing="runtime of features",
            value=sorted(runtimes),
        )


def form_of_data(nodes: Iterable[Node]) -> dict[str, Any]:
    """Return the first node's report of `FORM`; all nodes agree on it."""
    for node in nodes:
        shape, classes = node.info.get("shape"), node.info.get("classes")
        if isinstance(classes, int) and isinstance(shape, list) and all(isinstance(n, int) for n in shape):
            if math.prod(shape) > MOST_NUMBERS:
                why = f"the node of domain '{node.domain}' reports samples of the shape {shape}"
                remedy = f"give samples of at most {MOST_NUMBERS:,} numbers"
                raise RunError(why, thing="shape", value=shape, remedy=remedy)
            return {name: node.info[name] for name in FORM if name in node.info}
    raise RunError(
        "no node reports the shape of its samples and the number of classes, so no model can be built: run "
        "this package's client app, or a client with the properties 'shape' and 'classes'",
        thing="shape and classes",
    )


def make_folder(path: str, config: RunConfig, resume: bool = False, device: str | None = None) -> RunFolder:
    """Return a run's folder; its ``config.json`` holds all settings that reproduce the run.

    `device` is the training device of all clients, if known; `resume` continues the run in the folder.
    """
    device = device or config.device
    settings = config.settings() | {"device": device}
    notes = {"rounds": config.rounds, "device": device, "settings": settings, **made_with(config)}
    return RunFolder(path, config.fingerprint(), notes, resume)


app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the configuration in ``[tool.flwr.app.config]``.

    If the submitter receives the records, it writes the summary, and judges the run; otherwise the server
    does, and raises a `RunError` if no round has a new model.
    """
    check_grid(grid)
    if is_deployed(grid):
        logging.getLogger("flwr").addFilter(keep_to_one_line)
    settings: dict[str, Any] = dict(context.run_config)
    path, sends = str(settings.get("output", "")), bool(settings.get("send-results"))
    with sending(grid, Path(path)) if sends else nullcontext() as on_round:
        config = RunConfig.from_flower(settings)
        for line in config.remarks:
            COSTS.info(line)
        folder = make_folder(path, config, bool(settings.get("resume", False))) if path else None
        result, history = run_server(PollingGrid(grid), config, folder, Recording(on_round=on_round))
        if folder is not None:
            write_global_model(folder.path, config)
    if sends:
        return
    failure = without_model(history)
    if folder is not None:
        model = {name: array.numpy() for name, array in result.arrays.items()}
        summary = summarise_run(config, history, model)
        if failure is not None:
            summary.pop(PARAMETERS, None)  # without it, no run is complete
        write_summary(folder.path, config, summary)
        write_alike(folder.path, described_in(history))
    if failure is not None:
        raise failure
