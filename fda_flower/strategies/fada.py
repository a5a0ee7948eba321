"""FADA: the target's features are aligned with the sources', whose updates weigh by what they gain it."""

from collections.abc import Mapping
from dataclasses import replace
from statistics import median_low
from typing import Any, ClassVar

import numpy as np

from fda_flower.aggregation import Layers, attention, identifier_form, mean_update
from fda_flower.names.options import Count, NotNegative, Share
from fda_flower.names.words import listed
from fda_flower.records.record import Record
from fda_flower.strategies.base import Aggregated, DomainAdaptationStrategy, Node, Round, Sources
from fda_flower.strategies.method import Epochs
from fda_flower.strategies.replies import BadReplyError
from fda_flower.wire import protocol
from fda_flower.wire.asked.fada import VECTORS, Align, Aligned, Disentangle
from fda_flower.wire.protocol import TrainRequest, to_layers

ALONE = np.ones(1)


class FADA(DomainAdaptationStrategy):
    """Adversarial alignment, disentangled features and dynamic attention (Peng et al., ICLR 2020).

    **For simulations:** the sources send features of samples, from which a sample can be reconstructed. A
    site with default rules refuses the run at its start.

    Equations are of section 4, as `fda_flower.aggregation.fada` says. A round has two requests. Each source
    ``i`` begins with the common model, body ``G`` and head ``C``, and its own disentangler, and minimises the
    sum of

    * the cross entropy of ``C(G(x))`` (Algorithm 1),
    * the cross entropies of ``C(f_di)`` and of the class identifier ``CI_i(f_ds)`` (Eq. 5), and the latter's
      ``L_ent``, while it stays fixed (Eq. 6),
    * with `adversarial_sources`, ``−log DI_i(G(x))``, its half of Eq. 4, with the domain identifier of the
      round before, from the second round on,
    * the reconstruction of features, and the mutual information of ``f_di`` and ``f_ds`` (Eq. 8), for the
      disentangler alone.

    The target receives the models, and features of `vectors` samples of each source. A source weighs by the
    softmax of ``I − I_i``, the dispersion of the target's clusters (Eq. 2) before and after its update. From
    the weighted mean of the models the target trains its body and each ``DI_i`` on features (Eq. 3, its half
    of Eq. 4). The result is the run's model. No label of the target is used.

    The paper leaves open, and we decide: a source begins each round with the common model. Losses are added
    in a step, whereas Algorithm 1 takes one after the other. Identifiers see features of the sources from
    the end of their training. Gains are means over samples, since a sum would let one source have all the
    weight. ``L_ent``, printed as ``−log CI``, is the mean over classes. The target's halves of Eq. 4 are
    averaged over sources. Only sources have a disentangler, so that the target's head reads all features.

    A round's record has the target's ``dispersion``, and each source's ``gain`` and ``weight``.

    Parameters
    ----------
    adversarial : float
        Factor, 0 to 1, of the target's steps for its half of Eq. 4; 0 for no alignment. Default: 0.01, since
        larger ones cost accuracy on small networks: nothing holds the target's classes in place.
    adversarial_sources : float
        Weight of the sources' half of Eq. 4. Default: 0, since with it features vanished on digits, without
        BatchNorm.
    mutual_information, reconstruction : float
        Weights of these losses.
    vectors : int
        Number of samples whose features a source sends; all, if it has fewer.
    """

    questions = (Disentangle, Align)
    trains = frozenset({"source"})
    asks_again = True
    variants: ClassVar = {"reference-code": {}, "paper": {"adversarial": 1.0, "adversarial_sources": 1.0}}
    refused_buffers: ClassVar = {"target": "the new statistics are already the target's"}

    adversarial: Share = 0.01
    adversarial_sources: NotNegative = 0.0
    mutual_information: NotNegative = 1.0
    reconstruction: NotNegative = 1.0
    vectors: Count = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        self.nodes.asks = {"source": protocol.FEATURES}

    def training_epochs(self, rounds: int, warmup: int, epochs: Epochs, labels: int) -> Epochs:
        """Return the epochs by role; the target's cover all its training samples, without labels."""
        total = super().training_epochs(rounds, warmup, epochs, labels)
        return {**total, "target": rounds * epochs["target"]}

    def train_request(self, node: Node, round: Round) -> TrainRequest:
        """Ask each source to disentangle its features; the target trains later."""
        known = self.state.get(_key(node.domain))
        question = Disentangle(
            adversarial=self.adversarial_sources,
            mutual_information=self.mutual_information,
            reconstruction=self.reconstruction,
            vectors=self.vectors,
            identifier=None if known is None else to_layers(known),
        )
        return replace(super().train_request(node, round), question=question)

    def answered(self, domain: str, answer: Any) -> Record:
        """Record that a source has lost its disentangler."""
        before = any(domain in record["sources"] and not record["warmup"] for record in self.history)
        lost = "it lost its disentangler, and began another"
        return {"fallback": lost} if answer.fresh_start and before else {}

    def aggregate(self, round: Round, target: Any, sources: Sources) -> Aggregated:
        """Let the target weigh and align the sources' models."""
        sources = self._alike(round, sources)
        keys = {domain: _key(domain) for domain in sources}
        question = Align(
            adversarial=self.adversarial,
            vectors=self.vectors,
            models={name: mean_update(round.model, [update], ALONE) for name, update in sources.items()},
            features={name: update.answer.features for name, update in sources.items()},
            identifiers={name: to_layers(self.state[key]) for name, key in keys.items() if key in self.state},
        )
        target = round.ask_target(TrainRequest(round.arrays, round.config, question=question))
        answer: Aligned = target.answer
        self._check(answer, question.features)
        gains = [answer.gain[domain] for domain in sources]
        weights = attention(np.array(gains)).tolist()
        pairs = zip(sources, gains, weights, strict=True)
        return Aggregated(
            mean_update(round.model, [target], ALONE),
            {_key(domain): layers for domain, layers in answer.identifiers.items()},
            clients={domain: {"gain": gain, "weight": weight} for domain, gain, weight in pairs}
            | {target.domain: {"dispersion": answer.dispersion}},
        )

    def _alike(self, round: Round, sources: Sources) -> Sources:
        """Return the sources with features of no more samples than asked, as wide as most are."""
        shapes = {domain: update.answer.features[VECTORS].shape for domain, update in sources.items()}
        width = median_low(width for _, width in shapes.values())
        reasons = {
            domain: f"its features have the shape {list(shape)}, expected at most {self.vectors} x {width}"
            for domain, shape in shapes.items()
            if shape[0] > self.vectors or shape[1] != width
        }
        round.leave_out(reasons)
        if len(sources) - len(reasons) < self.min_sources:
            raise BadReplyError(next(iter(reasons.values())))
        return {domain: update for domain, update in sources.items() if domain not in reasons}

    def _check(self, answer: Aligned, features: Mapping[str, Layers]) -> None:
        """Raise a `BadReplyError` unless the target has answered for all sources, in the right form."""
        for name, by_source in (("gains", answer.gain), ("identifiers", answer.identifiers)):
            if by_source.keys() != features.keys():
                raise BadReplyError(f"the target tells {name} of {listed(sorted(by_source))}")
        for domain, layers in answer.identifiers.items():
            form = identifier_form(features[domain][VECTORS].shape[1])
            if _forms(layers) != _forms(form):
                raise BadReplyError(f"the target's identifier of '{domain}' has other arrays than expected")


def _forms(layers: Layers) -> Mapping[str, object]:
    return {name: (array.shape, array.dtype) for name, array in layers.items()}


def _key(domain: str) -> str:
    """Return the name of a source's domain identifier in the strategy's state."""
    return f"identifier/{domain}"
