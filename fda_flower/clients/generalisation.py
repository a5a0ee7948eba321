"""Sources of domain generalisation: IRM's penalty, and the loss that V-REx weighs."""

from dataclasses import dataclass, replace

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fda_flower.clients.client import DomainClient
from fda_flower.clients.gradients import Loss
from fda_flower.clients.training import mean_loss, training_loss
from fda_flower.models.devices import widest_float
from fda_flower.prediction.network_passes import predict
from fda_flower.wire.asked.generalisation import LossMeasured, MeasureLoss, Penalise, Penalised
from fda_flower.wire.protocol import TrainReply, TrainRequest


def penalise(client: DomainClient, request: TrainRequest, question: Penalise) -> TrainReply:
    """Train with the penalty of IRMv1; ``train-loss`` is the mean of ``CE + λ D``."""
    loss = training_loss(client.domain.train, client.training)
    objective = PenalisedLoss(question.strength, loss)
    reply = client.train_from(client.received(request), request.config, objective)
    return replace(reply, answer=Penalised(penalty=objective.penalty))


def measure_loss(client: DomainClient, request: TrainRequest, question: MeasureLoss) -> TrainReply:
    """Train as usual, and answer with the mean loss of the received model on the training samples."""
    model, train = client.received(request), client.domain.train
    client.load(model)
    with client.drawing("loss", request.config) as generator:
        loss = mean_loss(predict(client.model, train, generator, device=client.device), train)
    return replace(client.train_from(model, request.config), answer=LossMeasured(loss_at_start=loss))


@dataclass
class PenalisedLoss:
    """``CE + λ D`` of a batch (`loss`, `strength` and `scale_penalty`), with the mean of the penalty."""

    strength: float
    loss: Loss = cross_entropy
    _sum: Tensor | float = 0.0
    _seen: int = 0

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """Return the objective for a batch of samples and classes."""
        logits = model(x)
        penalty = scale_penalty(logits, y)
        self._sum = self._sum + penalty.detach().to(widest_float(y.device)) * len(y)
        self._seen += len(y)
        loss: Tensor = self.loss(logits, y) + self.strength * penalty
        return loss

    @property
    def penalty(self) -> float:
        """The mean of ``D`` over all samples so far."""
        return float(self._sum) / self._seen


def scale_penalty(logits: Tensor, y: Tensor) -> Tensor:
    """Return ``D``, IRMv1's penalty on a batch (Arjovsky et al., 2019), as DomainBed estimates it.

    ``D`` multiplies the derivatives of ``CE(s · logits, y)`` by ``s``, at ``s = 1``, over the samples at even
    and at odd positions: an unbiased estimate of the squared derivative, which may be negative. The
    derivative for a sample is ``Σ_c p_c z_c − z_y``, with its logits ``z`` and probabilities ``p``. `logits`
    has shape ``(n, classes)``, `y` shape ``(n,)``; with a single sample, ``D`` is 0.
    """
    chosen = logits.gather(1, y[:, None])
    slopes = (logits.softmax(dim=1) * (logits - chosen)).sum(dim=1)
    return slopes[::2].mean() * slopes[1::2].mean() if len(y) > 1 else logits.new_zeros(())
