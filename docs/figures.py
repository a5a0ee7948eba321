"""Draw the figures of the concept pages: `python docs/figures.py [FOLDER]`.

What the methods do is computed by `fda_flower.aggregation` itself, for a model of two numbers.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from fda_flower.aggregation import (
    AdaptiveRule,
    BatchUpdates,
    FedDA,
    FedGP,
    JointRule,
    Update,
    blend,
    fit_mixture,
    functional_distance,
    gradient_similarity,
    mean_update,
    stratified_folds,
)
from fda_flower.datasets import DataSpec, load_federation
from fda_flower.prediction.batches import batches

IMAGES = Path(__file__).resolve().parent / "images"
TARGET, SOURCE, RESULT, TRUTH = "#0072B2", "#D55E00", "black", "#009E73"
STYLE: Any = {"font.size": 9, "svg.hashsalt": "fda-flower", "svg.fonttype": "none"} | {
    f"axes.spines.{side}": False for side in ("top", "right", "bottom", "left")
}

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Setting:
    """A round in which a target with few labels and two sources train the model θ = (0, 0)."""

    title: str
    sources: tuple[tuple[float, float], ...]
    truth: tuple[float, float] = (2.6, 1.0)
    noise: float = 3.0
    steps: int = 12
    seed: int = 0

    @property
    def batches(self) -> Vector:
        """The target's steps: the one that many labels would give, and noise."""
        noise = np.random.default_rng(self.seed).normal(scale=self.noise, size=(self.steps, 2))
        return (np.array(self.truth) + noise) / self.steps

    @property
    def target(self) -> Update:
        """The target's update, the sum of its steps."""
        return self._update(self.batches.sum(axis=0), 50)

    @property
    def updates(self) -> list[Update]:
        """The sources' updates."""
        return [self._update(np.array(source), 450) for source in self.sources]

    def _update(self, delta: Vector, examples: int) -> Update:
        return Update({"w": delta}, {}, examples, steps=self.steps, learning_rate=1.0)


SETTINGS = (
    Setting("a small shift", ((3.0, 1.1), (2.3, 0.6))),
    Setting("a large shift", ((2.0, -2.2), (-2.4, 0.9))),
)

THETA = {"w": np.zeros(2)}


def mean_of(*roles: str) -> Callable[[Setting], Vector]:
    """Return the mean of the clients of these roles, weighted by their samples."""

    def result(setting: Setting) -> Vector:
        clients = [setting.target] * ("target" in roles) + setting.updates * ("source" in roles)
        examples = np.array([client.examples for client in clients], float)
        return np.asarray(mean_update(THETA, clients, examples / examples.sum())["w"])

    return result


def adaptive(rule: AdaptiveRule, auto: bool) -> Callable[[Setting], Vector]:
    """Return the model of FedDA or FedGP, with β = 0.5 or an estimated one."""

    def result(setting: Setting) -> Vector:
        steps = setting.batches
        evidence = BatchUpdates((steps**2).sum(axis=1), full=steps) if auto else None
        combined = rule(THETA, setting.target, setting.updates, np.full(2, 0.5), evidence)
        return np.asarray(combined.model["w"])

    return result


def feddaf(setting: Setting) -> Vector:
    """Return the blend of the sources' model and the target's own."""
    source, target = {"w": mean_of("source")(setting)}, setting.target.parameters
    _, alpha = functional_distance(gradient_similarity(source, target))
    return np.asarray(blend(source, target, alpha, ())["w"])


METHODS: Mapping[str, tuple[str, Callable[[Setting], Vector]]] = {
    "source-only": ("Source Only", mean_of("source")),
    "fedavg": ("FedAvg", mean_of("source", "target")),
    "target-only": ("Target Only", mean_of("target")),
    "fedda": ("FedDA, β = 0.5", adaptive(AdaptiveRule(FedDA(), "beta_fedda"), auto=False)),
    "fedgp": ("FedGP, β = 0.5", adaptive(AdaptiveRule(FedGP(), "beta_fedgp"), auto=False)),
    "fedda-auto": ("FedDA_Auto", adaptive(AdaptiveRule(FedDA(), "beta_fedda"), auto=True)),
    "fedgp-auto": ("FedGP_Auto", adaptive(AdaptiveRule(FedGP(), "beta_fedgp"), auto=True)),
    "fedda-joint": ("FedDA_Joint", adaptive(JointRule(FedDA(), "beta_fedda"), auto=True)),
    "feddaf": ("FedDAF", feddaf),
}


