"""Sums over draws: both implementations against arithmetic with more digits."""

import subprocess
import sys
from importlib import import_module

import numpy as np
import pytest
import scipy.special

import lockquack as lq
import lockquack.kernels
from lockquack.errors import LockquackWarning
from lockquack.kernels import choice as kernels
from lockquack.kernels import plain
from lockquack.kernels.choice import kernels_for


@pytest.fixture(params=["plain", "compiled"])
def kernel(request):
    if request.param == "compiled":
        pytest.importorskip("numba")
    return import_module(f"lockquack.kernels.{request.param}")


def in_rows(array):
    """Put (group, member, cell) into memory as the columns 2… of something wider."""
    groups, members, cells = array.shape
    wide = np.full((groups * members, cells + 5), np.nan)
    wide[:, 2:-3] = array.reshape(-1, cells)
    return wide[:, 2:-3].reshape(array.shape)


def in_columns(array):
    """The draws of an observation are neighbours, those of another chain lie between."""
    groups, members, cells = array.shape
    wide = np.full((cells, groups * members + 7), np.nan)
    wide[:, 3:-4] = array.reshape(-1, cells).T
    return wide[:, 3:-4].T.reshape(array.shape)


def reversed_rows(array):
    return np.ascontiguousarray(array[::-1, ::-1])[::-1, ::-1]


def every_other(array):
    return np.repeat(array, 2, axis=2)[..., ::2]


LAYOUTS = [np.asarray, in_rows, in_columns, reversed_rows, every_other]


def random_draws(rng, groups, members, cells, *, shift=0.0):
    shape = (groups, members, cells)
    return shift + rng.normal(size=shape), -rng.gamma(2.0, size=shape)


def exact_pool(share, grad, curv):
    """Mean g and mean h + Var g with the digits of long doubles."""
    share, grad, curv = (np.asarray(each, dtype=np.longdouble) for each in (share, grad, curv))
    mean = (share * grad).sum(axis=1)
    return mean, (share * (curv + np.square(grad - mean[:, None]))).sum(axis=1)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("members", [1, 2, 5, 7, 20, 23])
