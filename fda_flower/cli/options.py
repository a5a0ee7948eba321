"""Options made from a run's settings, and their completion in the shell; loads nothing heavy."""

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import click
import typer
from click.core import ParameterSource
from typer.core import TyperCommand, TyperOption

from fda_flower.datasets.registry import DATASETS
from fda_flower.datasets.shifts import PARTITIONS, SHIFTS
from fda_flower.errors import ConfigError, near
from fda_flower.files import read_json
from fda_flower.models import MODELS
from fda_flower.models.devices import DEVICES
from fda_flower.names.options import split_options, twice
from fda_flower.reporting.trackers import TRACKERS
from fda_flower.runs.methods import method_names, run_names
from fda_flower.runs.settings import AUTO, SETTINGS, Setting, as_flower, as_stored

Complete = Callable[[str], list[str]]


def among(names: Iterable[str]) -> Complete:
    """Return a completer of `names`."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def complete_methods(incomplete: str) -> list[str]:
    """Complete the last of comma-separated methods."""
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in ("all", *method_names()) if name.startswith(last)]


COMPLETED: dict[str, Complete] = {
    "dataset": among(DATASETS),
    "shift": among(SHIFTS),
    "partition": among(PARTITIONS),
    "method": among((AUTO, *run_names())),
    "model": among(MODELS),
    "device": among(DEVICES),
}
"""By setting, its completer."""

ALL = tuple(each.name for each in SETTINGS)
OF_SHIFT = ("shift_options", "sources", "target", "only_sources")
BELONGING = {
    "dataset": ("dataset_options", "shift", *OF_SHIFT, "model", "model_options"),
    "shift": OF_SHIFT,
    "partition": ("partition_options",),
    "method": ("method_options", "variant", "beta"),
    "model": ("model_options",),
}
"""By setting, the values of a ``config.json`` to ignore when the command line changes the setting."""

SHORT = (
    *("dataset", "data_dir", "shift", "target", "target_samples", "method", "method_options", "rounds"),
    *("seed", "model", "output", "resume", "engine", "workers", "sources"),
    *("methods", "seeds", "jobs", "search", "trials", "validation", "only"),
)
"""The options in the help of `ShortHelp`."""

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        help="Take the settings from another run's config.json; options given here win.", show_default="none"
    ),
]

Track = Annotated[
    list[str],
    typer.Option(
        help="Also log the rounds to mlflow, wandb or tensorboard; repeatable, or separated by commas.",
        show_default="none",
        autocompletion=among(TRACKERS),
    ),
]


class ShortHelp(TyperCommand):
    """A command whose ``--help`` shows only the options of `SHORT`, and whose ``--help-all`` shows all."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        how: Any = {"is_flag": True, "is_eager": True, "expose_value": False, "callback": self._show_all}
        self.params.append(TyperOption(param_decls=["--help-all"], help="Show all options.", **how))

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the short help."""
        for each in self.params:
            if isinstance(each, click.Option):
                each.hidden = each.name not in (*SHORT, "help_all")
        super().format_help(ctx, formatter)

    def _show_all(self, ctx: click.Context, _: click.Parameter, value: bool) -> None:
        if value:
            super().format_help(ctx, ctx.make_formatter())
            ctx.exit()


def with_settings(
    names: Collection[str] = ALL, *, shown: Mapping[str, str] | None = None, **defaults: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds a run's settings to a command's options.

    The command's argument `settings` is a dictionary of the settings that are given, in increasing priority:
    by `defaults`, the environment, a ``config.json`` and the command line. `shown` maps a setting to the text
    that the help shows as its default.
    """
    taken = [each for each in SETTINGS if each.name in names]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(command, include_extras=True)
        own = [p for p in inspect.signature(command).parameters.values() if p.name != "settings"]

        def call(context: typer.Context, **values: Any) -> None:
            file = values.get("config")
            from_file = {} if file is None else read_settings(file)
            given = _given(context, values, taken)
            ours = given[ParameterSource.COMMANDLINE]
            stale = {name for thing in ours for name in BELONGING.get(thing, ())}
            settings = {
                **(defaults | given[ParameterSource.ENVIRONMENT]),
                **{name: from_file[name] for name in names if name in from_file and name not in stale},
                **ours,
            }
            command(settings=settings, **{p.name: values[p.name] for p in own})

        parameters = [
            _parameter("context", typer.Context),
            *(_parameter(p.name, hints[p.name], p.default) for p in own),
            *(_option(each, defaults.get(each.name, each.default), shown or {}) for each in taken),
        ]
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        call.__annotations__ = {}
        call.__name__, call.__doc__ = command.__name__, command.__doc__
        return call

    return decorate


def options_given() -> set[str]:
    """Return the names of the current command's options that its command line gives."""
    context, given = click.get_current_context(), ParameterSource.COMMANDLINE
    return {name for name in context.params if context.get_parameter_source(name) is given}


def read_settings(path: Path) -> dict[str, Any]:
    """Return the settings in a run's ``config.json``; raise a `ConfigError` if it holds none."""
    remedy = "give the config.json of a run's folder"
    settings = as_stored(read_json(path, remedy, settings=dict)["settings"])
    if others := settings.keys() - set(ALL):
        message = f"'{path}' has the unknown setting '{min(others)}'{near(min(others), ALL)}"
        raise ConfigError(message, thing=str(path), remedy=remedy)
    return settings


def _given(
    context: typer.Context, values: Mapping[str, Any], taken: Collection[Setting]
) -> dict[ParameterSource, dict[str, Any]]:
    """Return the settings by their source."""
    given: dict[ParameterSource, dict[str, Any]] = {source: {} for source in ParameterSource}
    for each in taken:
        source, value = context.get_parameter_source(each.name), values[each.name]
        if source is not None:
            if each.has_options:
                value = read_together(value)
            given[source][each.name] = value
    return given


def read_together(texts: Iterable[str]) -> dict[str, str]:
    """Return the options in all texts; raise a `ConfigError` if one is given twice."""
    options: dict[str, str] = {}
    for name, value in (pair for text in texts for pair in split_options(text).items()):
        if name in options:
            raise twice(name)
        options[name] = value
    return options


def _option(each: Setting, default: Any, shown: Mapping[str, str]) -> inspect.Parameter:
    option = typer.Option(
        each.option,
        help=each.help,
        metavar="NAME=VALUE" if each.has_options else None,
        show_default=shown.get(each.name) or each.shown or True,
        envvar=each.envvar,
        rich_help_panel=each.group,
        autocompletion=COMPLETED.get(each.name),
    )
    if each.has_options:
        return _parameter(each.name, Annotated[list[str], option], [])
    if each.plain:
        return _parameter(each.name, Annotated[each.hint, option], default)
    return _parameter(each.name, Annotated[str | None, option], as_flower(default) or None)


def _parameter(name: str, hint: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)
