"""π^λ at any state, by what it keeps of the regression it was evaluated on; what is learned later changes nothing."""

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from episafe.kernels import softmax_actions
from episafe.kernels.lanes import padded
from episafe.kernels.model_allocation import widened
from episafe.kernels.model_arrays import DenseModel, FeatureWork, Known, Scales
from episafe.learning.signal_regression import Signals
from episafe.problems.sampled import AnyTask
from episafe.types import Array, IntArray

if TYPE_CHECKING:
    from episafe.learning.regression import FiniteRegression, Regression, SampledRegression


UNSEEN = -1  # in place of a slot


class OfFeatures(NamedTuple):
    """What π^λ keeps of a regression on features: gram_inv (H, d, d), weights (H, 3, d), and θ̂ (H, 2, d) of learned
    reward and utility, (0, 2, d) where both are told."""

    gram_inv: Array
    weights: Array
    theta: Array


class OfSlots(NamedTuple):
    """What π^λ keeps of counts: `size` (H,) slots, `bonus` (H, A, n), P̂V = Q (H, 3, A, n), and `reward`, `utility`
    (H, A, n), where n = 0 if the task lists its states."""

    size: IntArray
    bonus: Array
    Q: Array
    reward: Array
    utility: Array


class Fitted(Protocol):
    """A frozen regression of the values of π^λ: it acts at any state, by what it has `kept`."""

    @property
    def kept(self) -> OfFeatures | OfSlots:
        """All that it knows beyond the task and the names of the slots."""
        ...

    @property
    def scales(self) -> Scales:
        """The constants it was evaluated with."""
        ...

    def probabilities(self, h: int, state: Any) -> Array:
        """π^λ_h(·|state), shape (A,)."""
        ...

    def table(self) -> Array:
        """π^λ (H, S, A) at every state of a finite task."""
        ...


class FittedFeatures:
    """π^λ from β = ‖φ‖_{Λ⁻¹} and P̂V = φᵀw; room for d up to a multiple of eight."""

    def __init__(
        self,
        task: AnyTask,
        scales: Scales,
        lam: float,
        kept: OfFeatures,
        known: Known | None,
        signals: Signals | None,
    ) -> None:
        self._task, self._known, self.scales, self._lam, self._signals = task, known, scales, lam, signals
        H, _, d = kept.weights.shape
        self._gram_inv = np.zeros((H, padded(d), padded(d)))
        self._gram_inv[:, :d, :d] = kept.gram_inv
        self._weights = widened(kept.weights, padded(d))
        self.kept = OfFeatures(self._gram_inv[:, :d, :d], self._weights[:, :, :d], kept.theta)

    def probabilities(self, h: int, state: Any) -> Array:
        """π^λ_h(·|state), shape (A,)."""
        task, phi = self._task, self._task.features(state)
        told = task.reward_at(h, state), task.utility_at(h, state)
        if self._signals is not None and self._signals.estimates(state):
            told = self._signals.estimate(self.kept.theta[h], self.kept.gram_inv[h], phi, told)
        pi: Array = softmax_actions.act(h, phi, *told, self._gram_inv, self._weights, self.scales, self._lam)
        return pi

    def table(self) -> Array:
        """π^λ (H, S, A) at every state of a finite task."""
        if self._known is None:
            raise ValueError("a task given by functions has no table of states: use probabilities(h, state)")
        assert self._task.num_states is not None
        table = np.empty((self._task.horizon, self._task.num_states, self._task.num_actions))
        softmax_actions.feature_table(self._known, self._gram_inv, self._weights, self.scales, self._lam, table)
        return table


