"""FedAvg, whose target begins each round between the global model and its own: a row with code."""

from dataclasses import replace
from typing import Annotated

from fda_flower.names.options import Natural, Share
from fda_flower.runs.methods import METHODS, Method
from fda_flower.strategies import FedAvg
from fda_flower.wire.questions import Answer, Question
from fda_flower.wire.releases import Release


class Began(Answer):
    """The round in which the target trained its own model, 0 if it has none."""

    own_round: Annotated[Natural, Release.NOTHING]


class Between(Question):
    """Begin between the model sent and your own, with this share of your own."""

    action = "between"
    roles = ("target",)
    answer = Began
    answered_by = "halfway:between"

    share: Share


class Halfway(FedAvg):
    """FedAvg with a target that keeps its own model."""

    questions = (Between,)
    share: Share = 0.5

    def train_request(self, node, round):
        """Ask the target to begin between two models."""
        request = super().train_request(node, round)
        return replace(request, question=Between(share=self.share)) if node.is_target else request

    def answered(self, domain, answer):
        """Record what the target began from."""
        return {"own-round": answer.own_round}


def between(client, request, question):
    """Begin between the model received and the one kept, if there is one."""
    model, share, number = client.received(request), question.share, request.config["server-round"]
    own, notes = client.private_state.load_before("own", number) or (model, {"round": 0})
    begun = {name: (1 - share) * array + share * own[name] for name, array in model.items()}
    reply = client.train_from(begun, request.config)
    client.private_state.save_after("own", reply.arrays, {}, number)
    return replace(reply, answer=Began(own_round=notes["round"]))


METHODS["halfway"] = Method("Halfway", "FedAvg, the target begins near its own model", Halfway)

ROW = {"label": "Halfway", "by": "fda-flower, docs/adding.md", "run": {"method": "halfway"}}

ROW["figures"] = {
    "art_painting": {51038: 55.0732, 16351: 57.0244, 35715: 57.6585, 29068: 59.3659, 30141: 58.878},
    "cartoon": {51038: 57.2281, 16351: 53.1343, 35715: 53.4328, 29068: 57.9957, 30141: 61.4072},
    "photo": {51038: 87.988, 16351: 89.8498, 35715: 82.8228, 29068: 87.4474, 30141: 87.6276},
    "sketch": {51038: 55.4198, 16351: 60.4326, 35715: 53.8931, 29068: 55.369, 30141: 60.5852},
    "release": "0.1.0",
    "date": "2026-11-30",
    "images": "67322dc5",
}
