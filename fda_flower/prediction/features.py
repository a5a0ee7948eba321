"""Features of samples: the outputs of a network's frozen backbone, computed once and stored."""

import hashlib
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file
from torch import Tensor, nn

from fda_flower.aggregation import Layers
from fda_flower.datasets import FederatedDataset, Samples
from fda_flower.datasets.domains import Domain
from fda_flower.datasets.pixels import kind_of
from fda_flower.datasets.preparation import ImageFiles
from fda_flower.errors import RunError
from fda_flower.files import PRIVATE, as_safetensors, checksum, make_private, usable_cores, write_atomically
from fda_flower.models import ONNX_RUNTIME, runs_onnx
from fda_flower.models.kinds import TwoStatistics, adaptable, to_adapt, with_statistics
from fda_flower.models.onnx_runtime import in_onnx_runtime
from fda_flower.models.split import SideBySide
from fda_flower.prediction.batches import batches, inputs_at

KEY = 16
"""Bytes of a sample's digest."""

OF_STATISTICS, MOST_OF_STATISTICS = ("train", "unlabelled"), 1024
"""The parts of a domain whose samples a site's statistics are of, and the largest number of samples."""

Begun = Mapping[bytes, Sequence[Tensor]]
"""What `fda_flower.models.split.SideBySide.through_trunks` has made of samples, each alone, by their keys."""


def digest_of(backbone: nn.Module) -> str:
    """Return a digest of a backbone's arrays, independent of their device."""
    return checksum({}, {name: tensor.cpu().numpy() for name, tensor in backbone.state_dict().items()})


@dataclass
class FeatureStore:
    """Features by sample, in memory and, with a folder, in files that later runs read.

    Each call of `add` writes one file, whole or not at all. A file that is not as written is ignored, so that
    its features are computed again; so is a folder that cannot be written to.
    """

    folder: Path | None
    known: dict[bytes, NDArray[np.float32]]

    @classmethod
    def of(cls, digest: str, folder: Path | None) -> "FeatureStore":
        """Return the store of the backbone with this digest, filled from a folder."""
        own = None if folder is None else folder / digest[:32]
        store = cls(own, {})
        for path in sorted(own.glob("*.safetensors")) if own is not None and own.is_dir() else ():
            try:
                keys, rows = _read(path)
                store.known |= dict(zip(keys, rows, strict=True))
            except (OSError, SafetensorError, KeyError, TypeError, ValueError):
                continue
        return store

    def add(self, keys: Sequence[bytes], rows: NDArray[np.float32]) -> None:
        """Add features of samples, in memory and in a file."""
        self.known |= dict(zip(keys, rows, strict=True))
        if self.folder is None:
            return
        arrays: dict[str, NDArray[Any]] = {
            "keys": np.frombuffer(b"".join(keys), np.uint8).reshape(-1, KEY),
            "rows": rows,
        }
        arrays["digest"] = _digest(arrays)
        name = hashlib.sha256(b"".join(keys)).hexdigest()[:32]
        try:
            make_private(self.folder)
            write_atomically(self.folder / f"{name}.safetensors", as_safetensors(arrays), PRIVATE)
        except OSError:
            self.folder = None


def _digest(arrays: Layers) -> NDArray[np.uint8]:
    """Return a digest of a file's keys and rows."""
    return np.frombuffer(
        bytes.fromhex(checksum({}, {name: arrays[name] for name in ("keys", "rows")})), np.uint8
    )


def _read(path: Path) -> tuple[list[bytes], NDArray[np.float32]]:
    """Return the keys and rows of a file; raise a `ValueError` unless it is as `add` writes it."""
    arrays = load_file(path)
    if not np.array_equal(arrays["digest"], _digest(arrays)):
        raise ValueError(f"'{path}' has another digest than its content")
    return [key.tobytes() for key in arrays["keys"]], arrays["rows"]


def features(
    backbone: nn.Module,
    samples: Samples,
    store: FeatureStore,
    device: torch.device,
    keys: Sequence[bytes] | None = None,
    site: bytes = b"",
    begun: Begun = MappingProxyType({}),
) -> Samples:
    """Return samples whose inputs are the features of the given samples, float32.

    Each sample passes alone, so its features have the same bits in any company. Noise is drawn once, from a
    seed that depends on the samples; features with noise are not stored.

    The `backbone` is on the `device`, in evaluation mode; the samples are images or rows. The `store` holds
    known features, and new ones are added; `keys` are the samples' digests (see `keys_of`), if known. `site`
    identifies the statistics that a site has put into the backbone, if any; then `begun` has samples by key
    that have passed its trunks.
    """
    if not len(samples):
        return replace(samples, x=np.zeros(0, np.float32))
    keys = keys_of(samples.x, columns_of(backbone)) if keys is None else keys
    if samples.noise:
        drawn = with_noise(samples, keys)
        return features(backbone, drawn, FeatureStore(None, {}), device, begun=begun)
    names = _at(site, keys)
    first = {name: place for place, name in reversed(list(enumerate(names))) if name not in store.known}
    if first:
        new = _computed(backbone, samples, keys, list(first.values()), device, begun)
        store.add(list(first), np.ascontiguousarray(new[:, columns_of(backbone) :]))
    outputs = np.stack([store.known[name] for name in names])
    if number := columns_of(backbone):
        outputs = np.concatenate([samples.x[:, :number], outputs], axis=1)
    return replace(samples, x=outputs)


