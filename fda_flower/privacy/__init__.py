"""Differential privacy at the site: a Flower mod that clips, adds noise and keeps account."""

from typing import TYPE_CHECKING

from fda_flower.lazy import lazy_exports
from fda_flower.site.config import PrivacySettings

if TYPE_CHECKING:
    from fda_flower.privacy.accountant import epsilon
    from fda_flower.privacy.ledger import Ledger
    from fda_flower.privacy.mechanism import Mechanism, PrivacyError
    from fda_flower.privacy.mod import DifferentialPrivacy
    from fda_flower.privacy.site import PrivateSite
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
]
