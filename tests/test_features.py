"""Feature maps: closed forms, and norms that reach 1 and do not pass it."""

import numpy as np
import pytest

import episafe as es
from episafe import features

LOW, HIGH = [-1.0, 0.0], [1.0, 10.0]
MAPS = [
    features.Tiles(LOW, HIGH, bins=3, tilings=4),
    features.Fourier(LOW, HIGH, order=3),
    features.Polynomial(LOW, HIGH, degree=2),
    features.RBF(LOW, HIGH, centres=4, width=0.1),
]


@pytest.mark.parametrize("psi", MAPS, ids=lambda psi: type(psi).__name__)
def test_norms_are_at_most_one_and_dimensions_as_said(psi):
    rng = np.random.default_rng(0)
    found = np.array([psi(rng.uniform([-2, -5], [2, 15])) for _ in range(2000)])
    assert found.shape == (2000, psi.dim)
    norms = np.linalg.norm(found, axis=1)
    assert norms.max() <= 1 + 1e-12
    largest = max(norms.max(), np.linalg.norm(psi(HIGH)), np.linalg.norm(psi(LOW)))
    assert largest > 0.9  # scaled to 1, not to something small
    assert psi.norm >= 1


def test_closed_forms():
    np.testing.assert_allclose(features.Polynomial([0.0], [2.0], degree=2)([1.0]), np.array([1, 0.5, 0.25]) / 3**0.5)
    np.testing.assert_allclose(features.Fourier([0.0], [1.0], order=1)([1 / 3]), np.array([1, 0.5]) / 2**0.5)
    np.testing.assert_allclose(features.RBF([0.0], [1.0], centres=2, width=1.0)([0.5]), [0.5, 0.5])
    tiles = features.Tiles([0.0], [1.0], bins=2, tilings=2)
    np.testing.assert_allclose(tiles([0.3]) * 2**0.5, [1, 0, 0, 1])  # 0.6 of a cell; shifted by a half, the next one
    assert features.Cells(LOW, HIGH, bins=4)([0.1, 10.0]) == (2, 3)
    assert features.Cells(LOW, HIGH, bins=4).size == 16


def test_beyond_the_bounds_is_the_edge():
    for psi in MAPS:
        np.testing.assert_array_equal(psi([5.0, -3.0]), psi([1.0, 0.0]))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: features.Tiles([0.0], [0.0]), "low must be below high"),
        (lambda: features.Tiles([0.0], [np.inf]), "finite"),
        (lambda: features.Tiles([0.0], [1.0, 2.0]), "high must have shape"),
        (lambda: features.Fourier([0.0], [1.0], order=0), "order must be a whole number"),
        (lambda: features.RBF([0.0], [1.0], width=0.0), "width must be > 0"),
        (lambda: features.OneHot(lambda s: s), "cell and size together"),
        (lambda: MAPS[0]([1.0]), "observation must have shape"),
    ],
)
def test_bad_maps_are_refused(build, message):
    with pytest.raises(es.InvalidProblem, match=message):
        build()


def test_cells_of_floats_are_those_of_any_other_observation():
    """The short way in plain numbers and the long one agree, on edges and beyond the bounds too."""
    cells, rng = es.features.Cells([-1.0, 0.1], [2.0, 0.7], bins=7), np.random.default_rng(0)
    edges = [[-1.0, 0.1], [2.0, 0.7], [-9.0, 9.0], [-1.0 + 3 / 7, 0.1 + 0.6 / 7], [1e30, -1e30]]
    for x in [*edges, *rng.uniform([-1.5, 0.0], [2.5, 0.8], (2_000, 2)).tolist()]:
        assert cells(np.array(x)) == cells(x)
        assert cells(np.array(x, np.float32)) == cells(np.array(x, np.float32).tolist())
    for wrong in (np.nan, np.inf, -np.inf):
        with pytest.raises(es.InvalidProblem, match="finite"):
            cells(np.array([0.0, wrong]))
