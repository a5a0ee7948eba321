"""FADA's clients: sources disentangle their features, and the target aligns its own with theirs.

Equations are of Peng et al., ICLR 2020, section 4.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import log_softmax, mse_loss, softplus

from fda_flower.aggregation import Layers, Update, attention, mean_update
from fda_flower.aggregation.fada import HIDDEN, cluster, cluster_again, dispersion
from fda_flower.clients.client import DomainClient, SourceClient, TargetClient
from fda_flower.clients.gradients import Loss
from fda_flower.clients.trainee import Settings
from fda_flower.clients.training import Objective, reversing, train, training_loss, without_gradients
from fda_flower.datasets import Samples
from fda_flower.files import derive_seed
from fda_flower.models.exchange import layers_of
from fda_flower.models.parts import features_of, head_of
from fda_flower.prediction.batches import inputs_at
from fda_flower.prediction.network_passes import load_layers
from fda_flower.wire import protocol
from fda_flower.wire.arrays import freeze
from fda_flower.wire.asked.fada import VECTORS, Align, Aligned, Disentangle, Disentangled
from fda_flower.wire.protocol import SERVER_ROUND, TrainReply, TrainRequest

OWN = "disentangler"
"""Name of a source's disentangler in its private state."""

A_CLASS = 8
"""Samples of the target for each class, at least, whose clusters weigh the sources."""


class Disentangler(nn.Module):
    """What a source keeps: its disentangler ``D``, class identifier, reconstructor, and estimator ``T``."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.split = nn.Linear(features, 2 * features)
        self.class_identifier = nn.Linear(features, classes)
        self.reconstructor = nn.Linear(2 * features, features)
        self.estimator = nn.Sequential(nn.Linear(2 * features, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))

    def parts(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return domain-invariant and domain-specific features, each of the shape of the features."""
        invariant, specific = self.split(features).relu().chunk(2, dim=1)
        return invariant, specific

    def reconstruction(self, invariant: Tensor, specific: Tensor, features: Tensor) -> Tensor:
        """Return the mean squared error of the features that both parts rebuild."""
        return mse_loss(self.reconstructor(torch.cat([invariant, specific], dim=1)), features)

    def information(self, invariant: Tensor, specific: Tensor) -> Tensor:
        """Return ``T``'s estimate of the parts' mutual information, which it maximises (Eq. 8).

        The independent pairs are of each sample with the one before it in the batch.
        """
        joint, apart = (
            self.estimator(torch.cat([invariant, other], dim=1)) for other in (specific, specific.roll(1, 0))
        )
        return mutual_information(joint, apart)


class Joined(nn.Module):
    """A network and other modules that train with it."""

    def __init__(self, network: nn.Module, others: nn.Module) -> None:
        super().__init__()
        self.network, self.others = network, others


def domain_identifier(features: int) -> nn.Sequential:
    """Return a new domain identifier, of the form of `fda_flower.aggregation.identifier_form`."""
    return nn.Sequential(nn.Linear(features, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))


# The losses, of outputs before a sigmoid or softmax


def identifier_loss(source: Tensor, target: Tensor) -> Tensor:
    """Return ``−mean log DI(f_s) − mean log(1 − DI(f_t))`` (Eq. 3).

    Examples
    --------
    >>> round(float(identifier_loss(torch.tensor([0.0]), torch.tensor([0.0]))), 4)  # 2 log 2
    1.3863
    """
    return softplus(-source).mean() + softplus(target).mean()


def generator_loss(outputs: Tensor) -> Tensor:
    """Return ``−mean log DI(f)``, one domain's half of Eq. 4."""
    return softplus(-outputs).mean()


def confusion_loss(outputs: Tensor) -> Tensor:
    """Return ``−mean log CI(f_ds)`` over samples and classes, least where all classes are as likely (Eq. 6).

    Examples
    --------
    >>> round(float(confusion_loss(torch.tensor([[0.9, 0.1]]).log())), 4)  # −(log 0.9 + log 0.1)/2
    1.204
    """
    return -log_softmax(outputs, dim=1).mean()


def mutual_information(joint: Tensor, apart: Tensor) -> Tensor:
    """Return ``mean T(p, q) − log mean exp T(p, q')``, MINE's lower bound in nats (Eq. 8).

    Examples
    --------
    >>> round(float(mutual_information(torch.tensor([1.0, 1.0]), torch.tensor([0.0, 0.0]))), 4)
    1.0
    """
    return joint.mean() - torch.logsumexp(apart.flatten(), dim=0) + math.log(apart.numel())


