"""Training of a centralised reference, with the samples of all domains in one place."""

import time
from collections.abc import Iterator, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from itertools import count, islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from fda_flower.aggregation import Layers, Moments
from fda_flower.clients import DomainClient, SourceClient, TargetClient
from fda_flower.clients.columns import columns_of
from fda_flower.clients.training import OPTIMIZERS, repeatable
from fda_flower.datasets import Domain, Samples
from fda_flower.datasets.drawing import Generator
from fda_flower.errors import ConfigError, RunError, invalid
from fda_flower.files import derive_seed, json_safe
from fda_flower.metrics import (
    EFFECTIVE,
    INTERVALS,
    METRICS,
    UNITS,
    headline_metric,
    of_mean,
)
from fda_flower.models.devices import find_device
from fda_flower.models.parts import in_precision, to_train
from fda_flower.names.words import count_of
from fda_flower.prediction.batches import batches
from fda_flower.prediction.predictors import Single
from fda_flower.records.folder import ANSWERS, ONLY_LAST, Checkpoint, RunFolder, of_a_round_before
from fda_flower.records.record import (
    MEAN_OF_LABELS,
    NOTHING_MORE,
    TEST_EXAMPLES,
    Record,
    Recording,
    choose,
    chosen_round,
    has_stopped,
)
from fda_flower.references.losses import Batch, Reference, Step
from fda_flower.runs.config import RunConfig
from fda_flower.runs.model_folder import publisher
from fda_flower.runs.network import all_data, answers_of, make_model
from fda_flower.strategies.evaluations import DETAILS, evaluated, read_details
from fda_flower.strategies.nodes import Node
from fda_flower.strategies.replies import read_sizes
from fda_flower.strategies.selection import Selection
from fda_flower.wire.protocol import CONFUSION, OUTCOMES, SERVER_ROUND, split_held_out

TRAINED, OPTIMIZER, DISCRIMINATOR = "trained", "optimizer", "discriminator"
"""Entries of a checkpoint besides the reported model: the model in training, its optimizer, and a reference's
discriminator."""


