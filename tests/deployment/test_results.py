import base64
import json
import random

import pytest

from fda_flower.deployment import results
from fda_flower.deployment.results import MARK, Receiver, Sender, sending
from fda_flower.engines import LocalGrid
from fda_flower.errors import ConfigError, RunError

RECORD = {"round": 1, "accuracy": 0.5, "held": None}


@pytest.fixture
def folder(tmp_path):
    """A run's folder with files of some pieces, of one, and an empty one."""
    (tmp_path / "config.json").write_bytes(b"")
    (tmp_path / "rounds.jsonl").write_bytes(b'{"round": 1}\n')
    (tmp_path / "checkpoint").write_bytes(random.Random(0).randbytes(1000))
    (tmp_path / "summary.json").write_bytes(b"not sent")
    return tmp_path


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(results, "PIECE", 300)


def content(folder):
    return {name: (folder / name).read_bytes() for name in results.FILES if (folder / name).exists()}


def log_of(send):
    """The lines of the log that a function of a sender makes."""
    chunks = []
    send(Sender(chunks.append))
    return "".join(chunks).splitlines(keepends=True)


def received(lines, on_record=lambda record: None):
    receiver = Receiver(on_record)
    for line in lines:
        receiver.read(line)
    return receiver


def test_records_come_out_as_they_went_in():
    seen = []
    received(log_of(lambda sender: [sender.record(RECORD), sender.record({"round": 2})]), seen.append)
    assert seen == [RECORD, {"round": 2}]


@pytest.mark.usefixtures("small_pieces")
def test_files_come_out_as_they_went_in(folder):
    lines = log_of(lambda sender: sender.files(folder))
    assert max(map(len, lines)) < 600
    assert received(lines).files == content(folder)


@pytest.mark.usefixtures("small_pieces")
def test_lines_of_others_and_half_lines_between_them_do_not_matter(folder):
    lines = log_of(lambda sender: sender.files(folder))
    mark = mark_of(lines)
    noise = ["INFO : Round 1\n", "a bar without an end", f"{mark}{{half", f"{mark}[]\n"[:-3], "\n"]
    mixed = [each for line in lines for each in ("".join(noise[:1]), *noise, "\n", line)]
    assert received("".join(mixed).splitlines(keepends=True)).files == content(folder)


@pytest.mark.usefixtures("small_pieces")
def test_a_log_that_was_cut_off_gives_no_files_until_it_is_read_again(folder):
    lines = log_of(lambda sender: sender.files(folder))
    for end in range(len(lines)):
        receiver = received(lines[:end])
        assert receiver.files is None
        for line in lines:
            receiver.read(line)
        assert receiver.files == content(folder)


@pytest.mark.usefixtures("small_pieces")
def test_a_missing_or_damaged_piece_gives_no_files(folder):
    _, *lines = [line for line in log_of(lambda sender: sender.files(folder)) if line.startswith(MARK)]
    for at, line in enumerate(lines):
        assert received(lines[:at] + lines[at + 1 :]).files is None
        value = json.loads(line.removeprefix(mark_of(lines)))
        if value.get("data"):
            value["data"] = base64.b64encode(b"other").decode()
            damaged = mark_of(lines) + json.dumps(value)
            assert received([*lines[:at], damaged, *lines[at + 1 :]]).files is None


def test_a_log_that_is_read_again_gives_each_record_once():
    seen = []
    lines = log_of(lambda sender: sender.record(RECORD))
    received(lines + lines, seen.append)
    assert seen == [RECORD]


def mark_of(lines):
    """What each line of a log begins with, as only its sender knows it."""
    (mark,) = {line[: len(MARK) + 33] for line in lines if line.startswith(MARK)}
    return mark


WRONG = [
    {"record": {"round": 1, "accuracy": 1.0}},
    {"file": "checkpoint", "piece": 0, "data": ""},
]


@pytest.mark.parametrize("wrong", WRONG)
def test_a_line_of_the_server_that_contradicts_one_before_is_an_error(folder, wrong):
    lines = log_of(lambda sender: [sender.record(RECORD), sender.files(folder)])
    with pytest.raises(RunError, match="two results for"):
        received([*lines, f"{mark_of(lines)}{json.dumps(wrong)}\n"])


OTHER = f"{MARK}{'0' * 32} "


@pytest.mark.parametrize("mark", [MARK, OTHER, f"{MARK}{'é' * 32} ", f" {OTHER}"])
@pytest.mark.parametrize(
    "forged",
    [
        *WRONG,
        {"record": {"round": 2}},
        {"error": "the site north refuses"},
        {"complete": True},
        {"sha256": {}, "kept": {"checkpoint": "/evil"}},
    ],
)
def test_a_line_without_the_secret_of_the_run_is_not_a_result(folder, mark, forged):
    seen = []
    lines = log_of(lambda sender: sender.record(RECORD))
    lines += [f"{mark}{json.dumps(forged)}\n"]
    lines += log_of(lambda sender: sender.error("of another run"))
    receiver = received(lines, seen.append)
    assert seen == [RECORD]
    assert (receiver.error, receiver.complete, receiver.kept, receiver.files) == (None, False, {}, None)


