"""The arrays of model.py, made and widened."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from episafe.kernels.lanes import LANES, padded
from episafe.kernels.model_arrays import CountModel, DenseModel, Known, Work
from episafe.problems.sampled import AnyTask
from episafe.problems.task import Task
from episafe.types import Array

FIRST_SLOTS, FIRST_TRANSITIONS = 16, 32  # room to begin with; it doubles when it is used up (see lanes.padded)

Entry = TypeVar("Entry", bound=np.generic)


def known_arrays(task: Task) -> Known:
    """The task's arrays with states last, as the kernels read them, with room for whole lanes."""
    phi = np.zeros((task.num_states, task.num_actions, 0)) if task.phi is None else task.phi
    arrays = [np.ascontiguousarray(np.moveaxis(given, 1, -1)) for given in (task.reward, task.utility, phi[None])]
    return Known(*[widened(array, padded(task.num_states)) for array in arrays])


def dense_model(phi: Array, ridge: float) -> DenseModel:
    """Nothing learned yet, on features phi (H, A, d, n)."""
    H, _, d, n = phi.shape
    gram, gram_inv = (np.tile(scale * np.eye(d), (H, 1, 1)) for scale in (ridge, 1 / ridge))
    return DenseModel(phi, gram, gram_inv, np.zeros(H), np.zeros((H, d, n)))


def count_model(task: AnyTask, ridge: float, n: int) -> CountModel:
    """Nothing counted yet, with room for n slots a step."""
    H, A, m = task.horizon, task.num_actions, FIRST_TRANSITIONS
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


def room_to_plan(model: DenseModel | CountModel, n: int, found: Array) -> Work:
    """Room to plan in, for n slots a step."""
    if isinstance(model, DenseModel):
        (H, A, d, _), m, rows, side_by_side, states = model.phi.shape, 0, 0, 1, n
        V, Q = np.zeros((H + 1, 3, n)), np.zeros((3, A, n))
    else:
        (H, A, _), m, rows, side_by_side, states, d = model.visits.shape, model.times.shape[1], n + 1, LANES, 0, 0
        V, Q = np.zeros((H + 1, n, 3, LANES)), np.zeros((4, A, LANES))
    return Work(
        bonus=np.zeros((H, A, n)),
        lams=np.full(side_by_side, np.nan),
        bounds=np.full(side_by_side, np.nan),
        lane=np.zeros(1, dtype=np.int64),
        V=V,
        Q=Q,
        pi=np.zeros((A, states)),
        norm=np.zeros(states),
        projected=np.zeros((3, d)),
        weights=np.zeros((H, 3, d)),
        start=np.zeros((H, A, rows), dtype=np.int64),
        column=np.zeros((H, m), dtype=np.int64),
        share=np.zeros((H, m)),
        found=found,
    )


def widened(array: NDArray[Entry], length: int, filling: int = 0) -> NDArray[Entry]:
    """`array` with its last axis extended to `length`."""
    padding = [(0, 0)] * (array.ndim - 1) + [(0, length - array.shape[-1])]
    return np.pad(array, padding, constant_values=filling)
