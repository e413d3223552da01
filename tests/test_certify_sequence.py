"""Confidence sequences: the closed form against the wealth itself, coverage, and controls that must fail."""

import math

import numpy as np
import pytest

from episafe.kernels.confidence_sequence import BETS, COSTS, lower_bounds

DELTA = 0.05


def log_wealth(bet, shares, utilities, mean):
    """ln Π(1 + λ q(X − m)/m), as the proof writes it."""
    return np.log1p(bet * shares * (utilities - mean) / mean).sum()


def paths(samples, log_term):
    """Lower bounds after each of n observations, (runs, n), of samples (runs, n), every share 1; never falling."""
    total, square = samples.cumsum(axis=1), (samples**2).cumsum(axis=1)
    count = np.broadcast_to(np.arange(1.0, samples.shape[1] + 1), total.shape)
    sums = np.stack([total, count, square, total, count, np.zeros(total.shape)], axis=-1)
    return np.maximum.accumulate(
        lower_bounds(sums.reshape(-1, 6), log_term).reshape(total.shape), axis=1
    ), total / count


def test_the_inequality_behind_the_closed_form():
    """ln(1 + λz) ≥ λz − ψ(λ)z² for z ≥ −1, with equality at 0 and −1."""
    z = np.concatenate([np.linspace(-1, 1, 2001), np.geomspace(1, 1e4, 1000)])
    for bet, cost in zip(BETS, COSTS, strict=True):
        assert (np.log1p(bet * z) - (bet * z - cost * z**2)).min() > -1e-12
        assert math.isclose(math.log1p(-bet), -bet - cost, abs_tol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_what_the_closed_form_refutes_the_wealth_refutes_too(seed):
    """At the bound, one bet has at least B/δ; so it has at every smaller mean, where wealth is larger still."""
    rng = np.random.default_rng(seed)
    log_term, q, X = math.log(len(BETS) / DELTA), rng.random(300), rng.exponential(rng.uniform(0.1, 3), 300)
    sums = [(q * X).sum(), q.sum(), (q * X * q * X).sum(), (q * q * X).sum(), (q * q).sum(), 0.0]
    (bound,) = lower_bounds(np.array([sums]), log_term)
    assert bound > 0
    for mean in (bound, bound / 2, bound / 10):
        assert max(log_wealth(bet, q, X, mean) for bet in BETS) >= log_term - 1e-9


LAWS = {
    "few values": lambda rng, shape: rng.binomial(4, 0.3, shape).astype(float),
    "rare": lambda rng, shape: 4.0 * (rng.random(shape) < 0.02),
    "nearly constant": lambda rng, shape: 2 + 0.01 * rng.standard_normal(shape).clip(-3, 3),
    "heavy above": lambda rng, shape: rng.pareto(2.5, shape),
}
MEANS = {"few values": 1.2, "rare": 0.08, "nearly constant": 2.0, "heavy above": 1 / 1.5}


@pytest.mark.parametrize("law", LAWS)
def test_coverage_at_all_times_together(law):
    """1000 sequences of 1000 episodes: a bound above the mean at any time in at most δ of them."""
    rng = np.random.default_rng(1)
    bounds, _ = paths(LAWS[law](rng, (1000, 1000)), math.log(len(BETS) / DELTA))
    assert (bounds[:, -1] > MEANS[law]).mean() <= DELTA
    assert (bounds[:, -1] > 0).mean() > 0.5  # and it says something


def test_a_third_of_the_radius_fails():
    rng = np.random.default_rng(2)
    bounds, means = paths(LAWS["few values"](rng, (400, 1000)), math.log(len(BETS) / DELTA))
    too_bold = (means - (means - bounds) / 3)[:, 50:]
    assert (too_bold.max(axis=1) > MEANS["few values"]).mean() > 3 * DELTA


def test_the_best_of_many_on_the_same_batch_fails():
    """Each of 500 sequences is right with probability 1 − δ; the largest of their bounds is not.

    The union over 14 bets makes one sequence err in about 0.1 % of runs, so the best of 100 errs in about 12 %.
    """
    rng = np.random.default_rng(3)
    samples = LAWS["few values"](rng, (40 * 500, 300))
    bounds, _ = paths(samples, math.log(len(BETS) / DELTA))
    best = bounds[:, -1].reshape(40, 500).max(axis=1)
    assert (best > MEANS["few values"]).mean() > 3 * DELTA
    honest, _ = paths(samples, math.log(len(BETS) * 500 / DELTA))
    assert (honest[:, -1].reshape(40, 500).max(axis=1) > MEANS["few values"]).mean() <= DELTA