def _at(site: bytes, keys: Sequence[bytes]) -> list[bytes]:
    """Return the keys of samples whose features depend on a site's statistics."""
    return [hashlib.blake2b(site + key, digest_size=KEY).digest() for key in keys] if site else list(keys)


def with_noise(samples: Samples, keys: Sequence[bytes]) -> Samples:
    """Return samples with their noise, from a seed that depends on them."""
    seed = int.from_bytes(hashlib.blake2b(b"".join(keys), digest_size=7).digest())
    drawn = [x.numpy() for x, _ in batches(samples, 1, torch.Generator().manual_seed(seed))]
    return replace(samples, x=np.concatenate(drawn), noise=0.0)


def features_as_in(
    versions: Mapping[str, str], backbone: nn.Module, samples: Samples, device: torch.device
) -> Samples:
    """Return samples with features as inputs, computed as with the `versions` of a training, not stored.

    If ONNX Runtime did it, and cannot here, a warning says so once for a backbone, and PyTorch does.
    """
    if ONNX_RUNTIME in versions:
        backbone = _by_onnx_runtime(backbone, device)
    return features(backbone, samples, FeatureStore(None, {}), device)


@lru_cache(maxsize=2)
def _by_onnx_runtime(backbone: nn.Module, device: torch.device) -> nn.Module:
    if runs_onnx(str(device)):
        return in_onnx_runtime(backbone)
    remedy = " (pip install 'fda-flower[images]')" if device.type == "cpu" else ""
    logging.getLogger("fda_flower").warning(
        "the model's features were computed by ONNX Runtime on a CPU, and are here by PyTorch%s: outputs may "
        "differ by 1e-5 of their size",
        remedy,
    )
    return backbone


def columns_of(backbone: nn.Module) -> int:
    """Return how many numbers at the beginning of a sample a backbone passes on unchanged."""
    return int(getattr(backbone, "columns", 0))


def _computed(
    backbone: nn.Module,
    samples: Samples,
    keys: Sequence[bytes],
    places: Sequence[int],
    device: torch.device,
    begun: Begun,
) -> NDArray[np.float32]:
    def one(place: int) -> list[Tensor]:
        if (inner := begun.get(keys[place])) is None:
            return [backbone(_input(samples, place, device))]
        assert isinstance(backbone, SideBySide)
        return [backbone.after_trunks([each[None].to(device) for each in inner])]

    rows = [row for (row,) in _each(one, places, device)]
    if not all(bool(row.isfinite().all()) for row in rows):
        raise RunError("the frozen part of the network returns numbers that are not finite", thing="network")
    return torch.stack(rows).numpy()


def _input(samples: Samples, place: int, device: torch.device) -> Tensor:
    """Return one sample as the backbone reads it."""
    return inputs_at(samples, slice(place, place + 1), device)


def _each(
    pass_one: Callable[[Any], Sequence[Tensor]], samples: Sequence[Any], device: torch.device
) -> list[list[Tensor]]:
    """Return what networks make of each sample alone, float32, on the CPU."""

    def one(sample: Any) -> list[Tensor]:
        with torch.no_grad():
            return [output[0].float().cpu().clone() for output in pass_one(sample)]

    cores = 1 if device.type != "cpu" else usable_cores()
    with _one_thread(), ThreadPoolExecutor(cores) as pool:
        return list(pool.map(one, samples))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let each pass use one thread, for several passes at a time and the same bits on all machines."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def keys_of(x: NDArray[Any] | ImageFiles, begin: int = 0) -> list[bytes]:
    """Return a digest of each sample: of its numbers from `begin` on, or of a file and how it is decoded."""
    if isinstance(x, ImageFiles):
        return [*_keys_of_files(x)]
    x = x[:, begin:] if begin else x
    kind = f"torch.{x.dtype}{x.shape[1:]}".encode()
    contents: Iterator[bytes] = (row.tobytes() for row in x)
    return [hashlib.blake2b(kind + content, digest_size=KEY).digest() for content in contents]


def _keys_of_files(x: ImageFiles) -> Iterator[bytes]:
    """Yield the digest of each image: of its file and look and, of a medical one, of what decodes it."""
    for path, places in groupby(range(len(x)), x.paths.__getitem__):
        format_of, kind = kind_of(path), f"file{x.shape[1:]} of {x.look.depth} bits"
        more = ("" if format_of is None else f", {x.look_at(i)} by {format_of.decoders()}" for i in places)
        yield from _digests(path, _state(path), tuple(kind + each for each in more))


