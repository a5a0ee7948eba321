"""Clients that keep a part of the model between rounds."""

from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from fda_flower.aggregation import Layers
from fda_flower.clients.client import DomainClient
from fda_flower.clients.trainee import Settings
from fda_flower.models.exchange import Exchange
from fda_flower.wire import protocol
from fda_flower.wire.asked.personal_layers import EvaluateWithPart, KeepPart, PartKept
from fda_flower.wire.protocol import EvaluateReply, EvaluateRequest, TrainReply, TrainRequest

OWN_PART = "local-part"
"""Name of the part in the client's own state."""


def keep_part(client: DomainClient, request: TrainRequest, question: KeepPart) -> TrainReply:
    """Train the received model with the client's own part, and keep this part.

    ``head`` is the part of FedRep (Collins et al., ICML 2021), ``batch-norm`` of FedBN (Li et al., ICLR
    2021). The reply has the part as received. In the first round the client starts from the received part.
    """
    config, received = request.config, client.received(request)
    now = int(config[protocol.SERVER_ROUND])
    own, began_in = _own_part(client, now)
    model: Layers = {**received, **own}
    if question.head_epochs:
        client.load(model)
        _train_head(client, "head", config, question.head_epochs)
        model = client.layers()
    reply = client.train_from(model, config)
    names = Exchange.of(client.model, question.part).own
    client.private_state.save_after(OWN_PART, {name: reply.arrays[name] for name in names}, {}, now)
    arrays = {**reply.arrays, **{name: received[name] for name in names}}
    return replace(reply, arrays=arrays, answer=PartKept(began_in=began_in))


def evaluate_with_part(
    client: DomainClient, request: EvaluateRequest, question: EvaluateWithPart
) -> EvaluateReply:
    """Evaluate the model of a request with the client's own part; on request its head trains for longer."""
    config = request.config
    own, _ = _own_part(client, int(config[protocol.SERVER_ROUND]) + 1)
    model = {**client.received(request), **own}
    if question.final_head_epochs:
        client.load(model)
        _train_head(client, "final-head", config, question.final_head_epochs)
        model = client.layers()
    return client.score(client.single(model, config), config)


def _train_head(client: DomainClient, phase: str, config: Settings, epochs: int) -> None:
    client.train_on(phase, {**config, protocol.EPOCHS: epochs}, part="head")


def _own_part(client: DomainClient, round: int) -> tuple[dict[str, NDArray[Any]], int]:
    """Return the last part kept before a round, and its round; nothing and 0 if there is none."""
    state = client.private_state.load_before(OWN_PART, round)
    return ({}, 0) if state is None else (state[0], int(state[1]["round"]))
