"""The Flower client app of every node, simulated or deployed.

Imports at the top of this module are the only ones a resident worker's message process pays for.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from logging import INFO, WARNING
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Any

from flwr.app import Context, RecordDict
from flwr.clientapp import ClientApp
from flwr.common import log

from fda_flower.clients.serving import serve
from fda_flower.errors import ConfigError, unknown
from fda_flower.files import as_file_name
from fda_flower.names.words import counted
from fda_flower.runs.config import RunConfig
from fda_flower.runs.methods import METHODS, run_names
from fda_flower.site import Asked, DifferentialPrivacy, PrivateSite, Site, SiteGate
from fda_flower.site.words import told
from fda_flower.supernode.resident import ResidentApp
from fda_flower.wire.internals import Mod, is_simulated_by_flower, pull_sooner
from fda_flower.wire.older import NumPyClient
from fda_flower.wire.protocol import FROZEN, RUNTIME

if TYPE_CHECKING:
    from fda_flower.clients import DomainClient
    from fda_flower.datasets import Domain, FederatedDataset
    from fda_flower.datasets.preparation import Preparation
    from fda_flower.models.exchange import Network


def make_client_app(
    config: RunConfig | None = None,
    mods: list[Mod] | None = None,
    data: "FederatedDataset | None" = None,
    changed: "Callable[[DomainClient], NumPyClient] | None" = None,
    simulated: bool = False,
) -> ClientApp:
    """Return a client app for a run.

    Parameters
    ----------
    config : RunConfig, optional
        Default: read from each message's context, as ``flwr run`` provides it.
    mods : list, optional
        Flower's mods around training; see `fda_flower.clients.serve`.
    data : FederatedDataset, optional
        The data of a simulation, in the form that clients train on. Default: each process loads the data.
    changed : callable, optional
        Maps each client to the one to serve in its place, such as an attacker in an experiment.
    simulated : bool
        Whether the engine simulates the nodes. The noise of a private run then follows from the seed and
        protects nobody. Default: detected for Flower's own simulation.

    Notes
    -----
    Clients keep private files in the folder ``output`` of a simulated run, which their context names; at a
    site, in the node configuration's ``state-dir``; otherwise in the context's state, until the run ends.
    """

    def is_simulated(context: Context) -> bool:
        # Depends on this process and the node's configuration only: the server cannot influence it.
        return (simulated or is_simulated_by_flower()) and not Site.of(context).is_site

    def run_of(context: Context) -> RunConfig:
        if config is not None:
            return config
        return _run_of(json.dumps(dict(context.run_config)), Site.of(context))

    def site_of(context: Context) -> PrivateSite | None:
        run, site = run_of(context), Site.of(context)
        if not run.privacy.on and site.privacy is None:
            return None
        run, name = at_node(run, site)
        simulation: tuple[Any, ...] = ()
        if is_simulated(context):
            simulation = run.seed, simulation_folder(context)
        found = PrivateSite.of(context, name, run.privacy, *simulation)
        if found is None:
            return None
        opens = found.settings.dp_open_target and name == run.data.target_name
        settings = replace(found.settings, dp_open_target=opens)
        return replace(found, settings=settings, rounds=run.all_rounds)

    def client_fn(context: Context) -> NumPyClient:
        site = Site.of(context)
        with told():
            run, name = at_node(run_of(context), site)
            private = site_of(context)  # raises an error if the settings cannot work
            of_run = simulation_folder(context) if is_simulated(context) else None
            own = own_folder(run, name, context, of_run)
            if run.every_site and own is None and not is_simulated(context):
                remedy = 'give the node configuration state-dir="..."'
                why = f"with target all '{name}' keeps a head of its own, and has no state-dir for it"
                raise ConfigError(why, thing=name, remedy=remedy)
        model_folder = own if run.every_site else of_run or own
        shared = None if site.is_site else data
        client = make_client(run, name, context.state, own, model_folder, shared, site.state_dir)
        client.hides = site.rules.hides_heads
        client.min_cell, client.min_samples = site.rules.min_cell, site.rules.min_samples
        if private is not None and private.settings.of_patients:
            client.domain.check_patients()
        if site.is_site:
            check_site(run, client.domain)
        return client if changed is None else changed(client)

    def about(asked: Asked) -> Asked:
        run, name = at_node(run_of(asked.context), asked.site)
        return Asked(asked.message, asked.context, asked.site, run.method, *_asked_of(run, name))

    import_added()
    return serve(client_fn, mods, [DifferentialPrivacy(site_of)], SiteGate(about, run_names()))


def check_site(config: RunConfig, domain: "Domain") -> None:
    """Check what a site's data would show of themselves, and log who is a patient if it protects each.

    Raises a `ConfigError` if words would become names of features, or if one patient changes all samples.
    """
    if config.data.patients:
        _tell(f"'{domain.name}': {check_patients(config, domain.name)}")
    check_words(config, domain.preparation)


def check_patients(config: RunConfig, name: str) -> str:
    """Raise a `ConfigError` if one patient changes all samples, before a network makes features of them.

    Returns who is a patient, in words.
    """
    import numpy as np

    from fda_flower.datasets import DATASETS, load_domain

    domain = load_domain(config.data, name).domains[name]
    domain.check_patients()
    parts = domain.parts.values()
    groups = [part.groups for part in parts if part.groups is not None]
    units = len(np.unique(np.concatenate(groups))) if groups else None
    is_table = "ignore" in signature(DATASETS[config.dataset].loader).parameters
    group = f"{'column ' if is_table else ''}'{config.data.patients}'"
    return who_is_a_patient(group, sum(map(len, parts)), units)


def who_is_a_patient(group: str, rows: int, patients: int | None) -> str:
    """Say who is a patient, by a `group` in words, and how many there are.

    Examples
    --------
    >>> who_is_a_patient("row", 60, None), who_is_a_patient("column 'id'", 60, 6)
    ('each row is a patient: 60 rows', "patients by column 'id': 60 rows of 6 patients")
    """
    if patients is None:
        return f"each row is a patient: {counted(rows, 'row')}"
    return f"patients by {group}: {counted(rows, 'row')} of {counted(patients, 'patient')}"


@lru_cache(maxsize=16)
def _tell(line: str) -> None:
    """Log a line once in this process."""
    log(INFO, "%s", line)


def check_words(config: RunConfig, preparation: "Preparation | None") -> None:
    """Raise a `ConfigError` if words in a site's data would become names of features, which leave it."""
    from fda_flower.datasets.folders import OPTIONS_FILE
    from fda_flower.datasets.preparation import TablePreparation
    from fda_flower.names.options import read_categories

    options = dict(config.data.dataset_options)
    if options.get("categorical") != "onehot" or not isinstance(preparation, TablePreparation):
        return
    given = read_categories(str(options.get("categories") or ""))
    for column, _ in preparation.categories:
        if column not in given:
            why = f"the words in the column '{column}' of a site's data would leave it, as names of features"
            remedy = f'let its {OPTIONS_FILE} name those that may: categories = "{column}:one|another"'
            raise ConfigError(why, thing="categories", value=column, remedy=remedy)


