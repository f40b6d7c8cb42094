"""How far the draws of the models can be trusted at each observation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import xarray as xr

if TYPE_CHECKING:
    from lockquack.combination.combination import Combination


def diagnostics(self: Combination, *, progressbar: bool | None = None) -> xr.Dataset:
    """Examine each model's draws at each observation; takes longer than the fit itself.

    Parameters
    ----------
    progressbar
        Whether to show progress; by default in a terminal only.

    Returns
    -------
    xarray.Dataset
        ``ess_grad`` and ``ess_curv``, the effective sample sizes of the two averages behind
        the leave-one-out Hyvärinen score, of models that have one; ``elpd`` and ``pareto_k``,
        the leave-one-out log score by PSIS and the tail index that tells whether to trust it;
        ``how``, how each was obtained: ``"PSIS"``, ``"held out"``, ``"refit"`` or another way. The
        Hyvärinen score does not depend on k̂.

    Examples
    --------
    >>> import lockquack as lq
    >>> fit = lq.lock(lq.example_models())
    >>> found = fit.diagnostics()
    >>> bool((found["pareto_k"] < 0.7).all()), bool((found["ess_grad"] > 400).all())
    (True, True)
    """
    parts = []
    for model in self._require_models().values():
        loo = model.loo(progressbar=progressbar)
        part = xr.Dataset()
        if model.source.can.differentiate:
            part = model.ess().rename(grad="ess_grad", curv="ess_curv")
        part["elpd"] = self.observations.label(loo.logp)
        part["pareto_k"] = self.observations.label(loo.pareto_k)
        part["how"] = self.observations.label(loo.how)
        parts.append(part)
    model_index = pd.Index(list(self.names), name="model")
    return xr.concat(parts, dim=model_index, join="override")
