"""A ledger loses nothing, nor does one that is restored from a backup, or lost: its journal remembers."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from unittest.mock import Mock

import pytest
from flwr.app import RecordDict

from fda_flower.site import Ledger, PrivacyError, epsilon
from fda_flower.site import ledger as module
from fda_flower.site.ledger import LOST, BudgetError, Entry, Journal, ledgers_in

DELTA = 1e-5
FIRST, SECOND = Entry(1, "one", 2.0, 1), Entry(2, "two", 2.0, 3)
CHARGES = [Entry(number, f"request {number}", 2.0, 1) for number in range(1, 6)]


@pytest.fixture(params=["file", "context"])
def reopened(request, tmp_path):
    """A function that opens the ledger as a new process does."""
    path, state = (tmp_path / "site" / "privacy.json" if request.param == "file" else None), RecordDict()
    return lambda: Ledger(path, state)


def test_what_is_spent_survives_a_restart(reopened):
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
    with pytest.raises(BudgetError):
        reopened().spend(SECOND, DELTA, most)
    assert reopened().entries() == [FIRST]


def test_a_release_for_the_site_protects_its_patients_but_not_the_other_way_round(reopened):
    reopened().spend(FIRST, DELTA, None)
    assert reopened().epsilon(DELTA, unit="patient") == epsilon([(2.0, 1)], DELTA)
    patients = replace(SECOND, unit="patient")
    assert reopened().spend(patients, DELTA, None) == epsilon([(2.0, 4)], DELTA)
    assert reopened().entries() == [FIRST, patients]
    for use in (lambda: reopened().epsilon(DELTA), lambda: reopened().spend(FIRST, DELTA, None)):
        with pytest.raises(PrivacyError, match="no finite ε"):
            use()
    assert reopened().epsilon(DELTA, unit="patient") == epsilon([(2.0, 4)], DELTA)


def holding(**changed):
    entry = {"round": 1, "request": "one", "noise": 2.0, "releases": 1, **changed}
    return json.dumps({"released": [entry]})


@pytest.mark.parametrize(
    "text",
    [
        *("", "{}", '{"released": [{"round": 1}]}', '{"released": 3}'),
        *(holding(releases=value) for value in (-4, 0.5, True)),
        *(holding(noise=value) for value in (-2.0, 0, float("nan"), "2", float("inf"))),
        holding(round=None),
        holding(unit="row"),
    ],
)
def test_a_damaged_file_refuses_and_is_left_as_it_is(text, tmp_path):
    path = tmp_path / "privacy.json"
    path.write_text(text)
    ledger = Ledger(path, RecordDict())
    for use in (ledger.entries, lambda: ledger.epsilon(DELTA), lambda: ledger.spend(FIRST, DELTA, None)):
        with pytest.raises(PrivacyError, match=r"privacy\.json"):
            use()
    assert path.read_text() == text


def test_a_file_that_cannot_be_written_refuses(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "write_atomically", Mock(side_effect=OSError("the disk is full")))
    with pytest.raises(PrivacyError, match="the disk is full"):
        Ledger(tmp_path / "privacy.json", RecordDict()).spend(FIRST, DELTA, None)


def test_two_at_once_lose_nothing(tmp_path):
    path = tmp_path / "privacy.json"

    def spend(number):
        Ledger(path, RecordDict()).spend(Entry(number, str(number), 1.0, 1), DELTA, None)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(spend, range(12)))
    assert sorted(entry.round for entry in Ledger(path, RecordDict()).entries()) == list(range(12))


# The journal


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "north-privacy.json"


def opened(path):
    """The ledger as a new process has it."""
    return Ledger(path, RecordDict(), Journal.of(path))


def spend(path, *entries):
    for entry in entries:
        opened(path).spend(entry, DELTA, None)


def recount(path):
    """What the command does; the number of charges added."""
    ((found, journal),) = ledgers_in(path.parent)
    assert found == path
    return Ledger(found, RecordDict()).recount(journal)


def journal_of(path):
    return path.with_name("north-spent.jsonl")


def test_the_two_agree_over_restarts_and_what_is_settled(path):
    spend(path, *CHARGES[:3])
    opened(path).settle(CHARGES[1], None, DELTA, None)
    opened(path).settle(CHARGES[2], Entry(3, "request 3", 2.0, 4), DELTA, None)
    spend(path, CHARGES[3])
    assert [entry.round for entry in opened(path).entries()] == [1, 3, 4]
    lines = [json.loads(line) for line in journal_of(path).read_text().splitlines()]
    assert [(line["number"], line["charged"]["round"]) for line in lines] == [(n, n) for n in range(1, 5)]
    assert {each.stat().st_mode & 0o777 for each in (path, journal_of(path))} == {0o600}


@pytest.mark.parametrize("later", [1, 2, 4])
def test_a_ledger_from_a_backup_refuses_until_all_of_the_journal_counts(later, path, tmp_path):
    spend(path, CHARGES[0])
    opened(path).settle(CHARGES[0], Entry(1, "request 1", 2.0, 3), DELTA, None)
    shutil.copy(path, tmp_path / "backup")
    spend(path, *CHARGES[1 : 1 + later])
    spent = opened(path).epsilon(DELTA)
    shutil.copy(tmp_path / "backup", path)
    for use in (opened(path).entries, lambda: opened(path).epsilon(DELTA), lambda: spend(path, CHARGES[4])):
        with pytest.raises(PrivacyError, match=r"has 1 charges, but .* has \d: .* deploy recount"):
            use()
    assert recount(path) == later
    assert opened(path).epsilon(DELTA) == spent
    assert recount(path) == 0


def test_what_had_released_nothing_counts_after_a_recount(path, tmp_path):
    spend(path, CHARGES[0])
    shutil.copy(path, tmp_path / "backup")
    spend(path, CHARGES[1])
    opened(path).settle(CHARGES[1], None, DELTA, None)
    shutil.copy(tmp_path / "backup", path)
    recount(path)
    assert opened(path).entries() == CHARGES[:2]


@pytest.mark.parametrize("lost", ["ledger", "journal", "damaged"])
def test_one_that_is_lost_or_damaged_follows_from_the_other(lost, path):
    spend(path, *CHARGES)
    spent = opened(path).epsilon(DELTA)
    if lost == "damaged":
        path.write_text("{")
    else:
        (path if lost == "ledger" else journal_of(path)).unlink()
    with pytest.raises(PrivacyError, match="deploy recount"):
        opened(path).epsilon(DELTA)
    assert recount(path) == (0 if lost == "journal" else len(CHARGES))
    assert opened(path).epsilon(DELTA) == spent
    spend(path, Entry(6, "request 6", 2.0, 1))
    assert opened(path).epsilon(DELTA) == epsilon([(2.0, 6)], DELTA)


def write_log(path, message="train", entries=("domain", "epsilon")):
    line = {"domain": "north", "message": message, "records": {"info": {"entries": list(entries)}}}
    path.parent.mkdir(exist_ok=True)
    (path.parent / "sent.jsonl").write_text(json.dumps(line) + "\n")


def test_if_both_are_lost_the_log_tells_and_more_than_any_budget_is_spent(path):
    write_log(path, "train.sum_rows")
    with pytest.raises(PrivacyError, match="shows replies with noise"):
        opened(path).epsilon(DELTA)
    assert recount(path) == 1
    assert opened(path).entries() == [LOST]
    assert opened(path).epsilon(DELTA) > 1e5


@pytest.mark.parametrize("about", [("evaluate",), ("train", ("domain",)), ("query.role",)])
def test_a_site_that_has_sent_no_noise_begins_with_nothing_spent(about, path):
    write_log(path, *about)
    assert opened(path).epsilon(DELTA) == 0
    assert recount(path) == 0, "nothing was there that could be lost"
    assert opened(path).epsilon(DELTA) == 0


def test_a_journal_that_has_lost_lines_has_spent_more_than_any_budget(path):
    spend(path, *CHARGES)
    lines = journal_of(path).read_text().splitlines(keepends=True)
    journal_of(path).write_text("".join(lines[:2] + lines[3:]))
    path.unlink()
    assert recount(path) == 5
    assert opened(path).entries()[-1] == LOST


@pytest.mark.parametrize("at", range(len(CHARGES) - 1))
@pytest.mark.parametrize("torn", [True, False])
def test_a_crash_between_the_two_locks_nobody_out_and_forgets_nothing(at, torn, path, monkeypatch):
    spend(path, *CHARGES[:at])
    with monkeypatch.context() as patch:
        patch.setattr(module, "append_line", Mock(side_effect=OSError("power failure")))
        with pytest.raises(PrivacyError, match="power failure"):
            spend(path, CHARGES[at])
    if torn:
        with journal_of(path).open("a") as file:
            file.write('{"number": 9, "char')
    assert opened(path).entries() == CHARGES[: at + 1], "spent, though nothing has left"
    spend(path, *CHARGES[at + 1 :])
    assert opened(path).entries() == CHARGES
    assert [Entry(**charge) for charge in Journal.of(path).charges()] == CHARGES
    path.unlink()
    recount(path)
    assert opened(path).entries() == CHARGES


def test_a_crash_before_the_ledger_is_written_changes_nothing(path, monkeypatch):
    spend(path, CHARGES[0])
    with monkeypatch.context() as patch:
        patch.setattr("fda_flower.site.ledger.write_atomically", Mock(side_effect=OSError("power failure")))
        with pytest.raises(PrivacyError, match="power failure"):
            spend(path, CHARGES[1])
    assert opened(path).entries() == CHARGES[:1]
    spend(path, CHARGES[1])
    assert opened(path).entries() == CHARGES[:2]


def test_a_ledger_of_before_the_journal_goes_on(path):
    path.parent.mkdir()
    for entry in CHARGES[:3]:
        Ledger(path, RecordDict()).spend(entry, DELTA, None)
    assert "charges" not in json.loads(path.read_text())
    spend(path, CHARGES[3])
    assert [Entry(**charge) for charge in Journal.of(path).charges()] == CHARGES[:4]
    path.write_text(json.dumps({"released": []}))
    with pytest.raises(PrivacyError, match="has 0 charges"):
        opened(path).entries()
