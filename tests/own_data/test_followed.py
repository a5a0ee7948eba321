"""Tables of patients who are followed: times, events, horizons, and labels of the rows that are there."""

import re
from typing import Any

import numpy as np
import pytest

from fda_flower.aggregation.survival import pseudo_values
from fda_flower.datasets import DataSpec, load_federation
from fda_flower.datasets.federation import forget, load_domain
from fda_flower.errors import ConfigError
from fda_flower.own_data.check import check
from fda_flower.own_data.followed import read_horizons

ROWS = 60
OPTIONS = {"task": "survival", "label": "months", "event": "died"}


def table(seed, **columns):
    """The columns of a site's table."""
    rng = np.random.default_rng(seed)
    known = {"age": rng.integers(40, 80, ROWS), "months": rng.permutation(np.arange(1, ROWS + 1)) / 2}
    return {**known, "died": (rng.random(ROWS) < 0.6).astype(int), **columns}


@pytest.fixture
def write(tmp_path):
    """Write a site's table; return the folder."""

    def written(**sites):
        for name, columns in sites.items():
            lines = [
                ",".join(columns),
                *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True)),
            ]
            (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
        forget()
        return str(tmp_path)

    return written


def spec(folder, **settings):
    options: Any = {**OPTIONS, **settings.pop("options", {})}
    return DataSpec("table", data_dir=folder, target="east", dataset_options=options, **settings)


HORIZONS = {"horizons": "3,6,9"}


@pytest.mark.parametrize(
    "settings", [{"target_samples": 20}, {"validation": "0.5"}, {"validation": "fold:1/3"}]
)
def test_labels_follow_from_the_rows_that_remain(write, settings):
    """After a number of samples, validation and folds have chosen them."""
    folder = write(east=table(1), north=table(2))
    domain = load_federation(spec(folder, options=HORIZONS, **settings)).domains["east"]
    parts = [domain.train, domain.test, *([] if domain.validation is None else [domain.validation])]
    for part in parts:
        values = pseudo_values(part.outcomes.times, part.outcomes.events, (3.0, 6.0, 9.0))
        np.testing.assert_allclose(part.y, (values - 0.5) / 0.5, rtol=1e-6)


@pytest.mark.parametrize("settings", [{"target_samples": 20}, {"validation": "0.5"}])
def test_no_row_that_is_left_out_changes_a_label(write, settings):
    """Whatever happened to these patients."""
    east = table(1)
    folder = write(east=east, north=table(2))
    before = load_federation(spec(folder, options=HORIZONS, **settings)).domains["east"].train
    kept = np.isin(east["months"], before.outcomes.times)  # no two times are equal
    folder = write(east={**east, "months": np.where(kept, east["months"], 100.0)}, north=table(2))
    after = load_federation(spec(folder, options=HORIZONS, **settings)).domains["east"].train
    np.testing.assert_array_equal(before.y, after.y)
    assert 0 < sum(kept) < ROWS


def test_horizons_that_a_run_does_not_name_follow_from_the_sources(write):
    """Quantiles of their events, up to the shortest follow-up; they are written into the options."""
    north, west = table(2), table(3)
    folder = write(east=table(1), north=north, west=west)
    chosen = dict(spec(folder).dataset_options)["horizons"]
    events = np.concatenate([each["months"][each["died"] == 1] for each in (north, west)])
    latest = min(np.quantile(events, 0.8), *(each["months"].max() for each in (table(1), north, west)))
    wanted = np.quantile(events[events <= latest], [0.1, 0.3, 0.5, 0.7, 0.9])
    np.testing.assert_allclose(read_horizons(chosen), np.unique(wanted), rtol=1e-3)


def test_a_check_counts_the_events(write):
    folder, east = write(east=table(1), north=table(2)), table(1)
    assert check(spec(folder)).domains["east"].classes == {"with the event": east["died"].sum()}


@pytest.mark.parametrize("text", ["", "12", "12, 36,60"])
def test_horizons_are_rising_numbers(text):
    assert len(read_horizons(text)) == len([each for each in text.split(",") if each])


@pytest.mark.parametrize("text", ["0,12", "36,12", "12,12", "soon", "inf", ",".join(map(str, range(1, 12)))])
def test_other_horizons_are_refused(text):
    with pytest.raises(ConfigError, match="give 1 to 10 rising times in the label's unit, such as 12,36,60"):
        read_horizons(text)


def with_(column, value, place=3):
    cells = table(1)[column].astype(object)
    cells[place] = value
    return {"east": table(1, **{column: cells}), "north": table(2)}


REPEATED = {name: table(seed, patient=np.arange(ROWS) // 2) for name, seed in (("east", 1), ("north", 2))}


@pytest.mark.parametrize(
    ("sites", "options", "words"),
    [
        (
            with_("died", 2),
            {},
            "than 0 and 1 for the event in line 5, column 'died': competing events are not",
        ),
        (with_("died", "yes"), {}, "competing events are not"),
        *(
            ({**with_("died", 0), "east": table(1, died=codes)}, {}, "write 1 for the event, and 0 for")
            for codes in (np.arange(ROWS) % 2 + 1, np.where(np.arange(ROWS) % 2, "yes", "no"))
        ),
        (with_("died", ""), {}, "no word on the event in line 5, column 'died'"),
        (with_("months", 0), {}, "a time that is not above 0 in line 5, column 'months'"),
        (with_("months", "long"), {}, "a time that is no number in line 5, column 'months'"),
        ({"east": table(1), "north": table(2)}, {"event": ""}, "the option 'event' is missing"),
        ({"east": table(1), "north": table(2)}, {"event": "dead"}, "needs 'dead'"),
        ({"east": table(1), "north": table(2)}, {"label_mean": "3"}, "but the labels are survival"),
        ({"east": table(1), "north": table(2)}, {"classes": "a,b"}, "which has no classes"),
        ({"east": table(1), "north": table(2)}, {"task": "regression"}, "nobody is followed"),
        ({"east": table(1), "north": table(2)}, {"horizons": "3,60"}, "horizon 60 is after the last time at"),
        (REPEATED, {"group": "patient"}, "patients of domain 'east' have several rows"),
        (
            {"east": table(1), "north": table(2, months=np.r_[np.full(57, 2.0), np.full(3, 30.0)])},
            {"horizons": "1,15"},
            "at the site 'north' fewer than 5 patients are followed to the horizon 15",
        ),
        (
            {name: table(seed, died=np.zeros(ROWS, int)) for name, seed in (("east", 1), ("north", 2))},
            {},
            "no patient has the event",
        ),
    ],
)
def test_what_cannot_be_followed_is_refused_in_words(write, sites, options, words):
    folder = write(**sites)
    with pytest.raises(ConfigError) as error:
        load_federation(spec(folder, options=options))
    assert re.search(words, str(error.value), re.DOTALL), error.value


def test_a_site_of_its_own_needs_the_horizons(write, tmp_path):
    """There they would follow from the patients of all sites."""
    folder = write(east=table(1))
    options: Any = {"domains": "east,north"}
    how = {"data_dir": folder, "target": "east", "site": "east"}
    (tmp_path / "fda.toml").write_text('task = "survival"\nlabel = "months"\nevent = "died"\n')
    with pytest.raises(ConfigError, match="a site needs the option 'horizons'"):
        DataSpec("table", dataset_options=options, **how)
    known: Any = {**options, **HORIZONS}
    given = DataSpec("table", dataset_options=known, **how)
    assert load_domain(given, "east").classes == 3


def test_rows_of_hugging_face_are_followed_too(tmp_path):
    """Their default horizons are those of the same tables."""
    pytest.importorskip("datasets")
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"site": [], **{name: [] for name in table(1)}}
    for name, each in {"east": table(1), "north": table(2)}.items():
        columns["site"] += [name] * ROWS
        for column, cells in each.items():
            columns[column] += cells.tolist()
    folder = tmp_path / "hf"
    folder.mkdir()
    parquet.write_table(pa.table(columns), folder / "rows.parquet")
    options: Any = {**OPTIONS, "domain": "site"}
    found = DataSpec("hf", data_dir=str(folder), target="east", dataset_options=options)
    horizons = read_horizons(str(dict(found.dataset_options)["horizons"]))
    assert load_domain(found, "east").classes == len(horizons) == 5
