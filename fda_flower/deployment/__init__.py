"""Real SuperLink and SuperNode processes: what they need, and a federation of them on this machine."""

from fda_flower.deployment.federation import Federation

__all__ = ["Federation"]
