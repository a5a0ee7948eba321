"""The fuzz: whatever one client sends, nobody else's run ends, freezes, grows or is forged by it."""

import json
import logging
import re
import traceback
import tracemalloc
import zlib
from collections import Counter
from contextlib import contextmanager
from functools import partial
from itertools import count, pairwise, product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, MetricRecord, RecordDict
from hostile import (
    BUNDLES,
    DELTAS,
    ENVELOPES,
    FORGED,
    HOSTILE,
    MODEL,
    MUTATORS,
    ROLES,
    HostileGrid,
    arrays,
    bundle_changed,
    federation,
    initial,
    npy,
    one,
)
from sites import write_sites, write_table

from fda_flower import RunConfig
from fda_flower.client_app import make_client_app
from fda_flower.engines import PollingGrid
from fda_flower.errors import FdaError
from fda_flower.runs.methods import METHODS
from fda_flower.server_app import run_server
from fda_flower.strategies import RunFolder
from fda_flower.strategies.evaluations import MOST_CLASSES
from fda_flower.wire.bundles import bundled

ROUNDS = 2
IN_CI, IN_ALL = 2000, 50_000
"""Hostile replies, over all cases."""

LONGEST_REASON, LONGEST_RECORD = 1100, 100_000
"""Characters of a reason with the words around what the node sent, and bytes of a round's record."""

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in METHODS},
    "fedgp-auto": ("fedgp-auto", {"batch_update_encoding": "full"}),
    "fedgp-start": ("fedgp-auto", {"estimate_at": "start"}),
    "fedda-on-target": ("fedda-auto", {"aggregate_on": "target"}),
    "source-only-median": ("source-only", {"source_mean": "median"}),
    "mixture-trimmed": ("mixture", {"source_mean": "trimmed:0.2", "every": 1}),
    "ditto-outcomes": ("ditto", {"outcomes": True, "max_update_norm": 100.0}),
    "fedavg-average": ("fedavg", {"average": "ema:0.5", "buffers": "target"}),
}
"""The methods, and options with which they read replies in another way."""


@pytest.fixture
def log(monkeypatch):
    """The lines of Flower's log, which nobody else sees."""
    logger, lines = logging.getLogger("flwr"), []
    monkeypatch.setattr(logger, "callHandlers", lambda record: lines.append(record.getMessage()))
    monkeypatch.setattr(logger, "level", logging.INFO)
    return lines


def build(case, **options):
    method, own = CASES[case]
    common = {"warmup_rounds": 0, "max_held_rounds": ROUNDS + 1, "wait_seconds": 0.01}
    return METHODS[method].build(**{**common, **own, **options})


def random(*words):
    """A generator that a case, a mutator, a role and a seed decide."""
    return np.random.default_rng(zlib.crc32(repr(words).encode()))


def fuzz(log, case, name, role, seed):
    """Run with a node that changes all its replies; return what became of them."""
    grid = HostileGrid(
        federation(), HOSTILE[role], partial(MUTATORS[name], rng=random(case, name, role, seed))
    )
    history = run(log, case, grid, role)
    return Counter(
        runs=1,
        replies=grid.replies,
        dropped=sum(len(record["dropped"]) for record in history),
        unevaluated=sum("evaluation-failed" in record for record in history),
        held=sum(record["held"] is not None for record in history),
    )


def run(log, case, grid, role, **options):
    """Run, check that all that must hold does, and return the history."""
    strategy, models = build(case, **options), [MODEL]
    strategy.progress.on_round = lambda record: models.append(strategy.model)
    log.clear()
    strategy.start(grid, initial(), ROUNDS)
    assert len(strategy.history) == ROUNDS
    for (before, after), record in zip(pairwise(models), strategy.history, strict=True):
        check_record(record)
        check_model(before, after, record)
        if role == "source":
            check_others(strategy, record)
    for layers in strategy.state_dict().values():
        assert all(np.isfinite(array).all() for array in layers.values())
    for line in log:
        assert_plain(line)
    return strategy.history


