"""The target: few labelled samples of the domain that counts."""

from collections.abc import Mapping
from typing import Any, ClassVar

from fda_flower.clients.client import DomainClient
from fda_flower.clients.recorder import Recorder, make_recorder


class TargetClient(DomainClient):
    """The client of the target domain; see `DomainClient`.

    It records its local steps in the encoding that the server asks for, for auto-weighting.
    """

    role: ClassVar[str] = "target"

    def recorder(self, config: Mapping[str, Any]) -> Recorder | None:
        """Return the recorder that the train message asks for."""
        return make_recorder(self.parameters_in_order(), config)
