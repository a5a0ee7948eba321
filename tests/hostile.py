"""Replies that no honest client sends, and a federation in which one node sends them.

Each of `MUTATORS` makes a good reply a bad one. It gets the records of the reply and a random generator, and
changes the records, or returns what the node sends in their place.
"""

import io
import json
import pickle
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from handmade import HandMade, reply_of

from fda_flower.aggregation import CountSketch
from fda_flower.clients import aggregate_on_target
from fda_flower.engines import LocalGrid
from fda_flower.wire.bundles import Form, split
from fda_flower.wire.internals import message_from_parts, message_to_parts

# The federation

MODEL: dict[str, np.ndarray] = {
    "w": np.array([[1.0, 2.0, -1.0], [0.5, 0.0, 3.0]], np.float32),
    "bias": np.array([0.25, -0.5], np.float32),
    "bn.running_var": np.array([1.0, 4.0], np.float32),
    "bn.num_batches_tracked": np.array(3),
}
DELTAS = {"a": 0.5, "b": 0.25, "c": -0.125, "h": 0.375, "t": 0.25}
"""By how much each client moves every parameter: three honest sources, the one that may lie, the target."""

HOSTILE = {"source": "h", "target": "t"}
EXAMPLES, STEPS, RATE, BATCH_SIZE, TESTED = 12, 3, 0.1, 4, 8
NOISE = np.array([[1.0, -1.0] * 4, [-1.0, 1.0] * 4, [0.0] * 8]) / 50
GRADIENTS = np.array([[0.5, 1.0] * 4, [0.25, 1.5] * 4])


def arrays(values) -> ArrayRecord:
    return ArrayRecord({name: Array(np.asarray(value)) for name, value in values.items()})


def initial() -> ArrayRecord:
    return arrays(MODEL)


def _trained(model, domain):
    return {
        name: array + 2 if array.dtype.kind == "i" else (array + DELTAS[domain]).astype(array.dtype)
        for name, array in model.items()
    }


def _batch_updates(domain):
    rows = DELTAS[domain] / STEPS + NOISE
    return {"norms": (rows**2).sum(axis=1), "full": rows.astype(np.float32)}


def _gradients(config):
    mean = GRADIENTS.mean(axis=0)
    sketch = CountSketch(config["sketch-size"], config["sketch-seed"])
    return {
        "norm": mean @ mean,
        "variance": ((GRADIENTS - mean) ** 2).sum() / 2,
        "batches": 2,
        "sketch-size": config["sketch-size"],
        "sketch-seed": config["sketch-seed"],
        "sketch": sketch({"w": mean}),
    }


def _client(domain, role):
    def answer(model, message):
        config = message.content["config"]
        content = reply_of(
            _trained(model, domain), EXAMPLES, STEPS, RATE, role, domain, **{"batch-size": BATCH_SIZE}
        )
        if "batch-updates" in config:
            content["batch-updates"] = arrays(_batch_updates(domain))
        if "gradients" in config:
            content["gradients"] = arrays(_gradients(config))
        return content

    return role, domain, answer


def federation(mods=()) -> HandMade:
    """Four sources and a target, all honest."""
    nodes = [_client(domain, "target" if domain == "t" else "source") for domain in DELTAS]
    told = {"examples": EXAMPLES, "test-examples": TESTED, "classes": 2, "head": ["bias"]}
    return HandMade(nodes, info=dict.fromkeys(DELTAS, told), mods=[*mods, aggregate_on_target])


def details() -> RecordDict:
    """What an evaluation may have beside its metrics."""
    outcomes = {"right": np.packbits(np.ones(TESTED, np.uint8)), "examples": TESTED}
    return RecordDict({"outcomes": arrays(outcomes), "confusion": arrays({"counts": [[3, 1], [0, 4]]})})


