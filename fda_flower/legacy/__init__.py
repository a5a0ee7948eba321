"""Every method for projects on Flower's older server API, ``flwr.server.strategy``."""

from fda_flower.legacy.strategy import LegacyStrategy

__all__ = ["LegacyStrategy"]
