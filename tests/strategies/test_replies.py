"""Each kind of bad reply is refused with its reason."""

import io

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from handmade import reply_of

from fda_flower.clients.local_training import LocalTraining
from fda_flower.strategies.replies import BadReplyError, read_metrics, read_update
from fda_flower.strategies.roster import Node
from fda_flower.wire.protocol import TrainRequest

MODEL = {"w": np.zeros((2, 2), np.float32), "n": np.array(1)}
GOOD = {"w": np.ones((2, 2), np.float32), "n": np.array(2)}


def read_reply(reply, role="source", model=MODEL, buffers=("n",), info=None, config=None, schedule=None):
    node, request = Node(5, "a", role == "target", info or {}), TrainRequest(ArrayRecord(), config or {})
    update, _ = read_update(reply, node, request, model, buffers, None, schedule)
    return update


def read(content, role="source", **known):
    return read_reply(Message(content, reply_to=Message(RecordDict(), 5, "train")), role, **known)


def test_a_good_reply_is_split_into_update_and_buffers():
    update = read(reply_of(GOOD, examples=12, steps=3, rate=0.1))
    np.testing.assert_array_equal(update.parameters["w"], np.ones((2, 2)))
    assert update.buffers["n"] == 2
    assert (update.examples, update.steps, update.learning_rate) == (12, 3, 0.1)
    assert update.scale == pytest.approx(0.3)


def test_a_plain_flower_reply_is_enough():
    content = RecordDict(
        {
            "arrays": ArrayRecord({name: Array(array) for name, array in GOOD.items()}),
            "metrics": MetricRecord({"num-examples": 4}),
        }
    )
    update = read(content)
    assert (update.examples, update.steps, update.learning_rate) == (4, 0, 0)
    assert update.scale == 0


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ({"w": GOOD["w"]}, "lack 'n'"),
        ({**GOOD, "x": np.zeros(1)}, "hold 'x'"),
        ({**GOOD, "w": np.ones(4, np.float32)}, r"'w' has shape \[4\], expected \[2, 2\]"),
        ({**GOOD, "w": np.ones((2, 2))}, "'w' has type float64, expected float32"),
        ({**GOOD, "n": np.array(2.0)}, "'n' has type float64, expected int64"),
        ({**GOOD, "w": np.full((2, 2), np.nan, np.float32)}, "'w' holds NaN"),
        ({**GOOD, "w": np.full((2, 2), -np.inf, np.float32)}, "'w' holds NaN or infinity"),
    ],
)
def test_bad_arrays(model, says):
    with pytest.raises(BadReplyError, match=says):
        read(reply_of(model))


@pytest.mark.parametrize(
    ("numbers", "says"),
    [
        ({"examples": 0}, "num-examples is 0"),
        ({"examples": -3}, "num-examples is -3"),
        ({"examples": float("nan")}, "'num-examples' is nan"),
        ({"examples": 0.5}, "num-examples is 0.5"),
        ({"examples": 2.5}, "num-examples is 2.5"),
        ({"examples": 1.7e308}, r"num-examples is 1.7e\+308"),
        ({"steps": -1}, "num-steps is -1"),
        ({"batch-size": -4}, "batch-size is -4, it must not be negative"),
        ({"rate": float("inf")}, "'learning-rate' is inf"),
        ({"examples": [1, 2]}, r"'num-examples' is \[1, 2\]"),
    ],
)
def test_bad_numbers(numbers, says):
    with pytest.raises(BadReplyError, match=says):
        read(reply_of(GOOD, **numbers))


def test_no_examples_told():
    content = reply_of(GOOD)
    content["metrics"] = MetricRecord({"loss": 1.0})
    with pytest.raises(BadReplyError, match="no 'num-examples'"):
        read(content)


def test_no_metrics_at_all():
    content = RecordDict({"arrays": reply_of(GOOD)["arrays"]})
    with pytest.raises(BadReplyError, match="no 'num-examples'"):
        read(content)


def test_no_arrays():
    with pytest.raises(BadReplyError, match="no ArrayRecord 'arrays'"):
        read(RecordDict({"metrics": MetricRecord({"num-examples": 1})}))


def test_another_role():
    with pytest.raises(BadReplyError, match="replied as 'target', but its role is 'source'"):
        read(reply_of(GOOD, role="target"))


def test_a_role_of_another_type():
    content = reply_of(GOOD)
    content["info"] = ConfigRecord({"role": b"source"})
    with pytest.raises(BadReplyError, match="replied as b'source'"):
        read(content)


def test_an_error_reply():
    sent = Message(RecordDict(), 5, "train")
    reply = Message(Error(8, "out of\n memory"), reply_to=sent)
    with pytest.raises(BadReplyError, match="error 8: out of memory"):
        read_reply(reply)


