"""The inner problem: finite sets against a linear program, balls and ellipsoids against samples and duality."""

import numpy as np
import pytest
from scipy.optimize import linprog

from episafe.kernels import arm_mixtures, ellipsoid
from episafe.kernels.mixing import mixed, nudged
from episafe.kernels.trust_region import maximise

GAP = 1e-8


def linear_program(f, g, threshold):
    """Value of max pᵀf s.t. pᵀg ≥ b by HiGHS, None where infeasible."""
    found = linprog(-f, A_ub=-g[None], b_ub=[-threshold], A_eq=np.ones((1, len(f))), b_eq=[1], method="highs-ds")
    return None if found.status == 2 else -found.fun


@pytest.mark.parametrize("seed", range(4))
def test_the_hull_equals_a_linear_program_with_at_most_two_atoms(seed):
    rng = np.random.default_rng(seed)
    infeasible = 0
    for trial in range(100):
        f, g = rng.normal(size=(2, rng.integers(1, 60)))
        if trial % 3 == 0:
            f, g = f.round(1), g.round(1)  # ties and points on one line
        threshold = rng.normal() * 1.5
        found, value = arm_mixtures.solve(f, g, threshold), linear_program(f, g, threshold)
        if value is None:
            assert found is None
            infeasible += 1
            continue
        assert found @ f == pytest.approx(value, abs=1e-9)
        assert found @ g >= threshold - 1e-12
        assert np.count_nonzero(found) <= 2
        assert found.min() >= 0 and found.sum() == pytest.approx(1, abs=1e-15)
    assert infeasible > 2


def test_the_hull_on_points_of_one_value():
    np.testing.assert_array_equal(arm_mixtures.solve([1.0, 1.0, 1.0], [0.0, 0.5, 0.25], 0.5), [0, 1, 0])
    np.testing.assert_array_equal(arm_mixtures.solve([3.0, 2.0, 1.0], [0.5, 0.5, 0.5], 0.5), [1, 0, 0])
    assert arm_mixtures.solve([1.0], [0.0], 1e-300) is None


def test_the_hull_takes_a_hundred_thousand_arms_on_a_circle():
    """All of them are vertices, the worst case for a hull; the answer is the point of the circle over b."""
    angle = np.linspace(0, np.pi / 2, 100_001)
    found = arm_mixtures.solve(np.cos(angle), np.sin(angle), 0.6)
    assert found @ np.cos(angle) == pytest.approx(0.8, abs=1e-9)


def drawn(rng, kind):
    """A random inner problem over an ellipsoid: θ, frame, scales, threshold, Λ⁻¹ and root."""
    d = int(rng.integers(1, 8))
    A, L = rng.normal(size=(2, d, d))
    gram_inv = np.linalg.inv(np.eye(d) + rng.uniform(0, 100) * A @ A.T)
    root = np.linalg.inv(np.linalg.cholesky(np.eye(d) + L @ L.T)).T if rng.random() < 0.5 else np.eye(d)
    theta = rng.normal(size=(2, d)) / 2
    if kind == "hard":  # the reward, or both, have no part along the direction of largest norm
        top = np.linalg.eigh(root.T @ gram_inv @ root)[1][:, -1]
        for row in range(rng.integers(1, 3)):
            y = root.T @ theta[row]
            theta[row] = np.linalg.solve(root.T, y - top * (top @ y))
    if kind == "round":  # before the first observation every direction is alike
        gram_inv, root = np.eye(d), np.eye(d)
    scales = (rng.uniform(0, 3), rng.uniform(0, 2) if kind != "optimistic" else -rng.uniform(0, 2))
    return theta, ellipsoid.frame(root, gram_inv), scales, rng.normal() * 0.3, gram_inv, root


def scores(points, theta, scales, gram_inv):
    norms = np.sqrt(np.einsum("ni,ij,nj->n", points, gram_inv, points))
    return points @ theta[0] + scales[0] * norms, points @ theta[1] - scales[1] * norms


