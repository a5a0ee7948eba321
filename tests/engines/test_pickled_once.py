"""The client app as Ray gets it: small, and built once in each process."""

import pickle

import pytest
from flwr.app import Context, Message, RecordDict
from flwr.app.user_config import UserConfig

from fda_flower import RunConfig
from fda_flower.client_app import make_client_app
from fda_flower.datasets.federation import write_shared
from fda_flower.wire.internals import numbered, task_identity

pytest.importorskip("ray")

from fda_flower.engines.ray import PickledOnce


def test_a_process_builds_the_app_once_and_the_app_holds_no_data(tmp_path):
    config = RunConfig(model="mlp", target_samples=12, device="cpu", seed=7)
    write_shared(config.data, tmp_path / "data.pt")
    pickled = pickle.dumps(PickledOnce(make_client_app(config, data=tmp_path / "data.pt")))
    assert len(pickled) < 20_000
    app = pickle.loads(pickled)
    assert pickle.loads(pickled) is app
    node: UserConfig = {"partition-id": 3, "num-partitions": 4}
    context = Context(run_id=1, node_id=2, node_config=node, state=RecordDict(), run_config={})
    with task_identity():
        (message,) = numbered([Message(RecordDict(), 2, "query.role")])
        info = app(message, context).content["info"]
    assert (info["role"], info["examples"]) == ("target", 12)
