"""The recorder: what the target tells of its steps, in our loop and in a user's own (`record_updates`)."""

from typing import Any

import numpy as np
import pytest
import torch
from digit_clients import make, normalised, state_of, trained
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from naming import names
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer
from torch.optim.optimizer import _global_optimizer_pre_hooks

from fda_flower.aggregation import CountSketch, Update
from fda_flower.clients import LocalTraining, TargetClient, make_recorder, record_updates
from fda_flower.clients.recorder import RECORDERS
from fda_flower.errors import ConfigError
from fda_flower.wire.internals import task_identity

SIZE, SEED = 32, 11
ASKED: dict[str, dict[str, Any]] = {
    "norms": {"batch-updates": "norms"},
    "sketch": {"batch-updates": "sketch", "sketch-size": SIZE, "sketch-seed": SEED},
    "full": {"batch-updates": "full"},
}
every_form = pytest.mark.parametrize("form", list(RECORDERS))
every_optimizer = pytest.mark.parametrize(("optimizer", "rate"), [("adam", 0.01), ("sgd", 0.1)])
every_model = pytest.mark.parametrize("model", ["batchnorm", "tied"])


class Tied(nn.Module):
    """An encoder whose weights are its decoder's too: one tensor, two names."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(64, 10, bias=False)
        self.middle = nn.Linear(10, 64)
        self.again = nn.Linear(64, 10, bias=False)
        self.again.weight = self.encoder.weight

    def forward(self, x: Tensor) -> Any:
        return self.again(self.middle(self.encoder(x.flatten(1))))


def tied() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Tied()


def record(form, optimizer="adam", rate=0.01, model="batchnorm", **more):
    """One round of the target: its update as the server sees it, what it recorded, and its steps."""
    network = tied() if model == "tied" else normalised(0.0)
    before = state_of(network)
    client = make(TargetClient, network, training=LocalTraining(rate, 4, 1, optimizer))
    reply = trained(client, **{**ASKED[form], **more})
    buffers = before.keys() - dict(network.named_parameters(remove_duplicate=False)).keys()
    steps = reply.metrics["num-steps"]
    update = Update.between(before, reply.arrays, reply.examples, steps, rate, buffers)
    return update, reply.records["batch-updates"], steps


def layers_of(row, update):
    """One recorded row, cut into the parameters of the update in their order."""
    sizes = [layer.size for layer in update.parameters.values()]
    parts = zip(update.parameters.items(), np.split(row, np.cumsum(sizes)[:-1]), strict=True)
    return {name: part.reshape(layer.shape) for (name, layer), part in parts}


# In our loop


@every_optimizer
@every_model
def test_rows_sum_to_the_update_without_buffers_and_norms_and_sketches_are_theirs(optimizer, rate, model):
    update, recorded, steps = record("full", optimizer, rate, model)
    rows = recorded["full"]
    assert rows.dtype == np.float32
    assert rows.shape == (steps, sum(layer.size for layer in update.parameters.values()))
    assert max(np.abs(layer).max() for layer in update.parameters.values()) > 1e-2
    total = layers_of(rows.astype(np.float64).sum(axis=0), update)
    for name, layer in update.parameters.items():
        np.testing.assert_allclose(total[name], layer, rtol=1e-5, atol=2e-6, err_msg=name)
    norms = np.square(rows.astype(np.float64)).sum(axis=1)
    _, alone, _ = record("norms", optimizer, rate, model)
    _, sketched, _ = record("sketch", optimizer, rate, model)
    for arrays, more in ((recorded, ["full"]), (alone, []), (sketched, ["sketch"])):
        assert list(arrays) == ["norms", *more]
        assert arrays["norms"].dtype == np.float64
        np.testing.assert_allclose(arrays["norms"], norms, rtol=1e-12)
    assert (sketched["sketch"].dtype, sketched["sketch"].shape) == (np.float64, (steps, SIZE))
    expected = np.stack([CountSketch(SIZE, SEED)(layers_of(row, update)) for row in rows])
    np.testing.assert_allclose(sketched["sketch"], expected, rtol=0, atol=1e-9)
    assert np.abs(expected).max() > 1e-3


@every_form
def test_a_model_of_many_numbers_is_recorded_whole_and_rows_stay_as_they_are(form):
    draw = torch.Generator().manual_seed(0)
    parameters = [torch.randn(shape, generator=draw) for shape in ((700, 700), (5,), (300, 400), ())]
    recorder = make_recorder(parameters, ASKED[form])
    assert recorder is not None
    rows, arrays = [], []
    for _ in range(2):
        before = [parameter.clone() for parameter in parameters]
        for parameter in parameters:
            parameter += torch.randn(parameter.shape, generator=draw)
        recorder.step()
        changes = [(new - old).numpy().reshape(-1) for new, old in zip(parameters, before, strict=True)]
        rows.append(np.concatenate(changes))
        arrays.append({name: array.copy() for name, array in recorder.arrays().items()})
    first, recorded = arrays
    assert all(np.array_equal(recorded[name][:1], first[name]) for name in first)
    norms = [np.square(row.astype(np.float64)).sum() for row in rows]
    np.testing.assert_allclose(recorded["norms"], norms, rtol=1e-12)
    if form == "sketch":
        sketches = [CountSketch(SIZE, SEED)({"w": row}) for row in rows]
        np.testing.assert_allclose(recorded["sketch"], sketches, rtol=0, atol=1e-6)
    if form == "full":
        np.testing.assert_array_equal(recorded["full"], rows)


@pytest.mark.parametrize(("form", "shape"), [("norms", (0,)), ("sketch", (0, SIZE)), ("full", (0, 6))])
def test_no_steps_give_arrays_without_rows(form, shape):
    recorder = make_recorder([torch.zeros(2, 3)], ASKED[form])
    assert recorder is not None
    arrays = recorder.arrays()
    assert (arrays[form].shape, arrays["norms"].shape) == (shape, (0,))
    assert arrays["norms"].dtype == np.float64
    assert arrays[form].dtype == (np.float32 if form == "full" else np.float64)


def test_nothing_is_recorded_unless_asked_and_an_unknown_form_is_refused():
    assert make_recorder([torch.zeros(2)], {"server-round": 1, "sketch-size": 4}) is None
    with pytest.raises(ConfigError, check=names("encoding of batch updates", "half", "full, norms, sketch")):
        make_recorder([torch.zeros(2)], {"batch-updates": "half"})


# In a user's own loop


def parameter(*values: float) -> nn.Parameter:
    return nn.Parameter(torch.tensor(values, dtype=torch.float32))


def step(optimizer: Optimizer, *gradients: list[Any]) -> None:
    """One step with these gradients of the optimizer's parameters."""
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    for each, gradient in zip(parameters, gradients, strict=True):
        each.grad = torch.tensor(gradient)
    optimizer.step()


