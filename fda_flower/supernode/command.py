"""``fda-supernode``: Flower's SuperNode with shorter waits.

It takes the arguments of ``flower-supernode``. It polls for messages at intervals that grow with the time
since the last one, where Flower polls every 3 seconds, and for tasks every 0.25 seconds, where Flower polls
every second. Flower's other processes are forks of a process that has already imported Flower
(`fda_flower.supernode.launcher`).
"""

import os
import sys
from argparse import ArgumentParser
from importlib.metadata import entry_points

from fda_flower.supernode.launcher import Stage, launching
from fda_flower.supernode.resident import launched_worker
from fda_flower.wire.internals import node_config, pull_sooner, run_supernode

LEAST, SHARE = 0.25, 0.05
"""Interval between polls: its least seconds, and its share of the time since the last message."""
PROMPT = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.25"}
"""Makes Flower poll for tasks every 0.25 seconds."""
COMMANDS = ("flower-superexec", "flwr-clientapp")
"""Commands that a SuperNode runs: one that starts a process for each message, and that process."""


def main() -> None:
    """Run the command."""
    sys.argv[0] = "flower-supernode"
    for name, value in PROMPT.items():
        os.environ.setdefault(name, value)
    pull_sooner()
    with launching(*stages(sys.argv[1:])):
        run_supernode(LEAST, SHARE)


def stages(arguments: list[str]) -> list[Stage]:
    """Return the launcher stages for a SuperNode with these arguments.

    For a node with a resident worker (`fda_flower.supernode.resident`) they include the worker's imports.
    """
    parser = ArgumentParser(add_help=False)
    parser.add_argument("--node-config")
    given = parser.parse_known_args(arguments)[0].node_config
    scripts = entry_points(group="console_scripts")
    flowers = {name: scripts[name].value for name in COMMANDS}
    stages = [Stage(flowers, "fda_flower.client_app:prepare")]
    if node_config(given).get("resident") is True:
        worker = {launched_worker(): "fda_flower.supernode.worker:launched"}
        stages.append(Stage(worker, "fda_flower.client_app:prepare_worker"))
    return stages


if __name__ == "__main__":
    main()