class HostileGrid(LocalGrid):
    """A grid in which the replies of the nodes of some domains are changed; these travel as bytes.

    `change` does it, as one of `MUTATORS` with its generator, where a message is of one of the `kinds`, and
    `envelope`, one of `ENVELOPES`, with all that arrive. A `late` node connects after the first round only.
    """

    def __init__(self, app, domains, change, kinds=("train", "evaluate"), late=False, envelope=None):
        super().__init__(app.app, len(app.nodes))
        self.hostile = {self.FIRST_NODE + list(DELTAS).index(domain) for domain in domains}
        self.change, self.kinds, self.late, self.envelope = change, kinds, late, envelope
        self.replies = self.bytes = self.evaluations = 0

    def get_node_ids(self):
        absent = self.hostile if self.late and not self.evaluations else set()
        return [node for node in super().get_node_ids() if node not in absent]

    def pull_messages(self, message_ids):
        replies = list(super().pull_messages(message_ids))
        return replies if self.envelope is None else self.envelope(replies, self.hostile)

    def answer(self, message):
        reply, kind = super().answer(message), message.metadata.message_type
        kind = kind if kind in self.kinds else kind.partition(".")[0]  # a question's messages, too
        is_hostile = message.metadata.dst_node_id in self.hostile
        if kind == "evaluate":
            self.evaluations += 1
            form, content = Form.of(reply.content), split(reply.content)
            _metrics(content)["num-examples"] = TESTED
            if is_hostile:
                content.update(details())
            reply.content = form.write(content)
        if not is_hostile or kind not in self.kinds:
            return reply
        self.replies += 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy's, of the numbers that are made here
            instead = self.change(reply.content)
        identity, parts = message_to_parts(reply if instead is None else Message(instead, reply_to=message))
        self.bytes += sum(map(len, parts))
        return message_from_parts(identity, parts)


# What is changed

Random = np.random.Generator
Instead = Error | RecordDict | None
MUTATORS: dict[str, Callable[..., Instead]] = {}

FORGED = 'x\nFDA-RESULT {"round": 99}\r\x1b[2J\x1b[31mcomplete\x07\x00\x9b\u2028\u202e'
NUMBERS = [0, -1, 0.5, -0.0, 1e-300, 5e-324, 1e30, 1e300, 1.7e308, -1.7e308, 2**53 + 1, 2**63 - 1, -(2**63)]
NUMBERS += [float("nan"), float("inf"), float("-inf")]


def mutator(change, table=MUTATORS):
    """Register a change by its name in words."""
    table[change.__name__.replace("_", "-")] = change
    return change


def words(text: str) -> list[Any]:
    """The words of a text, to which others can be added."""
    return text.split()


def one(rng: Random, values) -> Any:
    """One of the values, of its own type."""
    found = list(values)
    return found[int(rng.integers(len(found)))]


def some(rng: Random, values) -> list[Any]:
    """One of the values, or all."""
    return list(values) if rng.integers(2) else [one(rng, values)]


def _metrics(content) -> Any:
    return content.setdefault("metrics", MetricRecord())


def _info(content) -> Any:
    return content.setdefault("info", ConfigRecord({"role": "source"}))


def _record(content, rng) -> Any:
    """A record of arrays, the model more often than others."""
    names = [name for name, record in content.items() if isinstance(record, ArrayRecord) and len(record)]
    return content["arrays" if "arrays" in names and rng.integers(2) else one(rng, names)]


def _put(content, name, record):
    """Put a record in the place of another; Flower logs a line where a record is replaced."""
    content.pop(name, None)
    content[name] = record


# Arrays that are damaged, or not what they say they are


def _with_data(array, data):
    return Array(array.dtype, tuple(array.shape), array.stype, bytes(data))


def _declared(array, **other):
    declared = {"dtype": array.dtype, "shape": tuple(array.shape), "stype": array.stype, **other}
    return Array(**declared, data=array.data)


def _values(array, default=0):
    try:
        return array.numpy()
    except ValueError:
        return np.full(2, default)


def saved(save, *values, **named) -> bytes:
    """The bytes of a file that NumPy writes."""
    buffer = io.BytesIO()
    save(buffer, *values, **named)
    return buffer.getvalue()


