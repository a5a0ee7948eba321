"""A run's initial network, and the data as its clients train on them: features where its front is frozen."""

import copy
from functools import lru_cache
from pathlib import Path

import torch
from torch import nn

from fda_flower.aggregation import Layers
from fda_flower.clients.exchange import frozen_digest
from fda_flower.datasets import FederatedDataset, load_domain, load_federation
from fda_flower.datasets.federation import shared_domain
from fda_flower.datasets.spec import Pairs
from fda_flower.files import cache_folder, checksum, derive_seed
from fda_flower.models import Train, build_model, reads_text
from fda_flower.models.devices import find_device
from fda_flower.models.split import Split, split
from fda_flower.prediction.features import FeatureStore, digest_of, federation_features
from fda_flower.records.record import COSTS
from fda_flower.runs.config import RunConfig


def make_model(config: RunConfig, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return the initial global model, for features if its front is frozen; it is the same at all sites."""
    if config.trained.what == "all":
        return _build(config.model, _options(config), shape, classes, config.seed)
    return copy.deepcopy(_parts(config, shape, classes).end)


def front_of(config: RunConfig, shape: tuple[int, ...], classes: int) -> nn.Module | None:
    """Return what of a run's network makes features of samples, if anything does."""
    return None if config.trained.what == "all" else _parts(config, shape, classes).front


def _parts(config: RunConfig, shape: tuple[int, ...], classes: int) -> Split:
    return _split(config.model, _options(config), shape, classes, config.seed, config.trained)


@lru_cache(maxsize=2)
def _split(
    name: str, options: Pairs, shape: tuple[int, ...], classes: int, seed: int, trained: Train
) -> Split:
    """Return a network in two, which the runs of many methods share."""
    network = _build(name, options, shape, classes, seed)
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(derive_seed(seed, "adapters"))
        return split(network, trained, shape, name)


def _build(name: str, options: Pairs, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
    return build_model(name, shape, classes, derive_seed(seed, "model"), dict(options))


def _options(config: RunConfig) -> Pairs:
    return tuple(dict(config.model_options).items())


def digest_of_frozen(config: RunConfig, shape: tuple[int, ...], classes: int, model: nn.Module) -> str:
    """Return a digest of what is frozen in a run's network; empty for nothing."""
    body, frozen = body_of(config, shape, classes)[0], frozen_digest(model)
    return checksum({"body": body, "frozen": frozen}, {}) if body else frozen


def body_of(config: RunConfig, shape: tuple[int, ...], classes: int) -> tuple[str, Layers]:
    """Return a digest of what makes features in a run, and its arrays for the model's folder, if any.

    A network that reads text needs its package anyway, which has the arrays.
    """
    front = front_of(config, shape, classes)
    if front is None:
        return "", {}
    digest, layers = _body(front)
    return digest, {} if reads_text(config.model) else layers


@lru_cache(maxsize=2)
def _body(front: nn.Module) -> tuple[str, Layers]:
    return digest_of(front), {name: tensor.cpu().numpy() for name, tensor in front.state_dict().items()}


_stores = lru_cache(maxsize=2)(FeatureStore.of)


def site_data(
    config: RunConfig, name: str, shared: Path | None = None, folder: Path | None = None
) -> FederatedDataset:
    """Return the data of a site, as its client trains on them.

    `shared` is a file with the data of all clients; `folder` is where a site keeps features, by default in
    this account's cache.
    """
    if shared is not None:
        return shared_domain(shared, name)
    return _as_features(config, load_domain(config.data, name), folder)


def all_data(config: RunConfig) -> FederatedDataset:
    """Return the data of all clients, as they train on them."""
    return _as_features(config, load_federation(config.data), None)


def _as_features(config: RunConfig, data: FederatedDataset, folder: Path | None) -> FederatedDataset:
    front = front_of(config, data.shape, data.classes)
    if front is None:
        return data.in_memory()
    device = find_device(config.device)
    kept = (cache_folder() if folder is None else folder) / "features"
    return federation_features(front, data, _stores(_body(front)[0], kept), device, COSTS.info)
