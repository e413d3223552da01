"""The arrays that the softmax kernels read and write, by name.

States are stored in *slots*: slot i of row p is the i-th distinct state seen there. A row is a step, or all steps
together where the problem is time-homogeneous: then there is one row, R = 1, else R = H. Slots are the last axis of
every array, so that loops over them vectorise. Values come in the order r, †, u_1, …, u_m: there are G = 2 + m.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from episafe.core.types import Array, IntArray
from episafe.kernels.lanes import LANES

FIRST_SLOTS, FIRST_TRANSITIONS = 16, 32  # capacity at first; it doubles when it is full
NO_ENTROPY, ENTROPY, RELEASED_ENTROPY = range(3)  # what V̄ʳ adds: 0, −κΣ π ln π, or the released code's −κΣ π² ln π


class Scales(NamedTuple):
    """Constants of the backward recursion.

    `C_u` is signed: −C_u for pessimism, +C_u for optimism. `most_reward`: the most that V̄ʳ can gain in a
    step, 1 + κ ln A; 1 without entropy. `most_lost`: how far a total utility can fall below H.
    `extra_steps`: added to the steps left in every clip limit; `value_after`: V̄ʳ_{H+1} (both 0 in the paper's text).
    """

    C_r: float
    C_u: float
    C_dagger: float
    B_dagger: float
    kappa: float
    most_reward: float
    curve: float = 0.0
    spread: float = 0.0
    most_lost: float = math.inf
    extra_steps: float = 0.0
    entropy: int = ENTROPY
    value_after: float = 0.0


class Search(NamedTuple):
    """What the search for λ reads: b (m,), C_λ, T, whether π_sf is deployed when C_λ fails, whether ends are tried.

    With `step` η ≥ 0 there is no search: `dual` (m,) is λ, and [λ + η(b − V̲ᵘ)]₊, at most C_λ, replaces it.
    """

    thresholds: Array
    lam_max: float
    num_halvings: int
    fallback: bool
    ends: bool
    step: float
    dual: Array


class Slots(NamedTuple):
    """The states, in slots.

    `size` (R,): slots of visited states; `described` (R,): slots that are described, all S where states are listed.
    `state_of` (R, n) and `slot_of` (R, S) for listed states, else `slot_of` is (R, 0) and a slot is its own state.
    `reward` (R', A, n) and `utility` (m, R', A, n), R' = H where states are listed and else R.
    """

    size: IntArray
    described: IntArray
    state_of: IntArray
    slot_of: IntArray
    reward: Array
    utility: Array


class Dense(NamedTuple):
    """P̂V(s,a) = φ(s,a)ᵀ Λ⁻¹ Σ_j m_j V(s_j), β = ‖φ‖_{Λ⁻¹}.

    `phi` (R, A, d, n); `gram`, `gram_inv` (R, d, d); `log_det` (R,): ln det Λ/ρ; `moments` (R, d, n), m_j = Σ φ over
    the transitions to slot j; `scratch` (2, d) is memory for an update.
    """

    phi: Array
    gram: Array
    gram_inv: Array
    log_det: Array
    moments: Array
    scratch: Array


class Counts(NamedTuple):
    """P̂V(s,a) = Σ_j n(s,a,s_j) V(s_j) / (n(s,a) + ρ), β = (n(s,a) + ρ)^{-1/2}: Λ is diagonal.

    `visits` (R, A, n) is n(s,a). Transition t < `num_transitions[p]` leads to slot `target[p, t]` and was seen
    `times[p, t]` times. Those of one (slot i, action a) are a chain: `first` (R, A, n), `following` (R, M), then −1;
    `source` (R, M) is i·A + a.
    """

    visits: Array
    log_det: Array
    first: IntArray
    following: IntArray
    source: IntArray
    target: IntArray
    times: Array
    num_transitions: IntArray
    ridge: float


class Work(NamedTuple):
    """Memory for one decision.

    `bonus` (R, A, n) is β. The search runs along λ = base + t·direction: `base`, `direction` (m,). `ts` (L,) are the t
    evaluated together, `lams` (m, 8) their λ, all the same if L = 1, and `bounds` (m+1, L) their V̲ᵘ(s₁), then V̄ʳ + V̄†;
    `lane` (1,) is the place of the t asked for last. `lam`, `bound` (m,): those of the decision. `best` (m,): the best
    λ so far, where there are several limits. `further` is a tuple of m − 1 zeros: kernels are compiled for its length,
    since loops over limits cost a tenth where there is one. `guess` (1+m,): t and λ of the last search, which decide
    what is evaluated together and never the result. `none`: an empty table.

    Eight numbers are computed side by side: with features L = 1, and they are eight slots; with counts L = 8, and they
    are one slot at eight λ. Slot i and λ number l stand at i·L + l of `V` (H+1, G, n·L), `Q` (G+1, A, n·L) and `norm`
    (n·L,). `rest` with features: `projected` (G, d), `weights` (H, G, d). With counts, P̂ row by row: entries
    `start[p, a, i]` to `start[p, a, i+1]` of `column`, `share` (R, M).
    """

    bonus: Array
    base: Array
    direction: Array
    ts: Array
    lams: Array
    bounds: Array
    lane: IntArray
    lam: Array
    bound: Array
    best: Array
    V: Array
    Q: Array
    norm: Array
    rest: tuple[Any, ...]
    further: tuple[float, ...]
    guess: Array
    none: Array


def empty_dense(phi: Array, ridge: float) -> Dense:
    """Return a model that has learned nothing, on features phi (R, A, d, n)."""
    R, _, d, n = phi.shape
    gram, gram_inv = (np.tile(scale * np.eye(d), (R, 1, 1)) for scale in (ridge, 1 / ridge))
    return Dense(phi, gram, gram_inv, np.zeros(R), np.zeros((R, d, n)), np.zeros((2, d)))


def empty_counts(shape: tuple[int, int, int], ridge: float) -> Counts:
    """Return a model that has counted nothing, with `shape` (R, A, n)."""
    R, M = shape[0], FIRST_TRANSITIONS
    following, source, target = (np.zeros((R, M), dtype=np.int64) for _ in range(3))
    none, times = np.zeros(R, dtype=np.int64), np.zeros((R, M))
    return Counts(np.zeros(shape), np.zeros(R), np.full(shape, -1), following, source, target, times, none, ridge)


def new_work(model: Dense | Counts, H: int, m: int) -> Work:
    """Return memory for decisions on this model."""
    if isinstance(model, Dense):
        (R, A, d, n), L = model.phi.shape, 1
        rest: tuple[Any, ...] = np.zeros((2 + m, d)), np.zeros((H, 2 + m, d))
    else:
        (R, A, n), M, L = model.visits.shape, model.times.shape[1], LANES
        start, column = np.zeros((R, A, n + 1), dtype=np.int64), np.zeros((R, M), dtype=np.int64)
        rest = start, column, np.zeros((R, M))
    base, direction, lam, bound, best = (np.zeros(m) for _ in range(5))
    searched = np.full(L, np.nan), np.zeros((m, LANES)), np.full((m + 1, L), np.nan), np.zeros(1, dtype=np.int64)
    values = np.zeros((H + 1, 2 + m, n * L)), np.zeros((3 + m, A, n * L)), np.zeros(n * L)
    others, none = ((0.0,) * (m - 1), np.zeros(1 + m)), np.zeros((0, 0, 0))
    return Work(np.zeros((R, A, n)), base, direction, *searched, lam, bound, best, *values, rest, *others, none)


def widened(array: NDArray[Any], length: int, filling: float = 0) -> NDArray[Any]:
    """Return `array` with its last axis extended to `length`."""
    made = np.full((*array.shape[:-1], length), filling, dtype=array.dtype)
    made[..., : array.shape[-1]] = array
    return made
