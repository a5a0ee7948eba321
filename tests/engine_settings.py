"""Settings of runs that have the same bits on every engine."""

from pathlib import Path

from sites import write_images, write_sites

from fda_flower.runs.methods import find_method, method_names


def with_frozen_body(method):
    """The settings of a method with a frozen backbone; other processes need `PATH` to import the network."""
    needs_more = {"body", "trained body", "batch-norm"} & {*find_method(method).needs}
    return {
        **{"method": method, "model": "blocks_net:net", "train": "last" if needs_more else "head"},
        **{"sources": 2, "target_samples": 20, "source_samples": 30, "test_samples": 40},
    }


FROZEN = {
    **{
        f"frozen, {name}": with_frozen_body(name)
        for name in method_names()
        if not find_method(name).centralised
    },
    "frozen, every site": {**with_frozen_body("ridge"), "target": "all", "source_samples": None},
    "frozen, with adapters": {**with_frozen_body("fedda-auto"), "train": "adapters:2"},
}
"""The settings of every method with a frozen body, by a name."""

PATH = str(Path(__file__).parent)


def with_batch_norm(folder):
    """The settings of a network with BatchNorm, and of images that are large enough for it."""
    write_sites(write_images, folder, "abc")
    return {
        **{"dataset": "images", "dataset_options": {"domains": "a,b,c", "image_size": 16}, "target": "c"},
        **{"data_dir": str(folder), "model": "resnet9", "model_options": {"width": 2}, "target_samples": 10},
        "source_samples": None,
    }
