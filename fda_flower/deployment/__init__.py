"""Runs on SuperLinks and SuperNodes: submission, certificates, and a federation on this machine."""

from typing import TYPE_CHECKING

from fda_flower.names.packages import lazy_exports

if TYPE_CHECKING:
    from fda_flower.deployment.certificates import Certificates, make_certificates, make_key
    from fda_flower.deployment.federation import Federation
    from fda_flower.deployment.node_check import ask_node, choices_at, gaps_of_noise, read_node, spent_budget
    from fda_flower.deployment.rehearsal import rehearse
    from fda_flower.deployment.submission import app_hash, run_deployed
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = [
    "Certificates",
    "Federation",
    "app_hash",
    "ask_node",
    "choices_at",
    "gaps_of_noise",
    "make_certificates",
    "make_key",
    "read_node",
    "rehearse",
    "run_deployed",
    "spent_budget",
]
