"""`fda deploy`: what the options become, what is printed, and the exit codes."""

import json
from typing import Any

import pytest
import tomli_w
from flwr.app import RecordDict

from fda_flower import RunConfig
from fda_flower.site.ledger import Entry, Journal, Ledger


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ("certificates --host localhost --host 127.0.0.1", ["ca.crt", "ca.key", "server.crt", "server.key"]),
        ("key target", ["target", "target.pub"]),
    ],
)
def test_what_is_made_is_named_and_never_made_anew(fda, tmp_path, arguments, names):
    command = ("deploy", *arguments.split(), "--output", "made")
    code, out, err = fda(*command)
    assert (code, err) == (0, "")
    assert out.split()[: len(names)] == [str(tmp_path / "made" / name) for name in names]
    code, _, err = fda(*command)
    assert (code, "exists already" in err) == (2, True)


def test_a_rehearsal_ends_with_its_table(fda, rehearsed):
    code, out, err = fda("deploy", "rehearse", "--output", "out")
    assert (code, err) == (0, "")
    assert "round 1/2: target accuracy 50.0%" in out
    assert "Starting ward [north]\n" in out
    lines = out.splitlines()
    (start,) = [i for i, line in enumerate(lines) if "50.0 " in line]
    cells = [cell.strip() for cell in lines[start].strip("│").split("│")]
    assert cells[:4] == ["1", "50.0", "0.25", "-"]
    # A narrow terminal breaks the last cell over two lines.
    rest = " ".join(line.strip("│").split("│")[-1].strip() for line in lines[start : start + 2])
    assert rest.startswith("source-2: its node is [offline]")
    assert out.endswith("Written to out\n")


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ("", {"sources": 2}),
        ("--sources 3 --rounds 5 --round-timeout 5", {"sources": 3, "rounds": 5, "round_timeout": 5.0}),
        ("--dataset pacs --model resnet18", {"dataset": "pacs", "model": "resnet18"}),
        ("--dataset Heart", {"dataset": "heart"}),
        ("--dataset Digits", {"sources": 2}),
        ("--method ridge", {"sources": 2, "method": "ridge"}),
    ],
)
def test_the_options_become_settings(fda, rehearsed, options, settings):
    code, out, _ = fda("deploy", "rehearse", "--output", "out", *options.split())
    assert (code, "change" in out) == (0, False), "nobody has given rounds that Ridge does not take"
    assert rehearsed == [(RunConfig(**{"rounds": 2, **settings}), "out")]


def test_a_rehearsal_of_a_runs_config_has_the_runs_sources(fda, rehearsed, tmp_path):
    file = tmp_path / "config.json"
    file.write_text('{"settings": {"dataset": "digits", "rounds": 3, "sources": null}}', encoding="utf-8")
    assert fda("deploy", "rehearse", "--output", "out", "--config", file)[0] == 0
    assert rehearsed == [(RunConfig(rounds=3), "out")]


def test_the_log_of_a_site_is_shown_in_total_with_what_was_refused(fda, tmp_path):
    line: dict[str, Any] = {"time": "2026-11-22T10:00:00.000", "run": 7, "domain": "north", "round": 1}
    line |= {"message": "train"}
    sent = line | {"records": {"arrays": {"bytes": 1200}, "metrics": {"bytes": 40}}, "bytes": 1240}
    refused = line | {"records": {}, "bytes": 0, "refused": "not [that]\nat all"}
    failed = line | {"records": {}, "bytes": 0, "failed": "OSError('the disk is full')"}
    text = "".join(json.dumps(each) + "\n" for each in (sent, sent, refused, failed))
    (tmp_path / "sent.jsonl").write_text(text)
    code, out, _ = fda("deploy", "log", tmp_path)
    assert code == 0
    assert "Sent by north in run 7" in out
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if "│" in line]
    assert rows == [["train", "arrays", "2", "2,400", "1,200"], ["train", "metrics", "2", "80", "40"]]
    assert "Refused at 2026-11-22T10:00:00.000, train of run 7: not [that]\n" in out
    assert "Failed at 2026-11-22T10:00:00.000, train of run 7: OSError('the disk is full')" in out
    code, _, err = fda("deploy", "log", tmp_path / "nowhere")
    assert (code, "has no sent.jsonl: give the state-dir of a node" in err) == (2, True)


def checked(fda, folder, *options, role="source", table="age,label", **node):
    """Check a site with a table of 40 rows."""
    lines = [f"{10 + number % 17},{number % 2}" for number in range(40)]
    (folder / "north.csv").write_text("\n".join([table, *lines]))
    node = {
        "domain": "north",
        "role": role,
        "data-dir": str(folder),
        "state-dir": str(folder / "state"),
        **node,
    }
    (folder / "node.toml").write_text(tomli_w.dumps(node))
    domains = "--dataset-option", "domains=north,south", "--dataset-option", "classes=0,1"
    return fda("deploy", "check", folder / "node.toml", *domains, "--method", "fedavg", *options)