def check_record(record):
    """It is JSON of a bounded size, and says why where a reply or a round is of no use."""
    found = [value for name, value in record.items() if name.startswith("confusion")]
    assert record["round"] == ROUNDS or not found, "it is asked for in the last round alone"
    assert all(len(confusion["counts"]) <= MOST_CLASSES for confusion in found)
    rest = {name: value for name, value in record.items() if not name.startswith("confusion")}
    rest["target"] = {**(record["target"] or {}), "confusion": None}
    text = json.dumps(rest, allow_nan=False)
    assert len(text) <= LONGEST_RECORD
    entries = [entry or {} for entry in (record["target"], *record["sources"].values())]
    reasons = [each["reason"] for each in [*record["dropped"], *record["missing"]]]
    reasons += [value for name, value in record.items() if name.startswith("evaluation-failed")]
    reasons += filter(None, [record["held"], *(entry.get("fallback") for entry in entries)])
    for reason in reasons:
        assert reason
        assert len(reason) <= LONGEST_REASON
    for text in texts(record):
        assert_plain(text)


def texts(value):
    """All texts in a JSON value, names included."""
    if isinstance(value, dict):
        yield from value
    nested = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for each in nested:
        yield from texts(each)
    if isinstance(value, str):
        yield value


def assert_plain(text):
    """No control characters, nor others that end a line or turn it round."""
    found = re.search("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e]", text)
    assert found is None, f"{found.group()!r} in {text[:300]!r}"


def check_model(before, after, record):
    """It is finite, and moves unless the record says why not."""
    assert all(np.isfinite(array).all() for array in after.values())
    moved = any(not np.array_equal(array, before[name]) for name, array in after.items())
    assert moved == (record["held"] is None)


def check_others(strategy, record):
    """Nothing happens to them, whatever a source sends."""
    assert record["held"] is None
    assert "evaluation-failed" not in record
    assert {each["domain"] for each in record["dropped"]} <= {"h"}
    assert {"a", "b", "c"} <= set(record["sources"]) or "source" not in strategy.trains
    assert record["target"] or not ("target" in strategy.trains or strategy.asks_again)


def runs_of(case):
    """All that a case may be sent, for ever: each mutator once, then again with other seeds."""
    roles, first = list(HOSTILE), list(CASES).index(case)
    for seed in count():
        for i, name in enumerate(MUTATORS):
            yield name, roles[(first + i + seed) % 2], seed


@pytest.mark.slow
@pytest.mark.parametrize("replies", [pytest.param(IN_CI, marks=pytest.mark.smoke), IN_ALL])
@pytest.mark.parametrize("case", CASES)
def test_one_client_may_reply_anything(case, replies, log, record_property):
    found, failures = Counter(), []
    for i, (name, role, seed) in enumerate(runs_of(case)):
        if i >= len(MUTATORS) and found["replies"] >= replies / len(CASES):
            break
        try:
            found += fuzz(log, case, name, role, seed)
        except Exception:
            failures.append(
                f"fuzz(log, {case!r}, {name!r}, {role!r}, {seed})\n{traceback.format_exc(limit=-3)}"
            )
            found["replies"] += ROUNDS
    record_property("fuzz", dict(found))
    print(case, dict(found))
    assert not failures, f"{len(failures)} of {i} runs fail:\n" + "\n".join(failures[:9])


@pytest.mark.parametrize("value", [1.7e308, -1.7e308, 5e-324])
@pytest.mark.parametrize("case", CASES)
def test_several_clients_may_send_the_same_number_out_of_any_range(case, value, log):
    """Each alone may be finite where their sum is not."""
    told = [
        "own",
        "train-loss",
        "loss",
        "rmse",
        "validation-loss",
        "teacher",
        "weight.a",
        "fold.1",
        "gain-low",
    ]
    grid = HostileGrid(
        federation(), "bht", lambda content: content["metrics"].update(dict.fromkeys(told, value))
    )
    history = run(log, case, grid, "target")
    for record in history:
        assert isinstance(build(case).conclusion(record), list)


