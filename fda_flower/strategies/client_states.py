"""What clients keep between rounds, as the server mirrors it, to give it back after a resume."""

from flwr.app import ArrayRecord

from fda_flower.protocol import TrainRequest, to_record
from fda_flower.strategies.nodes import Node
from fda_flower.strategies.round import Round, Updates


class ClientStates:
    """The mirror of what clients keep.

    Attributes
    ----------
    to_give_back : set[str]
        Names of the records that a resumed run has yet to give back to their clients.
    """

    def __init__(self) -> None:
        self.to_give_back: set[str] = set()

    def ask(self, request: TrainRequest, node: Node, state: dict[str, ArrayRecord]) -> TrainRequest:
        """Return a request with what has to be replied to mirror it, and with what is given back."""
        kept = {name: _name(node.domain, name) for name in request.keeps}
        replied, remedy = request.keeps.values(), "the client has to reply with what it keeps"
        return request.adding(
            expects={record: request.expects.get(record, "model") for record in replied},
            requires={record: request.requires.get(record, remedy) for record in replied},
            records={name: state[key] for name, key in kept.items() if key in self.to_give_back},
        )

    def mirror(self, round: Round, updates: Updates, state: dict[str, ArrayRecord]) -> None:
        """Keep what the clients keep, also if the round is held: they have trained all the same."""
        target, sources = updates
        replied = dict(sources) | ({round.target.domain: target} if round.target and target else {})
        for node, request in round.requests.items():
            if node.domain in replied:
                for name, record in request.keeps.items():
                    key = _name(node.domain, name)
                    state[key] = to_record(replied[node.domain].extra[record])
                    self.to_give_back.discard(key)


def _name(domain: str, name: str) -> str:
    """Return the name under which a strategy keeps a record of a client's own state."""
    return f"client/{domain}/{name}"
