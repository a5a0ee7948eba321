"""KD3A's target: the sources' models vote on its samples, and it learns the votes."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from fda_flower.aggregation import Layers, Votes
from fda_flower.clients.client import TargetClient
from fda_flower.clients.trainee import Settings
from fda_flower.clients.training import Objective, train
from fda_flower.datasets import Samples
from fda_flower.files import derive_seed
from fda_flower.models.parts import batch_norms, head_names
from fda_flower.prediction.batches import batches
from fda_flower.wire import protocol
from fda_flower.wire.asked.kd3a import Distil, Distilled
from fda_flower.wire.protocol import SERVER_ROUND, TrainReply, TrainRequest


def distil(client: TargetClient, request: TrainRequest, question: Distil) -> TrainReply:
    """Let the sources' models vote, and train the received one on the votes (Feng et al., ICML 2021).

    The target uses all training samples of the domain without their labels. The models vote once a round, on
    the same batches and noise. Without any vote above the gate, nothing is trained.
    """
    config, gate = request.config, question.gate
    inputs, training = client.domain.inputs, client.training_in(config)
    samples = replace(inputs, y=np.arange(len(inputs)))  # their positions
    models = {domain: client.exchange.named(model) for domain, model in sorted(question.models.items())}
    votes = _votes(client, list(models.values()), samples, config, question.teacher_bn == "batch")
    client.load(client.received(request))
    seed = derive_seed(client.seed, "contributions", config.get(SERVER_ROUND, 0), client.domain.name)
    contributions = votes.contributions(gate, seed)
    labels, _, mask = votes.consensus(gate, int(votes.classes.max()) + 1)
    steps, loss = 0, 0.0
    if mask.any():
        mixes = question.mixup and len(samples.x.shape) > 2
        with client.drawing("train", config) as generator:
            device = client.device
            objective = distillation(
                torch.from_numpy(labels).to(device),
                torch.from_numpy(mask).to(device),
                generator if mixes else None,
            )
            steps, loss = train(client.model, samples, training, generator, objective)
    metrics = {
        protocol.NUM_STEPS: steps,
        protocol.LEARNING_RATE: training.learning_rate,
        protocol.BATCH_SIZE: training.batch_size,
        protocol.TRAIN_LOSS: loss,
    }
    answer = Distilled(
        mask_share=float(mask.mean()),
        contribution=dict(zip(models, contributions.tolist(), strict=True)),
        head=tuple(head_names(client.model)),
    )
    return TrainReply(client.layers(), len(samples), metrics, answer=answer)


@torch.no_grad()
def _votes(
    client: TargetClient, models: list[Layers], samples: Samples, config: Settings, of_batch: bool
) -> Votes:
    """Return the models' predictions for the samples, in the order of their positions.

    With `of_batch` BatchNorm uses the statistics of each batch.
    """
    shape = (len(samples), len(models))
    confidences, classes = np.zeros(shape, np.float32), np.zeros(shape, np.int32)
    for k, model in enumerate(models):
        client.load(model)
        client.model.eval()
        for layer in batch_norms(client.model):
            layer.train(of_batch)
        with client.drawing("vote", config) as generator:
            for x, positions in batches(
                samples, client.training.batch_size, generator, shuffle=True, device=client.device
            ):
                largest, predicted = client.model(x).softmax(dim=1).max(dim=1)
                rows = positions.cpu().numpy()
                confidences[rows, k], classes[rows, k] = largest.cpu().numpy(), predicted.cpu().numpy()
    return Votes(confidences, classes)


def distillation(labels: Tensor, mask: Tensor, generator: torch.Generator | None) -> Objective:
    """Return the objective ``mean_b m_b · (−Σ_c ỹ_bc log softmax_c)`` of a batch of samples by position.

    `labels` and `mask` are of each sample, shape ``(n,)``. With a `generator` images and labels are mixed:
    ``u x + (1 − u) x'``, with a permutation of the batch, one ``u ~ Beta(2, 2)``, and the mask of ``x``.
    """

    def objective(model: nn.Module, x: Tensor, positions: Tensor) -> Tensor:
        own = labels[positions]
        if generator is None:
            losses = cross_entropy(model(x), own, reduction="none")
        else:
            # The median of three uniform numbers follows Beta(2, 2).
            u = float(torch.rand(3, generator=generator).median())
            other = torch.randperm(len(x), generator=generator).to(x.device)
            outputs = model(u * x + (1 - u) * x[other])
            whole = one_hot(own, outputs.shape[1]).to(outputs.dtype)
            losses = cross_entropy(outputs, u * whole + (1 - u) * whole[other], reduction="none")
        return (mask[positions] * losses).mean()

    return objective