def arrow(
    axis: Axes, end: Sequence[float] | Vector, color: str, label: str, style: str, width: float
) -> None:
    """Draw an update that begins at θ."""
    axis.annotate(
        "",
        xy=(float(end[0]), float(end[1])),
        xytext=(0, 0),
        arrowprops={
            "arrowstyle": "-|>",
            "color": color,
            "ls": style,
            "lw": width,
            "shrinkA": 0,
            "shrinkB": 0,
        },
    )
    axis.plot([], [], color=color, ls=style, lw=width, label=label)


def draw_updates(axis: Axes, setting: Setting, label: str, result: Vector) -> None:
    """Draw the round: what comes in, and what the method makes of it."""
    for i, source in enumerate(setting.sources):
        arrow(axis, source, SOURCE, "the sources' updates" if i == 0 else "_", "--", 1.2)
    arrow(axis, setting.target.parameters["w"], TARGET, "the target's update, 50 labels", "-.", 1.2)
    arrow(axis, result, RESULT, label, "-", 2.4)
    axis.plot(*setting.truth, "*", color=TRUTH, ms=13, label="where many labels would lead")
    axis.plot(0, 0, "o", color=RESULT, ms=4)
    error = float(np.linalg.norm(result - np.array(setting.truth)))
    axis.set_title(f"{setting.title}: {error:.1f} from the star", fontsize=9)
    axis.set(xlim=(-2.7, 3.5), ylim=(-2.6, 2.6), aspect="equal", xticks=[], yticks=[])


def combining(name: str) -> Figure:
    """Draw one method under a small and a large shift."""
    label, method = METHODS[name]
    figure, axes = plt.subplots(1, 2, figsize=(7.2, 3.7), layout="constrained")
    for axis, setting in zip(axes, SETTINGS, strict=True):
        draw_updates(axis, setting, label, method(setting))
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    return figure


def samples(n: int, angle: float, seed: int) -> tuple[Vector, NDArray[np.int64]]:
    """Draw samples of two classes, turned by an angle in degrees."""
    random = np.random.default_rng(seed)
    y = np.arange(n) % 2
    x = random.normal(size=(n, 2)) + np.where(y, 1.1, -1.1)[:, None] * np.array([1.0, 0.0])
    turn = np.deg2rad(angle)
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    return x @ rotation.T, y


def logits(model: LogisticRegression, x: Vector) -> Vector:
    """Return the two classes' outputs."""
    return np.stack([np.zeros(len(x)), model.decision_function(x)], axis=1)