def recorded(reply: RecordDict) -> dict[str, NDArray[Any]]:
    return {name: array.numpy() for name, array in reply.array_records["batch-updates"].items()}


def told(updates) -> RecordDict:
    reply = RecordDict()
    updates.add_to(reply)
    return reply


@pytest.mark.parametrize("kind", [dict, ConfigRecord])
def test_steps_worked_by_hand(kind):
    """Steps ``(-0.5·(6, 8), -0.5·1)`` and ``(-0.5·(0, 2), -0.5·-4)``."""
    optimizer = SGD([parameter(1, 1), parameter(0)], lr=0.5)
    with record_updates(optimizer, kind(ASKED["full"])) as updates:
        step(optimizer, [6.0, 8.0], [1.0])
        step(optimizer, [0.0, 2.0], [-4.0])
    reply = RecordDict({"metrics": MetricRecord({"num-examples": 7})})
    updates.add_to(reply)
    assert dict(reply["metrics"]) == {"num-examples": 7, "num-steps": 2, "learning-rate": 0.5}
    assert recorded(reply)["norms"] == pytest.approx([9 + 16 + 0.25, 1 + 4], rel=1e-12)
    assert recorded(reply)["full"].tolist() == [[-3, -4, -0.5], [0, -1, 2]]
    metrics: dict[str, Any] = {"loss": 1.5}  # of a NumPyClient
    updates.add_to(metrics)
    assert isinstance(metrics.pop("batch-updates.norms"), bytes)
    assert isinstance(metrics.pop("batch-updates.full"), bytes)
    assert metrics == {"loss": 1.5, "num-steps": 2, "learning-rate": 0.5}


def test_the_hook_is_removed_at_the_end_after_an_exception_and_if_nothing_begins():
    optimizer = SGD([parameter(1)], lr=0.5)
    with record_updates(optimizer) as updates:
        assert len(optimizer._optimizer_step_post_hooks) == 1
    assert not optimizer._optimizer_step_post_hooks
    step(optimizer, [1.0])
    assert updates.steps == 0
    with pytest.raises(RuntimeError, match="no more data"), record_updates(optimizer):
        raise RuntimeError("no more data")
    with pytest.raises(ConfigError), record_updates(optimizer, {"batch-updates": "all"}):
        pass
    assert not optimizer._optimizer_step_post_hooks


