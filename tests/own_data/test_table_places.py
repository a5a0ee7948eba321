"""The same tables in any format, as a file for each domain, one with a column of domains, or a workbook."""

from typing import Any

import pandas as pd
import pytest
from formats import WRITERS, write_as
from naming import names

from fda_flower.datasets import DataSpec, load_domain
from fda_flower.datasets.federation import data_digests
from fda_flower.datasets.folders import OPTIONS_FILE
from fda_flower.errors import ConfigError
from fda_flower.own_data.check import check, find_dataset

SUFFIX_OF = {"train": ".parquet", "test": ".csv"}
SITES = ("east", "north", "west")
OPTIONS = {"label": "LABEL", "categorical": "onehot", "missing": "mean"}


def table_of(site, rows=20):
    """A site's rows: numbers with gaps, words, and a label in words."""
    start = SITES.index(site) if site in SITES else 5
    return pd.DataFrame(
        {
            "AGE": [None if i % 7 == 3 else start + i / 2 for i in range(rows)],
            "SEX": ["fm"[i % 3 == 0] for i in range(rows)],
            "LABEL": ["ill" if i % 2 else "well" for i in range(rows)],
        }
    )


def in_one(*sites):
    """The rows of sites in one table, in turn."""
    parts = [table_of(site).assign(SITE=site) for site in sites or SITES]
    return pd.concat(parts).sort_index(kind="stable").reset_index(drop=True)


def spec_of(place, **options):
    return DataSpec("table", data_dir=str(place), dataset_options=tuple({**OPTIONS, **options}.items()))


def refused(place, what, remedy="", thing="data file", value=None, **options):
    """Check that a place is refused, in its own words."""
    with pytest.raises(
        ConfigError, match=what, check=names(thing, place if value is None else value, remedy)
    ):
        data_digests(spec_of(place, **options))


@pytest.fixture
def expected(tmp_path):
    """The digests of the sites' samples, read from CSV files."""
    for site in SITES:
        write_as(tmp_path / "texts" / f"{site}.csv", table_of(site))
    return data_digests(spec_of(tmp_path / "texts"))


@pytest.mark.parametrize("suffix", WRITERS)
def test_files_of_any_format_hold_the_same_samples(suffix, expected, tmp_path):
    for site in SITES:
        write_as(tmp_path / "sites" / f"{site}{suffix}", table_of(site))
    assert find_dataset(tmp_path / "sites") == "table"
    assert data_digests(spec_of(tmp_path / "sites")) == expected
    path = write_as(tmp_path / "one" / f"all{suffix}", in_one())
    assert find_dataset(path) == "table"
    assert data_digests(spec_of(path, domain="SITE")) == expected


def test_formats_mix(expected, tmp_path):
    for site, suffix in zip(SITES, (".csv", ".sav", ".parquet"), strict=True):
        write_as(tmp_path / "sites" / f"{site}{suffix}", table_of(site))
    assert data_digests(spec_of(tmp_path / "sites")) == expected
    for part, rows in (("train", [*range(40)]), ("test", [*range(40, 60)])):
        write_as(tmp_path / "parts" / part / f"all{SUFFIX_OF[part]}", in_one().iloc[rows])
    assert data_digests(spec_of(tmp_path / "parts", domain="SITE")).keys() == expected.keys()


@pytest.fixture
def workbook(tmp_path):
    """Write sheets to a file; the last ones are hidden."""

    def write(*hidden, **sheets):
        with pd.ExcelWriter(tmp_path / "study.xlsx") as book:
            for name, table in sheets.items():
                table.to_excel(book, sheet_name=name, index=False)
                book.sheets[name].sheet_state = "hidden" if name in hidden else "visible"
        return tmp_path / "study.xlsx"

    return write


def test_each_sheet_of_a_workbook_is_a_domain(expected, workbook):
    sheets = {site: table_of(site) for site in SITES}
    path = workbook(**sheets)
    assert data_digests(spec_of(path)) == expected
    refused(path, "'sheet' names one, 'east'", "domain=COLUMN", sheet="east")
    path = workbook("list", **sheets, list=pd.DataFrame({"yes": ["no"]}))
    assert data_digests(spec_of(path)) == expected
    assert f"table: '{path}' has hidden sheets that are not read: list" in check(spec_of(path)).notes
    refused(workbook("west", **sheets), "a hidden sheet, west", "show that sheet")
    refused(workbook(east=table_of("east")), "only one domain .*'east'", "domain=", "data set", "east")


