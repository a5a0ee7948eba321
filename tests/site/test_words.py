"""What a site says of a failure: no words of its data."""

from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict

from fda_flower import RunConfig
from fda_flower.aggregation import Sums
from fda_flower.client_app import forget, make_client_app
from fda_flower.clients import serve
from fda_flower.clients.secure_sums import as_masked
from fda_flower.errors import ConfigError, RunError
from fda_flower.models.exchange import layers_of
from fda_flower.runs.network import make_model
from fda_flower.site import read_log
from fda_flower.site.words import KEPT, KeptError, told
from fda_flower.wire.asked.secure_sums import MaskSums
from fda_flower.wire.internals import numbered
from fda_flower.wire.protocol import to_record
from fda_flower.wire.secure_sums import KEYS

SUM = 9.7e16
OF_DATA = {
    "a sum": lambda: as_masked(Sums.of(np.full((1, 2), SUM**0.5), np.ones((1, 1)))),
    "a name": lambda: raises(ConfigError("the column 'city' has the word 'Bern'", thing="categories")),
    "a path": lambda: raises(FileNotFoundError("/srv/fl/north.csv")),
    "a number of a run": lambda: raises(RunError("the loss of row 17 is 0.8125")),
}


def raises(error):
    raise error


def ask(fails, node, kind="train"):
    app = serve(lambda context: fails())
    content = RecordDict({"arrays": to_record({"w": np.zeros(2, np.float32)}), "config": ConfigRecord()})
    (message,) = numbered([Message(content, 2, kind)])
    return app(message, Context(1, 2, node, RecordDict(), {}))


def words(fails, node, kind):
    if kind == "query.role":
        return str(ask(fails, node, kind).content["info"]["problem"])
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of any kind, which is what is tested
        ask(fails, node, kind)
    return str(caught.value)


@pytest.mark.usefixtures("in_a_run")
@pytest.mark.parametrize("kind", ["train", "evaluate", "query.role"])
@pytest.mark.parametrize("what", OF_DATA)
def test_what_depends_on_data_has_constant_words_at_a_site_and_its_own_in_its_log(what, kind, tmp_path):
    fails, node = OF_DATA[what], {"domain": "north", "state-dir": str(tmp_path)}
    assert words(fails, node, kind) == KEPT
    own = words(fails, {"partition-id": 1}, kind)
    assert own != KEPT, "a simulation says all"
    assert words(fails, {**node, "checks-itself": True}, kind) == own, "and so does a site to itself"
    if kind != "query.role":
        assert own in read_log(tmp_path)[0]["failed"].replace("\\'", "'")


@pytest.mark.usefixtures("in_a_run")
def test_what_follows_from_settings_alone_is_said():
    def fails():
        with told():
            raise ConfigError("the node has role 'source', but the run's target is 'north'", thing="node")

    for failure, says in (
        (fails, "has role 'source'"),
        (lambda: raises(ConfigError("x", thing="dp-unit")), "x"),
    ):
        with pytest.raises(ConfigError, match=says):
            ask(failure, {"domain": "north"})


@pytest.mark.usefixtures("in_a_run")
def test_the_reason_is_the_cause_for_this_process_alone():
    with pytest.raises(KeptError) as caught:
        ask(OF_DATA["a path"], {"domain": "north"})
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    assert "north.csv" not in repr(caught.value)


OWN_FILES = {
    "the log": ("fedavg", lambda folder: (folder / "sent.jsonl").mkdir()),
    "the ledger": ("fedavg", lambda folder: (folder / "north-privacy.json").write_text("{")),
    "another's ledger": ("fedavg", lambda folder: (folder / "secret-privacy.json").write_text("{}")),
    "the options": ("fedavg", lambda folder: (folder / "fda.toml").write_text("secret = 1")),
    "the key": ("ridge", lambda folder: (folder / "key").write_text("secret")),
}


@pytest.mark.usefixtures("in_a_run")
@pytest.mark.parametrize("what", OWN_FILES)
def test_what_a_sites_own_files_are_stays_too(what, tmp_path):
    method, spoil = OWN_FILES[what]
    for name in ("north", "south", "west", "east"):
        rows = "".join(f"{i % 7}.5,{i % 2}\n" for i in range(20))
        (tmp_path / f"{name}.csv").write_text("age,label\n" + rows)
    spoil(tmp_path)
    forget()
    options = {"domains": "north,south,west,east", "classes": "0,1"}
    secure: dict[str, Any] = {"method_options": {"secure": True}} if method == "ridge" else {}
    run: dict[str, Any] = {
        "dataset": "table",
        "dataset_options": options,
        "target": "south",
        "model": "logistic",
    }
    config = RunConfig(**run, **secure, method=method, rounds=1)
    app = make_client_app(config)
    node: dict[str, Any] = {"domain": "north", "data-dir": str(tmp_path), "state-dir": str(tmp_path)}
    node |= {"secure-with": "any", "secure-key": str(tmp_path / "key")} if secure else {}
    node |= {} if secure else {"dp-clip": 1.0, "dp-noise": 1.0}
    model = layers_of(make_model(config, (1,), 2))
    for kind in ("query.role", "train.mask_sums" if secure else "train"):
        question = MaskSums(stage=KEYS).records() if secure else {}
        settings = ConfigRecord({"server-round": 1})
        content = RecordDict({"arrays": to_record(model), "config": settings, **question})
        (message,) = numbered([Message(content, 2, kind)])
        try:
            reply = app(message, Context(1, 2, node, RecordDict(), {}))
            info = {} if reply.has_error() else dict(reply.content["info"])
            said = str(reply.error.reason if reply.has_error() else info.get("problem"))
        except Exception as error:  # Flower sends it to the server
            said = repr(error)
        assert str(tmp_path) not in said
        assert "secret" not in said
    assert "why is in" in said