def test_the_secret_is_told_before_anything_else_and_differs_from_run_to_run():
    first, second = (log_of(lambda sender: None) for _ in range(2))
    assert mark_of(first) != mark_of(second)


@pytest.mark.parametrize(
    "text",
    [
        *("5", "null", "[]", '"record"', "{", "[" * 100_000, "1" * 5000),
        *(json.dumps({"record": value}) for value in (5, None, [], {}, {"round": "1"}, {"round": 0})),
        *(json.dumps({"record": {"round": value}}) for value in (-1, 1.5, None, [1])),
        '{"file": "rounds.jsonl"}',
        '{"file": "rounds.jsonl", "piece": "0", "data": ""}',
        '{"file": "rounds.jsonl", "piece": 0, "data": 5}',
        '{"file": "rounds.jsonl", "piece": 0, "data": "x"}',
        '{"file": "rounds.jsonl", "piece": 0, "data": "é"}',
        '{"file": "../../evil", "piece": 0, "data": ""}',
        '{"file": ["rounds.jsonl"], "piece": 0, "data": ""}',
        *('{"sha256": {}}', '{"sha256": 5, "kept": {}}', '{"sha256": {}, "kept": "x"}'),
        *('{"error": 5}', '{"complete": "no"}', '{"kept": {}}'),
    ],
)
def test_a_line_that_is_no_result_is_ignored_though_it_has_the_secret(folder, text):
    lines = log_of(lambda sender: [sender.record(RECORD), sender.files(folder)])
    receiver = received([lines[1], f"{mark_of(lines)}{text}\n", *lines])
    assert receiver.files == content(folder)
    assert (receiver.error, receiver.complete, receiver.kept) == (None, False, {})


def test_a_piece_of_an_absurd_number_takes_no_memory(folder):
    lines = log_of(lambda sender: sender.files(folder))
    piece = {"file": "rounds.jsonl", "piece": 10**300, "data": ""}
    assert received([lines[1], f"{mark_of(lines)}{json.dumps(piece)}\n", *lines]).files == content(folder)


def test_a_reason_for_the_end_of_a_run_is_shown_in_one_line():
    error = "a site refuses the run: 'north\x1b[2J\nall is well'"
    assert received(log_of(lambda sender: sender.error(error))).error == (
        r"a site refuses the run: 'north\x1b[2J\nall is well'"
    )


def test_a_file_that_is_too_large_stays_where_it_is_and_is_named(folder, monkeypatch):
    monkeypatch.setattr(results, "LIMIT", 999)
    receiver = received(log_of(lambda sender: sender.files(folder)))
    assert set(receiver.files) == {"config.json", "rounds.jsonl"}
    assert receiver.kept == {"checkpoint": str(folder / "checkpoint")}


# On the server


class Grid:
    """A grid of a run on a SuperLink, as far as it is used."""

    def __init__(self):
        self.log = []
        self.run = type("Run", (), {"run_id": 7})
        self._runtime_client = self

    def PushLogs(self, request):  # noqa: N802
        assert request.run_id == 7
        self.log += request.logs


def test_a_run_sends_its_records_and_then_its_files(folder):
    grid, seen = Grid(), []
    with sending(grid, folder) as on_round:  # type: ignore[arg-type]
        on_round(RECORD)
        assert received("".join(grid.log).splitlines(), seen.append).files is None
    assert seen == [RECORD]
    receiver = received("".join(grid.log).splitlines())
    assert receiver.files == content(folder)
    assert receiver.complete


def test_a_run_that_fails_sends_why_and_what_there_is(folder):
    grid = Grid()

    def run():
        with sending(grid, folder) as on_round:  # type: ignore[arg-type]
            on_round(RECORD)
            raise RunError("no target\nsince Monday")

    with pytest.raises(RunError):
        run()
    receiver = received("".join(grid.log).splitlines())
    assert receiver.error == r"no target\nsince Monday"
    assert receiver.files == content(folder)
    assert not receiver.complete


def test_a_run_that_was_refused_sends_no_files_of_another(folder):
    grid = Grid()
    with pytest.raises(ConfigError), sending(grid, folder):  # type: ignore[arg-type]
        raise ConfigError("the folder is of another run")
    receiver = received("".join(grid.log).splitlines())
    assert receiver.error == "the folder is of another run"
    assert receiver.files is None
    assert not receiver.complete


def test_a_simulation_is_refused(folder):
    with pytest.raises(RunError, match="choose the engine ray"), sending(LocalGrid(None, 0), folder):  # type: ignore[arg-type]
        raise AssertionError
