"""Networks for rows of features, and for images as rows of pixels."""

from torch import Size, nn

from fda_flower.errors import ConfigError


def logistic(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build one linear layer: logistic regression or, for a regression task, linear regression.

    Parameters
    ----------
    shape : tuple[int, ...]
        Shape of one sample.
    classes : int
        Number of classes, or of outputs.
    """
    return nn.Sequential(nn.Flatten(), nn.Linear(Size(shape).numel(), classes))


def mlp(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Build one hidden layer of 64 with ReLU.

    Parameters
    ----------
    shape : tuple[int, ...]
        Shape of one sample.
    classes : int
        Number of classes, or of outputs.
    """
    return _hidden(shape, classes, 64, nn.ReLU())


def sigmoid(shape: tuple[int, ...], classes: int, hidden: int = 100) -> nn.Module:
    """Build one hidden layer with sigmoid, as in Jiang et al.'s synthetic regression (ICLR 2024, Appendix B).

    Parameters
    ----------
    shape : tuple[int, ...]
        Shape of one sample.
    classes : int
        Number of classes, or of outputs.
    hidden : int
        Width of the hidden layer, which the paper does not print.

    Raises
    ------
    ConfigError
        If `hidden` is below 1.
    """
    if hidden < 1:
        raise ConfigError(f"option 'hidden' of model 'sigmoid' is {hidden}, it must be at least 1")
    return _hidden(shape, classes, hidden, nn.Sigmoid())


def _hidden(shape: tuple[int, ...], classes: int, hidden: int, activation: nn.Module) -> nn.Module:
    inputs = Size(shape).numel()
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, hidden), activation, nn.Linear(hidden, classes))
