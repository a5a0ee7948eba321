import pytest

from fda_flower.engines import task_identity


@pytest.fixture(autouse=True)
def in_a_run():
    """Flower lets messages be made inside a run only."""
    with task_identity():
        yield