def npy(header: str, data: bytes = b"") -> bytes:
    """A file in NumPy's format with a header of our own."""
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


class Trap:
    """Ends the process if somebody unpickles it."""

    def __reduce__(self):
        return (exec, ("import os; os._exit(66)",))


PICKLES = [
    pickle.dumps(Trap()),
    saved(np.save, np.array([Trap(), None], dtype=object), allow_pickle=True),
    saved(np.savez, w=np.array([Trap()], dtype=object)),
]
STARTS = [b"", b"\x93NUMPY", b"\x93NUMPY\x01\x00", b"PK\x03\x04", b"\x80\x04"]
TYPES = words("float64 float16 >f4 int64 uint8 bool complex64 S4 U3 M8[s] V0 V3")
TYPES += [[("a", "f4"), ("b", "i8")]]
SHAPES = [(), (0,), (1,), (3, 2), (1, 2, 3), (2, 0), (1,) * 32, (8,), (700, 3)]
CLAIMED = {
    "dtype": ["float64", "int8", "object", "O", "", FORGED, "f" * 9000, "(9,9)f8", "V0"],
    "shape": [(), (-1,), (2**62, 2**62), (10**9,), (0,), (1,) * 999],
    "stype": ["", "pickle", FORGED, "bundle", "numpy.ndarray "],
}
HUGE = ["(10000000000,)", "(1000000000000000000,)", "(-5,)", "(4294967296, 4294967296)", "(True,)"]
DESCRIBED = ["'<f4'", "'|V0'", "'|S100000000'", "'O'", "[('a', '<f4')] * 9", "'<f4'" + " " * 60000]
VALUES = [np.nan, np.inf, -np.inf, 1e-45, -1e-45, 3.4e38, -3.4e38, 1e38, 1e25, 1e19, -0.0]


def _bits_flipped(array, rng):
    data = bytearray(array.data)
    for _ in range(int(rng.integers(1, 9))):
        data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
    return _with_data(array, data)


def _archive(array, rng):
    save, name = one(rng, [np.savez, np.savez_compressed]), one(rng, ["w", "arr_0", FORGED[:1]])
    return _with_data(array, saved(save, **{name: _values(array)}))


def _huge_header(array, rng):
    described = f"{{'descr': {one(rng, DESCRIBED)}, 'fortran_order': False, 'shape': {one(rng, HUGE)}}}"
    return _with_data(array, npy(described, rng.bytes(24)))


def _nested_header(array, rng):
    depth = int(rng.integers(50, 8000))
    return _with_data(array, npy("{'descr': " + "(" * depth + ")" * depth + "}"))


def _other_values(array, rng):
    found = np.array(_values(array))
    if found.dtype.kind in "iu":
        limits = np.iinfo(found.dtype)
        return Array(np.full_like(found, one(rng, [limits.min, limits.max])))
    found[rng.random(found.shape) < one(rng, [0.2, 1.0])] = one(rng, VALUES)
    return Array(found)


ARRAYS: dict[str, Callable[..., Array]] = {
    "bits-flipped": _bits_flipped,
    "bytes-cut": lambda array, rng: _with_data(array, array.data[: int(rng.integers(len(array.data)))]),
    "bytes-added": lambda array, rng: _with_data(array, array.data + rng.bytes(int(rng.integers(1, 500)))),
    "random-bytes": lambda array, rng: _with_data(
        array, one(rng, STARTS) + rng.bytes(int(rng.integers(300)))
    ),
    "archives": _archive,
    "pickles": lambda array, rng: _with_data(array, one(rng, PICKLES)),
    "other-type-than-declared": lambda array, rng: _declared(array, dtype=one(rng, CLAIMED["dtype"])),
    "other-shape-than-declared": lambda array, rng: _declared(array, shape=one(rng, CLAIMED["shape"])),
    "other-format-than-declared": lambda array, rng: _declared(array, stype=one(rng, CLAIMED["stype"])),
    "other-types": lambda array, rng: Array(np.zeros(tuple(array.shape), np.dtype(one(rng, TYPES)))),
    "other-shapes": lambda array, rng: Array(np.ones(one(rng, SHAPES), array.dtype)),
    "huge-headers": _huge_header,
    "nested-headers": _nested_header,
    "values": _other_values,
}
"""What becomes of an array."""


