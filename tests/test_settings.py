"""A setting is declared once: what follows from the declarations is what is written down elsewhere."""

import re
import tomllib
from dataclasses import MISSING, Field, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from fda_flower import RunConfig
from fda_flower.clients.settings import LocalTraining
from fda_flower.datasets import DataSpec
from fda_flower.engines import Resources
from fda_flower.runs.settings import (
    SETTINGS,
    Options,
    command_options,
    flower_table,
    markdown_table,
    setting,
    settings_of,
)
from fda_flower.site import PrivacySettings
from fda_flower.strategies.settings import StrategySettings

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Small:
    """Settings of each kind."""

    name: str = setting("First", "a", "A name.")
    name_options: Options = setting("First", (), "Option of it.")  # noqa: RUF009
    count: int | None = setting("Second", None, "A number.", shown="any")
    wait: float = setting("Second", 1.5, "A time.", defines_run=False)


def test_the_tables_of_settings() -> None:
    assert flower_table(settings_of(Small)) == (
        'name = "a"\nname-options = ""\ncount = ""\nwait = 1.5\noutput = ""\nresume = false\n'
    )
    assert markdown_table(settings_of(Small)).splitlines()[2:] == [
        "| **First** |  |  |",
        "| `--name` | `a` | A name. |",
        "| `--name-option` |  | Option of it. |",
        "| **Second** |  |  |",
        "| `--count` | any | A number. |",
        r"| `--wait` \* | `1.5` | A time. |",
    ]


def test_the_apps_configuration_is_generated_as_the_line_above_it_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (table,) = re.findall(r"^\[tool\.flwr\.app\.config\]\n((?:.+\n)*)", text, re.MULTILINE)
    assert table == flower_table(SETTINGS)
    (code,) = re.findall(r'^# python -c "(.*)"$', text, re.MULTILINE)
    exec(code, {})
    assert capsys.readouterr().out.strip() == table.strip()


@pytest.mark.parametrize(
    ("settings", "shift"),
    [({}, "rotate"), ({"dataset": "colored-mnist"}, "color"), ({"dataset": "heart"}, None)],
)
def test_flwr_run_runs_what_fda_run_runs(settings: dict[str, Any], shift: str | None) -> None:
    config = RunConfig.from_flower({**tomllib.loads(flower_table(SETTINGS)), **settings})
    assert config == RunConfig(**settings)
    assert config.shift == shift


def test_the_guides_table_is_generated() -> None:
    guide = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"<!-- settings: begin -->\n(.*)<!-- settings: end -->", guide, re.DOTALL)
    assert table == markdown_table(SETTINGS)


def test_every_setting_has_a_group_and_a_sentence() -> None:
    assert [*(each.name for each in SETTINGS), "site", "patients"] == list(RunConfig.__dataclass_fields__)
    groups = ("Data", "Method", "Training", "Selection", "Limits", "Privacy", "Machine")
    assert [each for each in SETTINGS if each.group not in groups or not each.help.endswith(".")] == []


OWN_DEFAULTS = {"target_samples", "warmup_rounds", "source_mean", "evaluate_every"}
"""Settings whose default is the run's own; except for the first, it leaves the method's."""


def types(hint: Any) -> set[Any]:
    """The types of one value in a hint; words are text."""
    parts = {part for one in get_args(hint) for part in types(one)} if get_args(hint) else {hint}
    return {str} if get_origin(hint) is Literal else parts - {type(None), ...}


@pytest.mark.parametrize("user", [DataSpec, LocalTraining, PrivacySettings, StrategySettings, Resources])
def test_a_setting_has_the_type_and_the_default_of_the_class_that_uses_it(user: type[Any]) -> None:
    of_run, hints = {each.name: each for each in SETTINGS}, get_type_hints(user)
    shared: list[Field[Any]] = [each for each in fields(user) if each.name in of_run]
    assert shared
    for each in shared:
        own = of_run[each.name]
        assert own.has_options or types(hints[each.name]) <= types(own.hint), each.name
        if each.name not in OWN_DEFAULTS and each.default is not MISSING:
            assert own.default == each.default, each.name


def test_a_command_line_gives_what_is_not_the_default() -> None:
    options = {"invert": False, "angle": 45}
    config = RunConfig(shift="rotate", shift_options=options, method="fedavg", device="cpu", rounds=5)
    words = command_options(SETTINGS, vars(config))
    assert words == [
        *("--shift", "rotate", "--shift-option", "angle=45.0", "--shift-option", "invert=false"),
        *("--target", "target", "--method", "fedavg", "--rounds", "5", "--model", "cnn", "--device", "cpu"),
    ]
    assert command_options([each for each in SETTINGS if each.name == "rounds"], {"rounds": 30}) == []
    labels = [each for each in SETTINGS if each.name == "target_samples"]
    assert command_options(labels, {"target_samples": None}) == ["--target-samples", "all"]


def test_a_switch_that_is_on_by_default_is_turned_off() -> None:
    switch = replace(SETTINGS[0], default=True, name="fast", hint=bool)
    assert command_options([switch], {"fast": False}) == ["--no-fast"]