class FittedCounts:
    """π^λ from tables over the slots of one moment; at states seen later or never P̂V = 0 and β is that of no visit."""

    def __init__(self, regression: "FiniteRegression", scales: Scales, lam: float, kept: OfSlots) -> None:
        self._task, self._known, self._ridge = regression.task, regression.known, regression.ridge
        self._slot_of, self._state_of = regression.slot_of, regression.state_of
        self.scales, self._lam, self.kept = scales, lam, kept

    def probabilities(self, h: int, state: Any) -> Array:
        """π^λ_h(·|state), shape (A,)."""
        task, slot = self._task, self._slot_of[h, state]
        unseen = softmax_actions.unseen_bonus(self._ridge, self.scales)
        bonus, Q = np.full(task.num_actions, unseen), np.zeros((3, task.num_actions))
        if 0 <= slot < self.kept.size[h]:
            bonus[:], Q[:] = self.kept.bonus[h, :, slot], self.kept.Q[h, :, :, slot]
        reward, utility = task.reward_at(h, state), task.utility_at(h, state)
        pi: Array = softmax_actions.act_on(reward, utility, bonus, Q, self.scales, self._lam, task.horizon - 1 - h)
        return pi

    def table(self) -> Array:
        """π^λ (H, S, A) at every state."""
        table = np.empty(self._task.reward.shape)
        size, bonus, Q, _, _ = self.kept
        unseen, slots = softmax_actions.unseen_bonus(self._ridge, self.scales), (self._state_of, size)
        softmax_actions.count_table(self._known, slots, bonus, Q, unseen, self.scales, self._lam, table)
        return table


class FittedSlots:
    """π^λ from tables over the slots of one moment, for one-hot features of states that are not listed.

    At states seen later or never β = ρ^{-1/2} and P̂V = 0; unknown reward and utility are there what C_θ β leaves.
    """

    def __init__(self, regression: "SampledRegression", scales: Scales, lam: float, kept: OfSlots) -> None:
        self._regression, self.scales, self._lam, self.kept = regression, scales, lam, kept
        self._sizes = kept.size.tolist()
        self._rows: list[dict[int, Array]] = [{} for _ in self._sizes]  # π at the slots that were met, at UNSEEN ones
        self._tells_nothing = len(regression.task.unknown) == 2  # of a state: those never seen are then all alike

    def probabilities(self, h: int, state: Any) -> Array:
        """π^λ_h(·|state), shape (A,), read-only."""
        slot, rows = self._regression.slot(h, state), self._rows[h]
        if not 0 <= slot < self._sizes[h]:
            signals = self._regression.signals
            if not (self._tells_nothing and signals is not None and signals.estimates(state)):
                return self._unseen(h, state)
            slot = UNSEEN
        found = rows.get(slot)
        if found is None:
            found = rows[slot] = self._unseen(h, state) if slot == UNSEEN else self._at_slot(h, slot)
            found.setflags(write=False)
        return found

    def _at_slot(self, h: int, slot: int) -> Array:
        kept = self.kept
        told = kept.reward[h, :, slot], kept.utility[h, :, slot]
        return self._act(h, *told, kept.bonus[h, :, slot], kept.Q[h, :, :, slot])

    def _unseen(self, h: int, state: Any) -> Array:
        known, A = self._regression, self._regression.task.num_actions
        told = known.task.reward_at(h, state), known.task.utility_at(h, state)
        if known.signals is not None and known.signals.estimates(state):
            told = known.signals.clipped(np.zeros((2, A)), np.full(A, known.ridge**-0.5), told)
        bonus = np.full(A, softmax_actions.unseen_bonus(known.ridge, self.scales))
        return self._act(h, *told, bonus, np.zeros((3, A)))

    def _act(self, h: int, *values: Array) -> Array:
        rows, steps_left = map(np.ascontiguousarray, values), len(self._sizes) - 1 - h
        pi: Array = softmax_actions.act_on(*rows, self.scales, self._lam, steps_left)
        return pi

    def table(self) -> Array:
        """Not to be had: the states are not listed."""
        raise ValueError("a task given by functions has no table of states: use probabilities(h, state)")


def of_features(regression: "Regression") -> OfFeatures:
    """What a policy keeps of the values that the last decision left."""
    model, work, signals = regression.model, regression.work, getattr(regression, "signals", None)
    assert isinstance(model, DenseModel) and isinstance(work, FeatureWork)
    theta = np.zeros((0, 2, model.gram.shape[1])) if signals is None else signals.theta(model.gram_inv)
    return OfFeatures(model.gram_inv.copy(), work.weights.copy(), theta)


def of_slots(regression: "Regression", scales: Scales) -> OfSlots:
    """What a policy keeps of the values that the last decision left."""
    support, work = regression.support, regression.work
    H, A, n = work.bonus.shape
    bonus, Q = np.zeros((H, A, n)), np.zeros((H, 3, A, n))
    softmax_actions.count_values(support.size, work, scales, bonus, Q)
    listed = regression.task.num_states is not None
    told = (np.zeros((H, A, 0)) if listed else g.copy() for g in (support.reward, support.utility))
    return OfSlots(support.size.copy(), bonus, Q, *told)