def _replace(content, rng, make):
    """Replace one array, or all, of a record."""
    record = _record(content, rng)
    for name in list(record) if rng.integers(4) == 0 else [one(rng, record)]:
        record[name] = make(record[name], rng)


MUTATORS |= {name: partial(_replace, make=make) for name, make in ARRAYS.items()}


@mutator
def arrays_missing(content, rng):
    record = _record(content, rng)
    for name in [name for name in record if rng.integers(2)] or list(record):
        del record[name]


@mutator
def arrays_more(content, rng):
    record = _record(content, rng)
    for i in range(one(rng, [1, 100])):
        record[f"{one(rng, ['extra', 'w.', 'é', ''])}{i}"] = Array(np.zeros(1, np.float32))


@mutator
def arrays_renamed(content, rng):
    record = _record(content, rng)
    old = one(rng, record)
    new = one(rng, ["", "W", f"{old} ", "../../w", "/etc/passwd", "__class__", "w" * 100_000])
    record[new] = record.pop(old)


@mutator
def arrays_with_forged_names(content, rng):
    record = _record(content, rng)
    for old in some(rng, record):
        record[f"{old}{FORGED}"] = record.pop(old) if rng.integers(2) else record[old]


# Records


@mutator
def records_of_another_kind(content, rng):
    name = one(rng, [*content, "info", "arrays", "metrics"])
    instead = [
        arrays({"role": np.zeros(50_000), FORGED: np.zeros(1)}),
        ConfigRecord({"role": ["source"] * 3, "w": rng.bytes(2000), FORGED: FORGED}),
        MetricRecord({"role": 1, "w": [0.5] * 300, FORGED: 2.0}),
    ]
    _put(content, name, one(rng, instead))


@mutator
def records_missing(content, rng):
    for name in some(rng, content):
        del content[name]


@mutator
def records_more(content, rng):
    names = [FORGED, "outcomes", "confusion", "config", "bundle", "bundle-content", ""]
    for i in range(one(rng, [1, 100])):
        more = [ArrayRecord(), MetricRecord({"x": 1}), ConfigRecord({"bundle-content": "[[1"})]
        _put(content, one(rng, [f"more{i}", *names]), one(rng, more))


# Numbers and texts

COUNTS = ["num-examples", "num-steps", "learning-rate", "batch-size", "train-loss"]
METHODS_OWN = words("alpha sim theta distance fresh-start lambda eval-accuracy")
FIGURES = words("""accuracy loss eval-accuracy eval-num-examples validation-accuracy auroc r2 rmse
    num-examples test-units test-effective sets-effective""")
NAMES = words("""members weight.a folds fold.0 fold.x cost weight. . held target sources round accuracy-global
    privacy __class__""")
"""Names that a strategy reads in another way: Mixture's members and folds, fields of a record."""
NAMES += [f"temperature.{FORGED}", FORGED, "", "x" * 5000]
TOLD = ["refused", "problem", "head", "aggregated-on", "validation-examples", "class-names", FORGED]
LISTS = [[], [1.0, 2.0], [3], [float("nan")] * 5, [0] * 5000]

