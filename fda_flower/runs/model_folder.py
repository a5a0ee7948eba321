"""The model in a run's folder: the target's or, if the target keeps it private, the server's."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fda_flower.aggregation import Calibration, Layers
from fda_flower.datasets import FederatedDataset, load_domain
from fda_flower.datasets.preparation import ImageFiles, Preparation, TablePreparation
from fda_flower.errors import ConfigError
from fda_flower.files import MODEL, derive_seed, read_json, versions
from fda_flower.models import version_of
from fda_flower.models.exchange import Network, frozen_layers
from fda_flower.models.own import only_read
from fda_flower.prediction.files import About, read_model, write_model
from fda_flower.prediction.predictors import Predictor, Single
from fda_flower.records.folder import CHECKPOINT, CHOSEN, CHOSEN_MODEL, CONFIG, RunFolder
from fda_flower.records.record import has_stopped
from fda_flower.runs.config import RunConfig
from fda_flower.runs.made_with import runtime
from fda_flower.runs.network import answers_of, body_of, make_model
from fda_flower.runs.settings import SETTINGS

if TYPE_CHECKING:
    import torch

    from fda_flower.prediction.model import LoadedModel
    from fda_flower.prediction.new_samples import NewSamples

CLIENTS = "clients"
"""The subfolder of a simulated run with one folder per client."""

DATA = "data"
"""The entry of ``config.json`` with the form of the data, as reported by the nodes."""


def publisher(
    config: RunConfig,
    site: FederatedDataset,
    name: str,
    folder: Path,
    network: Network,
    prototypes: float | None = None,
) -> Callable[[Predictor, int, Calibration | None, Preparation | None], None]:
    """Return a function that writes the predictor of the target `name` to a folder after a round.

    `network` holds the frozen arrays, which predictors lack. `prototypes` is the temperature of the prototype
    head, if the run has one.
    """
    domain = site.domains[name]
    of_columns = isinstance(domain.preparation, TablePreparation)
    about = replace(
        _about(config, site.shape, site.classes),
        domain=name,
        class_names=site.class_names,
        features=site.features,
        label=str(dict(config.dataset_options).get("label", "label")) if of_columns else "",
        prototypes=prototypes,
    )

    def publish(
        predictor: Predictor, round: int, calibration: Calibration | None, preparation: Preparation | None
    ) -> None:
        digest, body = body_of(config, site.shape, site.classes, domain.statistics)
        prepared = None if preparation is None else preparation.to_json()
        now = replace(about, round=round, body=digest, preparation=prepared)
        frozen = frozen_layers(network)
        write_model(folder, now, predictor, frozen, body, private=True, calibration=calibration)

    return publish


def write_global_model(path: Path, config: RunConfig) -> None:
    """Write the global models of the last and the chosen round, unless the target has written its own.

    They have no `preparation`, which never leaves a site.
    """
    from fda_flower.wire.protocol import FROZEN  # loads Flower

    for name, folder in ((CHECKPOINT, path), (CHOSEN, path / CHOSEN_MODEL)):
        if not (path / name).exists():
            continue
        if (folder / MODEL).exists() and read_model(folder)[0].holder == "target":
            continue
        data: Mapping[str, Any] = json.loads((path / CONFIG).read_text(encoding="utf-8")).get(DATA) or {}
        if not data:
            return
        checkpoint = RunFolder(path).load_checkpoint(name)
        about = replace(
            _about(config, tuple(data["shape"]), data["classes"]),
            holder="server",
            class_names=tuple(data.get("class-names", ())),
            features=tuple(data.get("features", ())),
            round=checkpoint.round,
        )
        frozen: Layers = {}
        if FROZEN in data:
            frozen = frozen_layers(make_model(config, about.shape, about.classes))
        digest, body = body_of(config, about.shape, about.classes)
        write_model(folder, replace(about, body=digest), Single(checkpoint.model), frozen, body)


def _settings_of(run: Path) -> dict[str, Any]:
    return dict(read_json(run / CONFIG, "give --csv or --images", settings=dict)["settings"])


def has_ended(run: Path) -> bool:
    """Return whether a run has stopped early."""
    try:
        settings = _settings_of(run)
    except ConfigError:
        return False
    return has_stopped(RunFolder(run).read_rounds(light=True), settings.get("patience"))


def run_of(folder: Path) -> Path:
    """Return the run's folder for a folder with its model."""
    if folder.name == CHOSEN_MODEL:
        return folder.parent
    above = folder.absolute().parent
    return above.parent if above.name == CLIENTS else folder


def own_test_set(model: "LoadedModel", run: Path, data_dir: str | None = None) -> "NewSamples":
    """Return the test set on which a run's target has evaluated its model.

    `run` is the run's folder, or a folder in it: of the chosen model or, where every site is a target, of a
    site's model. `data_dir` is the data's folder if it has moved. Raise a `ConfigError` if the data cannot be
    loaded.
    """
    from fda_flower.prediction.new_samples import NewSamples

    # An older version may have had others; no noise is on samples, whoever is a patient.
    known = {each.name for each in SETTINGS if each.group != "Privacy"}
    settings = {name: value for name, value in _settings_of(run_of(run)).items() if name in known}
    with only_read():
        config = RunConfig.recorded({**settings, **({} if data_dir is None else {"data_dir": data_dir})})
    name = model.about.domain if config.every_site else config.data.target_name
    site = load_domain(config.data, name)
    if not len(site.domains[name].test):
        message = f"'{name}' has no test samples"
        raise ConfigError(message, thing=name, remedy="give --csv or --images")
    if (site.shape, site.classes) != (model.about.shape, model.about.classes):
        raise ConfigError(
            f"the run's data have {site.classes} classes and samples of shape {site.shape}, its model has "
            f"{model.about.classes} and {model.about.shape}: give the data that it was trained on",
            thing=str(run),
        )

    domain = site.domains[name]
    if isinstance(model.preparation, TablePreparation) and (common := model.preparation.common) is not None:
        domain = domain.in_columns(common)
    prepared = domain.preparation
    if model.preparation is not None and prepared is not None and not model.preparation.is_like(prepared):
        message = f"the data of '{name}' have changed since the run: columns, means or deviations differ"
        remedy = "give the data that it was trained on, or new data by --csv or --images"
        raise ConfigError(message, thing=str(run), remedy=remedy)

    @contextmanager
    def drawing() -> "Iterator[torch.Generator]":
        import torch

        # The same noise as in the run.
        yield torch.Generator().manual_seed(derive_seed(config.seed, "test", model.about.round, name))

    test = domain.test
    x: Any = test.x
    names = {"sample": list(map(str, range(len(test))))}
    if isinstance(x, ImageFiles):
        names = {"file": list(map(str, x.paths))}
    return NewSamples(test, names, labelled=True, drawing=drawing)


def _about(config: RunConfig, shape: tuple[int, ...], classes: int) -> About:
    return About(
        method=config.method,
        domain=config.data.target_name,
        network=config.model,
        network_options=dict(config.model_options),
        answers=answers_of(config, shape, classes),
        train=str(config.trained),
        shape=shape,
        classes=classes,
        task=config.task,
        mask=config.data.mask,
        dataset_options=dict(config.dataset_options),
        rounds=config.all_rounds,
        versions=versions() | version_of(runtime(config)),
    )
