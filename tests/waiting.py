"""Waiting for other processes, for as long as it takes: pytest ends a test that hangs."""

import contextlib
import time
from pathlib import Path

import psutil

from fda_flower.deployment.guard import is_alive


def until(condition):
    """Wait until something is there or true, and return it."""
    while not (found := condition()):
        time.sleep(0.05)
    return found


def running_in(folder):
    """The living processes that run in a folder or below it."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if Path(process.cwd()).is_relative_to(folder) and is_alive(process):
                found.append(process)
    return found


def children_with(text):
    """The living children of this process whose command contains a text."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):  # ended meanwhile, or waiting to be reaped
            if any(text in part for part in child.cmdline()):
                found.append(child)
    return found