def mixture() -> Figure:
    """Draw Mixture on 30 labels under a small and a large shift: linear models of the plane."""
    figure, axes = plt.subplots(1, 2, figsize=(7.2, 3.8), layout="constrained")
    grid = np.stack(np.meshgrid(np.linspace(-4, 4, 80), np.linspace(-4, 4, 80)), axis=-1).reshape(-1, 2)
    x, y = samples(30, 0, seed=5)
    folds = stratified_folds(y, 4, 0)
    for axis, (title, angle) in zip(axes, (("a small shift", 10), ("a large shift", 130)), strict=True):
        sources = LogisticRegression().fit(*samples(800, angle, seed=1))
        own = LogisticRegression(C=100).fit(x, y)
        views = [LogisticRegression(C=100).fit(x[folds != k], y[folds != k]) for k in range(4)]
        held_out = np.zeros((len(x), 2))
        for k, view in enumerate(views):
            held_out[folds == k] = logits(view, x[folds == k])
        fitted = fit_mixture({"sources": logits(sources, x), "target": held_out}, y)
        outputs = {
            "sources": [logits(sources, grid)],
            "target": [logits(model, grid) for model in (own, *views)],
        }
        plane = {"colors": RESULT, "linestyles": "-", "linewidths": 2.4}
        draw = {
            "the sources' model": (logits(sources, grid)[:, 1], SOURCE, "--"),
            "the target's own model": (logits(own, grid)[:, 1], TARGET, "-."),
        }
        xs, ys = grid[:, 0].reshape(80, 80), grid[:, 1].reshape(80, 80)
        for label, (values, color, style) in draw.items():
            axis.contour(xs, ys, values.reshape(80, 80), [0], colors=color, linestyles=style)
            axis.plot([], [], color=color, ls=style, label=label)
        probability = fitted.predict(outputs)[:, 1].reshape(80, 80)
        axis.imshow(
            probability, extent=(-4, 4, -4, 4), origin="lower", cmap="PuOr", alpha=0.35, vmin=0, vmax=1
        )
        axis.contour(xs, ys, probability, [0.5], **plane)
        axis.plot([], [], color=RESULT, lw=2.4, label="the mixture")
        for value, marker in ((0, "o"), (1, "^")):
            axis.plot(*x[y == value].T, marker, color="0.2", ms=4, label=f"labelled, class {value}")
        weights = ", ".join(f"{name} {weight:.2f}" for name, weight in fitted.weights.items())
        axis.set_title(f"{title}: {weights}", fontsize=9)
        axis.set(xlim=(-4, 4), ylim=(-4, 4), aspect="equal", xticks=[], yticks=[])
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return figure


SHIFTS = {
    "rotate": "rotate: the target's images are turned and inverted",
    "noise": "noise: the target's images are noisy",
    "label": "label: the classes have other frequencies",
    "color": "color: a colour that goes with the label at the sources misleads at the target",
}


def shifts() -> Figure:
    """Draw what each shift makes of the digits: a source's images, and the target's."""
    figure, axes = plt.subplots(len(SHIFTS), 2, figsize=(7.2, 4.4), layout="constrained")
    for row, (shift, title) in zip(axes, SHIFTS.items(), strict=True):
        options = {"noise": {"std": 0.4}}.get(shift, {})
        data = load_federation(DataSpec("digits", shift=shift, shift_options=tuple(options.items())))
        for axis, domain in zip(row, (next(iter(data.domains)), data.target), strict=True):
            generator = torch.Generator().manual_seed(0)
            images, _ = next(batches(data.domains[domain].train, 10, generator, shuffle=True))
            strip = np.concatenate([np.pad(image, ((0, 0), (0, 0), (0, 1))) for image in images], axis=2)
            strip = np.concatenate([strip, np.zeros_like(strip[:1])]) if len(strip) == 2 else strip
            axis.imshow(np.clip(strip.transpose(1, 2, 0), 0, 1), cmap="gray")
            axis.set_axis_off()
        row[0].set_title(f"{title}\na source", fontsize=9, loc="left")
        row[1].set_title("the target", fontsize=9, loc="left")
    return figure


def digits() -> Figure:
    """Draw what the first cell of the tutorial draws."""
    data = load_federation(DataSpec("digits", shift="rotate"))
    figure, axes = plt.subplots(2, 8, figsize=(8, 2))
    for row, name in zip(axes, ("source-1", "target"), strict=True):
        for axis, image in zip(row, data.domains[name].train.x, strict=False):
            axis.imshow(image[0], cmap="gray")
            axis.set_axis_off()
        row[0].set_title(name, loc="left")
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {
    **{f"combining-{name}": partial(combining, name) for name in METHODS},
    "combining-mixture": mixture,
    "shifts": shifts,
    "tutorial-digits": digits,
}


def main(folder: Path = IMAGES) -> None:
    """Write every figure."""
    folder.mkdir(parents=True, exist_ok=True)
    matplotlib.rcParams.update(STYLE)
    for name, draw in FIGURES.items():
        figure = draw()
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
        plt.close(figure)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
