"""What sites keep for themselves, decide and note, over real processes, with the bits of a local run.

KD3A's sites keep nothing: it is here because it asks the target within a round."""

import os
import shutil
import stat
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from engine_settings import FROZEN, PATH
from sites import write_images, write_table
from typer.testing import CliRunner
from whole_runs import same_bits, untimed

from fda_flower import RunConfig, load, run
from fda_flower.cli.app import app
from fda_flower.datasets import load_domain
from fda_flower.deployment import Federation, make_key, run_deployed
from fda_flower.errors import RunError
from fda_flower.experiments.pages import write_card
from fda_flower.files import BODY, MODEL
from fda_flower.prediction.export import export
from fda_flower.records.folder import RunFolder
from fda_flower.records.verification import verify
from fda_flower.site import epsilon, read_log
from fda_flower.wire.identity import Identity

DOMAINS = ("source-1", "source-2", "target")
LOCAL_PART = ["local-part-before.safetensors", "local-part.safetensors"]
SETTINGS: dict[str, Any] = {
    **{"model": "mlp", "sources": 1, "rounds": 2, "device": "cpu"},
    **{"target_samples": 16, "source_samples": 40, "test_samples": 40},
}


def deployed(federation, settings, output):
    config = RunConfig(**settings)
    return run_deployed(config, federation.connection, output, environment=federation.environment)


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
    history, there = deployed(federation, settings, tmp_path / "deployed")
    written = set(folder.rglob("*.safetensors")) - before
    local = run(**settings, output=tmp_path / "local")
    assert untimed(history) == untimed(local.history)
    model = RunFolder(there).load_checkpoint().model
    assert same_bits(model, local.model)
    [model_file] = (path for path in written if path.name == "model.safetensors")
    assert model_file.read_bytes() == (tmp_path / "local" / "model.safetensors").read_bytes()
    site_model = load(model_file.parent)
    test = load_domain(RunConfig(**settings).data, "target").domains["target"].test
    predicted = site_model.predict(test.x)
    assert (predicted == test.y).mean() == history[-1]["accuracy"]
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


@pytest.fixture(scope="module")
def three_sites(tmp_path_factory):
    """A federation whose processes can import the network of `FROZEN`, and the folder with its sites' own."""
    folder = tmp_path_factory.mktemp("three")
    nodes: dict[str, dict[str, Any]] = {
        domain: {
            "domain": domain,
            "data-dir": str(folder / "data"),
            "state-dir": str(folder / domain),
            "resident": True,
            "require-secure": False,
        }
        for domain in DOMAINS
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([PATH, os.environ.get("PYTHONPATH", "")]))
        patch.setenv("FDA_CACHE_DIR", str(folder / "cache"))
        with Federation(tmp_path_factory.mktemp("federation"), nodes, secure=False) as federation:
            yield federation, folder


@pytest.mark.slow
@pytest.mark.parametrize("name", FROZEN)
def test_a_frozen_body_has_the_bits_of_a_local_run(name, three_sites, tmp_path):
    federation, folder = three_sites
    settings = {"rounds": 2, "seed": 3, "device": "cpu", **FROZEN[name]}
    history, there = deployed(federation, settings, tmp_path / "deployed")
    local = run(**settings)
    assert untimed(history) == untimed(local.history)
    assert same_bits(RunFolder(there).load_checkpoint().model, local.model)
    for domain in ("source-1", "source-2", "target"):
        assert list((folder / domain / "features").iterdir())


def spent(rounds):
    return epsilon([(1.0, rounds)], 1e-5)


@pytest.mark.slow
def test_sites_refuse_note_what_they_send_and_end_a_run_and_a_changed_round_is_found(tmp_path):
    sites = {domain: tmp_path / "sites" / domain for domain in ("source-1", "target")}
    rules: dict[str, dict[str, Any]] = {
        "source-1": {
            "allow-methods": "fedda-auto,fedgp-auto",
            "allow-batch-updates": "none",
            "min-samples": 40,
            **{"dp-clip": 1.0, "dp-noise": 1.0, "max-epsilon": (spent(3) + spent(4)) / 2},
        },
        "target": {"allow-batch-updates": "norms"},
    }
    nodes = {
        name: {"domain": name, "state-dir": str(sites[name]), "resident": True, **rules[name]}
        for name in sites
    }
    with Federation(tmp_path / "federation", nodes, secure=False) as federation:

        def deploy(method, output):
            deployed(federation, {**SETTINGS, "method": method}, tmp_path / output)

        with pytest.raises(RunError, match=r"target refuses.*'norms'.*'sketch'"):
            deploy("fedgp-auto", "refused")
        deploy("fedda-auto", "ended")
        with pytest.raises(RunError, match=r"round 2 .*'source-1'.*max-epsilon"):
            deploy("fedda-auto", "stopped")

    for domain, folder in sites.items():
        assert stat.S_IMODE((folder / "sent.jsonl").stat().st_mode) == 0o600
        lines = read_log(folder)
        numbers = dict.fromkeys(line["run"] for line in lines)
        runs = [[line for line in lines if line["run"] == number] for number in numbers]
        asked, ended, stopped = runs
        assert {line["message"] for line in asked} == {"query.role"}
        assert ("refused" in asked[0]) == (domain == "target")
        assert not any("refused" in line or "failed" in line for line in ended)
        failed = [line["round"] for line in stopped if "refused" in line or "failed" in line]
        assert failed == ([2] if domain == "source-1" else [])
        trained = [line for line in ended if line["message"] == "train"]
        assert [line["round"] for line in trained] == [1, 2]
        for line in trained:
            batches = line["records"].get("batch-updates")
            assert (batches is None) == (domain == "source-1")
            assert batches is None or batches["arrays"] == {"norms": ["float64", [4]]}

    done = tmp_path / "ended"
    told = [record["privacy"]["source-1"]["epsilon"] for record in RunFolder(done).read_rounds()]
    assert told == pytest.approx([spent(1), spent(2)])
    (kept,) = RunFolder(tmp_path / "stopped").read_rounds()
    assert kept["privacy"]["source-1"]["epsilon"] == pytest.approx(spent(3))
    found = verify(done)
    assert (found.rounds, found.problems) == (2, ())
    changed = shutil.copytree(done, tmp_path / "changed")
    lines = (changed / "rounds.jsonl").read_text()
    (changed / "rounds.jsonl").write_text(lines.replace('"round": 1,', '"round": 1, "better": true,'))
    assert verify(changed, found.last).problems == ("the record of round 1 has changed",)


