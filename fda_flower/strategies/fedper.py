"""FedPer: all clients train a body together, and each has a head of its own, trained with it."""

from fda_flower.strategies.local_part import LocalPart


class FedPer(LocalPart):
    """FedAvg of the body; the head stays at each client (Arivazhagan et al., arXiv 1912.00818).

    A client trains body and head together, from the body that it receives and the head that it has kept, see
    `LocalPart`. The headline is the accuracy of the averaged body with the target's head.

    Parameters
    ----------
    weights : {"examples", "uniform"}
        Weights of the mean of all clients, the target included.
    **common
        See `DomainAdaptationStrategy`.

    Examples
    --------
    >>> from fda_flower.strategies import FedPer
    >>> strategy = FedPer(weights="uniform")
    """

    part = "head"