def test_sheets_of_a_file_in_a_folder_are_named_with_both_ways(workbook):
    path = workbook(**{site: table_of(site) for site in SITES})
    with pytest.raises(ConfigError, match="3 sheets", check=names("data file", path, "sheet=NAME")):
        spec_of(path.parent, domain="SITE")
    assert data_digests(spec_of(path.parent, sheet="east", domain="SEX"))


def test_a_regression_is_scaled_by_the_sources_rows(tmp_path):
    path = write_as(tmp_path / "all.sav", in_one())
    options = dict(spec_of(path, domain="SITE", label="AGE", task="regression").dataset_options)
    write_as(path, in_one("east", "north").assign(SITE="east"))
    assert options["label_mean"] == pytest.approx(in_one("east", "north").AGE.mean(), abs=0.2)


@pytest.mark.parametrize(
    ("words", "what", "thing"),
    [
        ({3: "", 5: "?"}, "no domain in line 5, column 'SITE' .and 1 more line", "data file"),
        ({3: "North"}, "column 'SITE' holds words that differ only in case", "column"),
        ({3: "north", 4: "no  rth", 5: "no rth"}, "differ only in case, spacing", "column"),
        ({3: "../x"}, "plain name", "domain in column 'SITE'"),
        ({3: "a,b"}, "comma", "domain"),
    ],
)
def test_the_words_for_domains_are_checked_as_names_of_files(words, what, thing, tmp_path):
    table = in_one()
    table.loc[[*words], "SITE"] = [*words.values()]
    path = write_as(tmp_path / "all.csv", table)
    with pytest.raises(ConfigError, match=what) as caught:
        data_digests(spec_of(path, domain="SITE"))
    assert caught.value.thing == thing


def test_one_table_without_a_column_of_domains_says_which_option_helps(tmp_path):
    path = write_as(tmp_path / "all.csv", in_one())
    refused(path, "is one table", "--dataset-option domain=COLUMN")
    refused(tmp_path, "only one domain in .*'all'", "--dataset-option domain=COLUMN", "data set", "all")
    refused(path, "no column 'Site' .did you mean 'SITE'", "AGE", domain="Site")
    refused(
        path, "'domain' is 'LABEL', but the option 'label'", "", "option 'domain'", "LABEL", domain="LABEL"
    )
    refused(path, "no row of the domain 'south'", "'domains'", domain="SITE", domains="east,north,south")
    write_as(path, in_one().assign(AGE="?"))
    with pytest.raises(
        ConfigError, match=r"'.*all.csv .east.' has no value in the whole column in line 2, column 'AGE'"
    ):
        data_digests(spec_of(path, domain="SITE", missing="refuse"))
    write_as(path, in_one())
    write_as(path, in_one().assign(SITE=[f"s{i}" for i in range(60)]))
    refused(path, "another word in each row", "'domain'", domain="SITE")
    write_as(tmp_path / "more.sav", in_one())
    refused(tmp_path, "holds all.csv, more.sav", "--data-dir FILE", "data folder", domain="SITE")


def test_a_site_reads_its_own_rows_alone_and_no_run_says_which_column_divides_them(tmp_path):
    table = in_one()
    table.loc[table.SITE == "west", "LABEL"] = "Aalto"
    path = write_as(tmp_path / "all.parquet", table)
    options = {"domains": "east,west", "classes": "ill,well"}
    at_site: dict[str, Any] = {"data_dir": str(path), "site": "east"}
    (tmp_path / OPTIONS_FILE).write_text('label = "LABEL"\ncategories = "SEX:f|m"\nmissing = "mean"')
    with pytest.raises(ConfigError, check=names("option 'domain'")):
        DataSpec("table", dataset_options=tuple({**options, "domain": "SITE"}.items()), **at_site)
    with (tmp_path / OPTIONS_FILE).open("a") as file:
        file.write('\ndomain = "SITE"')
    spec = DataSpec("table", dataset_options=tuple(options.items()), **at_site)
    data = load_domain(spec, "east")
    assert (data.class_names, len(data.domains["east"].inputs)) == (("ill", "well"), 16)


def test_what_cannot_be_read_matters_in_columns_that_are_used(tmp_path):
    pa = pytest.importorskip("pyarrow")
    for site in SITES:
        table = pa.Table.from_pandas(table_of(site)).append_column("scan", pa.array([[1]] * 20))
        pa.parquet.write_table(table, tmp_path / f"{site}.parquet")
    problems = [str(each) for each in check(spec_of(tmp_path)).problems.entries.values()]
    assert len(problems) == len(SITES)
    assert "has cells of the type list<element: int64> in column 'scan': make numbers" in problems[0]
    assert data_digests(spec_of(tmp_path, ignore="scan"))
