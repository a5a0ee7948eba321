"""Centralised references: their losses over the samples of all domains in one place, and their training."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import combinations, islice
from pathlib import Path
from typing import Annotated, Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from fda_flower.aggregation import Layers
from fda_flower.clients import DomainClient, SourceClient, TargetClient
from fda_flower.clients.training import OPTIMIZERS, loss_for, repeatable
from fda_flower.datasets import Domain, Samples
from fda_flower.errors import ConfigError, RunError, invalid
from fda_flower.files import derive_seed, json_safe
from fda_flower.metrics import EFFECTIVE, METRICS, UNITS, headline_metric, of_mean
from fda_flower.models.devices import find_device
from fda_flower.models.parts import features_of, head_of, in_precision, replace_head, to_train
from fda_flower.names.options import Bounds, NotNegative, Positive
from fda_flower.names.words import count_of
from fda_flower.prediction.predictors import Single
from fda_flower.records.folder import Checkpoint, RunFolder, of_a_round_before
from fda_flower.records.record import (
    MEAN_OF_LABELS,
    TEST_EXAMPLES,
    Record,
    choose,
    chosen_round,
    has_stopped,
)
from fda_flower.runs.config import RunConfig
from fda_flower.runs.model_folder import publisher
from fda_flower.runs.network import all_data, make_model
from fda_flower.strategies.averaging import ModelAverage
from fda_flower.strategies.method import CommonOptions
from fda_flower.strategies.nodes import Node
from fda_flower.strategies.replies import DETAILS, read_details, read_sizes
from fda_flower.wire.protocol import CONFUSION, OUTCOMES, SERVER_ROUND, split_held_out

Batch = tuple[Tensor, Tensor]
"""Samples and labels."""


@dataclass(frozen=True)
class Step:
    """The samples of one step: a batch of each source, in the order of domains, and of the target's labelled.

    `unlabelled` are twice as many of the target's other samples; `rng` is for further draws.
    """

    sources: Sequence[Batch]
    labelled: Batch | None
    unlabelled: Tensor | None
    rng: np.random.Generator


class Reference(CommonOptions, ABC):
    """The loss of a reference; a run's settings treat it as a strategy.

    The options `warmup_rounds`, in which it trains only on the sources' pooled samples,
    `learning_rate_factor` and `outcomes` have the same meaning as for strategies. `average`,
    `max_update_norm` and `source_mean` are a `ConfigError`, because there are no clients' models, and so is
    `evaluate_every`, because each round is evaluated.
    """

    needs: ClassVar[tuple[str, ...]] = ()
    """Nothing with any options, besides what its method needs."""
    uses_target: ClassVar[bool] = False
    """Whether it trains on the target's samples."""
    share: ClassVar[float | None] = None
    """The share of each source that selects the round's model; None to report the last one."""
    prototypes: ClassVar[float | None] = None
    """The temperature of the head of prototypes that replaces the network's; None if none does."""
    evaluates_own: ClassVar[bool] = True
    """There are no sources that could evaluate the model apart from the target."""
    ends_with_an_evaluation: ClassVar[bool] = False
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {"reference-code": {}, "paper": {}}

    def __post_init__(self) -> None:
        super().__post_init__()
        clients = "but a centralised reference has no models of clients"
        for name, none, why in (
            ("average", None, clients),
            ("max_update_norm", None, clients),
            ("source_mean", "mean", clients),
            ("evaluate_every", 1, "but a centralised reference evaluates in each round"),
        ):
            if (value := getattr(self, name)) != none:
                raise invalid(name, value, "leave it out", why)
        self.model_average = ModelAverage(None)

    @property
    def chooses_itself(self) -> bool:
        """Whether samples of the sources choose the model that it reports."""
        return self.share is not None

    def settings(self) -> Record:
        """Return the definition of the reference, as JSON values."""
        return {
            "warmup-rounds": self.warmup_rounds,
            "learning-rate-factor": self.learning_rate_factor,
            **self.own_settings(),
        }

    def check_samples(self, role: str, who: str, samples: int, batch_size: int) -> None:
        """Accept any number of samples."""

    def training_epochs(
        self, rounds: int, warmup: int, epochs: Mapping[str, int], labels: int
    ) -> dict[str, int]:
        """Return the epochs of the largest source; the target's only if there are none."""
        known = {"source": (rounds + warmup) * epochs["source"]}
        return known if self.uses_target else {**known, "target": 0}

    def conclusion(self, record: Record) -> list[str]:
        """Return no lines at the end of a run."""
        return []

    def prepare(self, model: nn.Module, x: Tensor) -> None:
        """Change the network before the first round, if the reference needs another."""

    def warmup_losses(self, model: nn.Module, step: Step) -> Iterator[Tensor]:
        """Yield only the sources' mean loss, in the warm-up rounds."""
        yield source_loss(model, step)

    @abstractmethod
    def losses(self, model: nn.Module, step: Step) -> Iterator[Tensor]:
        """Yield the losses of a step; the optimizer takes a step after each, before the next is computed."""


