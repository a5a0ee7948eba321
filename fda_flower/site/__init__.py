"""Control at a site: rules for runs, noise on replies, and a log of everything that leaves."""

from typing import TYPE_CHECKING

from fda_flower.names.packages import lazy_exports
from fda_flower.site.config import PrivacySettings

if TYPE_CHECKING:
    from fda_flower.site.accountant import epsilon, epsilon_of_steps, noise_multiplier, noise_of_steps
    from fda_flower.site.asked import Asked
    from fda_flower.site.gate import SiteGate
    from fda_flower.site.ledger import Ledger, PrivacyError
    from fda_flower.site.log import SENT, SentLog, read_log, totals
    from fda_flower.site.node import Site
    from fda_flower.site.noise import Mechanism
    from fda_flower.site.privacy import DifferentialPrivacy, PrivateSite
    from fda_flower.site.rules import Rules
else:
    __getattr__, __dir__ = lazy_exports(__name__)

# fmt: off
__all__ = [
    "SENT", "Asked", "DifferentialPrivacy", "Ledger", "Mechanism", "PrivacyError", "PrivacySettings",
    "PrivateSite", "Rules", "SentLog", "Site", "SiteGate", "epsilon", "epsilon_of_steps",
    "noise_multiplier", "noise_of_steps", "read_log", "totals",
]
# fmt: on
