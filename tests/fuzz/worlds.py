"""Random data, and models of them that can be made in many ways."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from hypothesis import strategies as st

import lockquack as lq
from lockquack.families import FAMILIES, Family

#: Kinds of outcomes by the interval they lie in, and of what kind of family.
SUPPORTS = {
    "line": (-np.inf, np.inf),
    "positive": (0.0, np.inf),
    "unit": (0.0, 1.0),
    "angle": (-np.pi, np.pi),
}
CONTINUOUS, COUNTS, VECTOR = tuple(SUPPORTS), "counts", "vector"
KINDS = (*CONTINUOUS, COUNTS, VECTOR)
#: Parameters of the scalar families on the whole line that are outcomes, or widths of them.
PLACES, WIDTHS = ("mu",), ("sigma", "s", "beta")


def families_of(kind: str) -> list[str]:
    """Names of the families that can be of an outcome of some kind."""
    return [name for name, family in FAMILIES.items() if _suits(family, kind)]


def _suits(family: Family, kind: str) -> bool:
    if kind in (COUNTS, VECTOR):
        return family.discrete == (kind == COUNTS) and family.multivariate == (kind == VECTOR)
    low, high = SUPPORTS[kind]
    scalar = not family.discrete and not family.multivariate
    return scalar and family.support[0] <= low and high <= family.support[1]


def own_families_of(kind: str) -> list[str]:
    """Names of the families whose outcomes are all of this kind."""
    if kind in (COUNTS, VECTOR):
        return families_of(kind)
    return [name for name in families_of(kind) if FAMILIES[name].support == SUPPORTS[kind]]


@dataclass(frozen=True)
class Recipe:
    """A model in plain numbers: each parameter is (chain, draw, 1 or observations, ...)."""

    family: str
    parameters: dict[str, np.ndarray]
    transform: str | None = None

    def given(self) -> dict[str, np.ndarray]:
        """Parameters as from_family takes them, without an axis where all observations agree."""
        return {k: v[:, :, 0] if v.shape[2] == 1 else v for k, v in self.parameters.items()}

    def mapped(self, change) -> Recipe:
        """Return the recipe with every parameter changed."""
        return replace(self, parameters={k: change(v) for k, v in self.parameters.items()})

    def at(self, rows) -> Recipe:
        """Return the model of some of the observations."""
        return self.mapped(lambda v: v if v.shape[2] == 1 else v[:, :, rows])

    def of_draws(self, chosen) -> Recipe:
        """Return the model with some of its draws, each a position among all of them."""
        return self.mapped(lambda v: v.reshape(-1, *v.shape[2:])[chosen])


@dataclass(frozen=True, repr=False)
class World:
    """Outcomes and recipes of models of them, by name."""

    kind: str
    y: np.ndarray
    recipes: dict[str, Recipe]
    #: What the outcomes and the draws were made from.
    seed: int = 0

    def __repr__(self) -> str:
        made = {
            name: f"{recipe.family}{f' of {recipe.transform} y' if recipe.transform else ''}"
            for name, recipe in self.recipes.items()
        }
        chains, draws = self.shape
        return f"<{self.kind}, n={self.n}, {chains}×{draws} draws, {made}, seed={self.seed}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))

    @property
    def n(self) -> int:
        """Number of observations."""
        return len(self.y)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of chains and of draws in each."""
        first = next(iter(self.recipes.values()))
        return next(iter(first.parameters.values())).shape[:2]

    @property
    def has_one_support(self) -> bool:
        """Whether all models deem the same outcomes possible."""
        own = SUPPORTS.get(self.kind)
        made = [(FAMILIES[each.family], each) for each in self.recipes.values()]
        ends = {own if each.transform else family.support for family, each in made}
        # Binomial outcomes end at the number of trials, which is drawn.
        return len(ends) == 1 and not any("n" in each.parameters for _, each in made)

    @property
    def names(self) -> list[str]:
        """Names of the models."""
        return list(self.recipes)

    def models(self, **options: Any) -> dict[str, lq.Model]:
        """Make the models by from_family."""
        return {name: self.model(name, **options) for name in self.recipes}

    def model(self, name: str, **options: Any) -> lq.Model:
        """Make one model by from_family."""
        recipe = self.recipes[name]
        given = {"y": self.y, "transform": recipe.transform, **recipe.given(), **options}
        return lq.from_family(recipe.family, **given)

    @cached_property
    def arrays(self) -> dict[str, dict[str, np.ndarray]]:
        """Log densities and derivatives of each model as from_arrays takes them."""
        return {name: _arrays(model) for name, model in self.models().items()}

    def from_arrays(self, change=lambda array: array, **options: Any) -> dict[str, lq.Model]:
        """Make the models by from_arrays, each array changed."""
        return {
            name: lq.from_arrays(
                **{"y": self.y, **{k: change(v) for k, v in given.items()}, **options}
            )
            for name, given in self.arrays.items()
        }

    def outcomes(self) -> dict[str, np.ndarray]:
        """Draw an outcome for each draw of each model, (chain, draw, n[, component])."""
        shape = (*self.shape, *self.y.shape)
        found = {}
        for k, (name, recipe) in enumerate(self.recipes.items()):
            rng, family = np.random.default_rng([self.seed, k]), FAMILIES[recipe.family]
            drawn = np.reshape(family.draw(recipe.parameters, rng, (*self.shape, self.n)), shape)
            drawn = np.clip(drawn, -1e6, 1e6)
            found[name] = np.exp(np.minimum(drawn, 20.0)) if recipe.transform else drawn
        return found

    def from_draws(self, change=lambda draws: draws, rows=slice(None), y=None) -> dict[str, Any]:
        """Make the models of predictive draws, of some of the observations."""
        y = self.y if y is None else y
        return {
            name: lq.from_draws(change(each[:, :, rows]), y=y[rows], held_out=True)
            for name, each in self.outcomes().items()
        }

    def mapped(self, change) -> World:
        """Return the world with every recipe changed."""
        return replace(self, recipes={k: change(v) for k, v in self.recipes.items()})

    def at(self, rows) -> World:
        """Return some of the observations, in another order, some more than once."""
        return replace(self.mapped(lambda recipe: recipe.at(rows)), y=self.y[rows])

    def of(self, names) -> World:
        """Return some of the models, in another order."""
        return replace(self, recipes={name: self.recipes[name] for name in names})

    def moved(self, shift: float, unit: float) -> World:
        """Return the same in other units, y → shift + unit · y; models of the line only."""

        def changed(recipe: Recipe) -> Recipe:
            places = {k: shift + unit * v for k, v in recipe.parameters.items() if k in PLACES}
            widths = {k: unit * v for k, v in recipe.parameters.items() if k in WIDTHS}
            return replace(recipe, parameters={**recipe.parameters, **places, **widths})

        return replace(self.mapped(changed), y=shift + unit * self.y)


