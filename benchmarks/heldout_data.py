"""Data sets that come in wheels, and the models that are tried on each: nothing is downloaded.

The list was written down before anything was scored; nothing in it was changed by a result. Of
each outcome two blocks of covariates are used, A and B, as one would who has two ideas what it
depends on. Which models are tried follows from the kind of outcome alone (:data:`MODELS`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from regressions import Gamma, Likelihood, LogNormal, NegativeBinomial, Normal, Poisson, StudentT

Array = NDArray[np.float64]
#: Of larger data sets every second, third, … row is used, so that a run ends in time.
MOST_ROWS = 250

#: Models by the kind of outcome: name → likelihood and the blocks of its covariates.
MODELS: dict[str, dict[str, tuple[Likelihood, str]]] = {
    "real": {
        "A": (Normal(), "A"),
        "B": (Normal(), "B"),
        "A+B": (Normal(), "AB"),
        "A+B, t": (StudentT(), "AB"),
        "none": (Normal(), ""),
    },
    "positive": {
        "A+B": (Normal(), "AB"),
        "A, t": (StudentT(), "A"),
        "B, log-normal": (LogNormal(), "B"),
        "A+B, gamma": (Gamma(), "AB"),
        "none": (Normal(), ""),
    },
    "count": {
        "A+B": (Poisson(), "AB"),
        "A": (Poisson(), "A"),
        "A, negative binomial": (NegativeBinomial(), "A"),
        "B, negative binomial": (NegativeBinomial(), "B"),
        "none": (Poisson(), ""),
    },
}


@dataclass(frozen=True)
class Entry:
    """Where a data set comes from, and what is regressed on what."""

    name: str
    kind: str
    outcome: str
    A: tuple[str, ...]
    B: tuple[str, ...]
    read: Callable[[], pd.DataFrame]
    #: The wheel that brings it.
    wheel: str = "statsmodels"

    def load(self) -> Task:
        """Read the complete rows."""
        rows = self.read()[[self.outcome, *self.A, *self.B]].dropna()
        if self.kind == "positive":
            rows = rows[rows[self.outcome] > 0]
        rows = rows.iloc[:: -(-len(rows) // MOST_ROWS)]
        y = rows[self.outcome].to_numpy(dtype=np.float64)
        return Task(self, y, {"A": rows[list(self.A)], "B": rows[list(self.B)]})


@dataclass(frozen=True)
class Task:
    """An outcome and two blocks of covariates."""

    entry: Entry
    y: Array
    blocks: dict[str, pd.DataFrame]

    @property
    def models(self) -> dict[str, tuple[Likelihood, str]]:
        """The models that are tried."""
        return MODELS[self.entry.kind]

    def design(self, blocks: str, train: NDArray[np.bool_]) -> Array:
        """Ones and the covariates of some blocks, standardised by the training part."""
        columns = [np.ones((len(self.y), 1))]
        for block in blocks:
            X = pd.get_dummies(self.blocks[block], drop_first=True).to_numpy(dtype=np.float64)
            spread = X[train].std(axis=0)
            seen = spread > 0  # a level of which the training part has nobody is left out
            columns.append((X[:, seen] - X[train][:, seen].mean(axis=0)) / spread[seen])
        return np.concatenate(columns, axis=1)


def _sklearn(name: str) -> pd.DataFrame:
    from sklearn import datasets

    return getattr(datasets, f"load_{name}")(as_frame=True).frame


def _iris() -> pd.DataFrame:
    table = _sklearn("iris")
    return table.assign(species=table["target"].astype(str))


def _statsmodels(name: str, file: str | None = None, **options: Any) -> pd.DataFrame:
    path = _folder("statsmodels") / "datasets" / name / (file or f"{name}.csv")
    return pd.read_csv(path, **options)


def _vega(file: str) -> pd.DataFrame:
    path = _folder("vega_datasets") / "_data" / file
    if path.suffix == ".json":
        return pd.DataFrame(json.loads(path.read_text()))
    return pd.read_csv(path)


def _folder(package: str) -> Path:
    """Where a package lies, which is not imported."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{package} is needed; `make evidence` installs it.")
    return Path(spec.origin).parent


def _engel() -> pd.DataFrame:
    return _statsmodels("engel").assign(log_income=lambda t: np.log(t["income"]))


def _star98() -> pd.DataFrame:
    return _statsmodels("star98").assign(above=lambda t: 100 * t["PR50M"] / t["MATHTOT"])


def _cancer() -> pd.DataFrame:
    return _statsmodels("cancer").assign(log_population=lambda t: np.log(t["population"]))