def outputs_of(model: nn.Module, batches: Sequence[Batch]) -> list[Tensor]:
    """Return the model's outputs for each batch, computed together: BatchNorm sees all batches."""
    return list(torch.split(model(torch.cat([x for x, _ in batches])), [len(y) for _, y in batches]))


def source_loss(model: nn.Module, step: Step) -> Tensor:
    """Return the mean over sources of the mean loss of their batches."""
    return mean_loss(outputs_of(model, step.sources), step.sources)


def mean_loss(outputs: Sequence[Tensor], batches: Sequence[Batch]) -> Tensor:
    """Return the mean over batches of their mean losses."""
    losses = [loss_for(y)(out, y) for out, (_, y) in zip(outputs, batches, strict=True)]
    return torch.stack(losses).mean()


TRAINED, OPTIMIZER = "trained", "optimizer"
"""Entries of a checkpoint besides the reported model: the model in training, and its optimizer."""


def run_central(
    config: RunConfig,
    folder: RunFolder | None = None,
    on_round: Callable[[Record], None] | None = None,
    validation: Mapping[int, float] | None = None,
    outcomes: bool = False,
) -> tuple[list[Record], dict[str, Any]]:
    """Train a centralised reference; return the record of each round, and the reported model's arrays.

    The sources' training settings apply to all domains. Records and checkpoints are written to `folder`, and
    resumed from it; `validation` holds the figures of cross-validation by round, and records have the
    `outcomes` of test samples if asked to. Raise a `ConfigError` if a
    source is too small, or the folder holds more rounds, and a `RunError` if the model is not finite.
    """
    reference = cast(Reference, config.entry.build(**config.strategy_options(), outcomes=outcomes))
    trainer = Trainer(config, reference, None if folder is None else folder.path, validation or {})
    history: list[Record] = []
    with nullcontext() if folder is None else closing(folder):
        if folder is not None:
            checkpoint = folder.open({"name": type(reference).__name__, **reference.settings()})
            if checkpoint is not None:
                history = folder.read_rounds()[: checkpoint.round]
                trainer.resume(checkpoint)
            if (done := len(history)) > config.all_rounds:
                raise invalid("rounds", config.all_rounds, "ask for more", f"but the run has done {done}")
            folder.begin(len(history), trainer.reported)
        for number in range(len(history) + 1, config.all_rounds + 1):
            if has_stopped(history, config.patience):
                break
            record = json_safe(trainer.round(number, history))
            history[-1:] = [*map(of_a_round_before, history[-1:]), record]
            if folder is not None:
                folder.save_round(record, trainer.checkpoint(number), chosen_round([record]) == number)
            if on_round is not None:
                on_round(record)
    return history, dict(trainer.reported)


