"""How often remarks are made, and verdicts wrong: the counts in docs/limits.md.

``python benchmarks/remarks.py`` prints three tables, ``decide``, ``far`` and ``worse``; give the
name of one to print only that. Other seeds give other counts: they are of some hundred samples.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd
from scipy import optimize, stats

import lockquack as lq
from lockquack.families import FAMILIES
from lockquack.jets import Array
from lockquack.methods.verdicts import differences, judge
from lockquack.models.model import Model

#: Remarks by which a score that cannot see something says so.
_SAID = {
    "misled-score",
    "unseen-weight",
    "modes-apart",
    "phases-at-cap",
    "scores-disagree",
    "log-score-unknown",
    "uncertain-pool",
}
_ON_THE_LINE = ("normal", "student_t", "logistic")
_POSITIVE = ("gamma", "weibull", "lognormal")
#: Kinds of ordinary outcomes, and the models of each.
KINDS = {
    "normal": (stats.norm(), _ON_THE_LINE),
    "Student t, 4 degrees of freedom": (stats.t(4), _ON_THE_LINE),
    "logistic": (stats.logistic(), _ON_THE_LINE),
    "Gumbel": (stats.gumbel_r(), ("normal", "gumbel", "logistic")),
    "gamma of shape 2": (stats.gamma(2), _POSITIVE),
    "Weibull of shape 1.5": (stats.weibull_min(1.5), _POSITIVE),
    "log-normal": (stats.lognorm(0.5), _POSITIVE),
    "exponential": (stats.expon(), ("exponential", "gamma", "weibull")),
}


def fitted(name: str, y: Array, rng: np.random.Generator) -> Model:
    """Fit a family with flat priors; draws of the normal approximation at the mode."""
    family = FAMILIES[name]
    free = [each for each in family.signatures[0] if each != "nu"]
    fixed = {"nu": 4.0} if "nu" in family.signatures[0] else {}

    def named(theta: Array) -> dict[str, Array]:
        moved = {
            k: np.exp(v) if k in family.positive else v for k, v in zip(free, theta, strict=True)
        }
        return {**moved, **fixed}

    start = np.zeros(len(free))
    mode = optimize.minimize(lambda theta: -family.logp(y, named(theta)).sum(), start)
    draws = rng.multivariate_normal(mode.x, mode.hess_inv, size=(4, 250))
    return lq.from_family(name, y=y, **named(np.moveaxis(draws, -1, 0)))


def decide(repeats: int = 20, n: int = 40) -> pd.DataFrame:
    """Count fits to ordinary outcomes in which one of them is said to decide."""
    rng = np.random.default_rng(1)
    found = []
    for kind, (truth, families) in KINDS.items():
        for _ in range(repeats):
            y = truth.rvs(size=n, random_state=rng)
            models = {name: fitted(name, y, rng) for name in families}
            said = [
                "few-decide" in codes(lq.lock(models, rule=rule)) for rule in ("hyvarinen", "log")
            ]
            found.append((kind, *said))
    table = pd.DataFrame(found, columns=["outcomes", "by H", "by the log score"]).groupby(
        "outcomes", sort=False
    )
    return pd.concat([table.sum(), table.sum().sum().to_frame(f"all {len(found)} samples").T])


def far(repeats: int = 5) -> pd.DataFrame:
    """Pool a right model with a far one by H: what log score that costs, and what is said."""
    pools = {
        "mixture": lq.Linear(),
        "Hölder ½": lq.Hoelder(0.5),
        "superposition": lq.Superposition(),
        "lock": lq.Locking(),
    }
    rng = np.random.default_rng(2)
    found = []
    for apart in (2, 4, 6, 8):
        for n in (20, 100, 400):
            for _ in range(repeats):
                y, mu = rng.normal(size=n), rng.normal(size=(2, 4, 250)) / np.sqrt(n)
                right = lq.from_family("normal", y=y, mu=mu[0], sigma=1.0)
                models = {
                    "right": right,
                    "far": lq.from_family("normal", y=y, mu=mu[1] + apart, sigma=1.0),
                }
                alone = log_score(lq.equal({"right": right}))
                for name, operator in pools.items():
                    fit = lq.combine(models, operator, lq.Hyvarinen())
                    said = bool(codes(fit) & _SAID)
                    found.append((name, apart, log_score(fit) - alone, said))
    table = pd.DataFrame(found, columns=["pool", "sd", "loss", "said"])
    wrong = table["loss"] < -4
    rows = table.assign(wrong=wrong, silent=wrong & ~table["said"]).groupby("pool", sort=False)
    said = table.pivot_table("said", "pool", "sd", sort=False).mul(100).add_prefix("said, %: ")
    return pd.concat(
        [rows["loss"].agg(["size", "min"]), rows[["wrong", "silent"]].sum(), said], axis=1
    )


def worse(repeats: int = 1000) -> pd.DataFrame:
    """Count tables of equally good models in which a row is called worse than the best, in %."""
    rng = np.random.default_rng(3)
    found = []
    for models, n in ((10, 40), (10, 120), (10, 400), (3, 120)):
        called, single = [], []
        for _ in range(repeats):
            # Each model knows one of as many causes of the outcome.
            causes = rng.normal(size=(models, n))
            scores = stats.norm.logpdf(causes.sum(axis=0), causes, np.sqrt(models - 1))
            called.append("worse" in judge(scores, np.zeros(scores.shape, bool)))
            apart = differences(scores)
            single.append((-apart.total > 2 * apart.se).any())
        found.append((models, n, 100 * np.mean(called), 100 * np.mean(single)))
    columns = ["models", "observations", "called worse", "by two standard errors"]
    return pd.DataFrame(found, columns=columns).set_index("models")


def codes(fit: lq.Combination) -> set[str]:
    """Codes of the remarks on a fit."""
    return {remark.code for remark in fit.remarks}


def log_score(fit: lq.Combination) -> float:
    """Total leave-one-out log score."""
    return float(fit.logpdf(loo=True).sum())


TABLES: dict[str, Callable[[], pd.DataFrame]] = {"decide": decide, "far": far, "worse": worse}

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for name in sys.argv[1:] or TABLES:
        print(f"\n{name}: {TABLES[name].__doc__}\n")
        print(TABLES[name]().round(1).to_string())
