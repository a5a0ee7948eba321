"""Fixtures that these tests share with others."""

from small_runs import files_of, in_process, shuffled, small  # noqa: F401
