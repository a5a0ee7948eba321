"""A source: plenty of data, from a shifted domain."""

from typing import ClassVar

from fda_flower.clients.client import DomainClient


class SourceClient(DomainClient):
    """A client of a source domain; see `DomainClient`.

    Examples
    --------
    >>> from fda_flower.clients import LocalTraining
    >>> from fda_flower.datasets import DataSpec, load_federation
    >>> from fda_flower.models import build_model
    >>> data = load_federation(DataSpec("digits", "rotate"))
    >>> model = build_model("mlp", data.shape, data.classes, seed=0)
    >>> client = SourceClient(data.domains["source-1"], model, LocalTraining(0.01, 32))
    >>> _, examples, metrics = client.fit(client.get_parameters({}), {"server-round": 1})
    >>> examples, metrics["num-steps"]
    (337, 11)
    """

    role: ClassVar[str] = "source"
