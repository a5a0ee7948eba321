"""Notes on rows that are alike: by chance, as in few coarse columns, or as they were entered twice."""

from typing import Any

import numpy as np
import pytest

from fda_flower.own_data.table import OwnTables


@pytest.mark.parametrize("domains", ["a", "a,b,c"])
@pytest.mark.parametrize(
    ("columns", "twice"), [("age,sex,ward", 0), ("age,sex", 0), ("age,sex,bp", 0), ("age,sex,bp", 3)]
)
def test_rows_that_are_alike_by_chance_are_not_told(tmp_path, domains, columns, twice):
    drawn = np.random.default_rng(0)
    for name in domains.split(","):
        cells: dict[str, Any] = {"age": drawn.integers(30, 80, 200), "sex": drawn.integers(2, size=200)}
        cells |= {"ward": drawn.integers(3, size=200), "bp": drawn.normal(120, 15, 200).round(2)}
        rows = [
            f"{','.join(map(str, row))},{drawn.integers(2)}"
            for row in zip(*(cells[each] for each in columns.split(",")), strict=True)
        ]
        lines = [f"{columns},label", *rows, *rows[:twice]]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines))
    notes = OwnTables(tmp_path, 0, domains).survey.notes
    again = [each for each in notes if "more than once" in each]
    assert len(again) == (twice > 0)
    assert all(f": {twice * len(domains.split(','))}, the first in line" in each for each in again)
    assert not any("different labels" in each for each in notes)