def test_of_a_schedule_the_rate_is_the_mean_over_steps():
    optimizer = SGD([parameter(1)], lr=0.4)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    with record_updates(optimizer) as updates:
        for _ in range(3):
            step(optimizer, [1.0])
            schedule.step()
    assert updates.learning_rate == pytest.approx((0.4 + 0.2 + 0.1) / 3)


def test_of_groups_the_rate_is_the_mean_over_parameters_and_a_constant_one_is_not_rounded():
    groups = [{"params": [parameter(1, 1, 1)], "lr": 0.1}, {"params": [parameter(1)], "lr": 0.5}]
    optimizer = SGD(groups)
    with record_updates(optimizer) as updates:
        step(optimizer, [1.0, 1.0, 1.0], [1.0])
    assert updates.learning_rate == pytest.approx(0.2)
    optimizer = SGD([{"params": [parameter(*range(i + 1))]} for i in range(3)], lr=0.1)
    with record_updates(optimizer) as updates:
        for _ in range(7):
            optimizer.step()
    assert (updates.steps, updates.learning_rate) == (7, 0.1)


@pytest.mark.parametrize(("rate", "mean"), [(torch.tensor(0.25), 0.25), (None, 0)])
def test_a_rate_may_be_a_tensor_and_absent(rate, mean):
    optimizer = Adam([parameter(1)], lr=torch.tensor(0.25), capturable=False, foreach=False)
    optimizer.param_groups[0]["lr"] = rate
    with record_updates(optimizer) as updates:
        updates.step(optimizer, (), {})
    assert updates.learning_rate == mean


def test_a_step_of_lbfgs_is_one_step_however_often_its_closure_is_called():
    weight, calls = parameter(4.0), []

    def closure() -> float:
        calls.append(1)
        weight.grad = 2 * weight.detach()
        return float(weight.detach().square())

    optimizer = torch.optim.LBFGS([weight], lr=0.5, max_iter=4)
    with record_updates(optimizer, ASKED["norms"]) as updates:
        optimizer.step(closure)
    assert len(calls) > 1
    assert updates.steps == 1
    assert recorded(told(updates))["norms"] == pytest.approx([(4 - weight.item()) ** 2], rel=1e-6)


def test_a_step_that_a_gradient_scaler_skips_is_none():
    weight = parameter(1)
    optimizer, scaler = SGD([weight], lr=0.5), torch.amp.GradScaler("cpu", init_scale=2.0)
    with record_updates(optimizer, ASKED["norms"]) as updates:
        for factor in (3.0, float("inf"), 1.0):
            optimizer.zero_grad()
            torch.autograd.backward(scaler.scale((factor * weight).sum()))
            scaler.step(optimizer)
            scaler.update()
    assert updates.steps == 2
    assert recorded(told(updates))["norms"].tolist() == [2.25, 0.25]


def test_parameters_that_are_sent_but_not_trained_are_recorded_as_zero():
    frozen, moving = parameter(5, 6), parameter(1)
    optimizer = SGD([moving], lr=0.5)
    with record_updates(optimizer, ASKED["full"], [frozen, moving]) as updates:
        step(optimizer, [4.0])
    assert recorded(told(updates))["full"].tolist() == [[0, 0, -2]]


def test_of_a_state_dictionary_what_is_no_buffer_of_batchnorm_is_recorded_in_its_order():
    network = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1, affine=False))
    network.register_module("again", network[0])
    network.register_buffer("scale", torch.ones(1))
    optimizer = SGD(network.parameters(), lr=0.5)
    with record_updates(optimizer, ASKED["full"], network.state_dict()) as updates:
        step(optimizer, [[4.0]], [8.0])
    assert recorded(told(updates))["full"] == pytest.approx(np.array([[0, -2, -4, -2, -4]]))


# The decorator


def ask(train: Any, config: dict[str, Any], *arrays: list[float]) -> Message:
    """The reply of a decorated train function to a message with these arrays."""
    sent = ArrayRecord({f"w{i}": Array(np.array(each, np.float32)) for i, each in enumerate(arrays)})
    sent["bn.running_mean"] = Array(np.zeros(3, np.float32))
    content = RecordDict({"arrays": sent, "config": ConfigRecord(config)})
    context = Context(run_id=1, node_id=7, node_config={}, state=RecordDict(), run_config={})
    try:
        with task_identity():
            message = Message(content, 7, "train")
            message.metadata.__dict__["_message_id"] = "1"
            return record_updates(train)(message, context)
    finally:
        assert not _global_optimizer_pre_hooks


