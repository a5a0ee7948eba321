import handmade
import pytest


@pytest.fixture(autouse=True)
def always_in_a_run(in_a_run):
    """Every test here makes messages."""


@pytest.fixture
def bare_replies(monkeypatch):
    """Nothing is added to the replies of a test's clients."""
    monkeypatch.setattr(handmade, "add_answer", lambda *_: None)
