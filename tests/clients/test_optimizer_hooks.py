"""`record_updates`: what a user's own training loop tells of its steps."""

import doctest
import importlib
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from naming import names
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer
from torch.optim.optimizer import _global_optimizer_pre_hooks

from fda_flower.clients import make_recorder, record_updates
from fda_flower.errors import ConfigError
from fda_flower.wire.internals import task_identity

SKETCH = {"batch-updates": "sketch", "sketch-size": 16, "sketch-seed": 2}
ASKED: dict[str, dict[str, Any]] = {
    "norms": {"batch-updates": "norms"},
    "sketch": SKETCH,
    "full": {"batch-updates": "full"},
}


def parameter(*values: float) -> nn.Parameter:
    return nn.Parameter(torch.tensor(values, dtype=torch.float32))


def step(optimizer: Optimizer, *gradients: list[float]) -> None:
    """One step with these gradients of the optimizer's parameters."""
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    for each, gradient in zip(parameters, gradients, strict=True):
        each.grad = torch.tensor(gradient)
    optimizer.step()


def recorded(reply: RecordDict) -> dict[str, NDArray[Any]]:
    return {name: array.numpy() for name, array in reply.array_records["batch-updates"].items()}


def two_steps(config: dict[str, Any]) -> RecordDict:
    """Steps ``(-0.5·(6, 8), -0.5·1)`` and ``(-0.5·(0, 2), -0.5·-4)``."""
    optimizer = SGD([parameter(1, 1), parameter(0)], lr=0.5)
    with record_updates(optimizer, config) as updates:
        step(optimizer, [6.0, 8.0], [1.0])
        step(optimizer, [0.0, 2.0], [-4.0])
    reply = RecordDict({"metrics": MetricRecord({"num-examples": 7})})
    updates.add_to(reply)
    return reply


def test_the_norms_are_those_worked_by_hand() -> None:
    reply = two_steps(ASKED["norms"])
    assert dict(reply["metrics"]) == {"num-examples": 7, "num-steps": 2, "learning-rate": 0.5}
    assert recorded(reply)["norms"] == pytest.approx([9 + 16 + 0.25, 1 + 4], rel=1e-12)


def test_whole_steps_are_in_the_order_of_the_optimizers_parameters() -> None:
    assert recorded(two_steps(ASKED["full"]))["full"].tolist() == [[-3, -4, -0.5], [0, -1, 2]]


@pytest.mark.parametrize("form", list(ASKED))
def test_it_records_the_bits_that_a_recorder_used_by_hand_does(form: str) -> None:
    def train(by_hand: bool) -> dict[str, NDArray[Any]]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 1))
        optimizer = Adam(model.parameters(), lr=0.01)
        recorder = make_recorder(list(model.parameters()), ASKED[form])
        assert recorder is not None
        with record_updates(optimizer, ASKED[form]) as updates:
            for _ in range(4):
                optimizer.zero_grad()
                torch.autograd.backward(model(torch.randn(6, 3)).square().mean())
                optimizer.step()
                recorder.step()
        reply = RecordDict()
        updates.add_to(reply)
        return dict(recorder.arrays()) if by_hand else recorded(reply)

    first, second = train(by_hand=True), train(by_hand=False)
    assert list(first) == list(second)
    for name, array in first.items():
        assert array.tobytes() == second[name].tobytes()


@pytest.mark.parametrize("config", [{}, {"server-round": 1}, None])
def test_what_is_not_asked_for_is_not_sent(config: dict[str, Any] | None) -> None:
    optimizer = SGD([parameter(1)], lr=0.5)
    with record_updates(optimizer) if config is None else record_updates(optimizer, config) as updates:
        step(optimizer, [1.0])
    reply = RecordDict()
    updates.add_to(reply)
    assert set(reply) == {"metrics"}
    assert dict(reply["metrics"]) == {"num-steps": 1, "learning-rate": 0.5}


def test_the_config_may_be_flowers_record() -> None:
    assert set(recorded(two_steps(ConfigRecord(SKETCH)))) == {"norms", "sketch"}  # type: ignore[arg-type]


def test_an_unknown_form_is_refused_before_the_loop() -> None:
    optimizer = SGD([parameter(1)], lr=0.5)
    with pytest.raises(ConfigError, check=names("encoding of batch updates", "all")):
        record_updates(optimizer, {"batch-updates": "all"}).__enter__()
    assert not optimizer._optimizer_step_post_hooks


