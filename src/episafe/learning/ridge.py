"""Ridge regression of next values on features, per step: P̂_hV = φᵀΛ_h⁻¹ Σ_i φ_i V(s_{h+1}^i), β_h = ‖φ‖_{Λ_h⁻¹}.

`DenseRidge` keeps Λ_h; `CountRidge` is the same for one-hot features, where Λ_h is a vector of counts.
Both answer at visited states for the planner (`model`, `support`) and, frozen, at any state for the policy (`fitted`).
"""

from typing import Any, Protocol

import numpy as np

from episafe.arrays import Array, IntArray
from episafe.learning import kernels
from episafe.learning.kernels import CountModel, DenseModel, Support
from episafe.learning.visited import Visited, enlarged
from episafe.problems.task import Task

REFACTOR_EVERY = 1000  # episodes; rank-one updates drift by about 2e-12 in 1e5 of them


class Fitted(Protocol):
    """A frozen regression: β and P̂V of r, †, u at any state."""

    def at(self, h: int, state: Any) -> tuple[Array, Array]:
        """β (A,) and P̂V (A, 3) at one state."""
        ...

    def everywhere(self) -> tuple[Array, Array]:
        """β (H, S, A) and P̂V (H, S, A, 3) at every state of a finite task."""
        ...


class Ridge(Protocol):
    """What the planner needs of a regression."""

    @property
    def log_det(self) -> Array:
        """ln det Λ_h − d ln ρ, shape (H,): how much is known of each step."""
        ...

    def observe(self, states: Any, actions: IntArray) -> None:
        """Add one episode: states (H+1,), actions (H,)."""
        ...

    def model(self) -> DenseModel | CountModel:
        """P̂ at the visited states."""
        ...

    def support(self) -> Support:
        """The visited states with their bonuses."""
        ...

    def fitted(self, V: Array) -> Fitted:
        """The regression of the values `V` (H+1, n, 3), frozen."""
        ...


def ridge_for(task: Task, ridge: float) -> Ridge:
    """The regression that fits the task's features."""
    return CountRidge(task, ridge) if task.one_hot else DenseRidge(task, ridge)


class DenseRidge:
    """Λ_h as d×d matrices, their inverses kept by rank-one updates and refactored regularly."""

    def __init__(self, task: Task, ridge: float) -> None:
        H, d = task.horizon, task.dim
        self._task = task
        self._visited = Visited(task)
        self._gram = np.tile(ridge * np.eye(d), (H, 1, 1))
        self._gram_inv: Array = np.tile(np.eye(d) / ridge, (H, 1, 1))
        self._log_ridge = d * np.log(ridge)
        self._moments: Array = np.zeros((H, self._visited.capacity, d))
        self.log_det: Array = np.zeros(H)
        self._num_episodes = 0

    def observe(self, states: Any, actions: IntArray) -> None:
        """Add one episode: states (H+1,), actions (H,)."""
        visited = self._visited
        slots = visited.slots(states)
        if self._moments.shape[1] < visited.capacity:
            self._moments = enlarged(self._moments, visited.capacity)
        kernels.absorb(visited.phi, slots, actions, self._gram, self._gram_inv, self.log_det, self._moments)
        self._num_episodes += 1
        if self._num_episodes % REFACTOR_EVERY == 0:
            self._gram_inv[:] = np.linalg.inv(self._gram)
            self.log_det[:] = np.linalg.slogdet(self._gram)[1] - self._log_ridge

    def model(self) -> DenseModel:
        """P̂ at the visited states."""
        return DenseModel(self._visited.phi, self._gram_inv, self._moments)

    def support(self) -> Support:
        """The visited states with β = ‖φ‖_{Λ⁻¹}."""
        visited = self._visited
        bonus = np.zeros(visited.reward.shape)
        kernels.bonuses(visited.phi, self._gram_inv, visited.size, bonus)
        return Support(visited.size, visited.reward, visited.utility, bonus)

    def fitted(self, V: Array) -> "FittedFeatures":
        """w_h = Λ_h⁻¹ Σ_j m_j V_{h+1}(s_j) for r, †, u, with Λ_h⁻¹ as it is now."""
        H, d = self._moments.shape[0], self._moments.shape[2]
        weights = np.zeros((H, 3, d))
        for h in range(H - 1):
            kernels.regress(self._moments[h], self._gram_inv[h], V[h + 1], self._visited.size[h + 1], weights[h])
        return FittedFeatures(self._task, self._gram_inv.copy(), weights)