def _strikes() -> pd.DataFrame:
    return _statsmodels("strikes").assign(square=lambda t: t["iprod"] ** 2)


def _lagged(table: pd.DataFrame, column: str, *lags: int) -> pd.DataFrame:
    return table.assign(**{f"lag{lag}": table[column].shift(lag) for lag in lags})


def _sunspots() -> pd.DataFrame:
    return _lagged(_statsmodels("sunspots"), "SUNACTIVITY", 1, 2, 11)


def _nile() -> pd.DataFrame:
    table = _statsmodels("nile").assign(late=lambda t: (t["year"] > 1898).astype(float))
    return _lagged(table, "volume", 1)


def _macro() -> pd.DataFrame:
    table = _lagged(_statsmodels("macrodata"), "infl", 1)
    return table.assign(unemp1=table["unemp"].shift(1), rate1=table["tbilrate"].shift(1))


def _anes() -> pd.DataFrame:
    return _statsmodels("anes96", sep="\t", quotechar="'")


def _interest() -> pd.DataFrame:
    table = _statsmodels("interest_inflation", "E6.csv")
    return _lagged(table, "R", 1).assign(quarter=table["quarter"].astype(str))


def _equipment() -> pd.DataFrame:
    table = _statsmodels("elec_equip")
    table = table.set_axis(["date", "turnover"], axis=1)
    return _lagged(table, "turnover", 1, 12)


def _weather() -> pd.DataFrame:
    table = _vega("seattle-weather.csv")
    angle = 2 * np.pi * pd.to_datetime(table["date"]).dt.dayofyear / 365.25
    return table.assign(sin=np.sin(angle), cos=np.cos(angle))


def _stocks() -> pd.DataFrame:
    table = _vega("stocks.csv")
    table["date"] = pd.to_datetime(table["date"])
    return np.log(table.pivot(index="date", columns="symbol", values="price")).diff()


def _cars() -> pd.DataFrame:
    table = _vega("cars.json")
    return table.assign(year=table["Year"].str[:4].astype(float))


def _barley() -> pd.DataFrame:
    table = _vega("barley.json")
    return table.assign(year=table["year"].astype(str))


def _wheat() -> pd.DataFrame:
    table = _vega("wheat.json")
    return table.assign(year=table["year"].astype(float))


def _penguins() -> pd.DataFrame:
    return pd.read_csv(_folder("palmerpenguins") / "data" / "penguins.csv")


