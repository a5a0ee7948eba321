"""Waiting for other processes, for as long as it takes: pytest ends a test that hangs."""

import time


def until(condition):
    """Wait until something is there or true, and return it."""
    while not (found := condition()):
        time.sleep(0.05)
    return found
