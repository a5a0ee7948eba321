"""The share of a run's time that evaluations take, in each round and as often as by default.

FedAvg, one thread; Fashion-MNIST lies in FDA_DATA_DIR. The last five rounds, which are always evaluated,
count in the seconds alone.
Asked: a tenth by default.
"""

import os
from typing import Any

import torch
from common import quick_asked, show, show_machine, verdict

from fda_flower.records.record import LAST, Record
from fda_flower.running.run import run_config
from fda_flower.runs.config import RunConfig

FASHION = {"dataset": "fashion-mnist", "shift": "noise"}
CASES: dict[str, dict[str, Any]] = {
    "digits, `cnn`, 3 sources of 337": {},
    "Fashion-MNIST, `lenet`, 9 sources of 600": {
        **FASHION,
        **{"model": "lenet", "sources": 9, "source_samples": 600, "target_samples": 600},
    },
    "Fashion-MNIST, `mlp`, 49 sources of 60": {
        **FASHION,
        **{"model": "mlp", "sources": 49, "source_samples": 60, "target_samples": 60},
    },
}


def share_of(history: list[Record]) -> float:
    """The share of the time before the last five rounds."""
    seconds = [record["seconds"] for record in history[:-LAST]]
    return sum(each["evaluate"] for each in seconds) / sum(sum(each.values()) for each in seconds)


def main() -> None:
    quick = quick_asked(__doc__)
    show_machine()
    torch.set_num_threads(1)
    rows = []
    for name, settings in list(CASES.items())[: 1 if quick else None]:
        shares, seconds, every = [], [], 0
        for given in (1, None):
            config = RunConfig(
                **{"method": "fedavg", "data_dir": os.environ.get("FDA_DATA_DIR"), **settings},
                rounds=10 if quick else 30,
                evaluate_every=given,
                device="cpu",
            )
            history = run_config(config).history
            every = next(record["round"] for record in history if "accuracy" in record)
            shares.append(share_of(history))
            seconds.append(sum(sum(record["seconds"].values()) for record in history))
        told = [f"{shares[0]:.2f}", str(every), verdict(shares[1], 0.1), f"{seconds[1] / seconds[0]:.2f}"]
        rows.append([name, *told])
    header = [
        "data",
        "in each round",
        "N by default",
        "every Nth",
        "seconds, by default / in each",
    ]
    show("Share of the time that evaluations take", header, rows)


if __name__ == "__main__":
    main()
