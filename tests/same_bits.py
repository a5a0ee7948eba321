"""Runs on two engines, which have the same bits."""

from sites import write_images


def without_seconds(history):
    return [{key: value for key, value in record.items() if key != "seconds"} for record in history]


def bits(model):
    """A model's arrays, by name and in their order."""
    return [(name, array.tobytes()) for name, array in model.items()]


def assert_same(result, other, last=0):
    """The same records, all or of the last rounds, and the same model."""
    assert without_seconds(result.history[-last:]) == without_seconds(other.history[-last:])
    assert bits(result.model) == bits(other.model)


def with_batch_norm(folder):
    """The settings of a network with BatchNorm, and of images that are large enough for it."""
    for seed, domain in enumerate("abc"):
        write_images(folder / domain, seed)
    return {
        **{"dataset": "images", "dataset_options": {"domains": "a,b,c", "image_size": 16}, "target": "c"},
        **{"data_dir": str(folder), "model": "resnet9", "model_options": {"width": 2}, "target_samples": 10},
        "source_samples": None,
    }
