"""What a network asks of the shape of its samples."""

from fda_flower.errors import ConfigError


def check_images(name: str, shape: tuple[int, ...], smallest: int = 1) -> None:
    """Refuse what a network for images cannot take.

    Parameters
    ----------
    name : str
        The model's.
    shape : tuple[int, ...]
        Of one sample.
    smallest : int
        The least height and width in pixels.

    Raises
    ------
    ConfigError
        If the samples are no images, or too small.
    """
    if len(shape) == 1:
        raise ConfigError(
            f"model '{name}' needs images, these are rows of {shape[0]} features: choose mlp, logistic or "
            "sigmoid"
        )
    if min(shape[1:]) < smallest:
        raise ConfigError(
            f"model '{name}' needs images of {smallest}x{smallest} or more, these are {shape[1]}x{shape[2]}"
        )
