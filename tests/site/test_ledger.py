"""What a site has spent survives restarts, other processes and a run that is done again."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from flwr.app import RecordDict

from fda_flower.site import Ledger, PrivacyError, epsilon
from fda_flower.site import noise as module
from fda_flower.site.noise import BudgetError, Entry

DELTA = 1e-5
FIRST, SECOND = Entry(1, "one", 2.0, 1), Entry(2, "two", 2.0, 3)


@pytest.fixture(params=["file", "context"])
def reopened(request, tmp_path):
    """A function that opens the ledger as a new process does."""
    path, state = (tmp_path / "site" / "privacy.json" if request.param == "file" else None), RecordDict()
    return lambda: Ledger(path, state)


def test_it_survives_a_restart(reopened):
    assert reopened().epsilon(DELTA) == 0.0
    assert reopened().spend(FIRST, DELTA, None) == epsilon([(2.0, 1)], DELTA)
    assert reopened().spend(SECOND, DELTA, None) == epsilon([(2.0, 4)], DELTA)
    assert reopened().entries() == [FIRST, SECOND]
    assert reopened().epsilon(DELTA) == epsilon([(2.0, 4)], DELTA)


def test_fresh_noise_for_the_same_request_is_spent_again_and_seeded_noise_is_not(reopened):
    reopened().spend(FIRST, DELTA, None)
    assert reopened().epsilon(DELTA, FIRST, again=True) == epsilon([(2.0, 1)], DELTA)
    assert reopened().spend(FIRST, DELTA, None, again=True) == epsilon([(2.0, 1)], DELTA)
    assert reopened().spend(FIRST, DELTA, None) == epsilon([(2.0, 2)], DELTA)


def test_nothing_is_spent_beyond_the_budget(reopened):
    most = epsilon([(2.0, 2)], DELTA)
    reopened().spend(FIRST, DELTA, most)
    with pytest.raises(BudgetError, match=r"its ε would be .* with the reply, above its max-epsilon"):
        reopened().spend(SECOND, DELTA, most)
    assert reopened().entries() == [FIRST]


def holding(**changed):
    entry = {"round": 1, "request": "one", "noise": 2.0, "releases": 1, **changed}
    return json.dumps({"released": [entry]})


@pytest.mark.parametrize(
    "text",
    [
        *("", "{}", '{"released": [{"round": 1}]}', '{"released": 3}'),
        *(holding(releases=-4), holding(releases=0.5), holding(releases=True)),
        *(holding(noise=-2.0), holding(noise=0), holding(noise=float("nan")), holding(noise="2")),
        *(holding(noise=float("inf")), holding(round=None)),
    ],
)
def test_a_damaged_file_refuses_and_is_left_as_it_is(text, tmp_path):
    path = tmp_path / "privacy.json"
    path.write_text(text)
    for use in (
        lambda ledger: ledger.entries(),
        lambda ledger: ledger.epsilon(DELTA),
        lambda ledger: ledger.spend(FIRST, DELTA, None),
    ):
        with pytest.raises(PrivacyError, match=r"privacy.json', which is damaged .* restore the file"):
            use(Ledger(path, RecordDict()))
    assert path.read_text() == text


def test_a_file_that_cannot_be_written_refuses(tmp_path, monkeypatch):
    def full(path, data, mode):
        raise OSError("the disk is full")

    monkeypatch.setattr(module, "write_atomically", full)
    with pytest.raises(PrivacyError, match=r"cannot be written .*the disk is full.*repair the state-dir"):
        Ledger(tmp_path / "privacy.json", RecordDict()).spend(FIRST, DELTA, None)


def test_two_at_once_lose_nothing(tmp_path):
    path = tmp_path / "privacy.json"

    def spend(number):
        Ledger(path, RecordDict()).spend(Entry(number, str(number), 1.0, 1), DELTA, None)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(spend, range(12)))
    assert sorted(entry["round"] for entry in json.loads(path.read_text())["released"]) == list(range(12))
