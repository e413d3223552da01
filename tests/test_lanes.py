"""Eight numbers at once against numpy, one at a time."""

import numpy as np
import pytest

from episafe.kernels import exp_log, lanes
from episafe.kernels.compilation import kernel


@kernel
def _arithmetic(x, y, out):  # type: ignore[no-untyped-def]
    a, b = lanes.load(x, (1, 3)), lanes.load(y, (0,))
    lanes.store(out, (0, 0), (a + b) * 2 - a / b)
    lanes.store(out, (1, 0), lanes.largest(a, b))
    lanes.store(out, (2, 0), lanes.smallest(a, 0.5))
    lanes.store(out, (3, 0), lanes.unless_below(a, 0.25, b))
    lanes.store(out, (4, 0), lanes.root(a))
    lanes.store(out, (5, 0), lanes.spread(3))
    return lanes.total(a), lanes.lane(b, 5)


@kernel
def _elementary(x, out):  # type: ignore[no-untyped-def]
    a = lanes.load(x, (0,))
    lanes.store(out, (0, 0), lanes.fma(a, a, 1.0 / 3.0))
    lanes.store(out, (1, 0), exp_log.exp(a))
    lanes.store(out, (2, 0), exp_log.log(a))
    for i in range(x.shape[0]):
        out[3, i] = lanes.fma(x[i], x[i], 1.0 / 3.0)
        out[4, i] = exp_log.exp(x[i])
        out[5, i] = exp_log.log(x[i])


def test_arithmetic_is_that_of_each_lane() -> None:
    rng = np.random.default_rng(0)
    x, y, out = rng.random((2, 16)), rng.random(8), np.zeros((6, 8))
    total, sixth = _arithmetic(x, y, out)
    a = x[1, 3:11]
    np.testing.assert_array_equal(out[0], (a + y) * 2 - a / y)
    np.testing.assert_array_equal(out[1], np.maximum(a, y))
    np.testing.assert_array_equal(out[2], np.minimum(a, 0.5))
    np.testing.assert_array_equal(out[3], np.where(a < 0.25, 0, y))
    np.testing.assert_array_equal(out[4], np.sqrt(a))
    np.testing.assert_array_equal(out[5], 3.0)
    assert total == pytest.approx(a.sum(), rel=1e-15)
    assert sixth == y[5]


def test_eight_at_once_round_as_one_alone() -> None:
    rng = np.random.default_rng(1)
    out = np.zeros((6, 8))
    for _ in range(200):
        _elementary(np.exp(rng.normal(0, 3, 8)), out)
        np.testing.assert_array_equal(out[:3], out[3:])


def test_nan_stays_in_its_lane() -> None:
    x, out = np.full(8, 2.0), np.zeros((6, 8))
    x[6] = np.nan
    _elementary(x, out)
    assert np.isnan(out[:, 6]).all()
    assert np.isfinite(np.delete(out, 6, axis=1)).all()


@pytest.mark.parametrize(("n", "room"), [(0, 0), (1, 8), (8, 8), (9, 16)])
def test_room_for_whole_lanes(n: int, room: int) -> None:
    assert lanes.padded(n) == room
