"""The settings of a run in a table."""

from collections.abc import Mapping
from typing import Any

from fda_flower.reporting.tables import Table
from fda_flower.run_settings import SETTINGS


def settings_table(settings: Mapping[str, Any], notes: Mapping[str, Any]) -> list[Table]:
    """Return a table of the settings that are not the default, a folded one of all, and one of versions."""
    if not settings:
        return []
    known = {each.name: each for each in SETTINGS}
    rows = {
        name: [
            name.replace("_", "-"),
            show(value),
            show(known[name].default) if name in known else "",
            known[name].help if name in known else "",
        ]
        for name, value in settings.items()
    }
    changed = [row for row in rows.values() if row[1] != row[2]]
    header = ["setting", "value", "default", "meaning"]
    more = [[name, show(value)] for name, value in _flat(notes)]
    tables = [
        Table(header, changed, "Settings that are not the default"),
        Table(header, [*rows.values()], f"All {len(rows)} settings", folded=True),
        Table(["what", "value"], more, "Versions and machine", folded=True),
    ]
    return [table for table in tables if table.rows]


def show(value: Any) -> str:
    """Return a setting's value as text: options by name, lists with commas, nothing for none.

    Examples
    --------
    >>> show({"std": 0.4}), show(["a", "b"]), show(None), show(True)
    ('std=0.4', 'a, b', '', 'yes')
    """
    if isinstance(value, Mapping):
        return " ".join(f"{name}={show(option)}" for name, option in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(show, value))
    return "" if value is None else ("no", "yes")[value] if isinstance(value, bool) else str(value)


def _flat(notes: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [
        pair
        for name, value in notes.items()
        for pair in (value.items() if isinstance(value, Mapping) else [(name, value)])
    ]