@dataclass
class Trainer:
    """The model, its optimizer, and the data of all domains.

    A round is a pass over the largest source, `epochs` of them if the run says so. Each step takes one batch
    of every source; a smaller source begins again in a new order. The optimizer is kept over the rounds.

    `reported` is the model of the headline, written to `folder` after each round: from the round with the
    best mean accuracy on the sources' held-out samples (the first, if equal) or, without any, the last round.
    """

    config: RunConfig
    reference: Reference
    folder: Path | None = None
    validation: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        config, data = self.config, all_data(self.config)
        self.data = data
        device = find_device(config.device)
        domains = {name: domain.to(device) for name, domain in data.domains.items()}
        network = make_model(config, data.shape, data.classes)
        self.model = in_precision(network, config.precision).to(device)
        first = domains[config.data.source_names[0]].train
        x, _ = next(first.batches(1, torch.Generator().manual_seed(0)))
        with repeatable(derive_seed(config.seed, "model", "central"), config.threads, device):
            self.reference.prepare(self.model, x)
        self.sources = {name: self._client(self._divide(domains[name])) for name in config.data.source_names}
        self.target = self._client(domains[config.data.target_name], TargetClient)
        self.optimizer = OPTIMIZERS[config.optimizer](to_train(self.model), lr=config.rate)
        self.reported: Layers = self.target.layers()
        self.judged_by = headline_metric(None, regression=config.regression)

    def round(self, number: int, history: list[Record]) -> Record:
        """Train for a round, and return its record."""
        begun, warmup = time.perf_counter(), number <= self.reference.warmup_rounds
        steps, loss = self._train(number, warmup)
        trained = time.perf_counter()
        if not all(bool(p.isfinite().all()) for p in self.model.parameters()):
            message = f"the model is not finite after round {number}"
            raise RunError(message, thing="model", remedy="lower the learning rate")
        uses_target = self.reference.uses_target and not warmup
        record: Record = {"round": number, "warmup": warmup, "held": None}
        record["target"] = _entry(self.target, steps) if uses_target else None
        record["sources"] = {name: _entry(client, steps) for name, client in self.sources.items()}
        record |= {"dropped": [], "missing": [], "bytes-received": 0, "train-loss": loss}
        clients = {**self.sources, self.target.domain.name: self.target}
        record["sizes"] = read_sizes(Node(0, n, False, c.get_properties({})) for n, c in clients.items())
        record |= self._evaluate(record, history)
        if self.folder is not None:
            site, own = (self.data, self.data.target), self.reference.prototypes
            publish = publisher(self.config, *site, self.folder, self.model, own)
            publish(Single(self.reported), number, None)
        record["seconds"] = {"train": trained - begun, "evaluate": time.perf_counter() - trained}
        return record

    def checkpoint(self, number: int) -> Checkpoint:
        """Return the state from which the run continues after a round."""
        states = self.optimizer.state_dict()["state"]
        tensors = {
            f"{i}.{name}": value.cpu().numpy()
            for i, state in states.items()
            for name, value in state.items()
            if isinstance(value, torch.Tensor)
        }
        return Checkpoint(number, self.reported, {TRAINED: self.target.layers(), OPTIMIZER: tensors})

    def resume(self, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint, which holds only a model if the run has not begun."""
        self.reported = checkpoint.model
        self.target.load(checkpoint.state.get(TRAINED, checkpoint.model))
        states: dict[int, dict[str, torch.Tensor]] = {}
        for key, array in checkpoint.state.get(OPTIMIZER, {}).items():
            i, _, name = key.partition(".")
            states.setdefault(int(i), {})[name] = torch.from_numpy(np.array(array))
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": states, "param_groups": groups})

    def _train(self, number: int, warmup: bool) -> tuple[int, float]:
        """Return the number of steps, and the mean of their first losses."""
        config, reference = self.config, self.reference
        losses = reference.warmup_losses if warmup else reference.losses
        factor = 1.0 if warmup else reference.learning_rate_factor
        for group in self.optimizer.param_groups:
            group["lr"] = config.rate * factor
        steps = config.source_training.steps(max(len(c.domain.train) for c in self.sources.values()))
        total, seed = 0.0, derive_seed(config.seed, "train", number, "central")
        with repeatable(seed, config.threads, find_device(config.device)):
            to_train(self.model)
            for step in islice(self._steps(number, np.random.default_rng(seed), warmup), steps):
                for i, loss in enumerate(losses(self.model, step)):
                    self.model.zero_grad()
                    torch.autograd.backward(loss)
                    self.optimizer.step()
                    total += loss.item() if i == 0 else 0.0
        return steps, total / steps

    def _steps(self, number: int, rng: np.random.Generator, warmup: bool) -> Iterator[Step]:
        size, domain = self.config.batch_size, self.target.domain
        streams = [
            self._endless(client.domain.train, size, number, name) for name, client in self.sources.items()
        ]
        labelled = unlabelled = None
        if self.reference.uses_target and not warmup:
            labelled = self._endless(domain.train, size, number, domain.name)
            if domain.unlabelled is not None:
                unlabelled = self._endless(domain.unlabelled, 2 * size, number, domain.name, "unlabelled")
        while True:
            yield Step(
                [next(stream) for stream in streams],
                None if labelled is None else next(labelled),
                None if unlabelled is None else next(unlabelled)[0],
                rng,
            )

    def _endless(self, samples: Samples, size: int, number: int, *purpose: str) -> Iterator[Batch]:
        """Yield batches for ever, in a new order after each pass."""
        generator = torch.Generator().manual_seed(derive_seed(self.config.seed, "train", number, *purpose))
        while True:
            yield from samples.batches(size, generator, shuffle=True, cut=self.config.source_training.batches)

    def _evaluate(self, record: Record, history: list[Record]) -> Record:
        """Select the reported model by the sources' held-out samples, then evaluate it on the target."""
        number = record["round"]
        evaluation: Record = {}
        if self.reference.share is not None:
            for name, client in self.sources.items():
                reply = client.score(Single(client.layers()), {SERVER_ROUND: number})
                record["sources"][name]["validation"] = reply.metrics[self.judged_by]
            values = [entry["validation"] for entry in record["sources"].values()]
            evaluation["validation"] = float(np.mean(values))
            last = history[-1] if history else None
            if last is not None and not last["warmup"]:
                best = history[last["selected"] - 1]["validation"]
                if evaluation["validation"] <= best:
                    names = ("selected", *METRICS, *DETAILS, TEST_EXAMPLES, UNITS, EFFECTIVE, MEAN_OF_LABELS)
                    return evaluation | {name: last[name] for name in names if name in last}
            evaluation["selected"] = number
        self.reported = self.target.layers()
        question = {SERVER_ROUND: number, OUTCOMES: self.reference.outcomes, CONFUSION: True}
        reply = self.target.score(Single(self.reported), question)
        metrics, held_out = split_held_out(reply.metrics)
        value, by = self.validation.get(number), "folds"
        if value is None and held_out and not record["warmup"]:
            value, by = held_out[self.config.headline], "target"
        if value is not None:
            higher = METRICS[self.config.headline].higher_is_better
            evaluation |= choose(history, number, value, by=by, higher_is_better=higher)
        evaluation |= {TEST_EXAMPLES: reply.examples, **metrics}
        if self.config.regression:
            evaluation[MEAN_OF_LABELS] = of_mean(metrics)
        return evaluation | read_details(reply.records, self.data.class_names)

    def _divide(self, domain: Domain) -> Domain:
        """Hold out the samples that select the model: as the test set of a source, whose own is unused."""
        if self.reference.share is None:
            return domain
        samples, groups = domain.train, domain.train.groups
        held = max(1, round(self.reference.share * samples.units))
        if held >= samples.units:
            raise ConfigError(
                f"source '{domain.name}' has {count_of(len(samples), samples.units)}, of which "
                f"validation_share={self.reference.share:g} leaves none to train on: give it more, or lower "
                "the share",
                thing="source",
                value=domain.name,
            )
        seed = derive_seed(self.config.seed, "validation", domain.name)
        order = torch.randperm(samples.units, generator=torch.Generator().manual_seed(seed))
        parts = [order[held:], order[:held]]
        if groups is not None:  # whole groups, such as patients
            parts = [torch.isin(groups, torch.unique(groups)[each]).nonzero().flatten() for each in parts]
        train, test = map(samples.take, parts)
        return replace(domain, train=train, test=test)

    def _client(self, domain: Domain, kind: type[DomainClient] = SourceClient) -> DomainClient:
        """Return a client, which only evaluates."""
        return kind(domain, self.model, self.config.source_training, self.config.seed, self.config.threads)


def _entry(client: DomainClient, steps: int) -> Record:
    return {"domain": client.domain.name, "examples": len(client.domain.train), "steps": steps}


TINY = 1e-5
"""Added to probabilities before their logarithm, as MME's authors do."""


class SourceTarget(Reference):
    """S+T: cross entropy on the sources' and the target's labelled samples together.

    As in `MinimaxEntropy`, with which it is compared (Saito et al., ICCV 2019), a
    `fda_flower.models.parts.PrototypeHead` replaces the network's head. The last round's model is reported:
    the few labels select nothing.

    Parameters
    ----------
    temperature : float
        T of the head, above 0.
    **common
        See `Reference`.
    """

    uses_target = True

    temperature: Positive = 0.05

    @property
    def prototypes(self) -> float:  # type: ignore[override]
        """The temperature of the head."""
        return self.temperature

    def prepare(self, model: nn.Module, x: Tensor) -> None:
        """Replace the head, with new weights."""
        replace_head(model, x, self.temperature)

    def losses(self, model: nn.Module, step: Step) -> Iterator[Tensor]:
        """Yield the mean loss of all labelled samples of the step."""
        batches = [*step.sources, *([] if step.labelled is None else [step.labelled])]
        y = torch.cat([y for _, y in batches])
        yield loss_for(y)(torch.cat(outputs_of(model, batches)), y)


class Entropy(SourceTarget):
    """ENT: S+T, and a step in which head and body lower ``λ H`` of unlabelled target samples.

    Parameters
    ----------
    lam : float
        λ, not negative; 0 is S+T.
    temperature, **common
        See `SourceTarget`.
    """

    lam: NotNegative = 0.1

    def losses(self, model: nn.Module, step: Step) -> Iterator[Tensor]:
        """Yield S+T's loss, then the entropy's."""
        yield from super().losses(model, step)
        if step.unlabelled is not None and self.lam > 0:
            yield self.lam * self.entropy_loss(model, step.unlabelled)

    def entropy_loss(self, model: nn.Module, x: Tensor) -> Tensor:
        """Return what is minimised on unlabelled samples."""
        return entropy(model(x))


class MinimaxEntropy(Entropy):
    """MME (Saito et al., ICCV 2019): the head raises ``λ H`` of unlabelled samples, the body lowers it.

    The loss is ``−λ H``; its gradient is reversed between the body and the head.
    """

    def entropy_loss(self, model: nn.Module, x: Tensor) -> Tensor:
        """Return what is minimised on unlabelled samples."""
        with reversed_gradient(model):
            return -entropy(model(x))


@contextmanager
def reversed_gradient(model: nn.Module) -> Iterator[None]:
    """Reverse the gradient that arrives at the body from outputs computed inside."""

    def reverse(_: nn.Module, inputs: tuple[Tensor]) -> Tensor:
        features = inputs[0].view_as(inputs[0])
        features.register_hook(torch.neg)  # type: ignore[no-untyped-call]
        return features

    with head_of(model).register_forward_pre_hook(reverse):
        yield


def entropy(outputs: Tensor) -> Tensor:
    """Return the mean entropy of the softmax of outputs, ``−mean Σ_c p_c log(p_c + 1e-5)``, in nats.

    Examples
    --------
    >>> round(float(entropy(torch.tensor([[0.9, 0.1]]).log())), 4)
    0.3251
    """
    p = outputs.softmax(dim=1)
    return -(p * (p + TINY).log()).sum(dim=1).mean()


GAMMAS = tuple(10.0**power for power in range(-3, 4))
"""γ of the Gaussian kernels of `kernel_gap`."""


class ERM(Reference):
    """``mean_i L_i``, the mean over sources of the mean loss of their batches.

    Parameters
    ----------
    validation_share : float
        The share of each source that is held out to select the model, between 0 and 1.
    **common
        See `Reference`.
    """

    validation_share: Annotated[float, Bounds("between 0 and 1", lambda share: 0 < share < 1)] = 0.2

    @property
    def share(self) -> float:  # type: ignore[override]
        """The share of each source that selects the round's model."""
        return self.validation_share

    def losses(self, model: nn.Module, step: Step) -> Iterator[Tensor]:
        """Yield the mean loss."""
        yield source_loss(model, step)


def moment_gap(a: Tensor, b: Tensor) -> Tensor:
    """Return the mean squared difference of two samples' means, plus the same of their covariances.

    Covariances divide by ``n−1``; a single sample has 0.

    Examples
    --------
    >>> moment_gap(torch.tensor([[0.0], [2.0]]), torch.tensor([[1.0], [5.0]]))  # 4 + (2 − 8)²
    tensor(40.)
    """
    centred = [x - x.mean(0) for x in (a, b)]
    first, second = (x.T @ x / max(len(x) - 1, 1) for x in centred)
    return (a.mean(0) - b.mean(0)).square().mean() + (first - second).square().mean()


def kernel_gap(a: Tensor, b: Tensor) -> Tensor:
    """Return the squared MMD of two samples by its biased estimate, summed over Gaussian kernels.

    ``mean k(a, a') + mean k(b, b') − 2 mean k(a, b)`` with ``k(x, y) = Σ_γ exp(−γ ‖x−y‖²)``, γ in `GAMMAS`.
    """

    def mean_kernel(x: Tensor, y: Tensor) -> Tensor:
        distances = (x[:, None] - y).square().sum(-1)
        return torch.stack([(-gamma * distances).exp().mean() for gamma in GAMMAS]).sum()

    return mean_kernel(a, a) + mean_kernel(b, b) - 2 * mean_kernel(a, b)


class CORAL(ERM):
    """ERM, with `moment_gap` between the features of each two sources (Sun & Saenko, ECCV-W 2016).

    ``mean_i L_i + γ · mean over pairs of the gap``, as DomainBed has it: the gap is also one of means.

    Parameters
    ----------
    gamma : float
        γ, not negative.
    validation_share, **common
        See `ERM`.
    """

    gap = staticmethod(moment_gap)
    """The distance of two sources' features, each of shape ``(n, features)``."""
    gamma: NotNegative = 1.0

    def losses(self, model: nn.Module, step: Step) -> Iterator[Tensor]:
        """Yield the mean loss and γ times the mean gap of the features."""
        with features_of(model) as features:
            outputs = outputs_of(model, step.sources)
        parts = torch.split(features[0], [len(y) for _, y in step.sources])
        gaps = [self.gap(a, b) for a, b in combinations(parts, 2)]
        yield mean_loss(outputs, step.sources) + self.gamma * torch.stack(gaps).mean()


class MMD(CORAL):
    """The same with `kernel_gap` (Li et al., CVPR 2018, without its adversary, as DomainBed has it)."""

    gap = staticmethod(kernel_gap)


class Mixup(ERM):
    """ERM on mixtures of two sources' samples (Zhang et al., ICLR 2018, between domains as in DomainBed).

    The sources are paired in a random cycle. For each pair ``u ~ Beta(α, α)``, the inputs are
    ``u x_i + (1−u) x_j``, and the loss ``u L(·, y_i) + (1−u) L(·, y_j)``; the mean over pairs is minimised.

    Parameters
    ----------
    alpha : float
        α, above 0.
    validation_share, **common
        See `ERM`.
    """

    alpha: Positive = 0.2

    def losses(self, model: nn.Module, step: Step) -> Iterator[Tensor]:
        """Yield the mean loss of the mixed batches; of two batches the larger is cut."""
        order = step.rng.permutation(len(step.sources))
        mixed, labels = [], []
        for i, j in zip(order, np.roll(order, -1), strict=True):
            (x, y), (other_x, other_y) = step.sources[i], step.sources[j]
            n, u = min(len(y), len(other_y)), float(step.rng.beta(self.alpha, self.alpha))
            mixed.append((u * x[:n] + (1 - u) * other_x[:n], y[:n]))
            labels.append((u, y[:n], other_y[:n]))
        parts = zip(outputs_of(model, mixed), labels, strict=True)
        losses = [u * loss_for(y)(out, y) + (1 - u) * loss_for(y)(out, other) for out, (u, y, other) in parts]
        yield torch.stack(losses).mean()
