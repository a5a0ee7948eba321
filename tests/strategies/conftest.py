import pytest


@pytest.fixture(autouse=True)
def always_in_a_run(in_a_run):
    """Every test here makes messages."""
