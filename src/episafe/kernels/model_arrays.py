"""The arrays that kernels work on, by name.

States are stood for by *slots*: slot i of step h is the i-th distinct state seen at that step, so nothing but `Known`
has the size of the state space. Slot 0 of step 0 is the initial state. Slots are the last axis of every array, so that
loops over them vectorise. Values come in threes, in the order r, †, u.
"""

from typing import Literal, NamedTuple

from episafe.types import Array, IntArray


class Scales(NamedTuple):
    """Constants of the backward recursion; `utility_bonus` is −C_u for pessimism and +C_u for optimism."""

    C_r: float
    utility_bonus: float
    C_dagger: float
    B_dagger: float
    kappa: float
    curve: float = 0.0
    spread: float = 0.0


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


class Terms(NamedTuple):
    """What a step brings by itself: `reward`, `utility` and `bonus` β, all (H, A, n)."""

    reward: Array
    utility: Array
    bonus: Array


class Room(NamedTuple):
    """Room for the softmax at n states: `Q` (3, A, n), weights `pi` (A, n), `norm` (n,) and values `V` (H, 3, n)."""

    Q: Array
    pi: Array
    norm: Array
    V: Array


class Rows(NamedTuple):
    """P̂ row by row: entries `start[h, a, i]` to `start[h, a, i+1]` of `column`, `share` (H, m)."""

    start: IntArray
    column: IntArray
    share: Array


class FeatureWork(NamedTuple):
    """Room for one plan with features: what is computed once a plan and used at every λ, and the values of the last λ.

    `bonus` (H, A, n) is β. `lams` (1,) is the λ evaluated last, with its bound in `bounds`; `lane` (1,) is 0. `found`
    (1,) is the λ found last, NaN if none. `V` (H+1, 3, n), `Q` (3, A, n), `pi` (A, n), `norm` (n,), `projected` (3, d),
    `weights` (H, 3, d).
    """

    bonus: Array
    lams: Array
    bounds: Array
    lane: IntArray
    found: Array
    V: Array
    Q: Array
    pi: Array
    norm: Array
    projected: Array
    weights: Array


class CountWork(NamedTuple):
    """Room for one plan with counts, as `FeatureWork`.

    `lams` (8,) are the λ evaluated together; `lane` (1,) is the place among them of the λ asked for last. `V`
    (H+1, n, 3, 8), `Q` (4, A, 8); `start` (H, A, n+1), `column` and `share` (H, m) are those of `Rows`.
    """

    bonus: Array
    lams: Array
    bounds: Array
    lane: IntArray
    found: Array
    V: Array
    Q: Array
    start: IntArray
    column: IntArray
    share: Array


Model = DenseModel | CountModel
Work = FeatureWork | CountWork
