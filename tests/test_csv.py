"""Files of draws in CSV, in whatever state they come, and formulas of what is in them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import lockquack as lq
from lockquack import cli
from lockquack.sources.csv import read_draws
from lockquack.sources.formula import parse_formula
from tests.ppl.test_stan import write_csv

#: pandas before 3 reads the last digit of a number differently.
LAST_DIGIT = 1e-14

# CmdStan's files as they come by mail: comments gone, lines ended by Windows, warm-up saved.


def without_comments(text):
    return "".join(line for line in text.splitlines(True) if not line.startswith("#"))


def without_head(text):
    """Without what stands before the names of the columns."""
    lines = text.splitlines(True)
    first = next(i for i, line in enumerate(lines) if not line.startswith("#"))
    return "".join(lines[first:])


def with_crlf(text):
    return text.replace("\n", "\r\n")


def thinned(text):
    """As CmdStan says it: numbers before thinning, every second row."""
    text = re.sub(r"(num_\w+) = (\d+)\n", lambda m: f"{m[1]} = {2 * int(m[2])}\n", text)
    return text.replace("thin = 1 (Default)", "thin = 2").replace("true", "1")


@pytest.fixture
def stan_draws(rng):
    return {"beta": rng.normal(size=(2, 15, 2)), "Omega": rng.normal(size=(2, 15, 2, 3))}


@pytest.mark.parametrize("warmup", [0, 6])
@pytest.mark.parametrize(
    "change",
    [
        [str],
        [with_crlf],
        [without_comments],
        [without_comments, with_crlf],
        [without_head],
        [without_head, with_crlf],
        [thinned],
        [thinned, with_crlf],
        [thinned, without_head],
        [thinned, without_comments],
    ],
    ids=lambda changes: " ".join(each.__name__ for each in changes),
)
def test_cmdstan_files_in_any_state(tmp_path, stan_draws, change, warmup):
    paths = [Path(path) for path in write_csv(tmp_path, stan_draws, warmup)]
    for path in paths:
        text = path.read_text()
        for each in change:
            text = each(text)
        path.write_bytes(text.encode())
    found = read_draws(paths)
    assert set(found) == set(stan_draws)
    for name, values in stan_draws.items():
        np.testing.assert_allclose(found[name], values[:, warmup:], rtol=LAST_DIGIT)


def test_a_step_size_that_is_drawn_is_no_warm_up(tmp_path):
    table = pd.DataFrame({"stepsize__": [0.1, 0.3, 0.2, 0.25], "a": np.arange(4.0)})
    table.to_csv(tmp_path / "a.csv", index=False)
    np.testing.assert_array_equal(read_draws([tmp_path / "a.csv"])["a"], [np.arange(4.0)])


def test_chains_are_matched_by_the_names_of_their_columns(tmp_path, stan_draws):
    paths = [Path(path) for path in write_csv(tmp_path, stan_draws)]
    table = pd.read_csv(paths[1], comment="#")
    table[table.columns[::-1]].to_csv(paths[1], index=False)
    for name, values in read_draws(paths).items():
        np.testing.assert_allclose(values, stan_draws[name], rtol=LAST_DIGIT)


def stray(paths):
    pd.DataFrame({"x": [1.0], "y": [2.0]}).to_csv(paths[0].parent / "data.csv", index=False)


def other_chain(paths):
    pd.read_csv(paths[1], comment="#").iloc[:, :-1].to_csv(paths[1], index=False)


def copied(paths):
    for path in paths:
        path.write_text(without_comments(path.read_text()))
    (paths[0].parent / "copy.csv").write_text(paths[0].read_text())


def shortened(paths):
    table = pd.read_csv(paths[1], comment="#")
    table[:-3].to_csv(paths[1], index=False)


def cut_off(paths):
    for path in paths:
        path.write_text(without_comments(path.read_text()))
    paths[1].write_text(paths[1].read_text()[:-70])


def killed(paths):
    text = paths[1].read_text()
    paths[1].write_text(text[: text.index("# Adaptation")])


def only_warm_up(paths):
    text = without_head(paths[1].read_text())
    paths[1].write_text(text[: text.index("# Diagonal")].replace("# Adap", "1,1,1\n# Adap"))


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (stray, "data.csv is no chain of the same model as .*_1.csv.* and .* more. Move the file"),
        (other_chain, "_2.csv is no chain.*'Omega.2.3' is not here. Move|_1.csv is no chain"),
        (copied, "copy.csv and .*_1.csv hold the same draws: one is a copy"),
        (shortened, "different numbers of draws .*_1.csv: 15, .*_2.csv: 12"),
        (cut_off, "_2.csv: The last line is not complete"),
        (killed, "_2.csv: cmdstanpy cannot read it"),
        (only_warm_up, "_2.csv: All rows are of the warm-up"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_files_that_do_not_fit_are_named(tmp_path, stan_draws, spoil, says):
    spoil([Path(path) for path in write_csv(tmp_path, stan_draws)])
    with pytest.raises(lq.errors.LockquackError, match=says):
        read_draws(sorted(tmp_path.glob("*.csv")))


def test_a_stray_file_in_a_folder_is_named_in_the_shell(tmp_path, stan_draws, capsys):
    stray([Path(path) for path in write_csv(tmp_path, stan_draws)])
    (tmp_path / "y.json").write_text('{"y": [1.0, 2.0]}')
    assert cli.main(["weights", str(tmp_path), "--y", str(tmp_path / "y.json")]) == 1
    assert "data.csv is no chain of the same model" in capsys.readouterr().err


# Elements of arrays in formulas.


def element(formula, variables, y=None):
    return parse_formula(f"normal(mu={formula}, sigma=1)").evaluate(variables, y)["mu"]


@pytest.fixture
def arrays(tmp_path, stan_draws):
    """The same draws as Stan writes them, and as ArviZ does, which counts from 0."""
    from_stan = read_draws([Path(path) for path in write_csv(tmp_path, stan_draws)])
    labelled = {
        name: xr.DataArray(
            values,
            dims=["chain", "draw", *(f"{name}_{i}" for i in range(values.ndim - 2))],
            coords={f"{name}_{i}": np.arange(size) for i, size in enumerate(values.shape[2:])},
        )
        for name, values in stan_draws.items()
    }
    return from_stan, labelled


def test_elements_are_counted_as_the_file_counts_them(arrays, stan_draws):
    from_stan, labelled = arrays
    beta, omega = stan_draws["beta"], stan_draws["Omega"]
    np.testing.assert_array_equal(element("beta[1]", from_stan), beta[..., 0])
    np.testing.assert_array_equal(element("beta[0]", labelled), beta[..., 0])
    np.testing.assert_array_equal(element("-Omega[2, 3]", from_stan), -omega[..., 1, 2])
    np.testing.assert_array_equal(element("Omega[0, 2]", labelled), omega[..., 0, 2])
    named = {"beta": labelled["beta"].assign_coords(beta_0=["age", "bmi"])}
    for formula in ("beta[bmi]", "beta['bmi']"):
        np.testing.assert_array_equal(element(formula, named), beta[..., 1])


def test_a_variable_says_which_element_each_observation_has(arrays, stan_draws):
    from_stan, _ = arrays
    y = xr.DataArray(np.zeros(4), dims="obs_id")
    group = xr.DataArray([2, 1, 1, 2], dims="group_dim_0")
    x = xr.DataArray([0.0, 1.0, 2.0, 3.0], dims="x_dim_0")
    variables = from_stan | {"group": group, "x": x}
    got = element("beta[group] + x", variables, y).transpose("chain", "draw", "obs_id")
    np.testing.assert_allclose(got, stan_draws["beta"][..., [1, 0, 0, 1]] + x.values)
    # As many elements as observations: still each observation's own.
    pairs = variables | {"group": group[:2], "x": x[:2]}
    got = element("beta[group]", pairs, y[:2]).transpose("chain", "draw", "obs_id")
    np.testing.assert_allclose(got, stan_draws["beta"][..., [1, 0]])


@pytest.mark.parametrize(
    ("formula", "says"),
    [
        ("beta[0]", "'beta' has no element 0: its labels are 1, 2, counted from 1"),
        ("beta[3]", "no element 3: its labels are 1, 2"),
        ("beta[-1]", "Cannot read the index of beta\\[-1\\]: write a label, such as beta\\[1\\]"),
        ("beta[1, 2]", "'beta' has 1 index\\(es\\), of lengths \\[2\\]; got 2"),
        ("Omega[1]", "'Omega' has 2 index\\(es\\)"),
        ("plain[1]", "'plain' have no labels, so it is not clear whether they are counted from 0"),
        ("beta[groupp]", "Unknown variable 'groupp'. Did you mean 'group'"),
        ("beta[group]", "no element 7"),
        ("beta[beta]", "must be data; beta has draws"),
        ("named[age]", "may be the element labelled 'age', or that which the variable"),
    ],
)
def test_what_an_index_cannot_be(arrays, formula, says):
    from_stan, labelled = arrays
    variables = from_stan | {
        "plain": labelled["beta"].drop_vars("beta_0"),
        "named": labelled["beta"].assign_coords(beta_0=["age", "bmi"]),
        "group": xr.DataArray([1, 7], dims="obs"),
        "age": xr.DataArray([1, 2], dims="obs"),
    }
    with pytest.raises(lq.errors.LockquackError, match=says):
        element(formula, variables)
