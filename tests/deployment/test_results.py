"""A run's results in the run's log: what is sent, and what a reader takes of it."""

import json

import pytest

from fda_flower.deployment.results import MARK, Receiver, sending
from fda_flower.engines import LocalGrid
from fda_flower.errors import ConfigError, RunError

RECORDS = [{"round": n, "accuracy": 0.5, "chain": {"hash": str(n)}} for n in (1, 2, 3)]


def write(folder, rounds, config="{}"):
    """Write what a run's folder holds after a round."""
    (folder / "config.json").write_text(config)
    (folder / "rounds.jsonl").write_text("".join(json.dumps(each) + "\n" for each in RECORDS[:rounds]))


@pytest.fixture
def folder(tmp_path):
    """A run's folder after three rounds."""
    write(tmp_path, 3)
    (tmp_path / "checkpoint").write_bytes(b"a model")
    return tmp_path


class Grid:
    """A grid of a run on a SuperLink, as far as it is used."""

    def __init__(self):
        self.log = []
        self.run = type("Run", (), {"run_id": 7})
        self._runtime_client = self

    def PushLogs(self, request):  # noqa: N802
        assert request.run_id == 7
        self.log += request.logs

    @property
    def received(self):
        return Received("".join(self.log).splitlines())


def log_of(folder):
    """The lines of the log of a run that has written all to its folder."""
    grid = Grid()
    with sending(grid, folder):  # type: ignore[arg-type]
        pass
    return "".join(grid.log).splitlines(keepends=True)


class Received(Receiver):
    """A receiver that keeps what it is called with."""

    def __init__(self, lines):
        self.configs, self.records = [], []
        super().__init__(self.configs.append, self.records.append)
        for line in lines:
            self.read(line)

    @property
    def all(self):
        return self.configs, self.records, self.complete


def mark_of(lines):
    """What each line of a log begins with, as only its sender knows it."""
    (mark,) = {line[: len(MARK) + 33] for line in lines if line.startswith(MARK)}
    return mark


def test_lines_of_others_and_half_lines_between_them_do_not_matter(folder):
    lines = log_of(folder)
    mark = mark_of(lines)
    noise = ["INFO : Round 1\n", "a bar without an end", f"{mark}{{half", f"{mark}[]\n"[:-3], "\n"]
    mixed = [each for line in lines for each in ("".join(noise[:1]), *noise, "\n", line)]
    assert Received("".join(mixed).splitlines(keepends=True)).all == (["{}"], RECORDS, True)


def test_a_log_that_was_cut_off_is_not_complete_until_it_is_read_again(folder):
    lines = log_of(folder)
    missing = Received([line for line in lines if '"round": 2' not in line])
    assert (missing.records, missing.complete) == (RECORDS[:1], False)
    for end in range(len(lines)):
        received = Received(lines[:end])
        assert not received.complete
        for line in lines:
            received.read(line)
        assert (received.records, received.complete) == (RECORDS, True)


OTHER = f"{MARK}{'0' * 32} "


@pytest.mark.parametrize("mark", [MARK, OTHER, f"{MARK}{'é' * 32} ", f" {OTHER}"])
@pytest.mark.parametrize(
    "forged",
    [
        {"record": {"round": 1, "accuracy": 1.0}},
        {"record": {"round": 4}},
        {"config": "forged"},
        {"error": "the site north refuses"},
        {"complete": 3},
        {"folder": "/evil"},
    ],
)
def test_a_line_without_the_secret_of_the_run_is_not_a_result(folder, mark, forged):
    *lines, _ = log_of(folder)
    forged_line = f"{mark}{json.dumps(forged)}\n"
    received = Received([lines[1], forged_line, *lines[2:], forged_line, *log_of(folder)])
    assert received.all == (["{}"], RECORDS, False)
    assert (received.error, received.folder) == (None, str(folder))


def test_the_secret_is_told_before_anything_else_and_differs_from_run_to_run(folder):
    first, second = (log_of(folder) for _ in range(2))
    assert mark_of(first) != mark_of(second)


@pytest.mark.parametrize(
    "text",
    [
        *("5", "null", "[]", '"record"', "{", "[" * 100_000, "1" * 5000),
        *(json.dumps({"record": value}) for value in (5, None, [], {}, {"round": "1"}, {"round": 0})),
        *(json.dumps({"record": {"round": value}}) for value in (-1, 1.5, None, [1], 10**30, 7)),
        *('{"error": 5}', '{"complete": "no"}', '{"config": {}}', '{"folder": null}'),
    ],
)
def test_a_line_that_is_no_result_is_ignored_though_it_has_the_secret(folder, text):
    lines = log_of(folder)
    received = Received([lines[1], f"{mark_of(lines)}{text}\n", *lines])
    assert received.all == (["{}"], RECORDS, True)
    assert (received.error, received.folder) == (None, str(folder))


# On the server


def test_a_run_sends_each_record_once_as_it_is_written_and_another_configuration(tmp_path):
    grid = Grid()
    with sending(grid, tmp_path) as on_round:  # type: ignore[arg-type]
        for rounds, configs in ((1, ["old"]), (2, ["old"]), (3, ["old", "new"])):
            write(tmp_path, rounds, configs[-1])
            on_round(RECORDS[rounds - 1])
            assert grid.received.all == (configs, RECORDS[:rounds], False)
    assert grid.received.complete
    assert len(grid.log) == 1 + 2 + 1 + 2 + 1


def test_a_run_that_goes_on_sends_what_it_has_done_before_but_no_model(folder):
    lines = log_of(folder)
    received = Received(lines)
    assert (*received.all, received.folder) == (["{}"], RECORDS, True, str(folder))
    assert not any("model" in line for line in lines)


@pytest.mark.parametrize(
    ("error", "sent"),
    [(RunError("no target\nsince \x1b[2JMonday"), RECORDS), (ConfigError("another run"), [])],
)
def test_a_run_that_fails_sends_why_in_one_line_and_no_records_but_its_own(error, sent, folder):
    grid = Grid()
    with pytest.raises(type(error)), sending(grid, folder) as on_round:  # type: ignore[arg-type]
        fail(on_round if sent else list, error)
    assert grid.received.error == str(error).replace("\n", r"\n").replace("\x1b", r"\x1b")
    assert grid.received.all == (["{}"] if sent else [], sent, False)


def fail(on_round, error):
    on_round(RECORDS[2])
    raise error


def test_a_simulation_is_refused(folder):
    with pytest.raises(RunError, match="choose the engine ray"), sending(LocalGrid(None, 0), folder):  # type: ignore[arg-type]
        raise AssertionError
