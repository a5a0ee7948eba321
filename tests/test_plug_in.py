"""The recipes of the README and of docs/plug-in.md, on a project that is not ours."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fda_flower.clients import answer_role_query, batch_gradients, make_recorder
from fda_flower.engines import LocalGrid
from fda_flower.strategies import FedBN, FedDA, FedDAJoint, FedGP, FedRep, RunFolder
from fda_flower.wire.internals import task_identity

ROOT = Path(__file__).resolve().parent.parent


def data(partition):
    generator = torch.Generator().manual_seed(partition)
    x = torch.randn(24, 3, generator=generator)
    return x, (x.sum(dim=1, keepdim=True) > 0.3 * partition).float()


def users_project(records=False, takes_gradients=False):
    """A client app as Flower's PyTorch template makes it, with the one line for roles."""
    app = ClientApp()
    answer_role_query(app)

    @app.train()
    def train(message, context):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        x, y = data(context.node_config["partition-id"])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss_fn = torch.nn.functional.binary_cross_entropy_with_logits
        if takes_gradients:
            loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), 8, shuffle=True)
            gradients = batch_gradients(model, loader, loss_fn, message.content["config"])
        recorder = make_recorder(list(model.parameters()), message.content["config"]) if records else None
        for part in range(0, 24, 8):
            optimizer.zero_grad()
            output = model(x[part : part + 8])
            loss_fn(output, y[part : part + 8]).backward()
            optimizer.step()
            if recorder is not None:
                recorder.step()
        metrics = {"num-examples": 24, "train_loss": 0.5} | (
            {"num-steps": 3, "learning-rate": 0.1} if records else {}
        )
        reply = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord(metrics)})  # type: ignore[arg-type]
        if recorder is not None:
            reply["batch-updates"] = ArrayRecord({k: Array(v) for k, v in recorder.arrays().items()})
        if takes_gradients:
            gradients.add_to(reply)
        return Message(reply, reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        metrics = MetricRecord({"eval_loss": 0.1, "num-examples": 24})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def initial():
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
    return ArrayRecord(model.state_dict())


def start(strategy, app, rounds=3):
    with task_identity():
        return strategy.start(grid=LocalGrid(app, 4), initial_arrays=initial(), num_rounds=rounds)


@pytest.mark.parametrize("make", [FedGP, FedDA])
def test_fixed_beta_in_two_lines(make):
    strategy = make(target="3")
    result = start(strategy, users_project())
    assert strategy.roster.target.domain == "3"
    assert all(record["held"] is None and not record["dropped"] for record in strategy.history)
    assert (result.arrays["1.running_var"].numpy() > 0).all()
    assert result.evaluate_metrics_clientapp[3]["eval_loss"] == 0.1
    assert strategy.history[2]["metrics"] == {"eval_loss": 0.1}
    assert not np.array_equal(result.arrays["0.weight"].numpy(), initial()["0.weight"].numpy())


@pytest.mark.parametrize(
    "strategy",
    [
        FedDA(target="3", auto=True),
        FedGP(target="3", auto=True),
        FedGP(target="3", auto=True, batch_update_encoding="full"),
    ],
)
def test_auto_weighting_with_the_recorder(strategy):
    start(strategy, users_project(records=True))
    for record in strategy.history:
        for entry in record["sources"].values():
            assert entry["fallback"] is None
            assert 0 <= entry["beta"] <= 1


def test_auto_weighting_without_the_recorder_falls_back_and_says_so():
    strategy = FedDA(beta=0.5, target="3", auto=True)
    start(strategy, users_project(records=False), rounds=1)
    assert {e["fallback"] for e in strategy.history[0]["sources"].values()} == {
        "it has no ArrayRecord 'batch-updates'"
    }


@pytest.mark.parametrize("encoding", ["sketch", "full"])
@pytest.mark.parametrize("make", [FedDA, FedDAJoint, FedGP])
def test_estimates_from_gradients_at_the_global_model(make, encoding):
    auto = {} if make is FedDAJoint else {"auto": True}
    strategy = make(target="3", estimate_at="start", gradient_encoding=encoding, **auto)
    start(strategy, users_project(takes_gradients=True))
    for record in strategy.history:
        for entry in record["sources"].values():
            assert entry["fallback"] is None
            assert 0 <= entry.get("beta", entry.get("weight")) <= 1
            assert entry["sigma2"] > 0


def test_a_project_that_takes_gradients_sends_none_that_nobody_asks_for():
    strategy, plain = FedDA(target="3"), FedDA(target="3")
    start(strategy, users_project(takes_gradients=True), rounds=1)
    start(plain, users_project(), rounds=1)
    assert strategy.history[0]["bytes-received"] == plain.history[0]["bytes-received"]


def test_without_gradients_the_fixed_beta_serves():
    strategy = FedDA(beta=0.5, target="3", auto=True, estimate_at="start")
    start(strategy, users_project(records=True), rounds=1)
    assert {e["fallback"] for e in strategy.history[0]["sources"].values()} == {
        "the target: it has no ArrayRecord 'gradients'"
    }


def project_that_keeps_a_part(names):
    """A client app that does what the page says of `local-part`, by the page's own code."""
    page = (ROOT / "docs" / "plug-in.md").read_text(encoding="utf-8")
    (code,) = (code for code in re.findall(r"```python\n(.*?)```", page, re.S) if '"local-part" in' in code)
    app = ClientApp()
    answer_role_query(app)

    @app.train()
    def train(message, context):
        own = context.node_config["partition-id"]
        metrics = {"num-examples": 8}
        found = {
            **{"message": message, "context": context, "names": names, "metrics": metrics},
            **{"Array": Array, "ArrayRecord": ArrayRecord, "ConfigRecord": ConfigRecord},
            "train": lambda model: {n: np.asarray(a + own + 1, a.dtype) for n, a in model.items()},
        }
        exec(code, found)
        arrays = ArrayRecord({name: Array(array) for name, array in found["arrays"].items()})
        return Message(
            RecordDict({"arrays": arrays, "metrics": MetricRecord(found["metrics"])}), reply_to=message
        )

    return app


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (FedRep, ["2.weight", "2.bias"]),
        (FedBN, [f"1.{n}" for n in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")]),
    ],
)
def test_a_part_that_clients_keep_by_the_pages_own_code(make, names):
    strategy, first = make(target="3"), initial()
    result = start(strategy, project_that_keeps_a_part(names))
    for name, array in result.arrays.items():
        same = array.numpy().tobytes() == first[name].numpy().tobytes()
        assert same == (name in names), name
    for record in strategy.history:
        entries = [record["target"], *record["sources"].values()]
        assert [entry["local-part"] for entry in entries] == [record["round"] - 1] * 4
        assert not any("fallback" in entry for entry in entries)
        assert not record["dropped"]


def test_records_and_resume_in_a_users_project(tmp_path):
    whole = start(FedGP(target="3"), users_project(), rounds=4)
    start(FedGP(target="3", output=RunFolder(tmp_path, {"my": "run"})), users_project(), rounds=2)
    folder = RunFolder(tmp_path, {"my": "run"}, resume=True)
    resumed = start(FedGP(target="3", output=folder), users_project(), rounds=4)
    for name in whole.arrays:
        assert whole.arrays[name].numpy().tobytes() == resumed.arrays[name].numpy().tobytes()


def test_server_side_evaluation_works_as_flowers_does(tmp_path):
    seen = []

    def evaluate_fn(server_round, arrays):
        seen.append(server_round)
        return MetricRecord({"accuracy": 0.25})

    strategy = FedGP(target="3")
    with task_identity():
        result = strategy.start(
            LocalGrid(users_project(), 4),
            initial(),
            2,
            train_config=ConfigRecord({"lr": 0.1}),
            evaluate_fn=evaluate_fn,
        )
    assert seen == [0, 1, 2]
    assert result.evaluate_metrics_serverapp[2]["accuracy"] == 0.25
    assert strategy.history[1]["server"] == {"accuracy": 0.25}


def test_the_readmes_table_is_the_one_of_its_rows():
    """The README's methods are those that the demo compares, in its order."""
    from fda_flower.cli.runs import COMPARED
    from fda_flower.runs.methods import METHODS

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = text.split("<!-- demo table")[1]
    labels = re.findall(r"^\| (\w[\w ]+?) \| \*{0,2}\d", table, flags=re.MULTILINE)
    assert labels == [METHODS[name].label for name in COMPARED.split(",")]


@pytest.mark.parametrize("make", [FedGP, FedDA])
def test_records_of_other_names_give_the_same_bits(make):
    """The client of a project whose records are not called as Flower's template calls them."""
    ours = users_project(records=True)
    app = ClientApp()
    answer_role_query(app)

    def renamed(content, names):
        return RecordDict({names.get(key, key): record for key, record in content.items()})

    def answer(message, context):
        assert {"model", "settings"} == set(message.content)
        message.content = renamed(message.content, {"model": "arrays", "settings": "config"})
        reply = ours(message, context)
        reply.content = renamed(reply.content, {"arrays": "model"})
        return reply

    app.train()(answer)
    app.evaluate()(answer)
    strategy = make(target="3", auto=True, arrayrecord_key="model", configrecord_key="settings")
    result, expected = start(strategy, app), start(make(target="3", auto=True), ours)
    assert not any(record["dropped"] or record["held"] for record in strategy.history)
    for name, array in expected.arrays.items():
        assert result.arrays[name].numpy().tobytes() == array.numpy().tobytes()
