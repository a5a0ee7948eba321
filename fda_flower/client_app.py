"""The Flower client app: what every node runs, simulated or deployed."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from threading import get_ident
from typing import Any

import torch
from flwr.app import Context, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod
from torch import nn

from fda_flower.clients import DomainClient, serve
from fda_flower.config import RunConfig
from fda_flower.datasets import Domain, load_domain
from fda_flower.devices import find_device
from fda_flower.errors import ConfigError
from fda_flower.models import build_model
from fda_flower.run_model import publisher


def make_client_app(
    config: RunConfig | None = None,
    mods: list[Mod] | None = None,
    folder: Path | None = None,
    changed: Callable[[DomainClient], NumPyClient] | None = None,
) -> ClientApp:
    """Return a client app for a run.

    Parameters
    ----------
    config : RunConfig, optional
        Default: read from each message's context, as ``flwr run`` gives it.
    mods : list, optional
        Flower's mods around training; see `fda_flower.clients.serve`.
    folder : Path, optional
        The folder of a simulated run, in which clients keep what they never send. Default: the ``output`` of
        a simulation by ``flwr run``; in a deployment the node configuration's ``state-dir``. Without one,
        they keep it in the context's state, until the run ends.
    changed : callable, optional
        Takes each client and returns the one to serve in its place, such as an attacker in an experiment.
    """

    def client_fn(context: Context) -> NumPyClient:
        run = RunConfig.from_flower(context.run_config) if config is None else config
        run, name = at_node(run, context.node_config)
        simulated = simulation_folder(context, folder)
        own = own_folder(run, name, context, simulated)
        client = make_client(run, name, context.state, own, simulated or own)
        return client if changed is None else changed(client)

    return serve(client_fn, mods)


def at_node(config: RunConfig, node: Mapping[str, Any]) -> tuple[RunConfig, str]:
    """Return the run as a node sees it, and the node's domain.

    Parameters
    ----------
    config : RunConfig
        The run; the node's ``data-dir`` replaces its own.
    node : Mapping
        The node configuration: ``domain``, ``role``, ``data-dir``; in a simulation ``partition-id``.

    Raises
    ------
    ConfigError
        If `node` names no domain, or a role that the domain does not have in the run.
    """
    data = config.data
    if "data-dir" in node:
        config = replace(config, data_dir=str(node["data-dir"]))
    names = data.domain_names
    if "domain" not in node and ("role" in node or "partition-id" not in node):
        raise ConfigError(
            f'the node configuration has no domain: give it domain="...", one of {", ".join(names)}'
        )
    if "domain" not in node and int(node["partition-id"]) >= len(names):
        raise ConfigError(
            f"the simulation has more nodes than the run has domains ({', '.join(names)}): use {len(names)}"
        )
    name = str(node["domain"]) if "domain" in node else names[int(node["partition-id"])]
    role = "target" if name == data.target_name else "source"
    if node.get("role", role) != role:
        raise ConfigError(
            f"the node of domain '{name}' has role '{node['role']}', but the run's target is "
            f"'{data.target_name}': change the node configuration, or the run's target"
        )
    return config, name


def simulation_folder(context: Context, given: Path | None) -> Path | None:
    """Return the folder of a simulated run; None if it has none, and in a deployment."""
    if "state-dir" in context.node_config:
        return None
    if given is None and "partition-id" in context.node_config and context.run_config.get("output"):
        return Path(str(context.run_config["output"])).absolute()
    return given


def own_folder(config: RunConfig, name: str, context: Context, run: Path | None) -> Path | None:
    """Return the folder in which the client of a domain keeps what it never sends; None if it has none.

    In a deployment it is below the node's ``state-dir``, and bears a digest of the run's settings; in a
    simulation it is below the run's folder.
    """
    given = context.node_config.get("state-dir")
    if given is not None:
        settings = json.dumps(config.fingerprint(), sort_keys=True)
        return Path(str(given)).expanduser() / f"{name}-{hashlib.sha256(settings.encode()).hexdigest()[:12]}"
    return None if run is None else run / "clients" / name


def make_client(
    config: RunConfig,
    name: str,
    state: RecordDict | None = None,
    folder: Path | None = None,
    model_folder: Path | None = None,
) -> DomainClient:
    """Return the client of one domain; its data and its model are cached per process.

    Parameters
    ----------
    config : RunConfig
        The run.
    name : str
        The domain.
    state : RecordDict, optional
        The state that the client keeps between rounds.
    folder : Path, optional
        Where the client keeps what it never sends.
    model_folder : Path, optional
        Where the target's client writes the run's model.
    """
    site = load_domain(config.data, name)
    device = find_device(config.device)
    model = _model(config, site.shape, site.classes, device, get_ident())
    is_target = name == site.target
    about: dict[str, Any] = {"shape": list(site.shape), "classes": site.classes}
    for key, names in (("class-names", site.class_names), ("features", site.features)):
        if names:
            about[key] = list(names)
    client = config.entry.client_class("target" if is_target else "source")
    return client(
        _domain(config, name, device),
        model,
        config.target_training if is_target else config.source_training,
        config.seed,
        config.threads,
        about,
        state,
        folder,
        publisher(config, site, model_folder) if is_target and model_folder else None,
    )


@lru_cache(maxsize=64)
def _domain(config: RunConfig, name: str, device: torch.device) -> Domain:
    return load_domain(config.data, name).domains[name].to(device)


@lru_cache(maxsize=2)
def _model(
    config: RunConfig, shape: tuple[int, ...], classes: int, device: torch.device, thread: int
) -> nn.Module:
    return build_model(config.model, shape, classes, 0, dict(config.model_options)).to(device)


app = make_client_app()
