"""Real SuperLink and SuperNode processes: runs on them, what they need, and a federation on this machine."""

from fda_flower.deployment.certificates import Certificates, make_certificates, make_key
from fda_flower.deployment.federation import Federation
from fda_flower.deployment.rehearsal import rehearse
from fda_flower.deployment.submission import run_deployed

__all__ = ["Certificates", "Federation", "make_certificates", "make_key", "rehearse", "run_deployed"]
