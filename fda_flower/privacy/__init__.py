"""Differential privacy at the site: a Flower mod that clips, adds noise and keeps account."""

from typing import TYPE_CHECKING

from fda_flower.lazy import lazy_exports
from fda_flower.privacy.settings import PrivacySettings

if TYPE_CHECKING:
    from fda_flower.privacy.accountant import epsilon
    from fda_flower.privacy.ledger import Ledger
    from fda_flower.privacy.mechanism import Mechanism, PrivacyError
    from fda_flower.privacy.mod import DifferentialPrivacy
    from fda_flower.privacy.site import PrivateSite, site_of_node
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "DifferentialPrivacy": "mod",
            "Ledger": "ledger",
            "Mechanism": "mechanism",
            "PrivacyError": "mechanism",
            "PrivateSite": "site",
            "epsilon": "accountant",
            "site_of_node": "site",
        },
    )

__all__ = [
    "DifferentialPrivacy",
    "Ledger",
    "Mechanism",
    "PrivacyError",
    "PrivacySettings",
    "PrivateSite",
    "epsilon",
    "site_of_node",
]
