"""What a site decides by its node configuration, and what it notes of each reply that leaves it."""

from fda_flower.site.gate import SiteGate, about_node
from fda_flower.site.log import SENT, SentLog, read_log, totals
from fda_flower.site.policy import RULES, Asked, Rule, read_rules

__all__ = [
    "RULES",
    "SENT",
    "Asked",
    "Rule",
    "SentLog",
    "SiteGate",
    "about_node",
    "read_log",
    "read_rules",
    "totals",
]
