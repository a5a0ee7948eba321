"""What a run takes, told before it trains, and what a round costs, told after the first."""

import resource
import sys
from collections import Counter
from typing import TYPE_CHECKING

from fda_flower.config import RunConfig
from fda_flower.datasets import Domain, FederatedDataset
from fda_flower.records import Record

if TYPE_CHECKING:
    from torch import nn

MOST_SHOWN = 12
"""Classes that are listed; of more, only their number is told."""


def overview(config: RunConfig, data: FederatedDataset, model: "nn.Module") -> list[str]:
    """Return lines that say what a run takes: domains, target, labels, classes and network."""
    return [
        _sources(config, data),
        _target(config, data),
        _labels(config, data),
        _network(config, data, model),
    ]


def cost_of_round(record: Record, rounds: int) -> str:
    """Return a line that says what a round has cost, and what all may take."""
    seconds = sum(record.get("seconds", {}).values())
    unit = 1 if sys.platform == "darwin" else 1024
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20
    whole = _span(rounds * seconds)
    return f"A round: {seconds:.1f} s, so {rounds} take about {whole}; memory: {memory:,.0f} MB"


def _span(seconds: float) -> str:
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _sources(config: RunConfig, data: FederatedDataset) -> str:
    sources = (f"{name} {len(data.domains[name].train):,}" for name in config.data.source_names)
    return f"Sources: training samples of {config.dataset}: {', '.join(sources)}"


def _target(config: RunConfig, data: FederatedDataset) -> str:
    domain = data.domains[data.target]
    labelled, rest = len(domain.train), 0 if domain.unlabelled is None else len(domain.unlabelled)
    return (
        f"Target: {data.target}, {labelled} labels of {labelled + rest} training samples (--target-samples), "
        f"{len(domain.test)} test samples (another target: --target NAME)"
    )


def _labels(config: RunConfig, data: FederatedDataset) -> str:
    options = dict(config.data.dataset_options)
    column = f" in column '{options.get('label', 'label')}'" if config.dataset == "table" else ""
    if config.data.is_regression:
        return f"Labels{column}: numbers, {data.classes} of each sample"
    names = data.class_names or tuple(map(str, range(data.classes)))
    if len(names) > MOST_SHOWN:
        return f"Classes{column}: {len(names)}"
    target = _counts(data.domains[data.target])
    sources = Counter[int]()
    for name, domain in data.domains.items():
        if name != data.target:
            sources += _counts(domain)
    shown = (f"{name} {sources[i]:,} + {target[i]}" for i, name in enumerate(names))
    return f"Classes{column}, labels of the sources + of the target: {', '.join(shown)}"


def _counts(domain: Domain) -> Counter[int]:
    return Counter(domain.train.y.tolist())


def _network(config: RunConfig, data: FederatedDataset, model: "nn.Module") -> str:
    parameters = sum(parameter.numel() for parameter in model.parameters())
    inputs = (
        f"{data.shape[0]} features"
        if len(data.shape) == 1
        else f"images of {'x'.join(map(str, data.shape[1:]))} in {data.shape[0]} channels"
    )
    return f"Network: {config.model}, {parameters:,} parameters, for {inputs} (another: --model NAME)"
