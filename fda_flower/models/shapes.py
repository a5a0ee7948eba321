"""Checks of the shape of a network's samples."""

from fda_flower.errors import ConfigError


def check_images(name: str, shape: tuple[int, ...], smallest: int = 1) -> None:
    """Raise a `ConfigError` if a network for images does not accept samples of a shape.

    Parameters
    ----------
    name : str
        The model's name.
    shape : tuple[int, ...]
        Shape of one sample.
    smallest : int
        The smallest height and width, in pixels.

    Raises
    ------
    ConfigError
        If the samples are not images, or too small.
    """
    if len(shape) == 1:
        raise ConfigError(
            f"model '{name}' needs images, but these are rows of {shape[0]} features: choose mlp, "
            "logistic or sigmoid"
        )
    if min(shape[1:]) < smallest:
        raise ConfigError(
            f"model '{name}' needs images of {smallest}x{smallest} or more, "
            f"but these are {shape[1]}x{shape[2]}"
        )