def import_added() -> None:
    """Import the methods that other packages add, so that their questions are known; warn if one fails."""
    for name in METHODS.added:
        try:
            _ = METHODS[name].strategy_class
        except ConfigError as error:
            log(WARNING, "%s", error)


@lru_cache(maxsize=2)
def _run_of(settings: str, site: Site) -> RunConfig:
    """Parse the run from the JSON in Flower's run configuration, as a node reads it."""
    return RunConfig.from_flower(json.loads(settings), site)


@lru_cache(maxsize=2)
def _at_site(config: RunConfig, site: Site) -> RunConfig:
    return RunConfig.at_site(config.values, site)


def at_node(config: RunConfig, site: Site) -> tuple[RunConfig, str]:
    """Return the run from a node's view, as `RunConfig.at_site` reads it, and the node's domain.

    Raises
    ------
    ConfigError
        If the node configuration is invalid or does not fit the run.
    """
    if site.is_site and config.site is None:
        config = _at_site(config, site)
    data, name = config.data, site.domain
    names = data.domain_names
    if name is None:
        if site.number is None or site.role is not None:
            raise ConfigError(
                f'the node configuration has no domain: give it domain="...", one of {", ".join(names)}',
                thing="domain",
            )
        if site.number >= len(names):
            raise ConfigError(
                f"the simulation has more nodes than the run has domains ({', '.join(names)}): "
                f"use {len(names)}",
                thing="partition-id",
                value=site.number,
            )
        name = names[site.number]
    if name not in names:
        raise unknown("domain", name, names)
    role = "target" if name == data.target_name else "source"
    if site.role not in (None, role) and not config.every_site:
        raise ConfigError(
            f"the node of domain '{name}' has role '{site.role}', but the run's target is "
            f"'{data.target_name}': change the node configuration, or the run's target",
            thing="node of domain",
            value=name,
        )
    return config, name


def simulation_folder(context: Context) -> Path | None:
    """Return the folder of a simulated run, if any."""
    folder = context.run_config.get("output")
    return Path(str(folder)).absolute() if folder else None


def own_folder(config: RunConfig, name: str, context: Context, run: Path | None) -> Path | None:
    """Return the folder for a client's private files, if any.

    At a site its name contains a digest of the run's settings; in a simulation it is in the run's folder.
    """
    state = Site.of(context).state_dir
    if state is not None:
        settings = json.dumps(config.fingerprint(), sort_keys=True)
        return state / f"{as_file_name(name)}-{hashlib.sha256(settings.encode()).hexdigest()[:12]}"
    return None if run is None else run / "clients" / as_file_name(name)