@pytest.mark.parametrize("shift", [0.0, 3e6])
def test_equal_shares(rng, kernel, layout, members, shift):
    grad, curv = random_draws(rng, 3, members, 37, shift=shift)
    mean, pooled = np.full((2, 3, 37), np.nan)
    kernel.average_members(layout(grad), layout(curv), mean, pooled)
    expected = exact_pool(np.full(grad.shape, 1 / np.longdouble(members)), grad, curv)
    np.testing.assert_allclose(mean, expected[0].astype(float), rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(pooled, expected[1].astype(float), rtol=1e-8 if shift else 1e-13)


def test_gradients_and_curvatures_may_lie_differently(rng, kernel):
    grad, curv = random_draws(rng, 2, 6, 11)
    mean, pooled = np.empty((2, 2, 11))
    kernel.average_members(in_columns(grad), in_rows(curv), mean, pooled)
    np.testing.assert_allclose(mean, grad.mean(axis=1), rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(pooled, (curv + np.square(grad)).mean(axis=1) - mean**2, rtol=1e-12)


def mix(kernel, terms, grad, curv):
    groups, _, cells, d = grad.shape
    log_mass, square = np.full((2, groups, cells), np.nan)
    mean, pooled = np.full((2, groups, cells, d), np.nan)
    room = log_mass, square, mean, pooled
    kernel.mix_members(terms, grad, curv, room)
    return room


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("members", [1, 5, 20])
@pytest.mark.parametrize("height", [0.0, 1e5])
def test_shares_by_exponentials(rng, kernel, layout, members, height):
    grad, curv = random_draws(rng, 3, members, 37)
    terms = height - 30 * rng.gamma(1.0, size=grad.shape)
    log_mass, square, mean, pooled = mix(
        kernel, layout(terms), layout(grad)[..., None], layout(curv)[..., None]
    )
    exact = np.asarray(terms, dtype=np.longdouble)
    peak = exact.max(axis=1, keepdims=True)
    weight = np.exp(exact - peak)
    total = weight.sum(axis=1, keepdims=True)
    share = weight / total
    expected = exact_pool(share, grad, curv)
    np.testing.assert_allclose(
        log_mass, (np.log(total) + peak)[:, 0].astype(float), rtol=2e-15, atol=2e-15
    )
    np.testing.assert_allclose(square, (share**2).sum(axis=1).astype(float), rtol=1e-13)
    np.testing.assert_allclose(mean[..., 0], expected[0].astype(float), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(pooled[..., 0], expected[1].astype(float), rtol=1e-11, atol=1e-13)


def test_components_are_pooled_one_by_one(rng, kernel):
    grad, curv = rng.normal(size=(2, 2, 6, 11, 3))
    terms = rng.normal(size=(2, 6, 11))
    log_mass, square, mean, pooled = mix(kernel, terms, grad, curv)
    for j in range(3):
        alone = mix(kernel, terms, grad[..., j : j + 1], curv[..., j : j + 1])
        np.testing.assert_allclose(log_mass, alone[0], rtol=1e-14)
        np.testing.assert_allclose(square, alone[1], rtol=1e-14)
        np.testing.assert_allclose(mean[..., j], alone[2][..., 0], rtol=1e-12)
        np.testing.assert_allclose(pooled[..., j], alone[3][..., 0], rtol=1e-12)


def test_densities_alone(rng, kernel):
    terms = rng.normal(size=(2, 6, 11))
    nothing = np.empty((*terms.shape, 0))
    log_mass, _, mean, _ = mix(kernel, terms, nothing, nothing)
    np.testing.assert_allclose(log_mass, np.log(np.exp(terms).sum(axis=1)), rtol=1e-14)
    assert mean.shape == (2, 11, 0)


def test_an_impossible_draw_has_no_share_whatever_its_derivatives_are(rng, kernel):
    grad, curv = rng.normal(size=(2, 1, 6, 4, 1))
    terms = rng.normal(size=(1, 6, 4))
    terms[0, 2, 1], grad[0, 2, 1], curv[0, 2, 1] = -np.inf, np.nan, np.inf
    others = [0, 1, 3, 4, 5]
    expected = mix(plain, terms[:, others], grad[:, others], curv[:, others])
    with np.errstate(invalid="ignore"):
        found = mix(kernel, terms, grad, curv)
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(own[:, 1], other[:, 1], rtol=1e-13)


def test_an_outcome_that_no_draw_deems_possible(kernel):
    terms = np.zeros((1, 4, 2))
    terms[:, :, 0] = -np.inf
    grad, curv = np.ones((2, 1, 4, 2, 1))
    with np.errstate(all="ignore"):
        log_mass, _, mean, _ = mix(kernel, terms, grad, curv)
    np.testing.assert_allclose(log_mass, [[-np.inf, np.log(4)]])
    assert mean[0, 1, 0] == 1


@pytest.mark.parametrize("cells", [1, 3])
def test_logs_of_sums_of_exponentials(rng, kernel, cells):
    terms = 1e4 - 300 * rng.gamma(1.0, size=(7, 50, cells))
    terms[0, 3] = -np.inf
    expected = scipy.special.logsumexp(terms, axis=1)
    for given in (terms, terms[:, ::-1], np.asfortranarray(terms)):
        np.testing.assert_allclose(kernel.log_sum_members(given), expected, rtol=1e-15)
    terms[1], terms[2, 4] = -np.inf, np.nan
    with np.errstate(all="ignore"):
        found = kernel.log_sum_members(terms)
    assert (found[1] == -np.inf).all()
    assert np.isnan(found[2]).all()
    np.testing.assert_allclose(found[3:], expected[3:], rtol=1e-15)


@pytest.mark.parametrize("at", [0, 2, 5])
def test_a_term_that_is_not_a_number_is_not_lost(kernel, at):
    terms = np.zeros((1, 6, 4))
    terms[0, at, 1] = np.nan
    grad, curv = np.ones((2, 1, 6, 4, 1))
    with np.errstate(invalid="ignore"):
        log_mass, *_ = mix(kernel, terms, grad, curv)
    np.testing.assert_array_equal(np.isnan(log_mass), [[False, True, False, False]])


def test_compiled_exponentials_are_good_to_the_last_digit_or_two():
    pytest.importorskip("numba")
    from lockquack.kernels.compiled import exponential

    x = np.concatenate([np.linspace(-708, 0, 20001), [-1e-300, -1e-16, -0.34657359, -0.3465736]])
    own = np.array([exponential(each) for each in x])
    np.testing.assert_allclose(own, np.exp(x.astype(np.longdouble)).astype(float), rtol=5e-16)


@pytest.mark.parametrize("kind", ["loo", "in-sample"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_pass_over_draws_is_the_same_compiled(rng, monkeypatch, kind, dtype):
    pytest.importorskip("numba")
    grad, curv = random_draws(rng, 2, 153, 40)  # chains, not groups: blocks of 4 and one of 1
    arrays = {"logp": -0.5 * grad**2, "grad": grad, "curv": curv}
    model = lq.from_arrays(**{k: v.astype(dtype) for k, v in arrays.items()}, y=np.zeros(40))
    expected = model.collapse(kind)
    monkeypatch.setattr(kernels, "_WORTH_COMPILING", 0)
    found = lq.from_arrays(**{k: v.astype(dtype) for k, v in arrays.items()}, y=np.zeros(40))
    found = found.collapse(kind)
    for name in ("grad", "curv"):
        own, other = getattr(found.jet, name), getattr(expected.jet, name)
        np.testing.assert_allclose(own, other, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(found.jet.logp, expected.jet.logp, rtol=1e-14)
    np.testing.assert_allclose(found.effect, expected.effect, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(found.n_effective, expected.n_effective, rtol=1e-12)


def test_few_numbers_are_not_worth_a_compiler():
    assert kernels_for(4000 * 1000) is plain


@pytest.fixture
def no_compiler_known():
    kernels._compiled.cache_clear()
    yield
    kernels._compiled.cache_clear()


def test_there_need_not_be_a_compiler(monkeypatch, no_compiler_known):
    monkeypatch.setattr(kernels, "find_spec", lambda name: None)
    assert kernels_for(10**12) is plain


def test_a_compiler_that_does_not_load_is_said_once(monkeypatch, no_compiler_known):
    monkeypatch.setattr(kernels, "find_spec", lambda name: True)
    monkeypatch.delattr(lockquack.kernels, "compiled", raising=False)
    monkeypatch.setitem(sys.modules, "lockquack.kernels.compiled", None)
    with pytest.warns(LockquackWarning, match="numba is installed but cannot be used"):
        assert kernels_for(10**12) is plain
    assert kernels_for(10**12) is plain


def test_code_need_not_be_kept(monkeypatch):
    numba = pytest.importorskip("numba")
    from lockquack.kernels import compiled

    njit = numba.njit

    def in_a_read_only_home(*, cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return njit(**options)

    monkeypatch.setattr(numba, "njit", in_a_read_only_home)
    double = compiled.jit(lambda x: 2.0 * x)
    assert double(3.0) == 6.0


def test_many_numbers_are_summed_by_compiled_loops():
    pytest.importorskip("numba")
    assert kernels_for(10**12).__name__ == "lockquack.kernels.compiled"


def test_importing_the_package_does_not_load_the_compiler():
    code = "import sys, lockquack; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