ENTRIES: dict[str, tuple[Callable[[RecordDict], Any], list[str], list[Any]]] = {
    "counts-that-lie": (_metrics, COUNTS, NUMBERS),
    "numbers-of-methods": (_metrics, METHODS_OWN, [*NUMBERS, 7.5]),
    "impossible-figures": (_metrics, FIGURES, [*NUMBERS, 7.5, -3, TESTED, 10**15]),
    "names-of-metrics": (_metrics, NAMES, [*NUMBERS, [1.0, 2.0], 1]),
    "metrics-that-are-lists": (_metrics, [*COUNTS, *METHODS_OWN], LISTS),
    "entries-of-info": (_info, TOLD, [FORGED, "x" * 50_000, [FORGED] * 3, 1, -1.0, b"\xff", True, []]),
    "another-role": (
        _info,
        ["role"],
        ["target", "source", "", FORGED, "x" * 100_000, 5, 0.5, True, b"target", ["target"]],
    ),
    "another-domain": (_info, ["domain"], ["a", "t", FORGED, "../../x"]),
}
"""Entries of a record, one or all of which get values out of their range."""


def _fill(content, rng, record, names, values):
    for name in some(rng, names):
        record(content)[name] = one(rng, values)


def _filling(table):
    return {
        key: partial(_fill, record=record, names=names, values=values)
        for key, (record, names, values) in table.items()
    }


MUTATORS |= _filling(ENTRIES)


@mutator
def answers_that_lie(content, rng):
    """The answer to a method's question, or one that nobody asked for."""
    answer = content.setdefault("answer", ConfigRecord())
    for name in some(rng, [*answer, FORGED, "began_in"]):
        answer[name] = one(rng, [*NUMBERS, 7.5, True, "x" * 5000, b"\xff", *LISTS])
    if rng.integers(4) == 0:
        _put(content, f"answer/{one(rng, ['contribution', 'models/a', '', FORGED])}", arrays({"w": [np.nan]}))


@mutator
def columns_that_lie(content, rng):
    """Means and deviations of a table's columns, which the rows of all sources then have."""
    columns = content.setdefault("answer/columns", ArrayRecord())
    for name in some(rng, ["means", "deviations"]):
        values = np.array(_values(columns[name])) if name in columns else np.ones(2)
        values[rng.random(values.shape) < one(rng, [0.3, 1.0])] = one(rng, [*COLUMNS, *VALUES])
        columns[name] = Array(values)


COLUMNS = [0.0, -1.0, 1e-300, 1e-150, 1e-9, 30.0, 1e6, -1e9, 1e39, 1e150, 1e300, -1e300]


@mutator
def rates_that_lie(content, rng):
    """No weight may trust the rate that comes with an update."""
    lie = {
        "num-steps": one(rng, [1, 3, 10**6, 2**53]),
        "learning-rate": one(rng, [1e4, 1e-12, 1e200]),
        "batch-size": one(rng, [1, 10**9]),
        "num-examples": one(rng, [1, 10**9, 2**53]),
    }
    for name in some(rng, lie):
        _metrics(content)[name] = lie[name]


@mutator
def metrics_by_the_thousand(content, rng):
    for i in range(300):
        _metrics(content)[f"{one(rng, ['m', 'weight.', 'fold.', 'validation-', 'contribution-'])}{i}"] = 1.5


@mutator
def outcomes_that_lie(content, rng):
    right = [np.ones(shape, np.uint8) for shape in (1, 9000, 0, (2, 2))]
    examples = one(rng, [np.nan, np.inf, -np.inf, -8, 8, 8.5, 2**62, 1e300, [8, 8], "8", True, 8 + 1j])
    _put(content, "outcomes", arrays({"right": one(rng, right), "examples": examples}))
    _metrics(content)["eval-accuracy"] = 0.5


@mutator
def confusions_that_lie(content, rng):
    counts = [[[-1, 2], [3, -(2**62)]], np.full((2, 2), 2**63 - 1), np.full((2, 2), 2**64 - 1, np.uint64)]
    counts += [np.zeros(shape, np.int64) for shape in ((0, 0), (300, 300), (2, 3), (2, 2, 2), ())]
    counts += [np.full((2, 2), np.nan), np.ones((2, 2), bool)]
    _put(content, "confusion", arrays({"counts": one(rng, counts)}))
    _metrics(content)["eval-accuracy"] = 0.5


