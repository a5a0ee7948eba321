"""A server that lies: whatever it sends, a private site releases what it has charged, and tells no more.

Honest messages of each method are changed at random, and sent to two sites whose data differ in one sample,
also with other options of the run. Their replies must have the same form and the same words, since these have
no noise.
"""

import copy
import json
import logging
import zlib
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from fda_flower import RunConfig, run
from fda_flower.client_app import forget, make_client_app
from fda_flower.datasets.preparation import TablePreparation
from fda_flower.engines import LocalGrid
from fda_flower.errors import ConfigError
from fda_flower.site.noise import PREFIX
from fda_flower.site.records import released_by
from fda_flower.wire import protocol
from fda_flower.wire.asked import QUESTIONS
from fda_flower.wire.internals import numbered
from fda_flower.wire.protocol import to_layers, to_record
from fda_flower.wire.releases import Release

IN_CI, IN_ALL = 600, 20_000
"""Messages, over all methods and settings of a site."""

RUN: dict[str, Any] = {"shift": "rotate", "rounds": 2, "target_samples": 20, "source_samples": 40, "seed": 0}
RUN |= {"device": "cpu", "model": "logistic", "warmup_rounds": 0}

SMALL_MIXTURE = {"method_options": {"folds": 2}}

METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "fedgp-auto": {"method_options": {"sketch_size": 16}},
    "fedda-auto": {"method_options": {"estimate_at": "start"}},
    "ditto": {},
    "apfl": {},
    "feddwa": {},
    "feddaf": {},
    "irm": {},
    "vrex": {},
    "knn-per": {"model": "mlp"},
    "ridge": {},
    "ridge-secure": {"method": "ridge", "method_options": {"secure": True}},
    "kd3a": {"model": "mlp"},
    "fada": {"model": "mlp"},
    "fedrep": {"model": "mlp"},
    "pfedfda": {},
    "mixture": SMALL_MIXTURE,
    "fedavg-ft": {},
    "ridge-all": {
        **{"method": "ridge", "target": "all", "target_samples": None},
        "method_options": {"secure": True},
    },
    "ridge-table": {"method": "ridge", "dataset": "table", "shift": None, "target_samples": None},
    "mixture-table": {"method": "mixture", "dataset": "table", "shift": None, "target_samples": None}
    | SMALL_MIXTURE,
}

OPTIONS: list[dict[str, Any]] = [
    *(
        {"batch_size": 8},
        {"learning_rate": 1e3},
        {"optimizer": "adam"},
        {"rounds": 1},
        {"class_weights": "balanced"},
    ),
    *({"target_samples": 5, "source_samples": 5}, {"seed": 7}, {"test_samples": 3}),
    *({"validation": "0.2"}, {"dp_clip": 1e9, "dp_noise": 0.01, "dp_report": "full"}),
    *({"method_options": {"secure": False}}, {"method_options": {"paths": "pooled"}}, {"train": "head"}),
]
"""Options of a run beside the honest ones; a method has those with which it can be configured."""

SITES: dict[str, dict[str, Any]] = {
    "noise": {"dp-clip": 1.0, "dp-noise": 2.0, "dp-report": "none"},
    "patients": {"dp-unit": "patient", "dp-group": "row", "dp-noise": 3.73, "dp-report": "none"},
    "rules": {"allow-batch-updates": "none", "require-secure": True, "secure-with": "any"},
}

SUMS_STAY = {Release.SUMS, Release.HEAD, Release.BATCHES, None}
"""What a site that requires masks does not send; see `fda_flower.site.records`."""

SETTINGS = [
    *(protocol.BATCH_UPDATES, protocol.GRADIENTS, protocol.OUTCOMES, protocol.CONFUSION, protocol.ADABN),
    *(protocol.BESIDE, protocol.SERVER_ROUND, protocol.LEARNING_RATE_FACTOR, protocol.SKETCH_SIZE),
    *(protocol.SKETCH_SEED, protocol.TUNE, protocol.PROXIMAL, protocol.EPOCHS, protocol.VALIDATION),
    *(protocol.OF_PATIENTS, "sums", "secure-sums"),
    *(
        f"{PREFIX}{name}"
        for name in ("clip", "noise", "delta", "max_epsilon", "rounds", "open_model", "seed")
    ),
]
VALUES: list[Any] = [False, True, 0, 1, 2, -1, 0.0, 1e-9, 3.4e38, float("nan"), "", "norms", "sketch", "full"]
VALUES += [2**63 - 1, b"", b"\xff", "\u202eé", [], [1, 2], [0.5], ["norms"], [True], [b"x"]]
NAMES = [
    "",
    "é",
    "answer",
    "answer/",
    "question",
    "question/",
    "arrays/",
    "metrics",
    "info",
    "site-log",
    "config",
]
ODD = [np.nan, np.inf, 3.4e38, -3.4e38, 1e20, 1e-45, 0.0]