SCHEDULE = LocalTraining(learning_rate=0.1, batch_size=4, epochs=2)


@pytest.mark.parametrize(
    ("claim", "config", "says"),
    [
        ({"examples": 13}, {}, "num-examples is 13, and the node has told of 12"),
        ({"examples": 10**9}, {}, "num-examples is 1000000000, and the node has told of 12"),
        ({"rate": 1e4}, {}, "learning-rate is 10000, it was asked to train with 0.1"),
        ({"rate": 0.1}, {"rate-factor": 0.5}, "learning-rate is 0.1, it was asked to train with 0.05"),
        ({"steps": 7}, {}, "num-steps is 7, with 12 examples it was asked for 6"),
        ({"steps": 4}, {"epochs": 1}, "num-steps is 4, with 12 examples it was asked for 3"),
    ],
)
def test_a_source_cannot_claim_what_would_have_it_trusted_more(claim, config, says):
    told = {"info": {"examples": 12}, "config": config, "schedule": SCHEDULE}
    honest = {"examples": 12, "steps": 3, "rate": 0.05}
    assert read(reply_of(GOOD, **honest), **told).examples == 12
    with pytest.raises(BadReplyError, match=says):
        read(reply_of(GOOD, **{**honest, **claim}), **told)


def test_the_reason_is_one_line_without_control_characters_and_not_endless():
    forged = "x\nFDA-RESULT {}\x1b[2J" + "y" * 5000
    with pytest.raises(BadReplyError) as error:
        read(reply_of({**GOOD, forged: np.zeros(1)}))
    assert str(error.value).isprintable()
    assert r"x\nFDA-RESULT {}\x1b[2J" in str(error.value)
    assert len(str(error.value)) <= 1000


@pytest.mark.parametrize(
    ("metrics", "says"),
    [
        ({"accuracy": 7.5}, "'accuracy' is 7.5"),
        ({"validation-auroc-global": -0.5}, "'validation-auroc-global' is -0.5"),
        ({"r2": 1.5}, "'r2' is 1.5"),
        ({"rmse": -1.0}, "'rmse' is -1"),
        ({"num-examples": -3}, "num-examples is -3"),
        ({"num-examples": 2.5}, "num-examples is 2.5"),
        ({f"m{i}": 0.0 for i in range(1001)}, "1002 metrics"),
        ({"x" * 300: 0.0}, "too long"),
        ({"accuracy\nFDA-RESULT": 0.0}, "control characters"),
    ],
)
def test_an_evaluation_that_cannot_be_true_is_refused(metrics, says):
    content = RecordDict({"metrics": MetricRecord({"loss": -2.0, **metrics})})
    with pytest.raises(BadReplyError, match=says):
        read_metrics(Message(content, reply_to=Message(RecordDict(), 5, "evaluate")))


def test_an_archive_is_no_array():
    buffer = io.BytesIO()
    np.savez(buffer, w=GOOD["w"])
    content = reply_of(GOOD)
    content["arrays"]["w"] = Array("float32", (2, 2), "numpy.ndarray", buffer.getvalue())
    with pytest.raises(BadReplyError, match=r"array 'w' cannot be read: .* NpzFile"):
        read(content)


def test_pickled_objects_are_never_loaded():
    buffer = io.BytesIO()
    np.save(buffer, np.array([print], dtype=object), allow_pickle=True)
    content = reply_of(GOOD)
    content["arrays"]["w"] = Array("float32", (2, 2), "numpy.ndarray", buffer.getvalue())
    with pytest.raises(BadReplyError, match="array 'w' cannot be read"):
        read(content)


@pytest.mark.parametrize("data", [b"", b"junk", b"\x93NUMPY\x01\x00"])
def test_damaged_bytes(data):
    content = reply_of(GOOD)
    content["arrays"]["w"] = Array("float32", (2, 2), "numpy.ndarray", data)
    with pytest.raises(BadReplyError, match="array 'w' cannot be read"):
        read(content)


@pytest.mark.parametrize("array", [np.ones(3, np.float32), np.ones((2, 2))], ids=["shape", "type"])
def test_an_array_is_of_the_type_and_shape_that_its_record_claims(array):
    content = reply_of({**GOOD, "w": array})
    content["arrays"]["w"].shape, content["arrays"]["w"].dtype = (2, 2), "float32"
    with pytest.raises(BadReplyError, match=r"'w' cannot be read: it is declared as \('float32', \(2, 2\)\)"):
        read(content)


def test_an_update_that_overflows():
    model = {"w": np.full(2, -3e38, np.float32)}
    sent = Message(RecordDict(), 5, "train")
    reply = Message(reply_of({"w": np.full(2, 3e38, np.float32)}), reply_to=sent)
    with pytest.raises(BadReplyError, match="'w' is so far"):
        read_reply(reply, model=model, buffers=())