# The sources


def disentangle(client: SourceClient, request: TrainRequest, question: Disentangle) -> TrainReply:
    """Train the received model with the source's disentangler, and send features of some samples."""
    config, samples = request.config, client.domain.train
    number = int(config[SERVER_ROUND])
    client.load(client.received(request))
    shape, classes = form_of_head(client, samples)
    with client.drawing(OWN, config):
        own = Disentangler(prod(shape), classes).to(client.device)
    state = client.private_state.load_before(OWN, number)
    if state is not None:
        load_layers(own, state[0])
    identifier = None
    if question.identifier is not None:
        identifier = _loaded(client, question.identifier).requires_grad_(False)
    loss_of = training_loss(samples, client.training_in(config))
    objective = disentangling(client.model, own, question, shape, loss_of, identifier)
    metrics, layers = _train(client, samples, own, config, objective)
    features = _few(client, samples, config, question.vectors)(layers)
    client.private_state.save_after(OWN, _copies(own), {}, number)
    answer = Disentangled(features={VECTORS: features}, fresh_start=state is None)
    return TrainReply(freeze(layers), len(samples), metrics, answer=answer)


def disentangling(
    network: nn.Module,
    own: Disentangler,
    question: Disentangle,
    shape: tuple[int, ...],
    loss_of: Loss,
    identifier: nn.Module | None,
) -> Objective:
    """Return a source's objective; `shape` is the form of one sample's input of the head.

    `loss_of` is the loss of the task. Reconstruction and mutual information train the disentangler alone, as
    in Algorithm 1; ``T`` maximises what the disentangler minimises.
    """

    def objective(_: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        with features_of(network) as batches:
            outputs = network(x)
        (features,) = batches
        invariant, specific = own.parts(features)
        of_class = own.class_identifier
        loss = loss_of(outputs, y) + loss_of(head_of(network)(invariant.view(-1, *shape)), y)
        loss = loss + loss_of(of_class(specific), y)
        with without_gradients(list(of_class.parameters())):
            loss = loss + confusion_loss(of_class(specific))
        if identifier is not None:
            loss = loss + question.adversarial * generator_loss(identifier(features))
        fixed = features.detach()
        invariant, specific = own.parts(fixed)
        loss = loss + question.reconstruction * own.reconstruction(invariant, specific, fixed)
        turned = (reversing(part, question.mutual_information) for part in (invariant, specific))
        return loss - own.information(*turned)

    return objective


# The target


def align(client: TargetClient, request: TrainRequest, question: Align) -> TrainReply:
    """Weigh the sources' models by what they gain the target, and align their mean with the sources.

    The target uses all training samples of the domain without their labels.
    """
    config, inputs, received = request.config, client.domain.inputs, client.received(request)
    models = {domain: client.exchange.named(model) for domain, model in sorted(question.models.items())}
    before, gains = _gains(client, received, models, config, question.vectors)
    buffers = client.exchange.buffers(client.model)
    updates = [Update.between(received, model, 1, buffers=buffers) for model in models.values()]
    client.load(mean_update(received, updates, attention(np.array(gains))))
    identifiers, features = nn.ModuleList(), list[Tensor]()
    with client.drawing("identifiers", config):
        for domain in models:
            vectors = torch.tensor(question.features[domain][VECTORS], device=client.device)
            known = question.identifiers.get(domain)
            new = domain_identifier(vectors.shape[1]).to(client.device)
            identifiers.append(new if known is None else _loaded(client, known))
            features.append(vectors)
    objective = alignment(client.model, list(identifiers), features)
    metrics, layers = _train(
        client, inputs, identifiers, config, objective, slowed(client.parameters(), question.adversarial)
    )
    answer = Aligned(
        dispersion=before,
        gain=dict(zip(models, gains, strict=True)),
        identifiers={name: _copies(each) for name, each in zip(models, identifiers, strict=True)},
    )
    return TrainReply(freeze(layers), len(inputs), metrics, answer=answer)


def alignment(network: nn.Module, identifiers: Sequence[nn.Module], features: Sequence[Tensor]) -> Objective:
    """Return the target's objective ``Σ_i L_DI_i + mean_i L_G_i`` (Eqs. 3 and 4).

    `features` are of each source, shapes ``(m_i, d)``; a batch of the target meets as many of them, drawn
    by the global random state. Identifiers see the target's features without a gradient to its body, and the
    body trains against fixed identifiers.
    """

    def objective(_: nn.Module, x: Tensor, __: Tensor) -> Tensor:
        with features_of(network) as batches:
            network(x)
        (own,) = batches
        losses, confused = list[Tensor](), list[Tensor]()
        for identifier, vectors in zip(identifiers, features, strict=True):
            drawn = torch.randint(len(vectors), (len(own),)).to(vectors.device)
            losses.append(identifier_loss(identifier(vectors[drawn]), identifier(own.detach())))
            with without_gradients(list(identifier.parameters())):
                confused.append(generator_loss(identifier(own)))
        return torch.stack(losses).sum() + torch.stack(confused).mean()

    return objective


def slowed(parameters: list[Tensor], factor: float) -> Callable[[], None]:
    """Return what leaves of each step of an optimizer, after it, this `factor` alone for the parameters.

    Unlike a loss's weight it slows Adam, too, whose steps do not depend on the size of a gradient.
    """
    moved = [parameter.detach().clone() for parameter in parameters]

    @torch.no_grad()
    def after_step() -> None:
        torch._foreach_lerp_(moved, parameters, factor)
        torch._foreach_copy_(parameters, moved)

    return after_step


def _gains(
    client: TargetClient, received: Layers, models: Mapping[str, Layers], config: Settings, vectors: int
) -> tuple[float, list[float]]:
    """Return the mean dispersion of the target's features, and the gain of each source's model."""
    samples = client.domain.inputs
    _, classes = form_of_head(client, samples)
    features_by = _few(client, samples, config, max(vectors, A_CLASS * classes))
    features = features_by(received)
    clusters = cluster(features, classes, derive_seed(client.seed, "clusters", config[SERVER_ROUND]))
    before, after = dispersion(features, clusters) / len(features), list[float]()
    for model in models.values():
        features = features_by(model)
        after.append(dispersion(features, cluster_again(features, clusters)) / len(features))
    return before, [before - each for each in after]


# Of both


def form_of_head(client: DomainClient, samples: Samples) -> tuple[tuple[int, ...], int]:
    """Return the shape of one sample's input of the network's head, and the number of outputs."""
    seen = list[tuple[int, ...]]()
    with head_of(client.model).register_forward_pre_hook(
        lambda _, inputs: seen.append(tuple(inputs[0].shape[1:]))
    ):
        client.model.eval()
        with torch.no_grad():
            outputs = client.model(inputs_at(samples, slice(0, 1), client.device))
    return seen[0], int(outputs.shape[1])


def _few(
    client: DomainClient, samples: Samples, config: Settings, most: int
) -> Callable[[Layers], NDArray[np.float32]]:
    """Return a function from a model to its features of `most` samples, drawn by the round, or of all."""
    seed = derive_seed(client.seed, "few", config[SERVER_ROUND], client.domain.name)
    chosen = np.random.default_rng(seed).permutation(len(samples))[:most]
    passes = client.passes(config, "features", samples.take(np.sort(chosen)))
    return lambda layers: passes.features(layers).astype(np.float32)


def _train(
    client: DomainClient,
    samples: Samples,
    others: nn.Module,
    config: Settings,
    objective: Objective,
    on_step: Callable[[], None] | None = None,
) -> tuple[dict[str, float], dict[str, NDArray[np.generic]]]:
    """Train the client's network with other modules; return the reply's metrics and model."""
    training = client.training_in(config)
    with client.drawing("train", config) as generator:
        steps, loss = train(
            Joined(client.model, others), samples, training, generator, objective, on_step=on_step
        )
    metrics = {
        protocol.NUM_STEPS: steps,
        protocol.LEARNING_RATE: training.learning_rate,
        protocol.BATCH_SIZE: training.batch_size,
        protocol.TRAIN_LOSS: loss,
    }
    return metrics, client.layers()


def _loaded(client: DomainClient, layers: Layers) -> nn.Module:
    """Return a domain identifier with these arrays."""
    identifier = domain_identifier(layers["0.weight"].shape[1]).to(client.device)
    load_layers(identifier, layers)
    return identifier


def _copies(module: nn.Module) -> dict[str, NDArray[np.generic]]:
    return {name: np.array(array) for name, array in layers_of(module).items()}