Sent = tuple[str, RecordDict]
Random = np.random.Generator


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """By method, the settings of a run, and its messages by domain, types and contents; it runs once."""

    @cache
    def of(method: str) -> tuple[dict[str, Any], dict[str, list[Sent]]]:
        settings = settings_of(method, tmp_path_factory.mktemp("honest"))
        found: dict[str, list[Sent]] = {}
        names, asks = RunConfig(**settings).data.domain_names, LocalGrid.push_messages

        def push(self: LocalGrid, messages: Any) -> Any:
            messages = list(messages)
            for each in messages:
                name = names[each.metadata.dst_node_id - LocalGrid.FIRST_NODE]
                found.setdefault(name, []).append((each.metadata.message_type, copy.deepcopy(each.content)))
            return asks(self, messages)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LocalGrid, "push_messages", push)
            run(**settings, engine="local")
        return settings, found

    return of


# Changes


def layers_of(content: RecordDict, name: str = "arrays") -> dict[str, Any]:
    """The arrays of a record; none if it is of another kind, or not of arrays of numbers."""
    try:
        return dict(to_layers(content.array_records[name]))
    except (KeyError, TypeError, ValueError):
        return {}


def change_setting(content: RecordDict, rng: Random) -> None:
    if "config" not in content.config_records:
        content["config"] = ConfigRecord()
    config = content.config_records["config"]
    name, value = SETTINGS[rng.integers(len(SETTINGS))], VALUES[rng.integers(len(VALUES))]
    if rng.random() < 0.2:
        config.pop(name, None)
    else:
        config[name] = value


def change_model(content: RecordDict, rng: Random) -> None:
    """One number, one array, or all of a record of arrays: the model or a part of a question."""
    names = [name for name in content.array_records if layers_of(content, name)]
    if not names:
        return
    record = names[rng.integers(len(names))]
    layers = {name: array.copy() for name, array in layers_of(content, record).items()}
    name, odd = list(layers)[rng.integers(len(layers))], ODD[rng.integers(len(ODD))]
    with np.errstate(all="ignore"):
        for each in [name] if rng.random() < 0.7 else layers:
            array, value = layers[each].reshape(-1), odd if layers[each].dtype.kind == "f" else 1
            array[rng.integers(array.size) if array.size and rng.random() < 0.5 else slice(None)] = value
    content[record] = to_record(layers)


def bring_record(content: RecordDict, rng: Random) -> None:
    """A record that the site's own mod, another question or nobody sends."""
    zeros = {"noise": np.zeros(65), "rate": np.array(1e-9), "steps": np.array(1)}
    name = ["mean-noise", "private-steps", "answer/sums", "question/total", "aggregate", "other"][
        rng.integers(6)
    ]
    content[name] = ConfigRecord({"domains": []}) if name == "aggregate" else to_record(zeros)


def change_question(content: RecordDict, rng: Random) -> None:
    question = content.config_records.get("question", ConfigRecord())
    if not question:
        return change_setting(content, rng)
    name = list(question)[rng.integers(len(question))]
    question[name] = VALUES[rng.integers(len(VALUES))]
    if rng.random() < 0.2:
        del question[name]
    return None


def drop_array(content: RecordDict, rng: Random) -> None:
    if not (layers := layers_of(content)):
        return
    name = list(layers)[rng.integers(len(layers))]
    content["arrays"] = to_record({key: array for key, array in layers.items() if key != name})


def rename_array(content: RecordDict, rng: Random) -> None:
    """One array has another name, such as the one in which the mod finds the widths of rows."""
    if not (layers := layers_of(content)):
        return
    old, new = list(layers)[rng.integers(len(layers))], ["rows.widths", "rows.power", "0"][rng.integers(3)]
    content["arrays"] = to_record({new if key == old else key: array for key, array in layers.items()})


