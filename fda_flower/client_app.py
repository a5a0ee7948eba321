"""The Flower client app: what every node runs, simulated or deployed."""

from functools import lru_cache

import torch
from flwr.app import Context
from flwr.clientapp import ClientApp
from torch import nn

from fda_flower.clients import DomainClient, SourceClient, TargetClient, serve
from fda_flower.config import RunConfig
from fda_flower.datasets import Domain, load_federation
from fda_flower.errors import unknown
from fda_flower.models import build_model


def make_client_app(config: RunConfig | None = None) -> ClientApp:
    """A client app for a run.

    Parameters
    ----------
    config : RunConfig, optional
        Default: read from each message's context, as ``flwr run`` gives it.
    """

    def client_fn(context: Context) -> DomainClient:
        run = RunConfig.from_flower(context.run_config) if config is None else config
        node = context.node_config
        if "domain" in node:
            return make_client(run, str(node["domain"]))
        return make_client(run, run.data.domain_names[int(node["partition-id"])])

    return serve(client_fn)


def make_client(config: RunConfig, name: str) -> DomainClient:
    """The client of one domain, with what is expensive to make cached per process."""
    federation = load_federation(config.data)
    if name not in federation.domains:
        raise unknown("domain", name, federation.domains)
    device = find_device(config.device)
    model = _model(config, federation.shape, federation.classes, device)
    is_target = name == federation.target
    return (TargetClient if is_target else SourceClient)(
        _domain(config, name, device),
        model,
        config.target_training if is_target else config.source_training,
        config.seed,
        config.threads,
    )


def find_device(name: str) -> torch.device:
    """The device of a name: ``cpu``, ``cuda``, or ``auto`` for a GPU if there is one."""
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


@lru_cache(maxsize=64)
def _domain(config: RunConfig, name: str, device: torch.device) -> Domain:
    domain = load_federation(config.data).domains[name]
    return Domain(name, domain.train.to(device), domain.test.to(device))


@lru_cache(maxsize=2)
def _model(config: RunConfig, shape: tuple[int, ...], classes: int, device: torch.device) -> nn.Module:
    return build_model(config.model, shape, classes, 0, dict(config.model_options)).to(device)


app = make_client_app()