@pytest.mark.parametrize("kind", ["plain", "hard", "round", "optimistic"])
def test_ellipsoids_close_the_duality_gap_and_beat_sampled_mixtures(kind):
    rng = np.random.default_rng(["plain", "hard", "round", "optimistic"].index(kind))
    solved = 0
    for _ in range(150):
        theta, at, scales, threshold, gram_inv, root = drawn(rng, kind)
        found = ellipsoid.solve(*theta, at, scales, threshold)
        inside = rng.normal(size=(2_000, len(root)))
        inside *= (rng.uniform(size=(2_000, 1)) ** rng.integers(0, 2)) / np.linalg.norm(inside, axis=1, keepdims=True)
        points = np.concatenate([inside @ root.T, np.zeros((1, len(root)))])
        f, g = scores(points, theta, scales, gram_inv)
        best = arm_mixtures.solve(f, g, threshold)  # the best of all mixtures of two samples
        if not found.feasible:
            assert best is None or g.max() < threshold + 1e-9
            continue
        solved += 1
        assert found.gap < GAP
        f_atoms, g_atoms = scores(found.atoms, theta, scales, gram_inv)
        assert mixed(*g_atoms, found.share) >= threshold - 1e-9
        assert np.linalg.norm(np.linalg.solve(root, found.atoms.T), axis=0).max() <= 1 + 1e-12
        if best is not None:
            assert best @ f <= mixed(*f_atoms, found.share) + 1e-9
    assert solved > 50


def test_the_gap_is_that_of_the_dual():
    """D(λ) at the λ returned, maximised over samples, is between the value and the value plus the gap."""
    rng = np.random.default_rng(5)
    theta, at, scales, threshold, gram_inv, root = drawn(rng, "plain")
    found = ellipsoid.solve(*theta, at, scales, threshold)
    f, _ = scores(found.atoms, theta, scales, gram_inv)
    points = rng.normal(size=(200_000, len(root)))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    f_all, g_all = scores(points @ root.T, theta, scales, gram_inv)
    dual = (f_all + found.lam * (g_all - threshold)).max()
    assert dual <= mixed(*f, found.share) + found.gap + 1e-12


def test_the_hard_case_by_hand():
    """W = diag(1/4, 1), ϑ = (1/2, 0), c = 1: ν = 1, y ∝ (2/3, ±√(1 − 1/9)); the value is √(1/4·(4/3)² + 8/9)."""
    ends = np.empty((2, 2))
    maximise(np.array([0.5, 0.0]), 1.0, np.array([0.25, 1.0]), np.array([0.3, 0.7]), ends)
    y = np.array([2 / 3, np.sqrt(1 - 1 / 9)])
    y /= np.linalg.norm(y)
    np.testing.assert_allclose(ends, [[y[0], -y[1]], [y[0], y[1]]], atol=1e-14)
    value = 0.5 * y[0] + np.sqrt(0.25 * y[0] ** 2 + y[1] ** 2)
    assert value == pytest.approx(np.sqrt(4 / 9 + 8 / 9), abs=1e-14)
    angles = np.linspace(0, 2 * np.pi, 100_001)
    assert (0.5 * np.cos(angles) + np.sqrt(0.25 * np.cos(angles) ** 2 + np.sin(angles) ** 2)).max() <= value + 1e-14


def test_the_ends_of_the_hard_case_are_mixed():
    """At λ = 0.4 reward and utility cancel in the wide direction: two maximisers, either side of the threshold."""
    at = (np.eye(2), np.array([0.25, 1.0]))
    found = ellipsoid.solve(np.array([0.5, -0.4]), np.array([0.1, 1.0]), at, (1.0, 0.0), 0.1)
    assert found.lam == pytest.approx(0.4, abs=1e-9)
    assert found.gap < 1e-12
    assert 0 < found.share < 1
    assert found.atoms[0, 1] < -0.5 and found.atoms[1, 1] > 0.5


def test_without_norms_the_optimum_is_the_linear_one():
    at = (np.eye(2), np.ones(2))
    found = ellipsoid.solve(np.array([1.0, 0.0]), np.array([0.0, 1.0]), at, (0.0, 0.0), 0.6)
    np.testing.assert_allclose(found.atoms, [[0.8, 0.6]] * 2, atol=1e-5)
    assert mixed(*found.atoms[:, 0], found.share) == pytest.approx(0.8, abs=1e-11)


def test_a_nudge_passes_the_check_and_moves_by_rounding_only():
    rng, moved = np.random.default_rng(0), 0
    for _ in range(2_000):
        low, high = np.sort(rng.normal(size=2))
        threshold = low + rng.uniform() * (high - low)
        share = (threshold - low) / (high - low)
        found = nudged(low, high, share, threshold)
        assert mixed(low, high, found) >= threshold
        assert found - share < 1e-12
        moved += found > share
    assert moved > 20  # so rounding alone would have cost incumbent rounds
    assert np.isnan(nudged(0.0, 1.0, 0.5, 1.1))