def change_kind(content: RecordDict, rng: Random) -> None:
    """A record of another kind, or with entries of other types, under a name of the message or an odd one."""
    names = [*content, *NAMES]
    name, entry = (
        names[rng.integers(len(names))],
        ["", "é", "stage", "total", "samples", "0"][rng.integers(6)],
    )
    odd = [np.array(["x"]), np.zeros((0, 3)), np.array(7), np.array([True]), np.array([1j])][rng.integers(5)]
    value = VALUES[rng.integers(len(VALUES))]
    number = value if type(value) in (int, float) else 1
    records: list[Any] = [ArrayRecord({entry: Array(odd)}), ConfigRecord({entry: value}), ArrayRecord()]
    content[name] = [*records, MetricRecord({entry: number})][rng.integers(4)]


CHANGES = [
    change_kind,
    rename_array,
    change_setting,
    change_setting,
    change_model,
    change_model,
    bring_record,
    change_question,
    drop_array,
]


def lies(sent: list[Sent], rng: Random) -> Iterator[Sent]:
    """Messages of a server that lies, without end; each fifth one twice."""
    sent = [each for each in sent if each[0] != protocol.ROLE_QUERY]
    while True:
        kind, content = sent[rng.integers(len(sent))]
        content = copy.deepcopy(content)
        for _ in range(rng.integers(3)):
            CHANGES[rng.integers(len(CHANGES))](content, rng)
        if rng.random() < 0.1:
            kind = [*QUESTIONS, protocol.TRAIN, protocol.EVALUATE][rng.integers(len(QUESTIONS) + 2)]
        if rng.random() < 0.05:
            content[protocol.LOGGED] = ConfigRecord({"samples": 10**6, protocol.FEWEST: 10**6})
        for _ in range(2 if rng.random() < 0.2 else 1):
            yield kind, content


# Sites


def neighbour(client: Any) -> Any:
    """The same client with one sample of its own in another's place, which moves a table's columns, too."""
    domain, x = client.domain, client.domain.train.x.copy()
    x[0] = np.flip(x[0], -1) + 0.25
    prepared = domain.preparation
    if isinstance(prepared, TablePreparation):
        prepared = replace(prepared, mean=tuple(each + 0.01 for each in prepared.mean))
    return replace(client, domain=replace(domain, train=replace(domain.train, x=x), preparation=prepared))


class Site:
    """A node with a folder of its own, and the releases that it has charged, in runs of several options."""

    def __init__(
        self, configs: list[RunConfig], name: str, own: dict[str, Any], folder: Path, changed: Any
    ) -> None:
        self.apps, self.folder = [make_client_app(each, changed=changed) for each in configs], folder
        self.node = {"domain": name, "state-dir": str(folder), **own}
        if configs[0].data_dir is not None:
            self.node["data-dir"] = configs[0].data_dir
        self.state = RecordDict()

    @property
    def charged(self) -> int:
        files = list(self.folder.glob("*privacy.json"))
        return sum(e["releases"] for path in files for e in json.loads(path.read_text())["released"])

    def __call__(self, kind: str, content: RecordDict, run: int = 0) -> Message | str:
        (message,) = numbered([Message(copy.deepcopy(content), 2, kind)])
        try:
            return self.apps[run](message, Context(1, 2, self.node, self.state, {}))
        except Exception as error:  # Flower sends it to the server
            return repr(error)


def form_of(reply: Message | str) -> Any:
    """What of a reply has no noise: its words, the names, shapes and types of arrays, settings and counts."""
    if isinstance(reply, str):
        return reply
    if reply.has_error():
        return reply.error.code, reply.error.reason
    arrays = {
        name: {key: (array.shape, array.dtype.name) for key, array in to_layers(record).items()}
        for name, record in reply.content.array_records.items()
    }
    others = {
        name: dict(record)
        for name, record in reply.content.items()
        if not isinstance(record, ArrayRecord) and name != protocol.METRICS
    }
    metrics = reply.content.metric_records.get(protocol.METRICS, {})
    counts = (protocol.NUM_EXAMPLES, protocol.NUM_STEPS, protocol.LEARNING_RATE, protocol.BATCH_SIZE)
    return arrays, others, sorted(metrics), {name: metrics.get(name) for name in counts}


