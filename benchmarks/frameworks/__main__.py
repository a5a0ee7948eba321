"""A process that runs a framework on a task, as `benchmarks/peers.py` starts it.

``python -m frameworks NAME TASK BEGUN FOLDER``: the task as JSON, the time at which the process was started,
and the folder into which its result is written.
"""

import json
import sys
from pathlib import Path

import torch

from fda_flower.errors import ConfigError
from frameworks import FRAMEWORKS
from frameworks.bare import BareLoop
from frameworks.pairing import Pairing
from frameworks.task import Task


def main(name: str, task_as_json: str, begun: str, folder: str) -> None:
    task, place = Task(**json.loads(task_as_json)), Path(folder)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    pairing = Pairing(task.warm_up, lambda: BareLoop.of(task), float(begun), place)
    try:
        FRAMEWORKS[name].function()(task, pairing)
        result = pairing.result()
    except ConfigError as error:
        result = {"refused": str(error)}
    (place / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
