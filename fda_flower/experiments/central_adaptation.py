"""Centralised references of semi-supervised domain adaptation, with the target's samples: S+T, ENT, MME."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from fda_flower.clients.training import loss_for
from fda_flower.experiments.central_reference import Reference, Step, outputs_of
from fda_flower.models.parts import head_of
from fda_flower.models.prototypes import replace_head
from fda_flower.options import NotNegative, Positive

TINY = 1e-5
"""Added to probabilities before their logarithm, as MME's authors do."""


class SourceTarget(Reference):
    """S+T: cross entropy on the sources' and the target's labelled samples together.

    The network's head is replaced by a `fda_flower.models.prototypes.PrototypeHead`, as for
    `MinimaxEntropy`, with which it is compared (Saito et al., ICCV 2019). The model of the last round is
    reported: the few labels select nothing.

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
        """Replace the head; its weights are drawn anew."""
        replace_head(model, x, self.temperature)

    def losses(self, model: nn.Module, step: Step) -> Iterator[Tensor]:
        """Yield the mean loss of all labelled samples of the step, whosever they are."""
        batches = [*step.sources, *([] if step.labelled is None else [step.labelled])]
        y = torch.cat([y for _, y in batches])
        yield loss_for(y)(torch.cat(outputs_of(model, batches)), y)


class Entropy(SourceTarget):
    """ENT: S+T, and a step in which head and body lower ``λ H`` of unlabelled target samples.

    Parameters
    ----------
    lam : float
        λ, not negative; 0 is S+T.
    temperature : float
        T of the head.
    **common
        See `Reference`.
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

    handle = head_of(model).register_forward_pre_hook(reverse)
    try:
        yield
    finally:
        handle.remove()


def entropy(outputs: Tensor) -> Tensor:
    """Return the mean entropy of the softmax of outputs, ``−mean Σ_c p_c log(p_c + 1e-5)``, in nats.

    Examples
    --------
    >>> round(float(entropy(torch.tensor([[0.9, 0.1]]).log())), 4)
    0.3251
    """
    p = outputs.softmax(dim=1)
    return -(p * (p + TINY).log()).sum(dim=1).mean()