def run_central(
    config: RunConfig,
    folder: RunFolder | None = None,
    recording: Recording = NOTHING_MORE,
) -> tuple[list[Record], dict[str, Any]]:
    """Train a centralised reference; return the record of each round, and the reported model's arrays.

    The sources' training settings apply to all domains. Records and checkpoints are written to `folder`, and
    resumed from it. Raise a `ConfigError` if a source is too small, or the folder holds more rounds, and a
    `RunError` if the model is not finite.
    """
    reference = cast(Reference, config.entry.build(**config.strategy_options(), outcomes=recording.outcomes))
    trainer = Trainer(config, reference, None if folder is None else folder.path, recording.validation or {})
    history: list[Record] = []
    with nullcontext() if folder is None else closing(folder):
        if folder is not None:
            folder.note(ANSWERS, answers_of(config, trainer.data.shape, trainer.data.classes))
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
            if recording.on_round is not None:
                recording.on_round(record)
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
        domains = in_columns(config, data.domains)
        network = make_model(config, data.shape, data.classes)
        assert isinstance(network, torch.nn.Module)
        self.model = in_precision(network, config.precision).to(device)
        first = domains[config.data.source_names[0]].train
        x, _ = next(batches(first, 1, torch.Generator().manual_seed(0), device=device))
        with repeatable(derive_seed(config.seed, "model", "central"), config.threads, device):
            self.reference.prepare(self.model, x, len(config.data.source_names))
        self.sources = {name: self._client(self._divide(domains[name])) for name in config.data.source_names}
        self.target = self._client(domains[config.data.target_name], TargetClient)
        parameters = [*to_train(self.model), *self.reference.discriminator.parameters()]
        self.optimizer = OPTIMIZERS[config.optimizer](parameters, lr=config.rate)
        self.reported: Layers = self.target.layers()
        self.judged_by = headline_metric(None, config.task)

    def round(self, number: int, history: list[Record]) -> Record:
        """Train for a round, and return its record."""
        begun, warmup = time.perf_counter(), number <= self.reference.warmup_rounds
        clients = {**self.sources, self.target.domain.name: self.target}
        nodes = [
            Node(0, name, each is self.target, each.get_properties({})) for name, each in clients.items()
        ]
        headline = Selection(None, self.config.metric, {}).headline(nodes[-1], history)
        steps, loss = self._train(number, warmup)
        trained = time.perf_counter()
        if not all(bool(p.isfinite().all()) for p in self.model.parameters()):
            message = f"the model is not finite after round {number}"
            raise RunError(message, thing="model", remedy="lower the learning rate")
        uses_target = self.reference.uses_target and not warmup
        record: Record = {"round": number, "warmup": warmup, **headline, "held": None}
        record["target"] = _entry(self.target, steps) if uses_target else None
        record["sources"] = {name: _entry(client, steps) for name, client in self.sources.items()}
        record |= {"dropped": [], "missing": [], "bytes-received": 0, "train-loss": loss}
        record["sizes"] = read_sizes(nodes)
        record |= self._evaluate(record, history)
        if self.folder is not None:
            site, own = (self.data, self.data.target), self.reference.prototypes
            publish = publisher(self.config, *site, self.folder, self.model, own)
            publish(Single(self.reported), number, None, self.target.domain.preparation)
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
        weights = self.reference.discriminator.state_dict()
        others = {name: value.cpu().numpy() for name, value in weights.items()}
        state: dict[str, Layers] = {TRAINED: self.target.layers(), OPTIMIZER: tensors, DISCRIMINATOR: others}
        return Checkpoint(number, self.reported, state)

    def resume(self, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint, which holds only a model if the run has not begun."""
        self.reported = checkpoint.model
        self.target.load(checkpoint.state.get(TRAINED, checkpoint.model))
        others, further = checkpoint.state.get(DISCRIMINATOR, {}), self.reference.discriminator
        weights = {name: torch.from_numpy(np.array(array)) for name, array in others.items()}
        further.load_state_dict(further.state_dict() | weights)
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
            for step in islice(self._steps(number, np.random.default_rng(seed), warmup, steps), steps):
                for i, loss in enumerate(losses(self.model, step)):
                    self.optimizer.zero_grad()
                    torch.autograd.backward(loss)
                    self.optimizer.step()
                    total += loss.item() if i == 0 else 0.0
        return steps, total / steps

    def _steps(self, number: int, rng: np.random.Generator, warmup: bool, steps: int) -> Iterator[Step]:
        before = number - 1 - self.reference.warmup_rounds
        size, domain = self.config.batch_size, self.target.domain
        streams = [
            self._endless(client.domain.train, size, number, name) for name, client in self.sources.items()
        ]
        labelled = unlabelled = None
        if self.reference.uses_target and not warmup:
            labelled = self._endless(domain.train, size, number, domain.name)
            if domain.unlabelled is not None:
                unlabelled = self._endless(domain.unlabelled, 2 * size, number, domain.name, "unlabelled")
        for taken in count():
            yield Step(
                [next(stream) for stream in streams],
                None if labelled is None else next(labelled),
                None if unlabelled is None else next(unlabelled)[0],
                rng,
                domain.train.task,
                before + taken / steps,
                self.config.rounds,
            )

    def _endless(self, samples: Samples, size: int, number: int, *purpose: str) -> Iterator[Batch]:
        """Yield batches for ever, in a new order after each pass."""
        generator = torch.Generator().manual_seed(derive_seed(self.config.seed, "train", number, *purpose))
        cut, device = self.config.source_training.batches, find_device(self.config.device)
        while True:
            yield from batches(samples, size, generator, shuffle=True, cut=cut, device=device)

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
                    names = ("selected", *METRICS, *DETAILS, TEST_EXAMPLES, UNITS, EFFECTIVE)
                    names += (*ONLY_LAST, INTERVALS)
                    return evaluation | {name: last[name] for name in names if name in last}
            evaluation["selected"] = number
        self.reported = self.target.layers()
        question = {SERVER_ROUND: number, OUTCOMES: self.reference.outcomes, CONFUSION: True}
        reply = self.target.score(Single(self.reported), question)
        metrics, held_out = split_held_out(reply.metrics)
        metric = self.config.headline_of([record])
        value, by = self.validation.get(number), "folds"
        if value is None and held_out and not record["warmup"]:
            value, by = held_out[metric], "target"
        if value is not None:
            higher = METRICS[metric].higher_is_better
            evaluation |= choose(history, number, value, by=by, higher_is_better=higher)
        evaluation |= {TEST_EXAMPLES: reply.examples, **evaluated(metrics)}
        if self.config.task == "regression":
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
        order = Generator(seed).permutation(samples.units)
        parts = [order[held:], order[:held]]
        if groups is not None:  # whole groups, such as patients
            parts = [np.flatnonzero(np.isin(groups, np.unique(groups)[each])) for each in parts]
        train, test = map(samples.take, parts)
        return replace(domain, train=train, test=test)

    def _client(self, domain: Domain, kind: type[DomainClient] = SourceClient) -> DomainClient:
        """Return a client, which only evaluates."""
        return kind(domain, self.model, self.config.source_training, self.config.seed, self.config.threads)


def in_columns(config: RunConfig, domains: Mapping[str, Domain]) -> dict[str, Domain]:
    """Return the domains as networks read them; tables are standardised by the columns of all sources."""
    sources = [domains[name] for name in config.data.source_names]
    common = None
    if config.columns == "common" and all(domain.columns for domain in domains.values()):
        total = Moments.total(Moments.of(columns_of(each), len(each.train)) for each in sources)
        common = total.columns
    return {name: domain.in_columns(common) for name, domain in domains.items()}


def _entry(client: DomainClient, steps: int) -> Record:
    return {"domain": client.domain.name, "examples": len(client.domain.train), "steps": steps}