@mutator
def privacy_that_lies(content, rng):
    uncovered = [[FORGED], ["x" * 200_000], [f"n{i}" for i in range(20_000)], [1, 2], "text", [b"\x00"]]
    _info(content)["epsilon"] = one(
        rng, [-5.0, 1e308, float("nan"), float("inf"), 0.0, "much", [1.0], 3, True]
    )
    _info(content)["delta"] = one(rng, [1e308, -1.0, float("nan"), 2.0, b"", 1e-5])
    _info(content)["uncovered"] = one(rng, uncovered)


@mutator
def steps_that_lie(content, rng):
    """Batch updates and gradients of other numbers, sizes and signs."""
    bad = one(rng, [0.0, -1.0, 1e-300, 1e300, np.inf, np.nan])
    rows = one(rng, [np.full((3, 8), bad), *(np.zeros(each) for each in ((3, 0), (0, 8), (5000, 8), 8))])
    told = {"norms": np.full(one(rng, [0, 1, 3, 5000]), bad), "full": rows.astype(np.float32)}
    content["batch-updates"] = arrays(told | {"sketch": rows, "sketch-size": bad, "sketch-seed": 2**62})
    told = {"norm": bad, "variance": one(rng, [bad, -1.0, [1.0, 2.0]])}
    told |= {"batches": one(rng, [0, -1, 1, 2**62, bad]), "full": rows, "sketch": rows}
    content["gradients"] = arrays({**told, "sketch-size": -1, "sketch-seed": bad})


BUDGET = "the privacy budget is spent"
REASONS = ["", FORGED, "x" * 50_000, "\n\r\n\t ", "é\ufeff" * 9000, "a site refuses the run", BUDGET]
REASONS += [f"Traceback\n  {BUDGET}{FORGED}", f"RunError: {BUDGET} " + "x" * 50_000]


@mutator
def errors(content, rng):
    return Error(one(rng, [0, 1, 2, 3, 5, 6, 99, -1, 2**31]), one(rng, REASONS))


@mutator
def nothing(content, rng):
    return RecordDict()


@mutator
def a_bundle(content, rng):
    """Records that a grid may take for joined ones."""
    joined = json.dumps([["arrays", [["w", "f", [1], "s", -5]]]])
    about = one(rng, ["[]", "{}", "[[1]]", "null", "[" * 5000, joined])
    content["bundle-content"] = ConfigRecord({"bundle-content": about})
    content["bundle"] = arrays({"bundle": np.zeros(9, np.uint8)})


# What a node tells of itself

DOMAINS = words("../../etc/x a t a/b client q sources first weights average/1 .")
DOMAINS += [FORGED, "north\nFDA-RESULT complete", "", " ", "x" * 100_000, "é\u202e", "\x1b[2J"]
DOMAINS += [5, b"a", ["a"], 0.5, True]
VALUES_TOLD = [0, -1, 2**62, 0.5, float("nan"), FORGED, [FORGED] * 2, [], ["x" * 50_000], [3, 4], b"", True]
PROPERTIES = words("""examples unlabelled test-examples validation-examples groups regression head class-names
    classes features shape""")


def more_records(content, rng):
    content["more"] = arrays({FORGED: np.zeros(300_000)})
    a_bundle(content, rng)


def problems(content, rng):
    _info(content)["problem"] = one(rng, [FORGED, "x" * 100_000, "", [FORGED], 5, BUDGET])
    if rng.integers(2):
        _info(content)["refused"] = one(rng, [True, FORGED, False, 1, [True]])


ROLES: dict[str, Callable[..., Instead]] = {
    **_filling(
        {
            "domains": (_info, ["domain"], DOMAINS),
            "roles": ENTRIES["another-role"],
            "properties": (_info, [*PROPERTIES, FORGED], VALUES_TOLD),
        }
    ),
    "problems": problems,
    "records-of-another-kind": records_of_another_kind,
    "more-records": more_records,
    "only-an-error": errors,
    "no-answer": nothing,
}
"""Changes of the answer to the role query."""


