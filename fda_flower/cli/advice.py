"""The advice at the end of a run: whether its model is useful, and the comparison to run next."""

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fda_flower.runs.checks import fits
from fda_flower.runs.config import RunConfig
from fda_flower.runs.methods import find_method
from fda_flower.runs.request import Request
from fda_flower.runs.settings import AUTO, SETTINGS, command_options

if TYPE_CHECKING:
    from fda_flower.experiments import RunResult


def advice(result: "RunResult") -> list[str]:
    """Return whether the model is useful, and the command of the comparison to run next."""
    from fda_flower.experiments.comparison import USUAL
    from fda_flower.reporting.summary import PARAMETERS
    from fda_flower.reporting.words import is_better, judge

    config, summary, alone = result.config, result.summary, "target-only"
    lines, useful = judge(summary), is_better(summary)
    known = config.entry.centralised or config.method == alone or "source" not in config.strategy.trains
    if PARAMETERS not in summary or (useful and (known or config.conclusion(result.history[-1]))):
        return lines
    what = "What the sources bring" if useful else "Other methods on the same data"
    methods, options = comparison_of(config, [alone] if useful else USUAL)
    if len(methods) < 2:
        return lines
    chosen = [] if methods == list(USUAL) else ["--methods", ",".join(methods)]
    return [*lines, f"{what}: {shlex.join(['fda', 'compare', *chosen, *options])}"]


def comparison_of(config: RunConfig, others: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the methods and the options of a run's comparison with those `others` that fit its settings.

    A method's own number of rounds, and the network that fits, are not settings.
    """
    shared = [each for each in SETTINGS if each.name not in ("method", "seed")]
    settings = {each.name: getattr(config, each.name) for each in shared}
    if config.entry.rounds is not None:
        settings["rounds"] = RunConfig.rounds
    if config.model == config.fitting_model:
        settings["model"] = AUTO

    def fitting(name: str) -> bool:
        method, options = find_method(name), dict(config.method_options)
        own = {
            "method_options": {key: value for key, value in options.items() if method.takes(key)},
            "beta": config.beta if method.takes("beta") else None,
        }
        return fits(Request(**{**settings, **own, "method": name, "seed": config.seed}), config.data)

    methods = [name for name in dict.fromkeys([*others, config.method]) if fitting(name)]
    return methods, command_options(shared, settings)
