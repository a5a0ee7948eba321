"""Fixtures that these tests share with others."""

from small_runs import in_process, shuffled, small  # noqa: F401