@pytest.mark.parametrize("case", CASES)
def test_all_clients_may_reply_anything(case, log):
    for seed in range(2):
        rng = random(case, "all", seed)
        grid = HostileGrid(
            federation(), DELTAS, lambda content, rng=rng: MUTATORS[one(rng, MUTATORS)](content, rng)
        )
        with reproducible(case, "all", seed):
            run(log, case, grid, "target")


@pytest.mark.parametrize("case", ["fedda-auto", "feddwa", "kd3a", "groupdro", "mixture", "ditto"])
def test_a_late_node_may_tell_anything_of_itself(case, log, tmp_path):
    for seed, name in product(range(2), ROLES):
        change = partial(ROLES[name], rng=random(case, name, seed))
        grid = HostileGrid(federation(), "h", change, kinds=["query.role"], late=True)
        folder = RunFolder(tmp_path / f"{name}-{seed}")
        with reproducible(case, name, seed):
            history = run(log, case, grid, "source", output=folder)
            assert RunFolder(folder.path).read_rounds() == history
    assert {path.name for path in tmp_path.iterdir()} == {f"{n}-{s}" for s, n in product(range(2), ROLES)}


@pytest.mark.parametrize("case", ["fedda-auto", "feddwa", "kd3a", "groupdro", "mixture", "ditto"])
@pytest.mark.parametrize("role", HOSTILE)
def test_a_first_node_that_tells_anything_of_itself_at_most_ends_the_run_in_words(case, role, log, tmp_path):
    for seed, name in product(range(2), ROLES):
        change = partial(ROLES[name], rng=random(case, name, role, seed))
        grid = HostileGrid(federation(), HOSTILE[role], change, kinds=["query.role"])
        with reproducible(case, name, role, seed):
            error = None
            try:
                run(log, case, grid, "target", output=RunFolder(tmp_path / f"{name}-{seed}"))
            except FdaError as found:
                error = found
            assert len(str(error)) <= 2 * LONGEST_REASON
            for text in [str(error), *log]:
                assert_plain(text)


@pytest.mark.parametrize("name", ENVELOPES)
def test_a_node_may_send_its_reply_as_anybodys(name, log):
    for case, seed in product(CASES, range(1)):
        envelope = partial(ENVELOPES[name], rng=random(case, name, seed))
        grid = HostileGrid(federation(), "h", lambda content: None, kinds=(), envelope=envelope)
        with reproducible(case, name, seed):
            run(log, case, grid, "source")


@pytest.mark.parametrize("name", BUNDLES)
@pytest.mark.parametrize("role", HOSTILE)
def test_the_bundle_of_a_reply_may_be_anything(name, role, log):
    for case, seed in product(["fedavg", "fedgp-auto", "ditto"], range(3)):
        change = partial(BUNDLES[name], rng=random(case, name, role, seed))
        grid = HostileGrid(federation([bundled]), HOSTILE[role], bundle_changed(change))
        with reproducible(case, name, role, seed):
            run(log, case, PollingGrid(grid), role)


@contextmanager
def reproducible(*words):
    """Add to an error what repeats it."""
    try:
        yield
    except Exception as error:
        error.add_note(f"with {words}")
        raise


