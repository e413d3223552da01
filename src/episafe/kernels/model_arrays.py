"""The arrays that kernels work on, by name; made and widened.

States are stood for by *slots*: slot i of step h is the i-th distinct state seen at that step, so nothing but `Known`
has the size of the state space. Slot 0 of step 0 is the initial state. Slots are the last axis of every array, so that
loops over them vectorise. Values come in threes, in the order r, †, u.
"""

import math
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from episafe.kernels.lanes import LANES, padded
from episafe.types import Array, IntArray

FIRST_SLOTS, FIRST_TRANSITIONS = 16, 32  # room to begin with; it doubles when it is used up (see lanes.padded)

Entry = TypeVar("Entry", bound=np.generic)


class Scales(NamedTuple):
    """Constants of the backward recursion; `utility_bonus` is −C_u for pessimism and +C_u for optimism.

    `most_lost`: what an episode's total utility can fall short of H at most, where that is known.
    """

    C_r: float
    utility_bonus: float
    C_dagger: float
    B_dagger: float
    kappa: float
    curve: float = 0.0
    spread: float = 0.0
    most_lost: float = math.inf

    def said(self) -> dict[str, float]:
        """All that is said of them, by name: no `most_lost` where nothing is known."""
        return {name: value for name, value in self._asdict().items() if math.isfinite(value)}


class Search(NamedTuple):
    """What the search on λ is told: b, C_λ, T, whether the incumbent is deployed when C_λ fails, and the warm start's
    factor, 0 for none."""

    threshold: float
    lam_max: float
    num_halvings: int
    fallback: bool
    factor: float


class Known(NamedTuple):
    """What the task says of every state of a finite problem: `reward`, `utility` (H, A, S), `phi` (1, A, d, S)."""

    reward: Array
    utility: Array
    phi: Array


class Support(NamedTuple):
    """The visited states: `size` (H,) slots a step; `reward`, `utility` (H, A, n)."""

    size: IntArray
    reward: Array
    utility: Array


class Visited(NamedTuple):
    """The visited states of a finite task and what is known of them.

    `slot_of` (H, S), −1 for unseen; `state_of` (H, n); `phi` (H, A, d, n), d = 0 for counts.
    """

    known: Known
    slot_of: IntArray
    state_of: IntArray
    support: Support
    phi: Array


class DenseModel(NamedTuple):
    """P̂V(s,a) = φ(s,a)ᵀ Λ_h⁻¹ Σ_j m_j V(s_j), β = ‖φ‖_{Λ⁻¹}.

    `phi` (H, A, d, n); `gram`, `gram_inv` (H, d, d); `log_det` (H,); `moments` (H, d, n), where
    m_j = Σ φ(s_h^i, a_h^i) over the episodes i that went on to slot j of step h+1.
    """

    phi: Array
    gram: Array
    gram_inv: Array
    log_det: Array
    moments: Array

    @property
    def is_dense(self) -> Literal[True]:
        """Whether Λ is a matrix."""
        return True


class CountModel(NamedTuple):
    """P̂V(s,a) = Σ_j n_h(s,a,s_j) V(s_j) / (n_h(s,a) + ρ), β = (n_h(s,a) + ρ)^{-1/2}: Λ_h is diagonal.

    `visits` (H, A, n) is n_h(s,a); transition t < `num_transitions[h]` leads to slot `target[h, t]` of step h+1 and was
    seen `times[h, t]` times. Those of one (slot, action) are a chain: `first` (H, A, n), `following` (H, m), then −1.
    """

    visits: Array
    log_det: Array
    first: IntArray
    following: IntArray
    target: IntArray
    times: Array
    num_transitions: IntArray
    ridge: float

    @property
    def is_dense(self) -> Literal[False]:
        """Whether Λ is a matrix."""
        return False


class Work(NamedTuple):
    """Room for one plan: what is computed once a plan and used at every λ, and the values of the last λ.

    `bonus` (H, A, n) is β. `lams` are the λ evaluated together, one with features, eight with counts, with their bounds
    in `bounds`; `lane` (1,) is the place of the λ asked for last, `found` (1,) the λ found last, NaN if none.

        features:  `V` (H+1, 3, n), `Q` (4, A, n), `rest`: `norm` (n,), `projected` (3, d), `weights` (H, 3, d)
        counts:    `V` (H+1, n, 3, 8), `Q` (4, A, 8), `rest`: P̂ row by row, entries `start[h, a, i]` to
                   `start[h, a, i+1]` of `column`, `share` (H, m)
    """

    bonus: Array
    lams: Array
    bounds: Array
    lane: IntArray
    found: Array
    V: Array
    Q: Array
    rest: tuple[Any, ...]


Model = DenseModel | CountModel


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
    H, m = shape[0], FIRST_TRANSITIONS
    following, target = (np.zeros((H, m), dtype=np.int64) for _ in range(2))
    none = np.zeros(H, dtype=np.int64)
    return CountModel(
        np.zeros(shape), np.zeros(H), np.full(shape, -1), following, target, np.zeros((H, m)), none, ridge
    )


def room_to_plan(model: Model, n: int, found: Array) -> Work:
    """Room to plan in, for n slots a step."""
    if model.is_dense:
        (H, A, d, _), lanes = model.phi.shape, 1
        values = np.zeros((H + 1, 3, n)), np.zeros((4, A, n))
        rest: tuple[Any, ...] = np.zeros(n), np.zeros((3, d)), np.zeros((H, 3, d))
    else:
        (H, A, _), m, lanes = model.visits.shape, model.times.shape[1], LANES
        values = np.zeros((H + 1, n, 3, LANES)), np.zeros((4, A, LANES))
        start, column = np.zeros((H, A, n + 1), dtype=np.int64), np.zeros((H, m), dtype=np.int64)
        rest = start, column, np.zeros((H, m))
    lams, bounds, lane = np.full(lanes, np.nan), np.full(lanes, np.nan), np.zeros(1, dtype=np.int64)
    return Work(np.zeros((H, A, n)), lams, bounds, lane, found, *values, rest)


def widened(array: NDArray[Entry], length: int, filling: int = 0) -> NDArray[Entry]:
    """`array` with its last axis extended to `length`."""
    padding = [(0, 0)] * (array.ndim - 1) + [(0, length - array.shape[-1])]
    return np.pad(array, padding, constant_values=filling)