class FittedFeatures:
    """β = ‖φ‖_{Λ⁻¹} and P̂V = φᵀw at any state, from gram_inv (H, d, d) and weights (H, 3, d)."""

    def __init__(self, task: Task, gram_inv: Array, weights: Array) -> None:
        self._task, self._gram_inv, self._weights = task, gram_inv, weights

    def at(self, h: int, state: Any) -> tuple[Array, Array]:
        """β (A,) and P̂V (A, 3) at one state."""
        phi = self._task.features(state)
        bonus, Q = np.empty(phi.shape[0]), np.empty((phi.shape[0], 3))
        kernels.bonus_row(phi, self._gram_inv[h], bonus)
        kernels.predict(phi, self._weights[h], Q)
        return bonus, Q

    def everywhere(self) -> tuple[Array, Array]:
        """β (H, S, A) and P̂V (H, S, A, 3) at every state."""
        bonus, Q = kernels.everywhere(self._task.phi, self._gram_inv, self._weights)
        return bonus, Q


class CountRidge:
    """One-hot features: Λ_h = diag(n_h(s,a) + ρ), so β = (n + ρ)^{-1/2} and P̂(s'|s,a) = n(s,a,s')/(n(s,a) + ρ)."""

    def __init__(self, task: Task, ridge: float) -> None:
        H, A = task.horizon, task.num_actions
        self._task, self._ridge = task, ridge
        self._visited = Visited(task)
        self._visits: Array = np.zeros((H, self._visited.capacity, A))
        self._bonus = np.full(self._visits.shape, ridge**-0.5)
        self._transition: list[dict[tuple[int, int, int], int]] = [{} for _ in range(H)]
        self._num_transitions = np.zeros(H, dtype=np.int64)
        self._ends: IntArray = np.zeros((H, 32, 3), dtype=np.int64)  # slot, action, slot at the next step
        self._times: Array = np.zeros((H, 32))
        self.log_det = np.zeros(H)

    def observe(self, states: Any, actions: IntArray) -> None:
        """Add one episode: states (H+1,), actions (H,)."""
        slots = self._visited.slots(states)
        missing = self._visited.capacity - self._visits.shape[1]
        if missing:
            self._visits = enlarged(self._visits, self._visited.capacity)
            self._bonus = (self._visits + self._ridge) ** -0.5
        for h, (slot, action) in enumerate(zip(slots.tolist(), actions.tolist(), strict=True)):
            visits = self._visits[h, slot, action] + 1
            self._visits[h, slot, action] = visits
            self._bonus[h, slot, action] = (visits + self._ridge) ** -0.5
            self.log_det[h] += np.log1p(1 / (visits - 1 + self._ridge))
            if h + 1 < len(slots):
                transition = self._transition_of(h, slot, action, int(slots[h + 1]))
                self._times[h, transition] += 1

    def _transition_of(self, h: int, source: int, action: int, target: int) -> int:
        known = self._transition[h]
        found = known.get((source, action, target))
        if found is not None:
            return found
        found = known[source, action, target] = len(known)
        if found == self._times.shape[1]:
            self._ends, self._times = enlarged(self._ends, 2 * found), enlarged(self._times, 2 * found)
        self._ends[h, found] = source, action, target
        self._num_transitions[h] = found + 1
        return found

    def model(self) -> CountModel:
        """P̂ at the visited states."""
        return CountModel(self._ends, self._times, self._num_transitions, self._bonus)

    def support(self) -> Support:
        """The visited states with β = (n + ρ)^{-1/2}."""
        visited = self._visited
        return Support(visited.size, visited.reward, visited.utility, self._bonus)

    def fitted(self, V: Array) -> "FittedCounts":
        """P̂V of r, †, u at the visited pairs; it is 0 and β = ρ^{-1/2} at all others."""
        Q = np.zeros((*self._visits.shape, 3))
        for h in range(len(Q) - 1):
            t = slice(self._num_transitions[h])
            source, action, target = self._ends[h, t].T
            weight = self._times[h, t] * self._bonus[h, source, action] ** 2
            np.add.at(Q[h], (source, action), weight[:, None] * V[h + 1, target])
        return FittedCounts(self._task, self._visited, self._bonus.copy(), Q, self._ridge)


class FittedCounts:
    """β and P̂V from tables over the slots of one moment; states seen later are unseen here."""

    def __init__(self, task: Task, visited: Visited, bonus: Array, Q: Array, ridge: float) -> None:
        self._task, self._visited, self._bonus, self._Q = task, visited, bonus, Q
        self._size = visited.size.copy()
        self._unseen = ridge**-0.5

    def at(self, h: int, state: Any) -> tuple[Array, Array]:
        """β (A,) and P̂V (A, 3) at one state."""
        slot = self._visited.find(h, state, int(self._size[h]))
        if slot is None:
            A = self._task.num_actions
            return np.full(A, self._unseen), np.zeros((A, 3))
        return self._bonus[h, slot], self._Q[h, slot].copy()

    def everywhere(self) -> tuple[Array, Array]:
        """β (H, S, A) and P̂V (H, S, A, 3) at every state."""
        shape = self._task.reward.shape
        bonus, Q = np.full(shape, self._unseen), np.zeros((*shape, 3))
        for h, size in enumerate(self._size.tolist()):
            states = np.array(self._visited.states[h][:size], dtype=np.int64)
            bonus[h, states], Q[h, states] = self._bonus[h, :size], self._Q[h, :size]
        return bonus, Q
