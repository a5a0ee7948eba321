"""``fda-supernode``: Flower's SuperNode with shorter waits, and with the site's gate.

It takes the arguments of ``flower-supernode``. It polls for messages at intervals that grow with the time
since the last one, where Flower polls every 3 seconds, and for tasks every 0.25 seconds, where Flower polls
every second. Flower's other processes are forks of a process that has already imported Flower
(`fda_flower.supernode.launcher`). All messages pass through the site's `Gate`; without it, or with a part of
the node configuration that nobody reads, the command does not start.
"""

import os
import sys
from argparse import ArgumentParser
from importlib.metadata import entry_points
from typing import Any

from fda_flower.errors import FdaError, invalid, print_anything
from fda_flower.site.node import Site
from fda_flower.site.secure_with import SECURE_KEY
from fda_flower.supernode.gate import Gate
from fda_flower.supernode.launcher import Stage, launching
from fda_flower.supernode.node_text import OPTION, read_node_config
from fda_flower.supernode.resident import launched_worker
from fda_flower.wire import private
from fda_flower.wire.border import run_supernode
from fda_flower.wire.internals import pull_sooner

LEAST, SHARE = 0.25, 0.05
"""Interval between polls: its least seconds, and its share of the time since the last message."""
PROMPT = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.25"}
"""Makes Flower poll for tasks every 0.25 seconds."""
COMMANDS = ("flower-superexec", "flwr-clientapp")
"""Commands that a SuperNode runs: one that starts a process for each message, and that process."""


def main() -> None:
    """Run the command."""
    print_anything()
    sys.argv[0] = "flower-supernode"
    for name, value in PROMPT.items():
        os.environ.setdefault(name, value)
    pull_sooner()
    try:
        private.check([private.GATE])
        gate = Gate(configured(sys.argv[1:]))
        private.check(further_parts(gate.site))
    except FdaError as error:
        sys.exit(f"fda-supernode: {error}")
    with launching(*stages(gate.site)):
        run_supernode(LEAST, SHARE, gate)


def configured(arguments: list[str]) -> dict[str, Any]:
    """Return the node configuration in a SuperNode's arguments, with its own key as ``secure-key``.

    Raises a `ConfigError` if a part is lost.
    """
    parser = ArgumentParser(add_help=False)
    parser.add_argument(OPTION, dest="texts", action="append", default=[])
    parser.add_argument("--auth-supernode-private-key")
    found, _ = parser.parse_known_args(arguments)
    if len(found.texts) > 1:
        raise invalid(OPTION, found.texts[0], "give it once", "and Flower reads only the last one")
    key = found.auth_supernode_private_key
    node = read_node_config(found.texts[0]) if found.texts else {}
    return node if key is None else {SECURE_KEY: key, **node}


def further_parts(site: Site) -> list[str]:
    """Return the parts of Flower's private API that a site needs and others do not."""
    parts = {private.RESIDENT: site.resident, private.MASKS: site.rules.secure_with is not None}
    return [part for part, needed in parts.items() if needed]


def stages(site: Site) -> list[Stage]:
    """Return the launcher stages for the SuperNode of a site.

    For a node with a resident worker (`fda_flower.supernode.resident`) they include the worker's imports.
    """
    scripts = entry_points(group="console_scripts")
    flowers = {name: scripts[name].value for name in COMMANDS if name in scripts.names}
    stages = [Stage(flowers, "fda_flower.client_app:prepare")]
    if site.resident:
        worker = {launched_worker(): "fda_flower.supernode.worker:launched"}
        stages.append(Stage(worker, "fda_flower.client_app:prepare_worker"))
    return stages


if __name__ == "__main__":
    main()
