"""The arrays of model_arrays.py, made and widened."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from episafe.kernels.lanes import LANES, padded
from episafe.kernels.model_arrays import CountModel, CountWork, DenseModel, FeatureWork, Known, Model, Work
from episafe.types import Array

FIRST_SLOTS, FIRST_TRANSITIONS = 16, 32  # room to begin with; it doubles when it is used up (see lanes.padded)

Entry = TypeVar("Entry", bound=np.generic)


def known_arrays(reward: Array, utility: Array, phi: Array | None) -> Known:
    """A task's arrays, reward and utility (H, S, A), phi (S, A, d), with states last and room for whole lanes."""
    _, S, A = reward.shape
    phi = np.zeros((S, A, 0)) if phi is None else phi
    arrays = [np.ascontiguousarray(np.moveaxis(given, 1, -1)) for given in (reward, utility, phi[None])]
    return Known(*[widened(array, padded(S)) for array in arrays])


def dense_model(phi: Array, ridge: float) -> DenseModel:
    """Nothing learned yet, on features phi (H, A, d, n)."""
    H, _, d, n = phi.shape
    gram, gram_inv = (np.tile(scale * np.eye(d), (H, 1, 1)) for scale in (ridge, 1 / ridge))
    return DenseModel(phi, gram, gram_inv, np.zeros(H), np.zeros((H, d, n)))


def count_model(shape: tuple[int, int, int], ridge: float) -> CountModel:
    """Nothing counted yet, with room for n slots a step: `shape` is (H, A, n)."""
    (H, A, n), m = shape, FIRST_TRANSITIONS
    following, target = (np.zeros((H, m), dtype=np.int64) for _ in range(2))
    return CountModel(
        visits=np.zeros((H, A, n)),
        log_det=np.zeros(H),
        first=np.full((H, A, n), -1),
        following=following,
        target=target,
        times=np.zeros((H, m)),
        num_transitions=np.zeros(H, dtype=np.int64),
        ridge=ridge,
    )


def room_to_plan(model: Model, n: int, found: Array) -> Work:
    """Room to plan in, for n slots a step."""
    return _feature_work(model, n, found) if isinstance(model, DenseModel) else _count_work(model, n, found)


def _feature_work(model: DenseModel, n: int, found: Array) -> FeatureWork:
    H, A, d, _ = model.phi.shape
    return FeatureWork(
        bonus=np.zeros((H, A, n)),
        lams=np.full(1, np.nan),
        bounds=np.full(1, np.nan),
        lane=np.zeros(1, dtype=np.int64),
        found=found,
        V=np.zeros((H + 1, 3, n)),
        Q=np.zeros((3, A, n)),
        pi=np.zeros((A, n)),
        norm=np.zeros(n),
        projected=np.zeros((3, d)),
        weights=np.zeros((H, 3, d)),
    )


def _count_work(model: CountModel, n: int, found: Array) -> CountWork:
    (H, A, _), m = model.visits.shape, model.times.shape[1]
    return CountWork(
        bonus=np.zeros((H, A, n)),
        lams=np.full(LANES, np.nan),
        bounds=np.full(LANES, np.nan),
        lane=np.zeros(1, dtype=np.int64),
        found=found,
        V=np.zeros((H + 1, n, 3, LANES)),
        Q=np.zeros((4, A, LANES)),
        start=np.zeros((H, A, n + 1), dtype=np.int64),
        column=np.zeros((H, m), dtype=np.int64),
        share=np.zeros((H, m)),
    )


def widened(array: NDArray[Entry], length: int, filling: int = 0) -> NDArray[Entry]:
    """`array` with its last axis extended to `length`."""
    padding = [(0, 0)] * (array.ndim - 1) + [(0, length - array.shape[-1])]
    return np.pad(array, padding, constant_values=filling)