def _arrays(model: lq.Model) -> dict[str, np.ndarray]:
    source, every = model.source, slice(None)
    chains, draws = range(source.n_chains), slice(0, source.n_draws)
    obs = slice(0, source.n_obs)
    found = {"logp": np.stack([source.logp(chain, draws, obs) for chain in chains])}
    if source.can.differentiate:
        parts = zip(*(source.derivatives(chain, draws, obs) for chain in chains), strict=True)
        scalar = model.observations.component_dim is None
        last = (..., 0) if scalar else (..., every)
        found |= {k: np.stack(v)[last] for k, v in zip(("grad", "curv"), parts, strict=True)}
    return found


def centre(name: str, family: Family, d: int, rng: np.random.Generator) -> Any:
    """Return a value of a parameter that is nothing special; a guess for names not known."""
    match name:
        case "p" | "psi":
            return rng.uniform(0.2, 0.8)
        case "nu":
            return 1.5 + np.exp(rng.normal(1.0, 1.0))
        case "n":
            return 5000.0  # more than any outcome that is drawn
        case "cov" | "scale" | "chol":
            root = np.tril(rng.normal(size=(d, d)) / 2) + np.eye(d) * rng.uniform(0.7, 1.5)
            root[np.diag_indices(d)] = np.abs(root.diagonal()) + 0.3
            return root if name == "chol" else root @ root.T
    if name in family.positive:
        return np.exp(rng.normal(0.5, 0.5))
    return rng.normal(size=d) if family.multivariate else rng.normal()