def is_released(kind: str, content: RecordDict, reply: Message | str) -> bool:
    """Whether a train reply has anything that follows from data."""
    if isinstance(reply, str) or reply.has_error() or kind.partition(".")[0] != protocol.TRAIN:
        return False
    sent, found = layers_of(content), to_layers(reply.content.array_records["arrays"])
    return protocol.SUMS in reply.content or any(not np.array_equal(found[n], sent[n]) for n in sent)


def settings_of(method: str, folder: Path) -> dict[str, Any]:
    """The settings of an honest run, whose data are in a folder if they are tables."""
    settings = {**RUN, "method": method, **METHODS[method]}
    if settings.get("dataset") == "table":
        rng, names = np.random.default_rng(0), ["source-1", "source-2", "source-3", "target"]
        (folder / "data").mkdir()
        for name in names:
            rows = "".join(f"{a:.3f},{100 * b:.1f},{int(a + b > 0)}\n" for a, b in rng.normal(size=(50, 2)))
            (folder / "data" / f"{name}.csv").write_text("age,dose,label\n" + rows)
        options = {"domains": ",".join(names), "classes": "0,1"}
        settings |= {"data_dir": str(folder / "data"), "dataset_options": options}
    return settings


def other_run(settings: dict[str, Any], rng: Random) -> RunConfig:
    """A run of the same method with some other options."""
    while True:
        drawn = [OPTIONS[each] for each in rng.choice(len(OPTIONS), 2, replace=False)]
        try:
            return RunConfig(**{**settings, **drawn[0], **drawn[1]})
        except ConfigError:
            continue


@pytest.fixture
def quiet(monkeypatch):
    monkeypatch.setattr(logging.getLogger("flwr"), "disabled", True)


SHARE = len(METHODS) * len(SITES)


