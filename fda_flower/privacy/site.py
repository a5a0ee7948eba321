"""The site of a node: what it asks for its privacy, and where it keeps what it has spent."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from flwr.app import Context, RecordDict

from fda_flower.errors import ConfigError
from fda_flower.privacy.ledger import FILE, Ledger
from fda_flower.privacy.mechanism import Randomness
from fda_flower.seeds import derive_seed
from fda_flower.site.config import PrivacySettings, SiteConfig


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

    @classmethod
    def of(
        cls,
        context: Context,
        domain: str | None = None,
        run: PrivacySettings | None = None,
        seed: int | None = None,
        folder: Path | None = None,
    ) -> "PrivateSite | None":
        """Return the site that a node configuration describes; None if its replies are sent as they are.

        Parameters
        ----------
        context : Context
            Flower's, with the node configuration.
        domain : str, optional
            The node's domain, for messages. Default: as the node configuration says.
        run : PrivacySettings, optional
            What the run asks for; it counts where the node configuration says nothing of privacy.
        seed : int, optional
            A simulated run's: noise follows from it at a node that says nothing of privacy. Default: noise
            is the operating system's.
        folder : Path, optional
            The folder of a simulated run.

        Raises
        ------
        ConfigError
            If a site that adds noise has no ``state-dir``.
        """
        node = SiteConfig.of(context)
        decided = node.privacy
        settings = decided or run
        if settings is None or not settings.on:
            return None
        own = domain or node.label
        if decided is None and seed is not None:
            path = None if folder is None else folder / "clients" / own / FILE
            return cls(own, settings, Ledger(path, context.state), seed)
        if not settings.private:
            return cls(own, settings)
        if node.state_dir is None:
            raise ConfigError(
                f"'{own}' adds noise, but has no state-dir in which to keep what it has spent: give the node "
                'configuration state-dir="..."'
            )
        # By a name that the node has of its own: the run names the domain of a number, each time as it likes.
        path = node.state_dir / (FILE if node.own_name is None else f"{node.own_name}-{FILE}")
        return cls(own, settings, Ledger(path, context.state))
