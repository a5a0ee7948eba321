"""The site of a node: what it asks for its privacy, and where it keeps what it has spent."""

import os
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, RecordDict

from fda_flower.errors import ConfigError
from fda_flower.extras import missing_extra
from fda_flower.privacy.ledger import FILE, Ledger
from fda_flower.privacy.mechanism import Randomness
from fda_flower.privacy.settings import PrivacySettings
from fda_flower.seeds import derive_seed


@dataclass(frozen=True)
class PrivateSite:
    """A site with its settings and what it has spent.

    Attributes
    ----------
    domain : str
        Its domain.
    settings : PrivacySettings
        What it asks for.
    ledger : Ledger
        What it has released.
    seed : int, optional
        From which a simulation's noise follows. Default: noise is the operating system's.
    """

    domain: str
    settings: PrivacySettings
    ledger: Ledger = field(default_factory=lambda: Ledger(None, RecordDict()))
    seed: int | None = None

    def randomness(self, request: str) -> Randomness:
        """Return where the noise of the reply to a request comes from."""
        if self.seed is None:
            return os.urandom
        return np.random.default_rng(derive_seed(self.seed, "privacy", self.domain, request)).bytes


def site_of_node(
    context: Context,
    domain: str | None = None,
    run: PrivacySettings | None = None,
    seed: int = 0,
    folder: Path | None = None,
) -> PrivateSite | None:
    """Return the site that a node configuration describes; None if its replies are sent as they are.

    Parameters
    ----------
    context : Context
        Flower's, with the node configuration.
    domain : str, optional
        The node's domain. Default: as the node configuration says.
    run : PrivacySettings, optional
        What the run asks for; it counts where the node configuration says nothing of privacy.
    seed : int
        The run's; noise follows from it in a simulation alone.
    folder : Path, optional
        The folder of a simulated run.

    Raises
    ------
    ConfigError
        If a site that adds noise has no ``state-dir``, or Opacus is not installed.
    """
    node = context.node_config
    settings = PrivacySettings.of_node(node) or run
    if settings is None or not settings.on:
        return None
    if settings.private and find_spec("opacus") is None:
        missing = missing_extra(ModuleNotFoundError(name="opacus"))
        raise ConfigError(f"dp-noise is {settings.dp_noise:g}, which needs {missing}")
    own = str(domain or node.get("domain", node.get("partition-id", context.node_id)))
    if run is not None and is_simulated(node):
        path = None if folder is None else folder / "clients" / own / FILE
        return PrivateSite(own, settings, Ledger(path, context.state), seed)
    if not settings.private:
        return PrivateSite(own, settings)
    if "state-dir" not in node:
        raise ConfigError(
            f"'{own}' adds noise, but has no state-dir in which to keep what it has spent: give the node "
            'configuration state-dir="..."'
        )
    path = Path(str(node["state-dir"])).expanduser() / f"{own}-{FILE}"
    return PrivateSite(own, settings, Ledger(path, context.state))


def is_simulated(node: Any) -> bool:
    """Return whether a node configuration is one of Flower's simulation, and not a site's.

    Examples
    --------
    >>> is_simulated({"partition-id": 0, "num-partitions": 3}), is_simulated({"domain": "a"})
    (True, False)
    """
    return {"partition-id", "num-partitions"} <= set(node) and not {"domain", "state-dir"} & set(node)
