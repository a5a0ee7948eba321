"""What travels in a round, and what it costs, by what of a pretrained network is trained.

FedAvg on PACS (target sketch with 40 labels, three sources with 80 each, 96x96 pixels) with
EfficientNet-Lite0: its head, adapters of rank 16, its last block, all of it. The table has the bytes of the
replies in a round's record, the seconds of a steady round, and the seconds of the features, which each image
needs once (no cache is read). The data are in FDA_DATA_DIR. Asked: for the head at most a
hundredth of the bytes of the whole network, and a tenth of its seconds.
"""

import logging
import os
import tempfile
import time
from statistics import median

from common import quick_asked, show, show_machine, verdict

from fda_flower.datasets import load_federation
from fda_flower.running.run import run_config
from fda_flower.runs.config import RunConfig
from fda_flower.runs.network import all_data, backbone_of

PARTS = ("head", "adapters:16", "last", "all")


def main() -> None:
    """Print the table."""
    quick = quick_asked(__doc__)
    logging.getLogger("flwr").setLevel(logging.WARNING)
    show_machine()
    print(f"load {os.getloadavg()[0]:.0f}")
    rows, whole = [], (0.0, 0.0)
    for train in reversed(PARTS):
        config = RunConfig(
            dataset="pacs",
            dataset_options={"image_size": 96},
            target="sketch",
            target_samples=20 if quick else 40,
            source_samples=20 if quick else 80,
            test_samples=20 if quick else 80,
            data_dir=os.environ.get("FDA_DATA_DIR"),
            method="fedavg",
            model="efficientnet-lite0",
            train=train,
            batch_size=32,
            target_batch_size=16,
            rounds=2 if train in ("all", "last") or quick else 6,
            evaluate_every=1,
        )
        data = load_federation(config.data)
        with tempfile.TemporaryDirectory() as cache:
            os.environ["FDA_CACHE_DIR"] = cache
            begun = time.perf_counter()
            backbone = backbone_of(config, data.shape, data.classes)
            all_data(config)
            features = time.perf_counter() - begun
            result = run_config(config)
        seconds = median(sum(record["seconds"].values()) for record in result.history[1:])
        received = float(result.history[-1]["bytes-received"])
        whole = whole if any(whole) else (received, seconds)
        ratios = verdict(received / whole[0], 0.01), verdict(seconds / whole[1], 0.1)
        rows.append(
            [
                f"`{train}`",
                f"{received / 1e6:,.2f}",
                f"{seconds:.2f}",
                "-" if backbone is None else f"{features:.0f}",
                *(ratios if train == "head" else (f"{received / whole[0]:.4f}", f"{seconds / whole[1]:.3f}")),
            ]
        )
    header = ["trained", "MB received in a round", "seconds of a round", "seconds of features, once"]
    show("By what is trained", [*header, "bytes / all", "seconds / all"], rows[::-1])


if __name__ == "__main__":
    main()