#: All of them. Left out of these wheels: what is censored (heart), has no number as outcome
#: (modechoice, spector), has too few rows (china_smoking), or is no regression (digits, airports).
ENTRIES = [
    Entry(
        "diabetes",
        "real",
        "target",
        ("age", "sex", "bmi", "bp"),
        ("s1", "s2", "s3", "s4", "s5", "s6"),
        partial(_sklearn, "diabetes"),
        "scikit-learn",
    ),
    Entry(
        "linnerud",
        "positive",
        "Weight",
        ("Chins", "Situps", "Jumps"),
        ("Waist", "Pulse"),
        partial(_sklearn, "linnerud"),
        "scikit-learn",
    ),
    Entry(
        "wine",
        "positive",
        "color_intensity",
        ("alcohol", "malic_acid", "hue"),
        ("flavanoids", "proline", "ash"),
        partial(_sklearn, "wine"),
        "scikit-learn",
    ),
    Entry(
        "breast cancer",
        "positive",
        "mean area",
        ("mean texture", "mean smoothness"),
        ("mean compactness", "mean concavity", "mean symmetry"),
        partial(_sklearn, "breast_cancer"),
        "scikit-learn",
    ),
    Entry(
        "iris",
        "positive",
        "petal width (cm)",
        ("sepal length (cm)", "sepal width (cm)"),
        ("species",),
        _iris,
        "scikit-learn",
    ),
    Entry("engel", "positive", "foodexp", ("income",), ("log_income",), _engel),
    Entry(
        "copper",
        "positive",
        "WORLDCONSUMPTION",
        ("COPPERPRICE", "INCOMEINDEX"),
        ("ALUMPRICE", "INVENTORYINDEX", "TIME"),
        partial(_statsmodels, "copper"),
    ),
    Entry(
        "stackloss",
        "positive",
        "STACKLOSS",
        ("AIRFLOW",),
        ("WATERTEMP", "ACIDCONC"),
        partial(_statsmodels, "stackloss"),
    ),
    Entry(
        "grunfeld",
        "positive",
        "invest",
        ("value", "capital"),
        ("firm",),
        partial(_statsmodels, "grunfeld"),
    ),
    Entry(
        "longley",
        "positive",
        "TOTEMP",
        ("GNP", "UNEMP"),
        ("ARMED", "POP", "YEAR"),
        partial(_statsmodels, "longley"),
    ),
    Entry(
        "star98",
        "real",
        "above",
        ("LOWINC", "PERASIAN", "PERBLACK", "PERHISP"),
        ("AVYRSEXP", "AVSALK", "PERSPENK", "PTRATIO"),
        _star98,
    ),
    Entry(
        "ccard",
        "positive",
        "AVGEXP",
        ("AGE", "OWNRENT"),
        ("INCOME", "INCOMESQ"),
        partial(_statsmodels, "ccard"),
    ),
    Entry("cancer", "count", "cancer", ("log_population",), ("population",), _cancer),
    Entry("strikes", "positive", "duration", ("iprod",), ("square",), _strikes),
    Entry(
        "elnino", "real", "DEC", ("NOV",), ("JAN", "FEB", "MAR"), partial(_statsmodels, "elnino")
    ),
    Entry("sunspots", "real", "SUNACTIVITY", ("lag1", "lag2"), ("lag11",), _sunspots),
    Entry("nile", "positive", "volume", ("lag1",), ("late",), _nile),
    Entry("macrodata", "real", "infl", ("lag1",), ("unemp1", "rate1"), _macro),
    Entry(
        "randhie",
        "count",
        "mdvis",
        ("lncoins", "idp", "lpi", "fmde"),
        ("physlm", "disea", "hlthg", "hlthf", "hlthp"),
        partial(_statsmodels, "randhie"),
    ),
    Entry(
        "scotland",
        "real",
        "YES",
        ("COUTAX", "UNEMPF"),
        ("MOR", "ACT", "GDP", "AGE"),
        partial(_statsmodels, "scotland", "scotvote.csv"),
    ),
    Entry(
        "committee",
        "count",
        "BILLS104",
        ("SIZE", "SUBS", "STAFF"),
        ("PRESTIGE", "BILLS103"),
        partial(_statsmodels, "committee"),
    ),
    Entry(
        "cpunish",
        "count",
        "EXECUTIONS",
        ("INCOME", "PERPOVERTY", "PERBLACK"),
        ("VC100k96", "SOUTH", "DEGREE"),
        partial(_statsmodels, "cpunish"),
    ),
    Entry(
        "fertility", "positive", "2010", ("1960",), ("1990",), partial(_statsmodels, "fertility")
    ),
    Entry(
        "statecrime",
        "positive",
        "violent",
        ("hs_grad", "poverty"),
        ("single", "urban"),
        partial(_statsmodels, "statecrime"),
    ),
    Entry(
        "fair",
        "count",
        "naffairs",
        ("age", "nmarried", "nchildren"),
        ("sex", "religious", "education", "rate_marriage"),
        partial(_statsmodels, "fair", "fair_pt.csv"),
    ),
    Entry("anes96", "count", "TVnews", ("age", "educ", "income"), ("PID", "selfLR"), _anes),
    Entry("interest", "real", "R", ("lag1",), ("Dp", "quarter"), _interest),
    Entry(
        "danish",
        "real",
        "lrm",
        ("lry",),
        ("lpy", "ibo", "ide"),
        partial(_statsmodels, "danish_data", "data.csv"),
    ),
    Entry("equipment", "positive", "turnover", ("lag12",), ("lag1",), _equipment),
    Entry(
        "cars",
        "positive",
        "Miles_per_Gallon",
        ("Horsepower", "Weight_in_lbs"),
        ("year", "Cylinders", "Origin"),
        _cars,
        "vega_datasets",
    ),
    Entry("barley", "positive", "yield", ("site",), ("variety", "year"), _barley, "vega_datasets"),
    Entry(
        "weather",
        "real",
        "temp_max",
        ("sin", "cos"),
        ("precipitation", "wind"),
        _weather,
        "vega_datasets",
    ),
    Entry("stocks", "real", "AAPL", ("MSFT", "IBM"), ("AMZN",), _stocks, "vega_datasets"),
    Entry(
        "driving",
        "positive",
        "gas",
        ("miles",),
        ("year",),
        partial(_vega, "driving.json"),
        "vega_datasets",
    ),
    Entry("wheat", "positive", "wages", ("wheat",), ("year",), _wheat, "vega_datasets"),
    Entry(
        "penguins",
        "positive",
        "body_mass_g",
        ("bill_length_mm", "bill_depth_mm", "flipper_length_mm"),
        ("species", "sex"),
        _penguins,
        "palmerpenguins",
    ),
]
