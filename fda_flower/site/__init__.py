"""What a site decides by its node configuration, and what it notes of each reply that leaves it."""

from typing import TYPE_CHECKING

from fda_flower.lazy import lazy_exports
from fda_flower.site.config import PrivacySettings, SiteConfig

if TYPE_CHECKING:
    from fda_flower.site.gate import SiteGate
    from fda_flower.site.log import SENT, SentLog, read_log, totals
    from fda_flower.site.policy import Asked, Rules
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "Asked": "policy",
            "Rules": "policy",
            "SENT": "log",
            "SentLog": "log",
            "SiteGate": "gate",
            "read_log": "log",
            "totals": "log",
        },
    )

__all__ = [
    "SENT",
    "Asked",
    "PrivacySettings",
    "Rules",
    "SentLog",
    "SiteConfig",
    "SiteGate",
    "read_log",
    "totals",
]