@pytest.mark.usefixtures("quiet", "in_a_run")
@pytest.mark.parametrize("count", [IN_CI // SHARE, pytest.param(IN_ALL // SHARE, marks=pytest.mark.slow)])
@pytest.mark.parametrize("setting", SITES)
@pytest.mark.parametrize("method", METHODS)
def test_a_site_charges_what_it_releases_and_says_nothing_else(method, setting, count, tmp_path, honest):
    rng = np.random.default_rng(zlib.crc32(f"{method} {setting}".encode()))
    settings, sent = honest(method)
    for name in ("target", "source-1"):
        configs = [RunConfig(**settings), other_run(settings, rng)]
        one, other = (
            Site(configs, name, SITES[setting], tmp_path / f"{name}-{kind}", kind)
            for kind in (None, neighbour)
        )
        messages = lies(sent[name], rng)
        for number in range(count // 2):
            kind, content = next(messages)
            run = int(2 * number >= count // 2)  # the first half as the honest run
            config, before = configs[run], one.charged
            replies = [site(kind, content, run) for site in (one, other)]
            role = "target" if name == config.data.target_name else "source"
            check_table(config.strategy.asked_of(role), kind, replies[0], setting)
            shown = f"{kind} {[*content]} {dict(content.config_records.get('config', {}))}: {replies[0]}"
            if setting == "rules":
                check_rules(content, replies[0], shown)
                continue
            assert form_of(replies[0]) == form_of(replies[1]), shown
            has_failed = (
                not isinstance(replies[0], str)
                and replies[0].has_error()
                and "has failed" in str(replies[0].error.reason)
            )
            if is_released(kind, content, replies[0]) or (
                has_failed and setting == "noise" and "train" in kind
            ):
                assert one.charged > before, shown
    forget()


def check_table(asked: Any, kind: str, reply: Message | str, setting: str) -> None:
    """Nothing leaves that nobody has asked, or that is not in the table of releases."""
    if isinstance(reply, str) or reply.has_error():
        return
    assert kind in asked, kind
    released = released_by(kind, reply.content)
    assert None not in released, released[None]
    assert protocol.LOGGED not in reply.content
    if setting == "rules":
        assert not SUMS_STAY & released.keys(), released


def check_rules(content: RecordDict, reply: Message | str, shown: str) -> None:
    """No open sums, nothing of single batches, and no more bytes than a site of these rules sends."""
    if isinstance(reply, str) or reply.has_error():
        return
    assert not {protocol.SUMS, protocol.BATCH_UPDATES, protocol.GRADIENTS} & {*reply.content}, shown
    size, model = (
        sum(len(array.data) for record in records for array in record.values())
        for records in (reply.content.array_records.values(), [content.array_records["arrays"]])
    )
    assert size <= 2.2 * model + 5000, shown


def numbers_of(reply: Message | str) -> list[float]:
    """All numbers of a reply that are no model's: a linear function of sums would double with the data."""
    if isinstance(reply, str) or reply.has_error():
        return []
    found: list[float] = []
    for name, record in reply.content.items():
        if isinstance(record, ArrayRecord):
            if name != "arrays" and not name.endswith("entries"):
                found += [float(each) for array in to_layers(record).values() for each in np.ravel(array)]
        elif name != protocol.METRICS:
            values = [value for value in record.values() if isinstance(value, float)]
            found += values
    return [each for each in found if each not in (0.0, 1.0)]


def scaled(client: Any) -> Any:
    """The same client whose samples are twice as large."""
    train = client.domain.train
    return replace(client, domain=replace(client.domain, train=replace(train, x=2 * train.x)))


def repeated(client: Any) -> Any:
    """The same client that has each sample twice, so that all sums over rows are twice as large."""
    train = client.domain.train
    twice = train.take(np.tile(np.arange(len(train)), 2))
    return replace(client, domain=replace(client.domain, train=twice))


@pytest.mark.usefixtures("quiet", "in_a_run")
@pytest.mark.parametrize(
    ("method", "secure"),
    [("ridge", True), ("ridge", False), ("ridge-secure", True), ("pfedfda", True), ("pfedfda", False)],
)
def test_no_linear_function_of_the_rows_can_be_read_where_masks_are_required(
    method, secure, tmp_path, honest
):
    """Every question, honest and with a start of the server's own making, at data and at twice the data:
    larger samples, or each sample twice.

    Where the site requires no masks, the same comparison finds one.
    """
    settings, sent = honest(method)
    config, rng, found = RunConfig(**settings), np.random.default_rng(0), False
    for name in sent:
        node = {"require-secure": True, "secure-with": "any"} if secure else {"require-secure": False}
        folders = {
            tmp_path / f"{name}-{number}": change for number, change in enumerate((None, scaled, repeated))
        }
        sites = [Site([config], name, node, folder, change) for folder, change in folders.items()]
        for kind, content in [each for each in sent[name] if each[0] != protocol.ROLE_QUERY]:
            for round in range(4):
                asked = copy.deepcopy(content)
                if round:
                    change_model(asked, rng)
                once, *doubled = (site(kind, asked) for site in sites)
                for twice in doubled:
                    pairs = zip(numbers_of(once), numbers_of(twice), strict=False)
                    found |= any(np.isclose(2 * a, b, rtol=1e-3) and abs(a) > 1e-9 for a, b in pairs)
                assert not (secure and found), kind
                has_model = not isinstance(once, str) and once.has_content() and kind.startswith("train")
                if secure and has_model:
                    both = (asked.array_records["arrays"], once.content.array_records["arrays"])
                    model, own = map(to_layers, both)
                    assert all(np.array_equal(own[key], model[key], equal_nan=True) for key in model), kind
    assert found is not secure
    forget()


@pytest.mark.usefixtures("quiet", "in_a_run")
def test_a_head_that_stays_tells_nothing_of_what_was_subtracted(tmp_path, honest):
    """Where every site is a target, whoever chooses the total would find a site's own sums by trying."""
    settings, sent = honest("ridge-all")
    config = RunConfig(**settings)
    (kind, content) = next(each for each in sent["source-1"] if each[0] == "train.fit_site_head")
    forms = []
    for secure in (True, False):
        node = {"require-secure": True, "secure-with": "any"} if secure else {"require-secure": False}
        site = Site([config], "source-1", node, tmp_path / str(secure), None)
        for factor in (1.0, 0.25, 0.0, -1.0, 1e30):
            asked = copy.deepcopy(content)
            total = to_layers(asked.array_records["question/total"])
            asked["question/total"] = to_record({key: factor * array for key, array in total.items()})
            forms.append(form_of(site(kind, asked)))
    assert forms[0][1]["answer"]["kept"]
    assert all(form == forms[0] for form in forms[:5])
    assert not any(form == forms[5] for form in forms[6:9])
    forget()
