"""Arrays that pass as they are within a process."""

import copy
import io
import pickle
from typing import ClassVar

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Message
from flwr.client import NumPyClient
from numpy.lib import format as npy

from fda_flower.clients import serve
from fda_flower.engines import LocalGrid
from fda_flower.wire.arrays import STYPE, LazyArray, as_array, copied, count_bytes, freeze, frozen, to_read
from fda_flower.wire.internals import task_identity
from fda_flower.wire.protocol import EvaluateRequest, Keys, TrainRequest, to_layers, to_record

SAMPLES = [
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.arange(12.0).reshape(3, 4)[:, ::2],
    np.array(7),
    np.zeros((0, 4), np.uint8),
    np.array([True, False]),
    np.arange(3, dtype=">f4"),
    np.zeros((1,) * 20),
]


every_sample = pytest.mark.parametrize("array", SAMPLES, ids=lambda a: f"{a.dtype.str}{a.shape}")


@every_sample
def test_it_is_flowers_own_to_the_last_byte(array):
    lazy, flowers = LazyArray(array), Array(array)
    assert lazy.num_bytes == len(flowers.data)
    assert lazy.__dict__["_content"].data is None  # nobody has asked yet
    assert (lazy.dtype, lazy.shape, lazy.stype) == (flowers.dtype, flowers.shape, flowers.stype)
    assert lazy == flowers == lazy
    assert lazy != Array(np.ones(9))
    assert lazy != 3
    for name in ("data", "object_id"):
        assert getattr(lazy, name) == getattr(flowers, name)
    assert lazy.num_bytes == len(flowers.data)
    assert lazy.deflate() == flowers.deflate()
    for read in (lazy.numpy(), lazy.to_read()):
        np.testing.assert_array_equal(read, flowers.numpy())
        assert read.dtype == array.dtype
        assert read.flags.f_contiguous == flowers.numpy().flags.f_contiguous


@every_sample
def test_values_are_held_once_when_the_bytes_are_made(array):
    lazy = LazyArray(freeze({"a": array.copy(order="A")})["a"])
    before = to_read(lazy).flags.fnc
    memory = np.frombuffer(lazy.data, np.uint8)
    values = to_read(lazy)
    assert np.shares_memory(values, memory) == (array.size > 0)
    assert not values.flags.writeable
    assert (values.dtype, values.shape, values.flags.fnc) == (array.dtype, array.shape, before)
    np.testing.assert_array_equal(values, array)


def test_outside_the_process_it_is_flowers_own():
    lazy = LazyArray(SAMPLES[0])
    for other in (pickle.loads(pickle.dumps(lazy)), copy.deepcopy(lazy), ArrayRecord({"a": lazy})["a"]):
        assert type(other) is Array
        assert other == lazy


def test_nobody_sees_what_others_write():
    given = np.zeros(2, np.float32)
    record = to_record({"w": given})
    given += 1
    record["w"].numpy()[:] = 2
    with pytest.raises(ValueError, match="read-only"):
        to_layers(record)["w"][:] = 3
    other = copied(record)
    other["w"].data = Array(np.full(2, 4, np.float32)).data
    np.testing.assert_array_equal(record["w"].numpy(), [0, 0])
    for read in (other["w"].numpy(), to_read(other["w"])):
        np.testing.assert_array_equal(read, [4, 4])
    assert count_bytes(other) == count_bytes(record)
    del other["w"]
    assert list(record) == ["w"]


def test_only_an_array_that_nobody_can_write_into_is_shared():
    own = freeze({"w": np.ones(3)})["w"]
    assert frozen(own) is own
    weights = torch.ones(3)
    seen = weights.numpy()
    seen.flags.writeable = False  # the tensor still can
    assert to_read(as_array(own)) is own
    assert to_read(as_array(seen)) is not seen
    kept = to_record({"w": seen})
    weights += 1
    np.testing.assert_array_equal(kept["w"].numpy(), [1, 1, 1])


def test_what_is_no_array_of_numbers_is_for_flower_to_judge():
    assert type(as_array(torch.ones(2))) is Array
    with pytest.raises(ValueError, match="Object arrays"):
        as_array(np.array([None]))


def saved(write, *what, **how):
    file = io.BytesIO()
    write(file, *what, **how)
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (saved(np.save, np.zeros(3))[:-8], "24 .*16"),
        (saved(np.save, np.zeros(3)) + b"more", "24 .*28"),
        (saved(npy.write_array, np.zeros(3), version=(2, 0)), "format"),
        (saved(np.savez, w=np.zeros(3)), "NpzFile"),
        (saved(np.save, np.zeros(4)), "declared"),
        (saved(np.save, np.zeros(3, np.float32)), "declared"),
    ],
    ids=["fewer bytes", "more bytes", "another version", "an archive", "another shape", "another type"],
)
def test_bytes_that_are_not_the_array_they_say_are_refused(data, why):
    with pytest.raises(ValueError, match=why):
        to_read(Array("float64", (3,), STYPE, data))


def test_bytes_are_counted_as_flower_does():
    layers = {f"layer.{i}": array for i, array in enumerate(SAMPLES)}
    flowers = ArrayRecord({name: Array(array) for name, array in layers.items()})
    assert count_bytes(to_record(layers)) == count_bytes(flowers) == flowers.count_bytes()
    assert copied(flowers) == flowers == copied(to_record(layers))
    assert copied(flowers)["layer.0"] is not flowers["layer.0"]


def test_the_messages_of_a_round_share_the_bytes_once_they_are_made():
    request = EvaluateRequest(to_record({"w": np.ones(3)}))
    one, two = (request.content(Keys())["arrays"]["w"] for _ in range(2))
    assert one is not two
    assert one.data is two.data


class Writer(NumPyClient):
    """A client that trains the very arrays that it is given, and goes on with them after its reply."""

    weights: ClassVar = [np.zeros(2, np.float32)]

    def fit(self, parameters, config):
        (received,) = parameters
        received += 1
        self.weights[0][:] = received
        return self.weights, 1, {}

    def evaluate(self, parameters, config):
        parameters[0][:] = 9
        return 0.0, 1, {}


def test_a_client_may_write_into_what_it_receives_and_what_it_has_sent():
    app = serve(lambda context: Writer())
    model = to_record({"w": np.zeros(2, np.float32)})
    with task_identity():
        grid = LocalGrid(app, 3)
        ids = grid.get_node_ids()
        replies = []
        for turn, node in enumerate(ids):
            sent = TrainRequest(to_record({"w": np.full(2, turn, np.float32)})).content(Keys())
            replies += grid.send_and_receive([Message(sent, node, "train")])
        messages = [Message(EvaluateRequest(model).content(Keys()), node, "evaluate") for node in ids]
        assert not any(reply.has_error() for reply in grid.send_and_receive(messages))
    np.testing.assert_array_equal([reply.content["arrays"]["w"].numpy()[0] for reply in replies], [1, 2, 3])
    np.testing.assert_array_equal(model["w"].numpy(), [0, 0])