def test_the_hook_is_removed_at_the_end_and_after_an_exception() -> None:
    optimizer = SGD([parameter(1)], lr=0.5)
    with record_updates(optimizer) as updates:
        assert len(optimizer._optimizer_step_post_hooks) == 1
    assert not optimizer._optimizer_step_post_hooks
    step(optimizer, [1.0])
    assert updates.steps == 0
    with pytest.raises(RuntimeError, match="no more data"), record_updates(optimizer):
        raise RuntimeError("no more data")
    assert not optimizer._optimizer_step_post_hooks


def test_of_a_schedule_the_rate_is_the_mean_over_steps() -> None:
    optimizer = SGD([parameter(1)], lr=0.4)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    with record_updates(optimizer) as updates:
        for _ in range(3):
            step(optimizer, [1.0])
            schedule.step()
    assert updates.learning_rate == pytest.approx((0.4 + 0.2 + 0.1) / 3)


def test_of_groups_the_rate_is_the_mean_over_parameters() -> None:
    groups = [{"params": [parameter(1, 1, 1)], "lr": 0.1}, {"params": [parameter(1)], "lr": 0.5}]
    optimizer = SGD(groups)
    with record_updates(optimizer) as updates:
        step(optimizer, [1.0, 1.0, 1.0], [1.0])
    assert updates.learning_rate == pytest.approx(0.2)


@pytest.mark.parametrize("groups", [1, 3])
def test_a_constant_rate_is_not_rounded(groups: int) -> None:
    optimizer = SGD([{"params": [parameter(*range(i + 1))]} for i in range(groups)], lr=0.1)
    with record_updates(optimizer) as updates:
        for _ in range(7):
            optimizer.step()
    assert (updates.steps, updates.learning_rate) == (7, 0.1)


def test_a_rate_may_be_a_tensor_and_absent() -> None:
    optimizer = Adam([parameter(1)], lr=torch.tensor(0.25), capturable=False, foreach=False)
    with record_updates(optimizer) as updates:
        step(optimizer, [1.0])
    assert updates.learning_rate == 0.25
    optimizer.param_groups[0]["lr"] = None
    with record_updates(optimizer) as updates:
        updates.step(optimizer, (), {})
    assert updates.learning_rate == 0


def test_a_step_of_lbfgs_is_one_step_however_often_its_closure_is_called() -> None:
    weight, calls = parameter(4.0), []

    def closure() -> float:
        calls.append(1)
        weight.grad = 2 * weight.detach()
        return float(weight.detach().square())

    optimizer = torch.optim.LBFGS([weight], lr=0.5, max_iter=4)
    with record_updates(optimizer, ASKED["norms"]) as updates:
        optimizer.step(closure)
    reply = RecordDict()
    updates.add_to(reply)
    assert len(calls) > 1
    assert updates.steps == 1
    assert recorded(reply)["norms"] == pytest.approx([(4 - weight.item()) ** 2], rel=1e-6)


def test_a_step_that_a_gradient_scaler_skips_is_none() -> None:
    weight = parameter(1)
    optimizer, scaler = SGD([weight], lr=0.5), torch.amp.GradScaler("cpu", init_scale=2.0)
    with record_updates(optimizer, ASKED["norms"]) as updates:
        for factor in (3.0, float("inf"), 1.0):
            optimizer.zero_grad()
            torch.autograd.backward(scaler.scale((factor * weight).sum()))
            scaler.step(optimizer)
            scaler.update()
    reply = RecordDict()
    updates.add_to(reply)
    assert updates.steps == 2
    assert recorded(reply)["norms"].tolist() == [2.25, 0.25]


def test_parameters_that_are_sent_but_not_trained_are_recorded_as_zero() -> None:
    frozen, trained = parameter(5, 6), parameter(1)
    optimizer = SGD([trained], lr=0.5)
    with record_updates(optimizer, ASKED["full"], [frozen, trained]) as updates:
        step(optimizer, [4.0])
    reply = RecordDict()
    updates.add_to(reply)
    assert recorded(reply)["full"].tolist() == [[0, 0, -2]]


