"""The functions that run a configuration, one for each engine."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from fda_flower.client_app import make_client, make_client_app
from fda_flower.config import RunConfig
from fda_flower.datasets.shared import write_shared
from fda_flower.devices import find_device, is_numbered
from fda_flower.engines import ENGINES, Engine, Resources
from fda_flower.errors import ConfigError
from fda_flower.experiments.attacks import Attack
from fda_flower.experiments.central import run_central
from fda_flower.experiments.overview import overview
from fda_flower.methods import check_federated
from fda_flower.records import Record
from fda_flower.server_app import check_data, make_folder, run_server

RunOutput = tuple[list[Record], dict[str, Any]]
"""The record of each round, and the last model's arrays."""


@dataclass(frozen=True)
class RunRequest:
    """A request for a run; the fields are parameters of `run`, and cross-validation's figures by round."""

    config: RunConfig
    output: Path | None = None
    resume: bool = False
    gpus_per_client: float = 0.0
    workers: int | None = None
    connection: str | None = None
    on_round: Callable[[Record], None] | None = None
    on_ready: Callable[[list[str]], None] | None = None
    validation: Mapping[int, float] | None = None
    attack: Attack | None = None


Runner = Callable[[RunRequest], RunOutput]


def _on_this_machine(name: str, engine: Engine) -> Runner:
    def run_here(request: RunRequest) -> RunOutput:
        config = request.config
        if request.connection is not None:
            raise ConfigError(
                f"connection is '{request.connection}', but only the engine deploy has one: leave it out, or "
                "choose --engine deploy"
            )
        if request.gpus_per_client and not engine.parallel:
            raise ConfigError(
                f"gpus-per-client is {request.gpus_per_client}, but engine {name} shares out no GPU: leave "
                "it out, or choose --engine ray"
            )
        if engine.parallel:
            check_federated(config.method)
        if request.gpus_per_client and is_numbered(config.device):
            raise ConfigError(
                f"gpus-per-client is {request.gpus_per_client}, by which Ray chooses the GPU, but device is "
                f"'{config.device}': leave one out"
            )
        resources = Resources(config.threads, request.gpus_per_client, request.workers)
        lines = overview(config, *check_data(config))
        folder = None
        if request.output is not None:
            device = find_device(config.device).type
            folder = make_folder(str(request.output), config, request.resume, device)
            folder.config |= {} if request.attack is None else request.attack.settings()
        if config.entry.centralised:
            _tell(request, lines)
            return run_central(config, folder, request.on_round, request.validation)
        results: list[tuple[Result, list[Record]]] = []

        def server(grid: Grid) -> None:
            _tell(request, lines)
            results.append(run_server(grid, config, folder, request.on_round, request.validation))

        with shared_data(config) if engine.parallel else nullcontext() as data:
            changed = None
            if request.attack is not None:
                changed = partial(request.attack.client, other=partial(make_client, config, data=data))
            client_app = make_client_app(
                config, folder=request.output, data=data, changed=changed, simulated=True
            )
            engine(server, client_app, len(config.data.domain_names), resources)
        ((result, history),) = results
        return history, {name: array.numpy() for name, array in result.arrays.items()}

    return run_here


@contextmanager
def shared_data(config: RunConfig) -> Iterator[Path]:
    """Yield a file with the data of all clients, which this user alone can read; it is gone afterwards."""
    with TemporaryDirectory(prefix="fda-data-") as folder:
        path = Path(folder) / "data.pt"
        write_shared(config.data, path)
        yield path


def _tell(request: RunRequest, lines: list[str]) -> None:
    if request.on_ready is not None:
        request.on_ready(lines)


def _on_a_superlink(request: RunRequest) -> RunOutput:
    if request.connection is None:
        raise ConfigError(
            "engine deploy needs a connection: give --connection NAME, as in Flower's config.toml"
        )
    if request.output is None:
        raise ConfigError("engine deploy needs an output folder: give --output FOLDER")
    if request.attack is not None:
        raise ConfigError(
            f"attack is '{request.attack.name}', but with engine deploy no site attacks: leave it out"
        )
    _refuse_resources(request, "with engine deploy each site uses its own machine: leave it out")
    from fda_flower.deployment import run_deployed

    history, folder = run_deployed(
        request.config, request.connection, request.output, resume=request.resume, on_round=request.on_round
    )
    _tell(request, [f"The model is on the server of '{request.connection}', in {folder}"])
    return history, {}


def _refuse_resources(request: RunRequest, remedy: str) -> None:
    for name, given in (("workers", request.workers), ("gpus-per-client", request.gpus_per_client or None)):
        if given is not None:
            raise ConfigError(f"{name} is {given}, but {remedy}")


RUNNERS: dict[str, Runner] = {
    **{name: _on_this_machine(name, engine) for name, engine in ENGINES.items()},
    "deploy": _on_a_superlink,
}
"""The runners by the name of the engine."""
