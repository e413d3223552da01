"""The composite softmax policy π^λ and its planner: what is searched, the search, and the frozen policy."""

from typing import Any

import numpy as np

from episafe.arrays import Array, IntArray
from episafe.learning import kernels
from episafe.learning.constants import Constants
from episafe.learning.kernels import Scales
from episafe.learning.ridge import Fitted, ridge_for
from episafe.problems.task import Task


class SoftmaxPolicy:
    """π^λ_h(·|s) = softmax((Q̄† + Q̄ʳ + λQ̲ᵘ)/κ), a function of features: it acts at states never seen before."""

    def __init__(self, task: Task, fitted: Fitted, scales: Scales, lam: float) -> None:
        self._task, self._fitted, self._scales, self.lam = task, fitted, scales, lam
        self._table: Array | None = None

    def probabilities(self, h: int, state: Any) -> Array:
        """π_h(·|state), shape (A,)."""
        task = self._task
        if not 0 <= h < task.horizon:
            raise ValueError(f"step must be in [0, {task.horizon}), got {h}")
        bonus, Q = self._fitted.at(h, state)
        pi, steps_left = np.empty(task.num_actions), task.horizon - 1 - h
        reward, utility = task.reward_at(h, state), task.utility_at(h, state)
        kernels.softmax_row(reward, utility, bonus, Q, self._scales, self.lam, steps_left, pi, np.empty(3))
        return pi

    def table(self) -> Array:
        """π as an array (H, S, A), every state filled, seen or not."""
        if self._table is None:
            bonus, Q = self._fitted.everywhere()
            task = self._task
            self._table = kernels.softmax_table(task.reward, task.utility, bonus, Q, self._scales, self.lam)
        return self._table


class SoftmaxPlanner:
    """The regression and, on it, π^λ with its pessimistic (or optimistic) utility for any λ.

    Args:
        task: what the learner is told.
        constants: scales, κ, ρ and search limits.
        utility_sign: −1 for a pessimistic utility (OPSE), +1 for an optimistic one (Ghosh et al.).
        compensate: whether the compensation bonus † is used; without it C_† = B_† = 0.
    """

    def __init__(self, task: Task, constants: Constants, *, utility_sign: int, compensate: bool) -> None:
        self._task, self._constants = task, constants
        self._scales = Scales(
            C_r=float(constants.C_r),
            utility_bonus=utility_sign * float(constants.C_u),
            C_dagger=float(constants.C_dagger) if compensate else 0.0,
            B_dagger=float(constants.B_dagger) if compensate else 0.0,
            kappa=float(constants.kappa),
        )
        self._ridge = ridge_for(task, float(constants.ridge))
        self.refresh()

    @property
    def information(self) -> Array:
        """ln det Λ_h up to a constant, shape (H,)."""
        return self._ridge.log_det

    def observe(self, states: Any, actions: IntArray) -> None:
        """Add one episode to the regression."""
        self._ridge.observe(states, actions)

    def refresh(self) -> None:
        """Take bonuses and estimate as they are now, before the evaluations of a new plan."""
        self._model, self._support = self._ridge.model(), self._ridge.support()
        H, n, _ = self._support.reward.shape
        self._V = np.zeros((H + 1, n, 3))

    def utility_bound(self, lam: float) -> float:
        """V̲ᵘ_1(s₁) of π^λ, float64: the number that certifies."""
        return float(kernels.evaluate(self._model, self._support, self._scales, lam, self._V))

    def smallest_admitted(self) -> float:
        """Upper end of the bracket [0, C_λ] after all halvings; C_λ itself if none was admitted."""
        constants = self._constants
        upper = kernels.bisect(
            self._model, self._support, self._scales,
            self._task.threshold, float(constants.lam_max), constants.num_halvings, self._V,
        )  # fmt: skip
        return float(upper)

    def policy(self, lam: float) -> tuple[SoftmaxPolicy, float]:
        """π^λ, frozen, and the bound V̲ᵘ_1(s₁) of just this policy."""
        bound = self.utility_bound(lam)
        return SoftmaxPolicy(self._task, self._ridge.fitted(self._V), self._scales, lam), bound
