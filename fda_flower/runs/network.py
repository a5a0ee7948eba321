"""A run's initial network and its clients' data, which are features if the network's backbone is frozen.

PyTorch is imported for its networks alone.
"""

import copy
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fda_flower.aggregation import Layers
from fda_flower.datasets import FederatedDataset, Samples, load_domain, load_federation
from fda_flower.datasets.federation import of_domain
from fda_flower.datasets.spec import Pairs
from fda_flower.files import cache_folder, checksum, derive_seed
from fda_flower.models import AND, MODELS, ONNX_RUNTIME, Train, build_model, reads_text, version_of
from fda_flower.models.devices import find_device
from fda_flower.models.exchange import Network, frozen_digest
from fda_flower.models.linear import OF_TABLES, LinearNetwork, TableBody, table_network
from fda_flower.models.own import check_training
from fda_flower.models.probe import answers
from fda_flower.prediction.passes import through
from fda_flower.records.record import COSTS
from fda_flower.runs.config import RunConfig
from fda_flower.runs.made_with import runtime

if TYPE_CHECKING:
    import torch
    from torch import nn

    from fda_flower.prediction.features import FeatureStore

Backbone: TypeAlias = "nn.Module | TableBody"


@dataclass(frozen=True)
class Parts:
    """A run's network in two: the frozen `backbone`, which makes features, if any, and the `rest`."""

    backbone: "Backbone | None"
    rest: Network


def make_model(config: RunConfig, shape: tuple[int, ...], classes: int) -> Network:
    """Return the initial global model, without its frozen backbone; it is the same at all sites.

    Where nobody trains it, its linear layer is zero. Raise a `ConfigError` if it is of a network from
    elsewhere that cannot be trained.
    """
    parts = _parts(config, shape, classes)
    if isinstance(parts.rest, LinearNetwork):
        return parts.rest
    trainable = parts.rest if config.trained.what == "all" else copy.deepcopy(parts.rest)
    if config.model not in MODELS:
        _check_trainable(config.model, parts.backbone, trainable, shape, classes)
    return trainable


def _check_trainable(
    name: str, backbone: "Backbone | None", trainable: "nn.Module", shape: tuple[int, ...], classes: int
) -> None:
    import torch

    from fda_flower.prediction.batches import device_of

    x = torch.zeros(2, *shape)
    with torch.no_grad():
        if isinstance(backbone, torch.nn.Module):  # on the device that has made features
            x = backbone(x.to(device_of(backbone))).cpu()
    check_training(name, trainable, x, classes)


def backbone_of(config: RunConfig, shape: tuple[int, ...], classes: int) -> "Backbone | None":
    """Return the frozen backbone of a run's network, which computes features, or None."""
    return None if config.trained.what == "all" else _parts(config, shape, classes).backbone


def device_of_run(config: RunConfig) -> str:
    """Return the kind of device that computes a run: the CPU where NumPy does all of it."""
    rows = MODELS[config.data.fitting_model].rows
    if config.fits and rows and all(each in OF_TABLES for each in config.model.split(AND)):
        return "cpu"
    return find_device(config.device).type


def _parts(config: RunConfig, shape: tuple[int, ...], classes: int) -> Parts:
    options = tuple(dict(config.model_options).items())
    if config.trained.what == "all":
        return Parts(None, _build(config.model, options, shape, classes, config.seed))
    return _split(config.model, options, shape, classes, config.seed, config.trained, config.fits)


@lru_cache(maxsize=2)
def _split(
    name: str, options: Pairs, shape: tuple[int, ...], classes: int, seed: int, trained: Train, fits: bool
) -> Parts:
    """Return a network cut in two; runs of many methods share it."""
    if fits and (of_table := table_network(name, shape, classes)) is not None:
        return Parts(of_table.body, of_table.network)
    import torch

    from fda_flower.models.split import rest_of, split

    network = _build(name, options, shape, classes, seed)
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(derive_seed(seed, "adapters"))
        parts = split(network, trained, shape, name)
    fitted = rest_of(parts) if fits else None
    return Parts(parts.backbone, parts.trainable if fitted is None else fitted)


def _build(name: str, options: Pairs, shape: tuple[int, ...], classes: int, seed: int) -> "nn.Module":
    return build_model(name, shape, classes, derive_seed(seed, "model"), dict(options))


def answers_of(config: RunConfig, shape: tuple[int, ...], classes: int) -> tuple[float, ...]:
    """Return the numbers that say what a run's network computes; see `fda_flower.models.probe`."""
    return answers(config.model, shape, classes, dict(config.model_options))


def digest_of_frozen(config: RunConfig, shape: tuple[int, ...], classes: int, model: Network) -> str:
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
    if statistics is not None and not isinstance(backbone, TableBody):
        from fda_flower.models.kinds import with_statistics

        backbone = with_statistics(backbone, statistics)
    digest, layers = _body(backbone)
    return digest, {} if reads_text(config.model) else layers


@lru_cache(maxsize=2)
def _body(backbone: Backbone) -> tuple[str, Layers]:
    if isinstance(backbone, TableBody):
        layers = backbone.layers
    else:
        layers = {name: tensor.cpu().numpy() for name, tensor in backbone.state_dict().items()}
    return checksum({}, layers), layers


@lru_cache(maxsize=2)
def _store(digest: str, folder: Path) -> "FeatureStore":
    from fda_flower.prediction.features import FeatureStore

    return FeatureStore.of(digest, folder)


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
    standardised = any(domain.columns for domain in data.domains.values())
    if isinstance(backbone, TableBody):
        body = partial(through, backbone)
        domains = {name: replace(each, body=body) for name, each in data.domains.items()}
        if not standardised:
            domains = {name: each.in_columns(None) for name, each in domains.items()}
        return replace(data, domains=domains)
    from fda_flower.prediction.features import columns_of, federation_features

    device = find_device(config.device)
    if not columns_of(backbone) and standardised:
        body = partial(_through, backbone.to(device).eval(), device)
        return replace(data, domains={name: replace(each, body=body) for name, each in data.domains.items()})
    place = (cache_folder() if folder is None else folder) / "features"
    tested = data.domains if config.every_site else [data.target]
    digest, features_by = _body(backbone)[0], runtime(config)
    if features_by == ONNX_RUNTIME:
        from fda_flower.models.onnx_runtime import in_onnx_runtime

        digest = checksum({"body": digest, **version_of(features_by)}, {})
        backbone = in_onnx_runtime(backbone)
    return federation_features(backbone, data, _store(digest, place), device, COSTS.info, tested)


def _through(backbone: "nn.Module", device: "torch.device", samples: Samples) -> Samples:
    """Return the features of a table's rows, which need no store; all at once if their bits allow it."""
    import torch

    from fda_flower.prediction.batches import tensor_of
    from fda_flower.prediction.features import FeatureStore, features

    parts = [part for part in backbone.modules() if not any(part.children())]
    if not all(isinstance(part, torch.nn.Identity) or getattr(part, "by_number", False) for part in parts):
        return features(backbone, samples, FeatureStore(None, {}), device)
    with torch.no_grad():
        return replace(samples, x=backbone(tensor_of(samples.x, device)).float().cpu().numpy())