def make_client(
    config: RunConfig,
    name: str,
    state: RecordDict | None = None,
    folder: Path | None = None,
    model_folder: Path | None = None,
    data: "FederatedDataset | None" = None,
    site_folder: Path | None = None,
) -> "DomainClient":
    """Return the client of one domain; data and model are cached per process.

    The client keeps `state` between rounds and private files in `folder`; a target writes its model to
    `model_folder`. `data` is the data of all clients, if they share it. A site caches features of
    its samples in `site_folder`, by default in this account's cache.
    """
    from fda_flower.models import TORCH
    from fda_flower.runs.made_with import runtime
    from fda_flower.runs.model_folder import publisher
    from fda_flower.runs.network import backbone_of, digest_of_frozen

    sites = _sites(config, data)
    if name not in sites:
        sites[name] = _load_site(config, name, data, site_folder)
    site, make = sites[name]
    network = _model(config, site.shape, site.classes, get_ident())
    publish = None
    if (name == site.target or config.every_site) and model_folder:
        publish = publisher(config, site, name, model_folder, network)
    client = make(network, state=state, own_folder=folder, publish=publish)
    if config.trained.what != "all" and backbone_of(config, site.shape, site.classes) is not None:
        client.about = {
            **(client.about or {}),
            FROZEN: digest_of_frozen(config, site.shape, site.classes, network),
            **({} if (features_by := runtime(config)) == TORCH else {RUNTIME: features_by}),
        }
    return client


@lru_cache(maxsize=64)
def _asked_of(config: RunConfig, name: str) -> tuple[str, bool, frozenset[str]]:
    """Return a node's role in a run, whether its sums are masked, and the messages that it is sent."""
    role = "target" if name == config.data.target_name and config.strategy.has_target else "source"
    secure = bool(dict(config.method_options).get("secure"))
    messages = frozenset[str]() if config.entry.centralised else config.strategy.asked_of(role)
    return role, secure, messages


_Site = tuple["FederatedDataset", "Callable[..., DomainClient]"]
"""The data of a domain, and the function that makes its client."""


def _load_site(config: RunConfig, name: str, shared: "FederatedDataset | None", folder: Path | None) -> _Site:
    from fda_flower.clients import SourceClient, TargetClient
    from fda_flower.runs.network import site_data

    data = site_data(config, name, shared, folder)
    about: dict[str, Any] = {"shape": list(data.shape), "classes": data.classes}
    classes = data.class_names if config.data.lists_classes else ()
    named = {"class-names": list(classes), "features": list(data.features)}
    about |= {key: names for key, names in named.items() if names}
    is_target = name == data.target and config.entry.has_target
    training = config.target_training if is_target else config.source_training
    settings: dict[str, Any] = {"training": training, "seed": config.seed, "threads": config.threads}
    kind = TargetClient if is_target else SourceClient
    client = partial(kind, data.domains[name], about=about, **settings)
    return data, client


@lru_cache(maxsize=2)
def _sites(config: RunConfig, shared: "FederatedDataset | None") -> dict[str, _Site]:
    """Return the data loaded in this process for a run, by domain."""
    return {}


def forget() -> None:
    """Free the data of earlier runs in this process: the next run reads the files again."""
    from fda_flower.datasets import federation

    _sites.cache_clear()
    federation.forget()


@lru_cache(maxsize=2)
def _model(config: RunConfig, shape: tuple[int, ...], classes: int, thread: int) -> "Network":
    from fda_flower.models.linear import LinearNetwork
    from fda_flower.runs.network import make_model

    model = make_model(config, shape, classes)
    if isinstance(model, LinearNetwork):
        return model
    from fda_flower.models.devices import find_device
    from fda_flower.models.parts import in_precision

    return in_precision(model, config.precision).to(find_device(config.device))


def prepare() -> None:
    """Prepare, in a site's launcher, what every message's process needs; see `launching`."""
    pull_sooner()


def prepare_worker() -> None:
    """Import, in the launcher of a site's worker, what most runs need, if it is installed."""
    ours = ("clients.client", "datasets.federation", "models", "models.devices", "runs.model_folder")
    scikit_learns = ("datasets", "model_selection", "utils.class_weight")
    modules = [f"fda_flower.{name}" for name in ours]
    modules += ["fda_flower.clients.training"] * (find_spec("torch") is not None)
    modules += [f"sklearn.{name}" for name in scikit_learns if find_spec("sklearn") is not None]
    for module in modules:
        import_module(module)


app = ResidentApp(make_client_app(), "fda_flower.client_app:make_client_app")
