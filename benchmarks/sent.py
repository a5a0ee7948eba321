"""The bytes between a site and a SuperLink in a round, by the part of a pretrained network that is trained.

FedAvg with EfficientNet-Lite0 and 7 classes over a SuperLink and two SuperNodes on loopback, with TLS and
node authentication. The source reaches the SuperLink through a relay that counts the bytes of TCP in both
directions, everything included: TLS, HTTP, Flower's requests for messages. A round's bytes are half the
difference between a run of three rounds and a run of one. The images are noise, which changes no byte.
"""

import os
import socket
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
from common import quick_asked, show, show_machine
from PIL import Image

from fda_flower.deployment import Federation, run_deployed
from fda_flower.deployment.federation import HOST, NodeConfig
from fda_flower.models.exchange import Exchange
from fda_flower.runs.config import RunConfig
from fda_flower.runs.network import make_model

PARTS = ("head", "adapters:16", "last", "all")
CLASSES, SIDE = 7, 64
DOMAINS = ("a", "b")


class Relay:
    """Passes on what comes to a port of its own, and counts the bytes: `up` to the server, `down` from it."""

    def __init__(self, port: int) -> None:
        self.up = self.down = 0
        self._to = (HOST, port)
        self._listener = socket.create_server((HOST, 0))
        self.address = f"{HOST}:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            try:
                server = socket.create_connection(self._to)
            except OSError:  # the SuperLink has ended before its nodes
                client.close()
                continue
            for ends, name in (((client, server), "up"), ((server, client), "down")):
                threading.Thread(target=self._pass_on, args=(*ends, name), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, name: str) -> None:
        with suppress(OSError):
            while data := source.recv(2**16):
                setattr(self, name, getattr(self, name) + len(data))
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


class Relayed(Federation):
    """A federation whose first node, a source, reaches the SuperLink through a relay."""

    def __init__(self, folder: Path, nodes: dict[str, NodeConfig]) -> None:
        super().__init__(folder, nodes)
        self.relay = Relay(self._port)
        self._through: Relay | None = None

    @property
    def address(self) -> str:
        """Host and port of the SuperLink, or of the relay for the node that starts."""
        return super().address if self._through is None else self._through.address

    def start_node(self, name: str) -> None:
        """Start a node's SuperNode."""
        self._through = self.relay if name == DOMAINS[0] else None
        super().start_node(name)
        self._through = None


def write_images(folder: Path) -> None:
    """Write three images of noise for each domain and class."""
    draw = np.random.default_rng(0)
    for domain in DOMAINS:
        for i in range(CLASSES):
            (folder / domain / f"class-{i}").mkdir(parents=True)
            for j in range(3):
                pixels = draw.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / domain / f"class-{i}" / f"{j}.png")


def measure(federation: Relayed, config: RunConfig, output: Path) -> tuple[int, int]:
    """Return the bytes that the source sends and receives in a run."""
    before = federation.relay.up, federation.relay.down
    run_deployed(config, federation.connection, output, environment=federation.environment)
    return federation.relay.up - before[0], federation.relay.down - before[1]


def main() -> None:
    """Print the table."""
    quick = quick_asked(__doc__)
    show_machine()
    print(f"load {os.getloadavg()[0]:.0f}")
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_images(folder / "images")
        nodes: dict[str, NodeConfig] = {
            domain: {
                **{"domain": domain, "state-dir": str(folder / "sites" / domain), "resident": True},
                "require-secure": False,
            }
            for domain in DOMAINS
        }
        with Relayed(folder / "federation", nodes) as federation:
            for train in PARTS[:1] if quick else PARTS:
                found = []
                for rounds in (1, 3):
                    config = RunConfig(
                        dataset="images",
                        dataset_options={"domains": ",".join(DOMAINS), "image_size": SIDE},
                        data_dir=str(folder / "images"),
                        target=DOMAINS[1],
                        target_samples=7,
                        source_samples=7,
                        model="efficientnet-lite0",
                        method="fedavg",
                        train=train,
                        rounds=rounds,
                        device="cpu",
                    )
                    found.append(measure(federation, config, folder / f"{train}-{rounds}"))
                network = make_model(config, (3, SIDE, SIDE), CLASSES)
                arrays = sum(array.nbytes for array in Exchange.of(network).layers(network).values())
                up, down = ((three - one) / 2 for one, three in zip(*found, strict=True))
                rows.append([f"`{train}`", *(f"{number / 1e6:,.3f}" for number in (arrays, up, down))])
                show("So far", ["trained", "arrays (MB)", "sent by a source (MB)", "received (MB)"], rows)


if __name__ == "__main__":
    main()
