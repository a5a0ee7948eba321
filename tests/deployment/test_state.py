"""What a site keeps for itself: over real processes, in its own folder, with the bits of a local run.

KD3A's sites keep nothing: it is here because it asks the target within a round."""

from typing import Any

import pytest

from fda_flower import RunConfig, load, run
from fda_flower.datasets import load_domain
from fda_flower.deployment import Federation, run_deployed
from fda_flower.records.folder import RunFolder

LOCAL_PART = ["local-part-before.safetensors", "local-part.safetensors"]
SETTINGS: dict[str, Any] = {
    **{"model": "mlp", "sources": 1, "rounds": 2, "device": "cpu"},
    **{"target_samples": 16, "source_samples": 40, "test_samples": 40},
}


def untimed(records):
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


@pytest.fixture(scope="module")
def sites(request, tmp_path_factory):
    """A federation with or without resident workers, and the folder with its sites' own."""
    folder = tmp_path_factory.mktemp("sites")
    nodes = {
        domain: {"domain": domain, "state-dir": str(folder / domain), "resident": request.param}
        for domain in ("source-1", "target")
    }
    with Federation(tmp_path_factory.mktemp("federation"), nodes, secure=False) as federation:
        yield federation, folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "options", "domains", "files", "sites"),
    [
        ("mixture", {"epochs": "1,3", "every": 1}, ["target"], ["mixture.safetensors"], True),
        ("apfl", {"adaptive": True}, ["target"], ["apfl-before.safetensors", "apfl.safetensors"], True),
        ("kd3a", {"gate_start": 0.0, "gate_end": 0.5}, [], [], True),
        ("fedrep", {"head_epochs": 2}, ["source-1", "target"], LOCAL_PART, False),
    ],
    indirect=["sites"],
)
def test_what_a_client_keeps_stays_at_its_site_and_has_the_bits_of_a_local_run(
    method, options, domains, files, sites, tmp_path
):
    """Without a resident worker the second round's process finds the first one's models."""
    settings = {**SETTINGS, "method": method, "method_options": options}
    federation, folder = sites
    before = set(folder.rglob("*.safetensors"))
    history, there = run_deployed(
        RunConfig(**settings),
        federation.connection,
        tmp_path / "deployed",
        environment=federation.environment,
    )
    written = set(folder.rglob("*.safetensors")) - before
    local = run(**settings, output=tmp_path / "local")
    assert untimed(history) == untimed(local.history)
    model = RunFolder(there).load_checkpoint().model
    assert {name: array.tobytes() for name, array in model.items()} == {
        name: array.tobytes() for name, array in local.model.items()
    }
    [model_file] = (path for path in written if path.name == "model.safetensors")
    assert model_file.read_bytes() == (tmp_path / "local" / "model.safetensors").read_bytes()
    site_model = load(model_file.parent)
    test = load_domain(RunConfig(**settings).data, "target").domains["target"].test
    predicted = site_model.predict(test.x)
    assert (predicted == test.y.numpy()).mean() == history[-1]["accuracy"]
    assert load(there).about.holder == "server"
    own = written - {model_file}
    assert len(own) == len(domains) * len(files)
    for domain in domains:
        kept = sorted(path for path in own if path.is_relative_to(folder / domain))
        assert [path.name for path in kept] == files
        for path in kept:
            assert path.read_bytes() == (tmp_path / "local" / "clients" / domain / path.name).read_bytes()
    for elsewhere in (federation.folder, tmp_path / "deployed"):
        assert not {path.name for path in elsewhere.rglob("*.safetensors")} & set(files)
