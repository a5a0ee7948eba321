"""Rehearsal of a federation on this machine: real processes, one run, and nothing left behind."""

import shutil
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import tomli_w

from fda_flower.datasets.federation import found_options
from fda_flower.datasets.folders import OPTIONS_FILE
from fda_flower.datasets.registry import DATASETS
from fda_flower.deployment.federation import Federation, NodeConfig
from fda_flower.deployment.submission import run_deployed
from fda_flower.errors import ConfigError
from fda_flower.files import LOCK, as_file_name
from fda_flower.models.own import is_reference
from fda_flower.names.words import counted
from fda_flower.records.record import Record, without_model
from fda_flower.reporting import summarise_run, write_summary
from fda_flower.reporting.alike import described_in, write_alike
from fda_flower.runs.config import RunConfig
from fda_flower.runs.methods import check_federated
from fda_flower.site.config import PrivacySettings


def rehearse(
    config: RunConfig,
    output: Path,
    *,
    resident: bool = True,
    on_step: Callable[[str], None] = lambda step: None,
    on_round: Callable[[Record], None] | None = None,
) -> list[Record]:
    """Run on a SuperLink with TLS and node authentication and a SuperNode per domain, on loopback.

    Certificates, keys, the database and all processes are gone afterwards, even after an error or an
    interrupt. `output` holds the same files as a local run, and each process's output in ``logs``.

    Parameters
    ----------
    config : RunConfig
        The run.
    output : Path
        An empty or missing folder.
    resident : bool
        Whether each site has a resident worker (`fda_flower.supernode.resident`).
    on_step : callable, optional
        Called with a description of the next step.
    on_round : callable, optional
        Called with each round's record as the round ends.

    Returns
    -------
    list[Record]
        The record of each round.

    Raises
    ------
    ConfigError
        If the folder is not empty.
    RunError
        If a process does not start, the run fails, or no round has a new model.
    """
    check_federated(config.method)
    output = output.absolute()
    if output.is_file() or (output.is_dir() and any(output.iterdir())):
        raise ConfigError(f"'{output}' exists already: choose another --output", thing=str(output))
    # Processes run in other folders: the data folder must be absolute.
    config = replace(config, data_dir=config.settings()["data_dir"])
    with TemporaryDirectory(prefix="fda-rehearsal-") as folder:
        nodes = node_configs(config, Path(folder) / "sites", resident)
        try:
            on_step(f"Starting a SuperLink and {len(nodes)} SuperNodes: {', '.join(nodes)}")
            with Federation(Path(folder), nodes, temporary=True) as federation:
                on_step(f"Running {counted(config.all_rounds, 'round')}")
                history, there = run_deployed(
                    config,
                    federation.connection,
                    output,
                    on_round=on_round,
                    environment=federation.environment,
                    check=federation.check_superlink,
                )
                # As in a deployment, the model is on the server, whose folder is about to go.
                shutil.copytree(there, output, ignore=shutil.ignore_patterns(LOCK), dirs_exist_ok=True)
                on_step("Taking everything down")
        finally:
            if (logs := Path(folder) / "logs").is_dir():
                shutil.copytree(logs, output / "logs", dirs_exist_ok=True)
    write_summary(output, config, summarise_run(config, history))
    write_alike(output, described_in(history))
    if (failure := without_model(history)) is not None:
        raise failure
    return history


def node_configs(config: RunConfig, sites: Path, resident: bool) -> dict[str, NodeConfig]:
    """Return the node configuration of each domain of a run by its file name; its state is in ``sites``."""
    target, data = config.data.target_name, _data_folder(config, sites.with_name("data"))
    weights = str(dict(config.model_options).get("weights", ""))
    allowed = [config.model if is_reference(config.model) else "", weights]
    own = {"data-dir": data or "", "allow-models": ",".join(filter(None, allowed))}
    return {
        as_file_name(domain): {
            "domain": domain,
            "role": "target" if domain == target else "source",
            "state-dir": str(sites / as_file_name(domain)),
            "require-secure": False,  # all data are of this machine
            "resident": resident,
            **{name: value for name, value in own.items() if value},
            **_noise(config, domain == target),
        }
        for domain in config.data.domain_names
    }


def _noise(config: RunConfig, is_target: bool) -> dict[str, str | int | float]:
    """Return the run's own noise as entries of a node; only a site says who is a patient."""
    changed = {
        each.name: getattr(config.privacy, each.name)
        for each in fields(PrivacySettings)
        if getattr(config.privacy, each.name) != each.default
    }
    if not is_target:
        changed.pop("dp_open_target", None)
    return {name.replace("_", "-"): value for name, value in changed.items()}


def _data_folder(config: RunConfig, folder: Path) -> str | None:
    """Return all nodes' folder of data: the run's or, of one's own data, links beside the run's options.

    These include what a site alone could not find, but this machine has: classes and categories.
    """
    if config.data_dir is None or DATASETS[config.dataset].public:
        return config.data_dir
    folder.mkdir()
    place = Path(config.data_dir)
    for path in place.iterdir() if place.is_dir() else [place]:
        if path.name != OPTIONS_FILE:
            (folder / path.name).symlink_to(path)
    options = dict(config.dataset_options)
    if not config.privacy.of_patients:  # there nothing is found in the data
        options |= found_options(config.data)
    (folder / OPTIONS_FILE).write_text(tomli_w.dumps(options), encoding="utf-8")
    return str(folder if place.is_dir() else folder / place.name)
