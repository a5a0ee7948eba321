"""A site's node configuration, and what its node would answer to a run: both before the run."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from flwr.app import Context, RecordDict

from fda_flower.client_app import make_client_app
from fda_flower.datasets.registry import DATASETS
from fda_flower.datasets.site_options import choices_of
from fda_flower.engines import LocalGrid
from fda_flower.errors import ConfigError, RunError, invalid
from fda_flower.files import check_writable
from fda_flower.names.words import counted
from fda_flower.runs.config import RunConfig
from fda_flower.site import PrivateSite, Site
from fda_flower.site.config import LEDGER, SITE
from fda_flower.site.ledger import Entry, PrivacyError, has_noise
from fda_flower.site.log import SENT, read_log
from fda_flower.strategies.nodes import Node
from fda_flower.supernode.gate import Gate
from fda_flower.supernode.node_text import read_node_config
from fda_flower.wire.internals import task_identity


def read_node(path: Path) -> Site:
    """Return the node that the configuration in a file describes, as a SuperNode reads it.

    Raises
    ------
    ConfigError
        If the file cannot be read, or a rule in it is unknown or invalid, which keeps a SuperNode from
        starting.
    """
    if path.suffix != ".toml":
        raise invalid("node configuration", path, "call it NAME.toml", "which Flower takes for text")
    return Gate(read_node_config(str(path))).site


NAMED, EVERY = "those of `fda list`", "all, since its samples are public"


class _OneNode(LocalGrid):
    """The grid of one node with a node configuration of its own."""

    def __init__(self, config: RunConfig, node: Mapping[str, Any]) -> None:
        super().__init__(make_client_app(config), 1)
        for context in self._contexts.values():
            context.node_config = dict(node)


def ask_node(config: RunConfig, site: Site) -> Node:
    """Return a node as it would answer a run's role query, with its own data, rules and privacy.

    Nothing is sent, and nothing is left in its ``state-dir``.

    Raises
    ------
    ConfigError
        If the ``state-dir`` cannot be written.
    RunError
        If the node could not take part in the run; the message has its reason.
    """
    nodes = config.strategy.nodes
    with TemporaryDirectory() as folder, task_identity():
        node = dict(site.node)
        if site.state_dir is not None:
            _check_state_dir(site.state_dir)
            node |= {"state-dir": folder}
        nodes.refresh(_OneNode(config, {**node, **Gate.marks, "checks-itself": True}))
    for each in nodes.missing:
        domain, reason = each["domain"], each["reason"]
        raise RunError(f"'{domain}' cannot take part: {reason}", thing="domain", value=domain)
    (one,) = nodes.connected
    return one


def choices_at(site: Site, dataset: str) -> dict[str, list[str]]:
    """Return, in words, what a run of a data set may still choose at a site; see `RunConfig.at_site`."""
    entry, models = DATASETS[dataset], [NAMED]
    options = [EVERY] if entry.public else choices_of(entry.loader, site.data_dir)
    allowed = site.rules.allow_models
    models += ["package.module:function"] if allowed is None else [*allowed]
    return {f"the options of data set '{dataset}'": options or ["none"], "the networks": models}


def spent_budget(config: RunConfig, site: Site) -> float | None:
    """Return the ``ε`` that a node has spent in all runs so far; None if it adds no noise.

    Raises
    ------
    RunError
        If its budget does not allow a further reply in the run, or its ledger is damaged.
    """
    context = Context(run_id=0, node_id=0, node_config=dict(site.node), state=RecordDict(), run_config={})
    private = PrivateSite.of(context, run=config.privacy)
    if private is None or not private.settings.private:
        return None
    unit, by_steps = private.settings.dp_unit, config.entry.noise == "steps"
    # A step costs little, and how little follows from the data.
    releases = 0 if by_steps and unit != SITE and not private.settings.chooses_noise else 1
    try:
        private.check_budget(Entry(0, "", private.noise, releases, unit))
        return private.ledger.epsilon(private.settings.dp_delta, unit=unit)
    except PrivacyError as error:
        raise RunError(
            f"'{private.domain}' cannot take part: {error}", thing="domain", value=private.domain
        ) from error


def gaps_of_noise(site: Site) -> list[str]:
    """Return in words what a node with a ledger sends, or has sent, without noise: no ``ε`` covers it."""
    folder = None if site.state_dir is None else site.state_dir.expanduser()
    if folder is None or not (folder / SENT).exists() or not any(folder.glob(f"*{LEDGER}")):
        return []
    trained = [line for line in read_log(folder) if line["message"].startswith("train") and line["records"]]
    count = sum(not has_noise(line) for line in trained)
    left = f"{counted(count, 'update')} left without noise in earlier runs: no ε covers them"
    stopped = "It adds no noise, although it did in earlier runs"
    return [*([] if site.rules.has_noise else [stopped]), *([left] if count else [])]


def _check_state_dir(path: Path) -> None:
    try:
        check_writable(path)
    except ConfigError as error:
        raise invalid("state-dir", path, "give a folder that the node may write to") from error