@lru_cache(maxsize=2**16)
def _digests(path: Path, state: tuple[int, ...], kinds: tuple[str, ...]) -> list[bytes]:
    """Return digests of a file and how it is decoded; only one in another state is read again."""
    content = _content(path)
    return [hashlib.blake2b(kind.encode() + content, digest_size=KEY).digest() for kind in kinds]


def _state(path: Path) -> tuple[int, ...]:
    """Return what changes with a file's content."""
    try:
        state = path.stat()
    except OSError:
        return ()
    return state.st_size, state.st_mtime_ns, state.st_ctime_ns


def _content(path: Path) -> bytes:
    """Return a file's content; one that cannot be read counts as empty: decoding names either."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def federation_features(
    backbone: nn.Module,
    data: FederatedDataset,
    store: FeatureStore,
    device: torch.device,
    tell: Callable[[str, int], None],
    tested: Collection[str],
) -> FederatedDataset:
    """Return a federation's or a site's data with features as inputs; `shape` stays.

    Each domain has its own statistics, if the backbone uses such; see `fda_flower.models.kinds`. The test
    samples of domains that are not `tested` have no inputs. `tell` is called with the number of new samples.
    """
    backbone, domains, begin = backbone.to(device).eval(), dict(data.domains), columns_of(backbone)
    parts = {
        name: {part: own for part, own in domain.parts.items() if part != "test" or name in tested}
        for name, domain in domains.items()
    }
    keys = {
        name: {part: keys_of(samples.x, begin) for part, samples in own.items()}
        for name, own in parts.items()
    }
    sites = {name: _site(domains[name], own) if adaptable(backbone) else b"" for name, own in keys.items()}
    new = {
        name: {key for part in own.values() for key in _at(sites[name], part)} - store.known.keys()
        for name, own in keys.items()
    }
    if number := len(set().union(*new.values())):
        tell("%d samples pass the frozen part of the network, once", number)
    for name, domain in domains.items():
        own, test = backbone, domain.test
        made: dict[str, Any] = {"test": replace(test, x=np.zeros((len(test), 0), np.float32), noise=0.0)}
        begun: Begun = {}
        if site := sites[name]:
            made["statistics"] = store.known.get(site)
            if made["statistics"] is None:
                own, made["statistics"], begun = _adapted(backbone, site, domain, keys[name], store, device)
            elif new[name]:
                own = with_statistics(backbone, made["statistics"])
        for part, samples in parts[name].items():
            made[part] = features(own, samples, store, device, keys[name][part], site, begun)
        domains[name] = replace(domain, **made)
    return replace(data, domains=domains)


def _site(domain: Domain, keys: Mapping[str, Sequence[bytes]]) -> bytes:
    """Return a digest of the samples that a site's statistics are of."""
    noise = f"{domain.train.noise!r}".encode()
    return hashlib.blake2b(b"".join([noise, *_chosen(keys)]), digest_size=KEY).digest()


def _chosen(keys: Mapping[str, Sequence[bytes]]) -> list[bytes]:
    """Return the keys of the training samples that statistics are of, the smallest ones, in order."""
    return sorted({key for part in OF_STATISTICS for key in keys.get(part, ())})[:MOST_OF_STATISTICS]


def _adapted(
    backbone: nn.Module,
    site: bytes,
    domain: Domain,
    keys: Mapping[str, Sequence[bytes]],
    store: FeatureStore,
    device: torch.device,
) -> tuple[SideBySide, NDArray[np.float32], Begun]:
    """Return a copy of a backbone with the statistics of a domain's training samples; labels do not count.

    With it come these, and the samples that have passed the trunks for them: up to `MOST_OF_STATISTICS`.
    """
    assert isinstance(backbone, SideBySide)
    backbone = to_adapt(backbone)
    inputs = dict[bytes, tuple[bytes, Samples, int]]()
    for part, samples in domain.parts.items():
        if part in OF_STATISTICS:
            drawn = with_noise(samples, keys[part]) if samples.noise else samples
            names = keys_of(drawn.x) if samples.noise else keys[part]
            inputs |= {key: (names[place], drawn, place) for place, key in enumerate(keys[part])}
    chosen = [inputs[key] for key in _chosen(keys)]
    inner = _each(lambda each: backbone.through_trunks(_input(each[1], each[2], device)), chosen, device)
    with _one_thread():
        for body, outputs in zip(backbone.bodies, zip(*inner, strict=True), strict=True):
            if isinstance(body.network, TwoStatistics):
                body.network.adapt(outputs)
    statistics = torch.cat([network.statistics for network in adaptable(backbone)]).numpy()
    store.add([site], statistics[None])
    return backbone, statistics, {name: each for (name, *_), each in zip(chosen, inner, strict=True)}
