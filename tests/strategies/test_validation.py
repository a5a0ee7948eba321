"""Each kind of bad reply is refused with its reason."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from handmade import reply_of

from fda_flower.protocol import TrainRequest
from fda_flower.strategies.nodes import Node
from fda_flower.strategies.validation import BadReplyError, NormLimit, read_update

MODEL = {"w": np.zeros((2, 2), np.float32), "n": np.array(1)}
GOOD = {"w": np.ones((2, 2), np.float32), "n": np.array(2)}


def read_reply(reply, role="source", model=MODEL, buffers=("n",)):
    node, request = Node(5, "a", role == "target"), TrainRequest(ArrayRecord())
    update, _ = read_update(reply, node, request, model, buffers, NormLimit())
    return update


def read(content, role="source"):
    return read_reply(Message(content, reply_to=Message(RecordDict(), 5, "train")), role)


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


def test_pickled_objects_are_never_loaded(tmp_path):
    import io

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


def test_what_the_header_says_counts_not_what_the_record_claims():
    content = reply_of({**GOOD, "w": np.ones(3, np.float32)})
    content["arrays"]["w"].shape = (2, 2)
    with pytest.raises(BadReplyError, match="has shape"):
        read(content)


def test_an_update_that_overflows():
    model = {"w": np.full(2, -3e38, np.float32)}
    sent = Message(RecordDict(), 5, "train")
    reply = Message(reply_of({"w": np.full(2, 3e38, np.float32)}), reply_to=sent)
    with pytest.raises(BadReplyError, match="'w' is so far"):
        read_reply(reply, model=model, buffers=())