def halved(*tensors: Tensor, optimizers: int = 1, error: str = "") -> Any:
    """A train function with an optimizer of its own, whose one step is half of each parameter."""

    def train(message: Message, context: Context) -> Message:
        for _ in range(optimizers):
            step(SGD(tensors, lr=0.5), *(tensor.detach().tolist() for tensor in tensors))
        if error:
            return Message(Error(7, error), reply_to=message)
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 3})}), reply_to=message)

    return train


def test_a_decorated_train_function_replies_with_what_was_asked_for():
    content = ask(halved(parameter(2, 4), parameter(6)), ASKED["full"], [2, 4], [6]).content
    assert dict(content["metrics"]) == {"num-examples": 3, "num-steps": 1, "learning-rate": 0.5}
    assert recorded(content)["full"].tolist() == [[-1, -2, -3]]
    content = ask(halved(parameter(2)), {}, [1, 2, 3]).content
    assert set(content) == {"metrics"}, "left alone where nothing is asked"
    assert dict(content["metrics"]) == {"num-examples": 3, "num-steps": 1, "learning-rate": 0.5}


@pytest.mark.parametrize("sent", [[[2.0, 3.0]], [[6.0], [2.0, 4.0]], [[2.0, 4.0], [6.0], [1.0]]])
def test_a_decorated_function_must_train_what_is_sent_in_its_order(sent):
    with pytest.raises(ConfigError, check=names("parameters")):
        ask(halved(parameter(2, 4), parameter(6)), ASKED["norms"], *sent)


@pytest.mark.parametrize(("sent", "recorded_as"), [([[6.0]], [[-3]]), ([[2.0, 4.0], [6.0]], [[0, 0, -3]])])
def test_of_a_partly_frozen_model_a_decorated_function_records_what_is_sent(sent, recorded_as):
    frozen, head = parameter(2, 4).requires_grad_(False), parameter(6)

    def train(message: Message, context: Context) -> Message:
        optimizer = SGD([{"params": [frozen], "lr": 0.1}, {"params": [head], "lr": 0.5}])
        head.grad = torch.tensor([6.0])
        optimizer.step()
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 3})}), reply_to=message)

    content = ask(train, ASKED["full"], *sent).content
    assert recorded(content)["full"].tolist() == recorded_as
    assert content["metrics"]["learning-rate"] == 0.5


@pytest.mark.parametrize("tensors", [[[2, 4], [6]], [[6], [2, 4]]])
def test_a_head_that_stays_with_the_client_is_not_recorded(tensors):
    content = ask(halved(*(parameter(*each) for each in tensors)), ASKED["full"], [2, 4]).content
    assert recorded(content)["full"].tolist() == [[-1, -2]]
    with pytest.raises(ConfigError, check=names("parameters")):
        ask(halved(parameter(2, 4), parameter(2, 4)), ASKED["full"], [2, 4])


def test_of_a_decorated_function_two_optimizers_are_refused_and_errors_and_none_passed_on():
    with pytest.raises(ConfigError, check=names("optimizer")):
        ask(halved(parameter(1), optimizers=2), {}, [1])
    assert ask(halved(parameter(1), error="the disk is full"), {}, [1]).error.reason == "the disk is full"
    content = ask(halved(optimizers=0), ASKED["norms"], [1]).content
    assert dict(content["metrics"]) == {"num-examples": 3}


@every_form
@pytest.mark.parametrize(
    ("tensors", "sent", "order"),
    [
        ([[2, 4], [6]], [[2, 4], [6], [2, 4]], [0, 1, 0]),
        ([[2, 4], [6], [8]], [[2, 4], [6], [2, 4], [6], [8]], [0, 1, 0, 1, 2]),
        ([[1], [0], [1], [6]], [[1], [0], [1], [6], [6]], [0, 1, 2, 3, 3]),
    ],
    ids=["tied", "a module used twice", "beside equal ones"],
)
def test_a_parameter_that_layers_share_is_recorded_under_each_name(form, tensors, sent, order):
    content = ask(halved(*(parameter(*values) for values in tensors)), ASKED[form], *sent).content
    row = np.concatenate([np.array(tensors[i], np.float32) / -2 for i in order])
    arrays = recorded(content)
    assert arrays["norms"] == pytest.approx([row @ row])
    if form == "full":
        assert arrays["full"].tolist() == [row.tolist()]
    if form == "sketch":
        np.testing.assert_allclose(arrays["sketch"], [CountSketch(SIZE, SEED)({"w": row})])


def test_which_of_two_equal_parameters_is_shared_is_not_guessed():
    with pytest.raises(ConfigError, check=names("parameters", remedy="model.state_dict()")):
        ask(halved(parameter(1), parameter(1)), ASKED["norms"], [1], [1], [1])
