"""How long FedGP's aggregation takes, and how much memory, against one pass that only reads.

Whole FedGP (inner products, coefficients, new model) from the clients' float32 updates, against one NumPy
pass that only reads all updates: the inner product of each source's update with the target's,
(a) accumulated in float64, as the rules accumulate: np.einsum("i,i->", t, s, dtype=np.float64), and
(b) accumulated in float32 by BLAS on all its threads: np.dot(t, s).
Asked: at most 3 times the pass, and at most 2 models of extra memory, the new model included.
"""

import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from common import quick_asked, seconds_of, show, show_machine, verdict
from numpy.typing import NDArray

from fda_flower.aggregation import FedGP, Geometry, Update, combine, find_buffers, source_weights

Model = dict[str, NDArray[Any]]

LENET = {
    "conv1.weight": (6, 1, 5, 5),
    "conv1.bias": (6,),
    "conv2.weight": (16, 6, 5, 5),
    "conv2.bias": (16,),
    "fc1.weight": (120, 256),
    "fc1.bias": (120,),
    "fc2.weight": (84, 120),
    "fc2.bias": (84,),
    "fc3.weight": (10, 84),
    "fc3.bias": (10,),
}
TIMES_LIMIT, MEMORY_LIMIT = 3.0, 2.0


@dataclass(frozen=True)
class Round:
    """What the server holds when it aggregates."""

    model: Model
    target: Update
    sources: list[Update]

    @classmethod
    def random(cls, model: Model, num_sources: int) -> "Round":
        """Updates of random numbers."""
        generator = np.random.default_rng(0)
        buffers = find_buffers(model)

        def client() -> Update:
            noise = {
                name: generator.standard_normal(array.shape, np.float32) for name, array in model.items()
            }
            return Update(
                {name: array for name, array in noise.items() if name not in buffers},
                {name: np.abs(noise[name]).astype(model[name].dtype) for name in buffers},
                examples=100,
            )

        return cls(model, client(), [client() for _ in range(num_sources)])

    def aggregate(self) -> Model:
        """Whole FedGP with β = 0.5."""
        geometry = Geometry.of(self.target, self.sources)
        betas = np.full(len(self.sources), 0.5)
        alphas = source_weights(self.sources)
        coefficients = FedGP().coefficients(self.target, self.sources, geometry, alphas, betas)
        return combine(self.model, self.target, self.sources, coefficients)

    def read(self, product: Callable[[NDArray[Any], NDArray[Any]], Any]) -> None:
        """One pass that only reads."""
        for name, layer in self.target.parameters.items():
            for source in self.sources:
                product(layer.reshape(-1), source.parameters[name].reshape(-1))


def product_float64(t: NDArray[Any], s: NDArray[Any]) -> Any:
    return np.einsum("i,i->", t, s, dtype=np.float64)


def resnet(name: str) -> Model:
    """The arrays of one of torchvision's networks, buffers included."""
    import torchvision

    state = getattr(torchvision.models, name)().state_dict()
    return {key: tensor.numpy() for key, tensor in state.items()}


def peak_memory(function: Callable[[], object]) -> int:
    """The most bytes that a call holds at a time beyond what was there before."""
    tracemalloc.start()
    result = function()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del result
    return peak


def measure(name: str, model: Model, num_sources: int, repeats: int) -> list[str]:
    """One row of the table."""
    data = Round.random(model, num_sources)
    seconds = seconds_of(
        {
            "fedgp": data.aggregate,
            "a": lambda: data.read(product_float64),
            "b": lambda: data.read(np.dot),
        },
        repeats,
    )
    size = sum(array.nbytes for array in model.values())
    parameters = sum(layer.size for layer in data.target.parameters.values())
    return [
        f"{name} ({parameters:,})",
        str(num_sources),
        *(f"{1000 * value:.2f}" for value in seconds.values()),
        verdict(seconds["fedgp"] / seconds["a"], TIMES_LIMIT),
        verdict(seconds["fedgp"] / seconds["b"], TIMES_LIMIT),
        verdict(peak_memory(data.aggregate) / size, MEMORY_LIMIT),
    ]


def main() -> None:
    quick = quick_asked(__doc__)
    lenet = {name: np.zeros(shape, np.float32) for name, shape in LENET.items()}
    models = {"LeNet": (lenet, 20 if quick else 300)}
    if not quick:
        models |= {"ResNet-18": (resnet("resnet18"), 40), "ResNet-50": (resnet("resnet50"), 20)}
    show_machine()
    show(
        "FedGP's aggregation (least milliseconds) and its peak of extra memory (in models, with the new one)",
        ["model (parameters)", "sources", "FedGP", "(a)", "(b)", "FedGP/(a)", "FedGP/(b)", "memory"],
        [
            measure(name, model, num_sources, repeats)
            for name, (model, repeats) in models.items()
            for num_sources in (3, 9)
        ],
    )


if __name__ == "__main__":
    main()
