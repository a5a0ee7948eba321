"""Files of weights that are pinned by their digest: stored, read, downloaded, and compared between nodes."""

import hashlib
from typing import Any

import pytest
import torch
from naming import names
from safetensors.torch import save_file

from fda_flower import RunConfig
from fda_flower.client_app import make_client
from fda_flower.errors import ConfigError
from fda_flower.models import build_model, weights
from fda_flower.models.weights import WeightsFile, addresses, download, state_of, weights_folder
from fda_flower.runs import network
from fda_flower.strategies.nodes import Node, conflict

STATE = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor(1)}


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FDA_CACHE_DIR", str(tmp_path / "cache"))


def written(path, state=STATE):
    (save_file if path.suffix == ".safetensors" else torch.save)(state, path)
    return path


def digest_of(path):
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_a_stored_file_is_read_by_its_digest_alone(tmp_path, monkeypatch, suffix, links):
    if not links:
        monkeypatch.setattr("os.link", lambda *_: (_ for _ in ()).throw(OSError("another disk")))
    path = written(tmp_path / f"w{suffix}")
    file = WeightsFile.read(path)
    assert (file.digest, file.numbers) == (digest_of(path), 7)
    assert file.stored() == file.stored() == weights_folder() / file.digest.removeprefix("sha256:")
    assert file.stored().samefile(path) is links
    path.unlink()
    assert state_of(file.digest)["a"].equal(STATE["a"])
    assert [each.name for each in weights_folder().iterdir()] == [file.digest.removeprefix("sha256:")]


def test_another_file_in_its_place_is_named_with_both_digests_and_can_be_replaced(tmp_path):
    path, other = written(tmp_path / "w.pth"), written(tmp_path / "o.pth", {"a": torch.zeros(1)})
    place = WeightsFile.read(path).stored()
    place.unlink()
    place.write_bytes(other.read_bytes())
    with pytest.raises(ConfigError, check=names("weights", place, "fda weights FILE")) as caught:
        state_of(digest_of(path))
    assert all(digest in str(caught.value) for digest in (digest_of(path), digest_of(other)))
    WeightsFile.read(path).stored()
    assert state_of(digest_of(path)).keys() == STATE.keys()


def test_a_missing_file_and_a_wrong_digest_are_named(tmp_path, monkeypatch):
    missing = f"sha256:{'0' * 64}"
    for cache in (tmp_path / "cache", written(tmp_path / "no folder.pth")):
        monkeypatch.setenv("FDA_CACHE_DIR", str(cache))
        with pytest.raises(ConfigError, check=names("weights", missing, "fda weights FILE")) as caught:
            state_of(missing)
        assert caught.value.may_leave, "a run learns what its sites lack"
        assert str(cache) not in str(caught.value), "but not where it would be"
    for digest in ("sha256:", "sha256:../../w", f"sha256:{'A' * 64}"):
        with pytest.raises(ConfigError, check=names("weights", digest)):
            state_of(digest)


def test_a_folder_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    path = written(tmp_path / "w.pth")
    monkeypatch.setenv("FDA_CACHE_DIR", str(path))
    with pytest.raises(ConfigError, check=names("folder of weights", path / "weights", "FDA_CACHE_DIR")):
        WeightsFile.read(path).stored()


def test_libraries_say_where_their_weights_are():
    pytest.importorskip("timm")
    (on_hub, elsewhere) = addresses("timm:vit_large_patch14_dinov2")
    assert on_hub == (
        "https://huggingface.co/timm/vit_large_patch14_dinov2.lvd142m/resolve/main/model.safetensors"
    )
    assert elsewhere.endswith("dinov2_vitl14_pretrain.pth")
    assert addresses("torchvision:vit_l_16") == ["https://download.pytorch.org/models/vit_l_16-852ce7e3.pth"]
    assert len(addresses("timm:vit_large_patch16_224")) == 1, "the other file is no state dictionary"
    with pytest.raises(ConfigError, check=names("model", "timm:vit_small_patch16_36x1_224", "give a file")):
        addresses("timm:vit_small_patch16_36x1_224")


def test_a_download_is_stored_by_its_digest_or_says_what_to_do_without_internet(tmp_path, monkeypatch):
    path = written(tmp_path / "w.pth")
    right = path.with_name(f"w-{digest_of(path)[7:15]}.pth")
    wrong = path.with_name("w-00000000.pth")
    for each in (right, wrong):
        each.write_bytes(path.read_bytes())
    places = [each.as_uri() for each in (tmp_path / "nowhere.pth", wrong, right)]
    monkeypatch.setattr(weights, "addresses", lambda name: places)
    file = download("timm:net")
    assert (file.path, file.digest) == (file.stored(), digest_of(path))
    places.pop()
    with pytest.raises(ConfigError, check=names("model", "timm:net", places[1])) as caught:
        download("timm:net")
    assert "fda weights FILE --model timm:net" in str(caught.value)
    assert places[0] in str(caught.value)
    assert [each.name for each in weights_folder().iterdir()] == [file.path.name]


def test_two_nodes_with_other_files_of_weights_do_not_begin_to_train(tmp_path):
    pytest.importorskip("timm")
    path, nodes = tmp_path / "w.pth", []
    settings: dict[str, Any] = {"shift": "rotate", "sources": 2, "device": "cpu", "model": "timm:test_vit"}
    settings |= {"target_samples": 20, "source_samples": 10, "test_samples": 10, "method": "fedavg"}
    config = RunConfig(**settings, model_options={"weights": str(path)})
    for number, name in enumerate(("source-1", "source-2", "source-1", "target")):
        if number != 3:  # the last two have the same file
            written(path, build_model("timm:test_vit", (3, 8, 8), 2, number).state_dict())
        network._split.cache_clear()
        client = make_client(config, name)
        nodes.append(Node(number, name, name == "target", client.get_properties({})))
    error = conflict(*nodes[:2])
    assert error is not None
    assert "'source-1' and 'source-2' do not have the same frozen weights" in str(error)
    assert "fda weights FILE" in str(error)
    assert conflict(*nodes[2:]) is None