QUARTER = 1 << 18
"""Bytes, of a megabyte."""
LARGE = {
    "names of arrays": lambda: {
        "arrays": arrays({f"{FORGED}{'x' * 100_000}{i}": np.zeros(1) for i in range(20)})
    },
    "info": lambda: {"info": arrays({"role": np.zeros(QUARTER // 4)})},
    "a role": lambda: {"info": ConfigRecord({"role": "x" * 2 * QUARTER})},
    "metrics": lambda: {"metrics": MetricRecord({f"m{i}": 0.5 for i in range(5000)})},
    "a list of numbers": lambda: {"metrics": MetricRecord({"num-examples": [0.5] * 50_000})},
    "uncovered": lambda: {
        "info": ConfigRecord({"epsilon": 1.0, "delta": 0.1, "uncovered": ["x" * 99] * 20_000})
    },
    "a confusion": lambda: {"confusion": arrays({"counts": np.zeros((400, 400), np.int64)})},
    "outcomes": lambda: {"outcomes": arrays({"right": np.zeros(QUARTER, np.uint8), "examples": 8 * QUARTER})},
    "a header": lambda: {
        "arrays": with_data(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (250000000,)}"))
    },
    "text in an error": lambda: Error(2, "x" * 2 * QUARTER),
    "lengths of a bundle": lambda: pairs(5000),
}


def with_data(data):
    return ArrayRecord({name: Array("float32", (2,), "numpy.ndarray", data) for name in MODEL})


def pairs(count):
    """A bundle whose description goes through its bytes, back, and through them again."""
    data = np.zeros(QUARTER // 4, np.uint8)
    lengths = [[f"{i}", "uint8", [1], "numpy.ndarray", (-1) ** i * data.size] for i in range(count)]
    bundle = {"bundle": Array("uint8", (data.size,), "bundle", data.tobytes())}
    told = ConfigRecord({"bundle-content": json.dumps([["arrays", lengths]])})
    return RecordDict({"bundle-content": told, "bundle": ArrayRecord(bundle)})


@pytest.mark.slow
@pytest.mark.smoke
@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("role", HOSTILE)
def test_the_memory_is_that_of_what_was_sent(name, role, log):
    def change(content):
        large = LARGE[name]()
        if not isinstance(large, dict):
            return large
        for key, record in large.items():
            content.pop(key, None)
            content[key] = record
        return None

    grid = HostileGrid(federation(), HOSTILE[role], change)
    build("fedavg").start(
        PollingGrid(HostileGrid(federation(), "h", lambda content: None)), initial(), ROUNDS
    )
    tracemalloc.start()
    try:
        run(log, "fedavg", PollingGrid(grid), role)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= 16 * QUARTER + 30 * grid.bytes / grid.replies, f"{peak:,} for {grid.bytes:,} bytes"


TABLE: dict[str, Any] = {"dataset": "table", "dataset_options": {"domains": "a,b,c,d,t"}, "target": "t"}

SUMS: dict[str, dict[str, Any]] = {
    "secure": {"method_options": {"secure": True}, "source_samples": 40},
    "every site": {"target": "all"},
    "a table": TABLE,
    "every table": {**TABLE, "target": "all"},
}
"""Ridge, whose sites send sums, columns, shares and masks: real sites, one of which is hostile."""


@pytest.mark.slow
@pytest.mark.parametrize("half", [pytest.param(0, marks=pytest.mark.smoke), 1])
@pytest.mark.parametrize("case", SUMS)
def test_sums_columns_shares_and_masks_may_be_anything(case, half, log, tmp_path):
    """One half of all lies is another one for the next case: in CI each is tried in two of them."""
    write_sites(write_table, tmp_path, "abcdt")
    settings: dict[str, Any] = {"shift": "rotate", "sources": 4, "target_samples": 20, "test_samples": 40}
    settings = {"data_dir": str(tmp_path), "target_samples": 20} if "dataset" in SUMS[case] else settings
    config = RunConfig(method="ridge", model="logistic", device="cpu", **settings, **SUMS[case])
    app, found = make_client_app(config, simulated=True), Counter[str]()
    lies = [("columns-that-lie", seed) for seed in range(1, 20 if "dataset" in SUMS[case] else 1)]
    lies += [(name, 0) for name in MUTATORS]
    for name, seed in lies[([*SUMS].index(case) + half) % 2 :: 2]:
        rng, log[:] = random("sums", case, name, seed), []
        grid = HostileGrid(SimpleNamespace(app=app, nodes=DELTAS), ["a"], partial(MUTATORS[name], rng=rng))
        with reproducible("sums", case, name, seed):
            end = None
            try:
                _, history = run_server(grid, config)
            except FdaError as error:
                history, end = [], error
            found["to the end" if end is None else "ended in words"] += 1
            found["held"] += any(record["held"] for record in history)
            assert len(str(end)) <= 2 * LONGEST_REASON
            for text in [str(end), *texts(history), *log]:
                assert_plain(text)
            if name == "columns-that-lie":
                assert end is None
                assert not any(record["held"] for record in history)
        found["replies"] += grid.replies
    print(case, dict(found))
    assert found["replies"]
