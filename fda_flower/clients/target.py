"""The target: few labelled samples of the domain that counts."""

from collections.abc import Mapping
from logging import WARNING
from typing import Any, ClassVar

from flwr.common import log

from fda_flower.clients.client import DomainClient
from fda_flower.clients.recorder import Recorder, make_recorder
from fda_flower.datasets.labels import few_tests, label_problems
from fda_flower.protocol import CLASS_NAMES, REGRESSION


class TargetClient(DomainClient):
    """The client of the target domain; see `DomainClient`.

    It records its local steps in the encoding that the server asks for, for auto-weighting.
    """

    role: ClassVar[str] = "target"

    def get_properties(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return what every client tells; warn, here and not at the server, of too few samples."""
        properties = super().get_properties(config)
        problems = few_tests(len(self.domain.test))
        if not properties[REGRESSION]:
            names = properties.get(CLASS_NAMES) or range(int(properties.get("classes", 0)))
            problems += label_problems(self.domain.train.y.tolist(), [str(name) for name in names])
        for problem in problems:
            log(WARNING, "The target '%s': %s", self.domain.name, problem)
        return properties

    def recorder(self, config: Mapping[str, Any]) -> Recorder | None:
        """Return the recorder that the train message asks for."""
        return make_recorder(self.parameters_in_order(), config)
