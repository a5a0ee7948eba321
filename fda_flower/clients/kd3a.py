"""KD3A's target: the sources' models vote on its samples, and it learns the votes."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from fda_flower.aggregation import Layers, Votes
from fda_flower.clients.client import Settings, TargetClient
from fda_flower.clients.training import Objective, train
from fda_flower.datasets import Samples
from fda_flower.files import derive_seed
from fda_flower.models.parts import batch_norms, head_names
from fda_flower.wire import protocol
from fda_flower.wire.methods import CONTRIBUTION, GATE, HEAD, MASK_SHARE, MIXUP, SOURCE_MODEL, TEACHER_BN
from fda_flower.wire.protocol import SERVER_ROUND, TrainReply, TrainRequest


class KD3ATarget(TargetClient):
    """A target that distils the sources' models (Feng et al., ICML 2021), if the message has ``gate``.

    It uses all training samples of the domain without their labels. The models vote once a round, on the
    same batches and noise.
    """

    def get_properties(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return the properties of every client, and ``head``, the names of the head's arrays."""
        return {**super().get_properties(config), HEAD: list(head_names(self.model))}

    def local_train(self, request: TrainRequest) -> TrainReply:
        """Let the models in the records ``source-DOMAIN`` vote, and train the received one on the votes.

        The reply has ``mask-share``, the share of samples with a vote above the gate, and each source's
        ``contribution-DOMAIN``. Without any such sample, nothing is trained.
        """
        config = request.config
        if GATE not in config:
            return super().local_train(request)
        whole, training = self.domain.inputs, self.training_in(config)
        samples = replace(whole, y=torch.arange(len(whole), device=whole.y.device))  # their positions
        models = {
            name.removeprefix(SOURCE_MODEL): self.named(record)
            for name, record in sorted(request.records.items())
            if name.startswith(SOURCE_MODEL) and isinstance(record, ArrayRecord)
        }
        votes = self._vote(list(models.values()), samples, config)
        model, gate = self.received(request), config[GATE]
        self.load(model)
        seed = derive_seed(self.seed, "contributions", config.get(SERVER_ROUND, 0), self.domain.name)
        contributions = votes.contributions(gate, seed)
        labels, _, mask = votes.consensus(gate, int(votes.classes.max()) + 1)
        steps, loss = 0, 0.0
        if mask.any():
            mixes = config[MIXUP] and len(samples.x.shape) > 2
            with self.drawing("train", config) as generator:
                device = samples.y.device
                objective = distillation(
                    torch.from_numpy(labels).to(device),
                    torch.from_numpy(mask).to(device),
                    generator if mixes else None,
                )
                steps, loss = train(self.model, samples, training, generator, objective)
        metrics = {
            protocol.NUM_STEPS: steps,
            protocol.LEARNING_RATE: training.learning_rate,
            protocol.BATCH_SIZE: training.batch_size,
            protocol.TRAIN_LOSS: loss,
            MASK_SHARE: float(mask.mean()),
        }
        for domain, contribution in zip(models, contributions.tolist(), strict=True):
            metrics[f"{CONTRIBUTION}{domain}"] = contribution
        return TrainReply(self.layers(), len(samples), metrics)

    @torch.no_grad()
    def _vote(self, models: list[Layers], samples: Samples, config: Settings) -> Votes:
        """Return the models' predictions for the samples, in the order of their positions."""
        shape = (len(samples), len(models))
        confidences, classes = np.zeros(shape, np.float32), np.zeros(shape, np.int32)
        for k, model in enumerate(models):
            self.load(model)
            self.model.eval()
            for layer in batch_norms(self.model):
                layer.train(config[TEACHER_BN] == "batch")
            with self.drawing("vote", config) as generator:
                for x, positions in samples.batches(self.training.batch_size, generator, shuffle=True):
                    largest, found = self.model(x).softmax(dim=1).max(dim=1)
                    rows = positions.cpu().numpy()
                    confidences[rows, k], classes[rows, k] = largest.cpu().numpy(), found.cpu().numpy()
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