def test_a_site_is_checked_as_its_node_reads_it_and_nothing_is_left_behind(fda, tmp_path):
    code, out, _ = checked(fda, tmp_path, "--json", **{"min-samples": 30, "allow-methods": "fedavg"})
    said = json.loads(out)
    assert (code, said["domain"]) == (0, "north")
    assert (said["answer"]["role"], said["answer"]["examples"]) == ("source", 32)
    assert said["data"]["domains"] == {
        "north": {"samples": 40, "classes": {"0": 20, "1": 20}, "missing": {}, "patients": None}
        | {"train": 32, "unlabelled": 0, "test": 8}
    }
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("site", "code", "reason"),
    [
        ({"table": "age,ill"}, 1, "needs 'label'"),
        ({"role": "target"}, 2, "has role 'target'"),
        ({"state-dir": "/proc/here"}, 2, "state-dir is '/proc/here'"),
        ({"alow-methods": "fedavg"}, 2, "did you mean 'allow-methods'?"),
        ({"min-samples": 33}, 1, "than the 33 that the site requires"),
        ({"dp-clp": 1}, 2, "'dp-clp'"),
        ({"dp-unit": "patient", "dp-group": "row", "dp-noise": 1.0}, 1, "by the mean of each column"),
    ],
)
def test_what_keeps_a_site_out_is_told_before_the_run(fda, tmp_path, site, code, reason):
    found, out, err = checked(fda, tmp_path, "--quiet", **site)
    assert (found, reason in out + err) == (code, True), out + err


@pytest.mark.parametrize(
    ("site", "options", "code"),
    [
        ({}, [], 1),
        ({"require-secure": False}, [], 0),
        ({"secure-with": "any"}, ["--method-option", "secure=true"], 0),
        ({}, ["--target", "all"], 1),
    ],
    ids=str,
)
def test_open_sums_that_would_not_leave_are_told_before_the_run(fda, tmp_path, site, options, code):
    options = ["--model", "logistic", *options, "--method", "ridge"]
    found, out, err = checked(fda, tmp_path, *options, **site)
    assert (found, "require-secure = false" in out + err) == (code, code == 1), out + err


def test_a_site_is_told_who_must_sign_and_as_whom_it_signs(fda, tmp_path):
    masked = ["--method", "ridge", "--model", "logistic", "--method-option", "secure=true"]
    code, out, err = checked(fda, tmp_path, *masked)
    assert (code, "list the sources and their keys in the node configuration's secure-with" in out + err) == (
        1,
        True,
    )
    made = {name: json.loads(fda("deploy", "key", name, "--output", tmp_path, "--json")[1]) for name in SITES}
    rules = {"secure-with": ",".join(each["signs"] for each in made.values())}
    code, out, err = checked(fda, tmp_path, *masked, **rules, **{"secure-key": str(tmp_path / "north")})
    assert (code, f"It signs its masks as {made['north']['signs']}" in out) == (0, True), out + err
    code, out, err = checked(fda, tmp_path, *masked, **rules, **{"secure-key": str(tmp_path / "west")})
    assert (code, "has another key than secure-key" in err) == (2, True), out + err


def test_a_ledger_of_a_backup_is_counted_again(fda, tmp_path):
    path = tmp_path / "north-privacy.json"
    for number in (1, 2):
        Ledger(path, RecordDict(), Journal.of(path)).spend(Entry(number, "a", 2.0, 1), 1e-5, None)
    path.unlink()
    code, out, _ = fda("deploy", "recount", tmp_path)
    assert (code, "north-privacy.json: 2 charges added" in out) == (0, True)
    code, _, err = fda("deploy", "recount", tmp_path / "nowhere")
    assert (code, "has no sent.jsonl" in err) == (2, True)


SITES = ("north", "west", "south")


@pytest.mark.parametrize(
    ("released", "code", "reason"),
    [
        ([], 0, "an ε of 0 so far"),
        ([7], 0, "an ε of 6.072 so far"),
        ([10], 1, "is 7.511 and would become 7.955, above its max-epsilon 7.9"),
        (None, 1, "is damaged"),
    ],
)
def test_a_spent_budget_is_told_before_the_run(fda, tmp_path, released, code, reason):
    state = tmp_path / "state"
    state.mkdir()
    entries = [{"round": 1, "request": "a", "noise": 2.0, "releases": number} for number in released or ()]
    text = "" if released is None else json.dumps({"released": entries})
    (state / "north-privacy.json").write_text(text)
    site = {"dp-clip": 1.0, "dp-noise": 2.0, "max-epsilon": 7.9}
    found, out, err = checked(fda, tmp_path, **site)
    assert (found, reason in out + err) == (code, True), out + err
    assert (state / "north-privacy.json").read_text() == text


@pytest.mark.parametrize(
    ("site", "also"), [({}, True), ({"dp-clip": 1.0, "dp-noise": 2.0, "max-epsilon": 7.9}, False)]
)
def test_what_left_a_site_between_its_noisy_runs_is_told(fda, tmp_path, site, also):
    ledger = tmp_path / "state" / "north-privacy.json"
    for state in (RecordDict(), RecordDict()):
        Ledger(ledger, state, Journal.of(ledger)).spend(Entry(1, "a", 2.0, 1), 1e-5, None)
    sent = {"domain": "north", "run": 1, "bytes": 9, "records": {"arrays": {}}}
    noisy = {**sent["records"], "info": {"entries": ["epsilon", "delta"]}}  # type: ignore[dict-item]
    lines = [{**sent, "message": kind} for kind in ("train", "train.blend", "evaluate", "query.role")]
    lines += [{**sent, "message": "train", "records": records} for records in ({}, noisy)]
    (ledger.parent / "sent.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    code, out, err = checked(fda, tmp_path, **site)
    assert (code, "2 updates left without noise" in out) == (0, True), out + err
    assert ("It adds no noise, although it did" in out) == also


@pytest.mark.parametrize(("name", "text"), [("node.toml", "x"), ("node.conf", ""), ("none.toml", None)])
def test_a_node_configuration_that_flower_cannot_read_is_refused(fda, tmp_path, name, text):
    if text is not None:
        (tmp_path / name).write_text(text)
    code, _, err = fda("deploy", "check", tmp_path / name)
    assert (code, name in err) == (2, True)