def write_files(folder, dataset):
    """The domains' files; return the settings of Ridge on them, with a target at each site."""
    for seed, domain in enumerate(DOMAINS):
        if dataset == "table":
            write_table(folder / f"{domain}.csv", seed)
        else:
            write_images(folder / domain, seed, count=5)
    photos = {"model": "efficientnet-lite0+adabn"} if dataset == "images" else {}
    classes = "ant,bee" if dataset == "images" else "0,1"
    return {
        **{"method": "ridge", "target": "all", "device": "cpu", "dataset": dataset, "data_dir": str(folder)},
        **{"dataset_options": {"domains": ",".join(DOMAINS), "classes": classes}, **photos},
    }


@pytest.mark.slow
@pytest.mark.parametrize(("dataset", "option"), [("table", "--csv"), ("images", "--images")])
def test_where_every_site_is_a_target_each_keeps_a_model_that_predicts(
    dataset, option, three_sites, tmp_path, monkeypatch
):
    """Of photos, each has BatchNorm statistics of its own, which another runtime uses, too."""
    monkeypatch.setenv("FDA_CACHE_DIR", str(tmp_path / "cache"))
    federation, folder = three_sites
    before = {path.parent for path in folder.rglob(MODEL)}
    settings = write_files(folder / "data", dataset)
    history, there = deployed(federation, settings, tmp_path / "deployed")
    local = run(**settings, output=tmp_path / "local")
    assert untimed(history) == untimed(local.history)
    assert same_bits(RunFolder(there).load_checkpoint().model, local.model)
    assert list(history[0]["sites"]) == list(DOMAINS)
    assert verify(Path(there)).problems == ()
    assert "the domain of each site" in write_card(Path(there)).read_text()
    own_files = dict[str, bytes]()
    for domain in DOMAINS:
        [kept] = {path.parent for path in (folder / domain).rglob(MODEL)} - before
        same = tmp_path / "local" / "clients" / domain
        for name in (path.name for path in same.glob("*.safetensors")):
            own_files[f"{domain}/{name}"] = (kept / name).read_bytes()
            assert own_files[f"{domain}/{name}"] == (same / name).read_bytes()
        data = (folder / "data" / domain).with_suffix(".csv" if dataset == "table" else "")
        new = [option, str(data), "--output", str(tmp_path / "p.csv")]
        said = CliRunner().invoke(app, ["predict", str(kept), *new])
        assert said.exit_code == 0, said.output
        assert len((tmp_path / "p.csv").read_text().splitlines()) == 1 + (40 if dataset == "table" else 10)
        _check_exported(load(kept), tmp_path / "model.onnx")
    bodies = {content for name, content in own_files.items() if name.endswith(BODY)}
    assert len(bodies) == (0 if dataset == "table" else 3)


def _check_exported(model, path):
    export(model, path)
    x = np.random.default_rng(0).random((3, *model.about.shape), dtype=np.float32)
    (probabilities,) = onnxruntime.InferenceSession(path).run(None, {"samples": x})
    np.testing.assert_allclose(probabilities, model.predict_proba(x), atol=1e-5)


@pytest.mark.slow
def test_masked_sums_of_sites_that_list_each_others_keys(tmp_path):
    config = RunConfig(
        method="ridge", method_options={"secure": True}, model="logistic", sources=3, device="cpu"
    )
    folder, sources = tmp_path / "federation", config.data.source_names
    keys = {name: Identity.read(make_key(folder / "keys", name)[0]).fingerprint for name in sources}
    everyone = ",".join(f"{name}:{fingerprint}" for name, fingerprint in keys.items())
    nodes: dict[str, dict[str, Any]] = {"target": {"domain": "target", "role": "target"}}
    for name in sources:
        rules = {"state-dir": str(tmp_path / name), "secure-with": everyone}
        nodes[name] = {"domain": name, "role": "source", **rules}
    with Federation(folder, nodes) as federation:
        (record,), there = deployed(federation, config.settings(), tmp_path / "out")
        model = RunFolder(there).load_checkpoint().model
    assert (record["held"], record["dropped"]) == (None, [])
    local = run(method="ridge", model="logistic", sources=3, device="cpu")
    for name, array in model.items():
        np.testing.assert_allclose(np.float64(array), np.float64(local.model[name]), atol=1e-4)
