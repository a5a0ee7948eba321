"""Shared by all tests: quiet, offline, and fast."""

import logging
import os

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")

import flwr  # noqa: F401 - sets up its logger, which is then made quiet
import hypothesis

logging.getLogger("flwr").setLevel(logging.ERROR)
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.load_profile("repeatable")
