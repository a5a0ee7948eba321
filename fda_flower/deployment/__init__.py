"""Real SuperLink and SuperNode processes: runs on them, what they need, and a federation on this machine."""

from fda_flower.deployment.federation import Federation
from fda_flower.deployment.submission import run_deployed

__all__ = ["Federation", "run_deployed"]