def test_the_metrics_of_a_numpy_client_are_added_to_as_well() -> None:
    optimizer = SGD([parameter(1)], lr=0.5)
    with record_updates(optimizer, ASKED["norms"]) as updates:
        step(optimizer, [4.0])
    metrics: dict[str, Any] = {"loss": 1.5}
    updates.add_to(metrics)
    assert {key: metrics[key] for key in ("loss", "num-steps", "learning-rate")} == {
        "loss": 1.5,
        "num-steps": 1,
        "learning-rate": 0.5,
    }
    assert isinstance(metrics["batch-updates.norms"], bytes)


# the decorator


def message(config: dict[str, Any], *arrays: list[float]) -> Message:
    record = ArrayRecord({f"w{i}": Array(np.array(each, np.float32)) for i, each in enumerate(arrays)})
    record["bn.running_mean"] = Array(np.zeros(3, np.float32))
    content = RecordDict({"arrays": record, "config": ConfigRecord(config)})
    made = Message(content, 7, "train")
    made.metadata.__dict__["_message_id"] = "1"
    return made


def ask(train: Any, config: dict[str, Any], *arrays: list[float]) -> RecordDict:
    context = Context(run_id=1, node_id=7, node_config={}, state=RecordDict(), run_config={})
    with task_identity():
        content: RecordDict = record_updates(train)(message(config, *arrays), context).content
    assert not _global_optimizer_pre_hooks
    return content


def halved(*tensors: Tensor) -> Any:
    """A train function with an optimizer of its own, whose one step is half of each parameter."""

    def train(message: Message, context: Context) -> Message:
        optimizer = SGD(tensors, lr=0.5)
        step(optimizer, *(tensor.detach().tolist() for tensor in tensors))
        metrics = MetricRecord({"num-examples": 3})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return train


def test_a_decorated_train_function_replies_with_what_was_asked_for() -> None:
    content = ask(halved(parameter(2, 4), parameter(6)), ASKED["full"], [2, 4], [6])
    assert dict(content["metrics"]) == {"num-examples": 3, "num-steps": 1, "learning-rate": 0.5}
    assert recorded(content)["full"].tolist() == [[-1, -2, -3]]


def test_a_decorated_train_function_is_left_alone_where_nothing_is_asked() -> None:
    content = ask(halved(parameter(2)), {}, [1, 2, 3])
    assert set(content) == {"metrics"}
    assert dict(content["metrics"]) == {"num-examples": 3, "num-steps": 1, "learning-rate": 0.5}


@pytest.mark.parametrize("sent", [[[2.0, 4.0]], [[6.0], [2.0, 4.0]], [[2.0, 4.0], [6.0], [1.0]]])
def test_a_decorated_function_must_train_what_is_sent_in_its_order(sent: list[list[float]]) -> None:
    with pytest.raises(ConfigError, match=r"does not have the parameters that the server sent.*parameters\)"):
        ask(halved(parameter(2, 4), parameter(6)), ASKED["norms"], *sent)
    assert not _global_optimizer_pre_hooks


def test_two_optimizers_in_a_decorated_function_are_refused() -> None:
    def train(message: Message, context: Context) -> Message:
        for _ in range(2):
            step(SGD([parameter(1)], lr=0.5), [1.0])
        raise AssertionError("not reached")

    with pytest.raises(ConfigError, match="more than one optimizer"):
        ask(train, {}, [1])
    assert not _global_optimizer_pre_hooks


def test_an_error_reply_and_a_function_without_a_step_are_passed_on() -> None:
    def fails(message: Message, context: Context) -> Message:
        step(SGD([parameter(1)], lr=0.5), [1.0])
        return Message(Error(7, "the disk is full"), reply_to=message)

    def rests(message: Message, context: Context) -> Message:
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 3})}), reply_to=message)

    context = Context(run_id=1, node_id=7, node_config={}, state=RecordDict(), run_config={})
    with task_identity():
        assert record_updates(fails)(message({}, [1]), context).error.reason == "the disk is full"
    assert dict(ask(rests, ASKED["norms"], [1])["metrics"]) == {"num-examples": 3}


def test_the_example_of_the_docstring_holds() -> None:
    failed, attempted = doctest.testmod(importlib.import_module("fda_flower.clients.recorder"))
    assert (failed, attempted > 0) == (0, True)
