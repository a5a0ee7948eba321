"""A run's initial network and its clients' data, which are features if the network's backbone is frozen."""

import copy
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from fda_flower.aggregation import Layers
from fda_flower.datasets import FederatedDataset, Samples, load_domain, load_federation
from fda_flower.datasets.federation import of_domain
from fda_flower.datasets.spec import Pairs
from fda_flower.files import cache_folder, checksum, derive_seed
from fda_flower.models import MODELS, Train, build_model, reads_text
from fda_flower.models.devices import find_device
from fda_flower.models.exchange import frozen_digest
from fda_flower.models.kinds import set_statistics
from fda_flower.models.own import check_training
from fda_flower.models.probe import answers
from fda_flower.models.split import SplitNetwork, split
from fda_flower.prediction.batches import tensor_of
from fda_flower.prediction.features import FeatureStore, columns_of, digest_of, features, federation_features
from fda_flower.records.record import COSTS
from fda_flower.runs.config import RunConfig


def make_model(config: RunConfig, shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return the initial global model, without its frozen backbone; it is the same at all sites.

    Raise a `ConfigError` if it is of a network from elsewhere that cannot be trained.
    """
    if config.trained.what == "all":
        backbone, trainable = None, _build(config.model, _options(config), shape, classes, config.seed)
    else:
        parts = _parts(config, shape, classes)
        backbone, trainable = parts.backbone, copy.deepcopy(parts.trainable)
    if config.model not in MODELS:
        x = torch.zeros(2, *shape)
        with torch.no_grad():
            if backbone is not None:  # on the device that has made features
                x = backbone(x.to(next(iter(backbone.state_dict().values())).device)).cpu()
        check_training(config.model, trainable, x, classes)
    return trainable


def backbone_of(config: RunConfig, shape: tuple[int, ...], classes: int) -> nn.Module | None:
    """Return the frozen backbone of a run's network, which computes features, or None."""
    return None if config.trained.what == "all" else _parts(config, shape, classes).backbone


def _parts(config: RunConfig, shape: tuple[int, ...], classes: int) -> SplitNetwork:
    return _split(config.model, _options(config), shape, classes, config.seed, config.trained)


@lru_cache(maxsize=2)
def _split(
    name: str, options: Pairs, shape: tuple[int, ...], classes: int, seed: int, trained: Train
) -> SplitNetwork:
    """Return a network cut in two; runs of many methods share it."""
    network = _build(name, options, shape, classes, seed)
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(derive_seed(seed, "adapters"))
        return split(network, trained, shape, name)


def _build(name: str, options: Pairs, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
    return build_model(name, shape, classes, derive_seed(seed, "model"), dict(options))


def _options(config: RunConfig) -> Pairs:
    return tuple(dict(config.model_options).items())


def answers_of(config: RunConfig, shape: tuple[int, ...], classes: int) -> tuple[float, ...]:
    """Return the numbers that say what a run's network computes; see `fda_flower.models.probe`."""
    return answers(config.model, shape, classes, dict(config.model_options))


def digest_of_frozen(config: RunConfig, shape: tuple[int, ...], classes: int, model: nn.Module) -> str:
    """Return a digest of the frozen part of a run's network; empty if there is none."""
    body, frozen = body_of(config, shape, classes)[0], frozen_digest(model)
    return checksum({"body": body, "frozen": frozen}, {}) if body else frozen


def body_of(
    config: RunConfig, shape: tuple[int, ...], classes: int, statistics: NDArray[np.float32] | None = None
) -> tuple[str, Layers]:
    """Return a digest of a run's frozen backbone, and its arrays for the model's folder, if any.

    `statistics` are a site's own; see `fda_flower.datasets.Domain`. A network that reads text needs its
    package, which holds the arrays.
    """
    backbone = backbone_of(config, shape, classes)
    if backbone is None:
        return "", {}
    if statistics is not None:
        backbone = copy.deepcopy(backbone)
        set_statistics(backbone, statistics)
    digest, layers = _body(backbone)
    return digest, {} if reads_text(config.model) else layers


@lru_cache(maxsize=2)
def _body(backbone: nn.Module) -> tuple[str, Layers]:
    return digest_of(backbone), {name: tensor.cpu().numpy() for name, tensor in backbone.state_dict().items()}


_stores = lru_cache(maxsize=2)(FeatureStore.of)


def site_data(
    config: RunConfig, name: str, shared: FederatedDataset | None = None, folder: Path | None = None
) -> FederatedDataset:
    """Return a site's data in the form that its client trains on.

    `shared` are the data of all clients in this form; `folder` holds the site's features, by default in this
    account's cache.
    """
    if shared is not None:
        return of_domain(shared, name)
    return _as_features(config, load_domain(config.data, name), folder)


def all_data(config: RunConfig) -> FederatedDataset:
    """Return the data of all clients, in the form that they train on."""
    return _as_features(config, load_federation(config.data), None)


def _as_features(config: RunConfig, data: FederatedDataset, folder: Path | None) -> FederatedDataset:
    backbone = backbone_of(config, data.shape, data.classes)
    if backbone is None:
        return data.in_memory()
    device = find_device(config.device)
    if not columns_of(backbone) and any(domain.columns for domain in data.domains.values()):
        body = partial(_through, backbone.to(device).eval(), device)
        return replace(data, domains={name: replace(each, body=body) for name, each in data.domains.items()})
    place = (cache_folder() if folder is None else folder) / "features"
    tested = data.domains if config.every_site else [data.target]
    store = _stores(_body(backbone)[0], place)
    return federation_features(backbone, data, store, device, COSTS.info, tested)


def _through(backbone: nn.Module, device: torch.device, samples: Samples) -> Samples:
    """Return the features of a table's rows, which need no store; all at once if their bits allow it."""
    parts = [part for part in backbone.modules() if not any(part.children())]
    if not all(isinstance(part, nn.Identity) or getattr(part, "by_number", False) for part in parts):
        return features(backbone, samples, FeatureStore(None, {}), device)
    with torch.no_grad():
        return replace(samples, x=backbone(tensor_of(samples.x, device)).float().cpu().numpy())