# Which reply is whose

ENVELOPES: dict[str, Callable[..., list[Message]]] = {}


envelope = partial(mutator, table=ENVELOPES)


def _with_metadata(reply, **fields):
    identity, parts = message_to_parts(reply)
    other = message_from_parts(identity, parts)
    other.metadata.__dict__.update({f"_{name}": value for name, value in fields.items()})
    return other


def _replies(replies, hostile, own=True):
    """The replies of the hostile nodes, or of the others."""
    return [reply for reply in replies if (reply.metadata.src_node_id in hostile) == own]


@envelope
def twice(replies, hostile, rng):
    return [*replies, *2 * _replies(replies, hostile)]


@envelope
def to_a_message_that_was_never_sent(replies, hostile, rng):
    lost = [_with_metadata(each, reply_to_message_id=FORGED) for each in _replies(replies, hostile)]
    return [*lost, *_replies(replies, hostile, own=False)]


@envelope
def to_the_message_of_another_node(replies, hostile, rng):
    """Flower takes a node's word for the message that it replies to."""
    others = _replies(replies, hostile, own=False)
    if not others:
        return replies
    theirs = one(rng, others).metadata.reply_to_message_id
    moved = [_with_metadata(each, reply_to_message_id=theirs) for each in _replies(replies, hostile)]
    return [*moved, *others] if rng.integers(2) else [*others, *moved]


@envelope
def of_another_type(replies, hostile, rng):
    kind = one(rng, ["query.role", "evaluate", "system", FORGED])
    own = [_with_metadata(each, message_type=kind) for each in _replies(replies, hostile)]
    return [*_replies(replies, hostile, own=False), *own]


# Bundles

BUNDLES: dict[str, Callable[..., Any]] = {
    "negative-lengths": lambda about, rng: _with_lengths(about, lambda n: one(rng, [-n, -1, -(2**62)])),
    "pairs-of-lengths": lambda about, rng: _with_pairs(about, one(rng, [1, 400])),
    "absurd-lengths": lambda about, rng: _with_lengths(about, lambda n: one(rng, [2**62, 10**30, 0])),
    "lengths-that-are-none": lambda about, rng: _with_lengths(
        about, lambda n: one(rng, [0.5, "1", None, [], True])
    ),
    "records-twice": lambda about, rng: about * 3,
    "records-unknown": lambda about, rng: [[one(rng, ["nobody", FORGED, 5, None]), None], *about],
    "fields-missing": lambda about, rng: [[name, [[1]]] for name, _ in about],
    "kinds": lambda about, rng: [
        [name, one(rng, [None, "config", "metrics", "arrays", [], 5])] for name, _ in about
    ],
    "no-list": lambda about, rng: one(rng, [{}, None, 5, "text", [[]], [1], {"arrays": []}]),
}
"""What becomes of the description of a bundle, which names each array and its bytes."""


def _with_lengths(about, change):
    """The first length of each record is another one."""
    return [
        [name, [[*arrays[0][:-1], change(arrays[0][-1])], *arrays[1:]] if has_arrays(arrays) else arrays]
        for name, arrays in about
    ]


def has_arrays(arrays):
    return isinstance(arrays, list) and arrays != []


def _with_pairs(about, count):
    """Arrays of the whole and back again, so that the lengths still sum to the bytes that were sent."""
    total = sum(each[-1] for _, arrays in about if has_arrays(arrays) for each in arrays)
    pairs = [
        [f"{i}{sign}", "uint8", [1], "numpy.ndarray", sign * total] for i in range(count) for sign in (1, -1)
    ]
    return [[name, [*arrays, *pairs] if has_arrays(arrays) else arrays] for name, arrays in about]


def bundle_changed(change) -> Callable[[RecordDict], None]:
    """Return what changes the description of a reply's bundle, if it has one."""

    def changed(content):
        told = content.get("bundle-content")
        if told is not None:
            told["bundle-content"] = json.dumps(change(json.loads(told["bundle-content"])))

    return changed
