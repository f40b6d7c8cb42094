"""Stan programs, several of which are compiled as one.

Compiling a program takes most of a minute, whatever it does. What one program declares and what it
does has nothing to do with another one, so a program that has the blocks of both, their variables
renamed, draws from both posteriors at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

BLOCKS = (
    "data",
    "transformed data",
    "parameters",
    "transformed parameters",
    "model",
    "generated quantities",
)
#: What stands between the type of a variable and its name: bounds, and a size.
_DECLARED = re.compile(
    r"\b(?:int|real|vector|row_vector|matrix|simplex|ordered|cholesky_factor_corr|corr_matrix)\b"
    r"(?:<[^>]*>)?\s*(?:\[[^\]]*\])?\s+([A-Za-z]\w*)"
)


@dataclass(frozen=True)
class Program:
    """A Stan program, its data, and how its likelihood is named."""

    blocks: Mapping[str, str]
    data: Mapping[str, Any]
    y: Any
    #: What is said to name the likelihood, its parameters being those of the fit; or nothing.
    family: Mapping[str, Any] = field(default_factory=dict)
    #: What is said with generated quantities.
    stored: Mapping[str, Any] = field(default_factory=dict)
    #: Log densities that Stan has no family for, from the variables of the fit.
    by_hand: Callable[[Mapping[str, Any]], Any] | None = None

    @property
    def code(self) -> str:
        """The program itself."""
        return "\n".join(f"{name} {{\n{self.blocks[name]}\n}}" for name in self._names)

    @property
    def _names(self) -> list[str]:
        return [name for name in BLOCKS if name in self.blocks]

    @property
    def variables(self) -> list[str]:
        """Names that are declared at the top of a block."""
        return [
            name
            for block in self.blocks.values()
            for name in _DECLARED.findall(re.sub(r"\{.*\}", "", block, flags=re.DOTALL))
        ]

    def renamed(self, ending: str) -> Program:
        """Return the same program with an ending to the names of its variables."""
        names = "|".join(map(re.escape, self.variables))
        # What is followed by a parenthesis is a function, such as beta.
        own = re.compile(rf"\b({names})\b(?!\s*\()")
        blocks = {name: own.sub(rf"\1{ending}", text) for name, text in self.blocks.items()}
        data = {f"{name}{ending}": values for name, values in self.data.items()}
        return Program(blocks, data, self.y, self.family)


def merged(programs: Sequence[Program]) -> Program:
    """Make one program of several, whose variables end in their numbers."""
    each = [program.renamed(f"_{k}") for k, program in enumerate(programs)]
    blocks = {
        name: "\n".join(program.blocks[name] for program in each if name in program.blocks)
        for name in BLOCKS
    }
    data = {name: values for program in each for name, values in program.data.items()}
    return Program({name: text for name, text in blocks.items() if text}, data, None)


class OwnFit:
    """A fit of merged programs as that of one of them, with the names that it has."""

    def __init__(self, fit: Any, k: int) -> None:
        ending = f"_{k}"
        own = [at for at, name in enumerate(fit.param_names) if name.endswith(ending)]
        self.fit, self.ending = fit, ending
        self.param_names = tuple(fit.param_names[at].removesuffix(ending) for at in own)
        self.dims = tuple(fit.dims[at] for at in own)
        self.num_chains, self.num_warmup = fit.num_chains, fit.num_warmup
        self.save_warmup, self.num_thin = fit.save_warmup, fit.num_thin

    def __getitem__(self, name: str) -> Any:
        return self.fit[f"{name}{self.ending}"]

    def draws(self, name: str) -> Any:
        """Draws of a variable, (chain, draw, ...)."""
        shape = self.dims[self.param_names.index(name)]
        flat = np.asarray(self[name]).reshape(*shape, -1, self.num_chains)
        return np.moveaxis(flat, (-1, -2), (0, 1))