def recipe(name: str, y: np.ndarray, shape, spread: float, varies: bool, rng) -> Recipe:
    """Make up draws of the parameters of a family."""
    family, d = FAMILIES[name], y.shape[1] if y.ndim == 2 else 1
    signature = family.signatures[rng.integers(len(family.signatures))]
    parameters = {}
    for key in signature:
        middle = np.asarray(centre(key, family, d, rng), dtype=np.float64)
        rows = len(y) if varies and key in ("mu", "lam") else 1
        noise = spread * rng.normal(size=(*shape, rows, *middle.shape))
        if key == "n":
            middle = np.asarray(float(y.max() + rng.integers(1, 5)))
            drawn = np.broadcast_to(middle, (*shape, 1)).copy()
        elif key in ("p", "psi"):
            drawn = 1 / (1 + np.exp(noise - np.log(middle / (1 - middle))))
        elif middle.ndim == 2:
            drawn = middle * np.exp(spread * rng.normal(size=(*shape, 1, 1, 1)))
        elif key in family.positive:
            drawn = middle * np.exp(noise)
        else:
            drawn = middle + noise
        parameters[key] = drawn
    return Recipe(name, parameters)


def outcomes(kind: str, n: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """Draw outcomes from a family whose outcomes are all of this kind."""
    name = rng.choice(own_families_of(kind))
    family = FAMILIES[name]
    key = family.signatures[0]
    given = {k: np.asarray(centre(k, family, d, rng), dtype=np.float64) for k in key}
    if "n" in given:
        given["n"] = np.asarray(20.0)
    drawn = family.draw({k: v[None] for k, v in given.items()}, rng, (n,))
    low, high = family.support
    if np.isfinite(low) and not family.discrete:
        width = (high if np.isfinite(high) else low + 1.0) - low
        drawn = np.maximum(drawn, low + 1e-3 * width)  # the edge itself is not an outcome
        drawn = np.minimum(drawn, high - 1e-3 * width) if np.isfinite(high) else drawn
    return np.clip(drawn, -1e3, 1e3)


@st.composite
def worlds(draw, kinds=KINDS, n=(2, 12), models=(1, 4), samples=(25, 60), far=True):
    """Draw outcomes and recipes: sizes and kinds by hypothesis, numbers by a seed."""
    kind = draw(st.sampled_from(kinds))
    n_obs = draw(st.integers(*n))
    K = draw(st.integers(*models))
    chains = draw(st.sampled_from([1, 2, 4]))
    draws = max(-(-draw(st.integers(*samples)) // chains), chains + 1)
    spread = draw(st.sampled_from([0.0, 0.05, 0.3]))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    y = outcomes(kind, n_obs, draw(st.integers(2, 3)) if kind == VECTOR else 1, rng)
    if draw(st.booleans()) and kind == "line":
        y = y.round(1)  # ties
    recipes = {}
    for k in range(K):
        names = families_of(kind)
        if kind == COUNTS:
            names = [name for name in names if _possible(FAMILIES[name], y)]
        name = str(rng.choice(names))
        made = recipe(name, y, (chains, draws), spread, bool(rng.integers(2)), rng)
        if kind == "positive" and FAMILIES[name].support[0] == -np.inf and rng.integers(2):
            made = replace(made, transform="log")
        if far and kind == "line" and rng.random() < 0.15:
            made = World("line", y, {"": made}).moved(8.0, 1.0).recipes[""]
        recipes[_NAMES[k]] = made
    return World(kind, y, recipes, seed)


#: Names as people have them; the order is not that of the alphabet.
_NAMES = ("null model", "b", "ärger", "c[1]", "a")


def _possible(family: Family, y: np.ndarray) -> bool:
    return bool(((y >= family.support[0]) & (y <= family.support[1])).all())
