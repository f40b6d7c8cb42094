"""A cross-validation that is interrupted, and goes on where it was; on threads, on a cluster."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import lockquack as lq
from lockquack.errors import (
    LockquackError,
    ObservationMismatchError,
    OverwriteError,
    ParameterError,
    UnsupportedError,
)
from lockquack.parallel.cluster import cluster

N = 12
Y = np.random.default_rng(8).normal(size=N)


def fit_of(y, calls=None, fails_at=None):
    """Make a function that counts its calls, and may be interrupted at one of them."""

    def fit(train, test):
        if calls is not None:
            calls.append(test.tolist())
            if len(calls) - 1 == fails_at:
                raise RuntimeError("interrupted")
        mu = np.random.default_rng(test[0]).normal(y[train].mean(), 0.3, size=(2, 30))
        return lq.from_family("normal", y=y[test], mu=mu, sigma=1.0)

    return fit


def again(calls=None, fails_at=None, y=Y, **options):
    """Make the same call again."""
    options = {"n": N, "folds": 4, "y": y, **options}
    return lq.cross_validate(fit_of(y, calls, fails_at), **options)


@pytest.mark.parametrize("threads", [1, 2])
def test_nothing_is_fitted_twice(tmp_path, threads):
    folder = tmp_path / "new" / "folds"
    first, second, third = [], [], []
    with pytest.raises(RuntimeError, match="interrupted") as raised:
        again(first, fails_at=2, folder=folder, threads=threads)
    fold = "2" if threads == 1 else "[0-3]"
    assert re.search(f"of fold {fold}, 9 and 3 rows", raised.value.__notes__[0])
    kept = len(list(folder.glob("*.pickle")))
    assert kept == 2 if threads == 1 else kept >= 2
    resumed = again(second, folder=folder)
    assert len(second) == 4 - kept
    again(third, folder=folder)
    assert third == []
    whole = again()
    for kind in ("logp", "grad", "curv"):
        expected = getattr(whole.collapse("loo").jet, kind)
        np.testing.assert_array_equal(getattr(resumed.collapse("loo").jet, kind), expected)
    # It can do all that it could without the interruption.
    both = [lq.equal({"a": each}).predict().quantile(0.9) for each in (whole, resumed)]
    np.testing.assert_array_equal(*both)
    assert not [each for each in folder.iterdir() if each.name.startswith(".")]


def test_a_folder_of_something_else_is_refused(tmp_path):
    folder = tmp_path / "folds"
    again(folder=folder)
    refused = {
        "not of the same outcomes": {"y": Y + 1},
        "not of the same folds": {"random_seed": 1},
        "not of as many observations (there: 12; here: 11)": {"n": 11, "y": Y[:11]},
    }
    for words, options in refused.items():
        with pytest.raises(ParameterError, match=re.escape(words)):
            again(folder=folder, **options)
    with pytest.raises(ParameterError, match="the same function .*here: exact"):
        lq.cross_validate(partial(exact, y=Y), n=N, folds=4, y=Y, folder=folder)
    with pytest.raises(ParameterError, match="folder= needs y="):
        lq.cross_validate(fit_of(Y), n=N, folder=folder)
    occupied = tmp_path / "thesis"
    occupied.mkdir()
    (occupied / "chapter.tex").write_text("mine")
    with pytest.raises(OverwriteError, match="holds something else"):
        again(folder=occupied)
    with pytest.raises(OverwriteError, match="is a file"):
        again(folder=occupied / "chapter.tex")
    assert [each.name for each in occupied.iterdir()] == ["chapter.tex"]


def exact(train, test, y):
    """Fit in closed form."""
    return lq.from_family("normal", y=y[test], mu=[[y[train].mean()]], sigma=1.0)


def test_damage_is_named(tmp_path):
    again(folder=tmp_path)
    (tmp_path / "fold-0001.pickle").write_bytes(b"half")
    with pytest.raises(UnsupportedError, match=r"fold-0001.pickle cannot be read .* Remove it"):
        again(folder=tmp_path)
    (tmp_path / "fold-0001.pickle").unlink()
    calls = []
    again(calls, folder=tmp_path)
    assert len(calls) == 1
    (tmp_path / "cross-validation.json").write_text("{")
    with pytest.raises(UnsupportedError, match="Give a new folder"):
        again(folder=tmp_path)


def test_predictions_in_another_order_are_seen_at_the_first_fit():
    calls = []

    def fit(train, test):
        calls.append(test)
        return exact(train, test[::-1], Y)

    with pytest.raises(ObservationMismatchError, match=r"Fold 0: .* in this order; got \["):
        lq.cross_validate(fit, n=N, folds=4, y=Y)
    assert len(calls) == 1
    with pytest.raises(ParameterError, match="y has 11 outcomes, and n is 12"):
        lq.cross_validate(fit, n=N, y=Y[1:])


@pytest.mark.parametrize("junk", [3, ["a"], b"x", object()])
def test_what_is_no_folder(junk):
    with pytest.raises(LockquackError, match="folder must be the path"):
        again(folder=junk)


def test_the_workers_of_a_cluster_fit(tmp_path):
    """Each fold on some worker, the result here; interruptions too."""

    def fit(train, test):
        (tmp_path / f"{test[0]}").touch()
        if (tmp_path / "stop").exists() and 0 not in test:
            raise RuntimeError("interrupted")
        from distributed import get_worker

        assert get_worker() is not None
        return lq.from_family("normal", y=Y[test], mu=[[Y[train].mean()]], sigma=1.0)

    folds = np.arange(N) // 4
    with cluster(workers=1):
        (tmp_path / "stop").touch()
        with pytest.raises(RuntimeError, match="interrupted"):
            lq.cross_validate(fit, n=N, folds=folds, y=Y, folder=tmp_path / "kept")
        (tmp_path / "stop").unlink()
        found = lq.cross_validate(fit, n=N, folds=folds, y=Y, folder=tmp_path / "kept")
    here = lq.cross_validate(partial(exact, y=Y), n=N, folds=folds)
    np.testing.assert_array_equal(found.collapse("loo").jet.logp, here.collapse("loo").jet.logp)
    assert len(list(Path(tmp_path / "kept").glob("fold-*.pickle"))) == 3
