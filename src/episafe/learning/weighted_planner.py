"""Proposals for a task with several constraints whose states are not listed: one utility, a weighted sum of all.

Heuristic: a policy whose sum is large may still miss one of them. The certifier checks each, and what it does not prove
is deployed in mixtures alone, or not at all.
"""

from typing import Any

import numpy as np

from episafe.learning.constants import Constants
from episafe.learning.multiplier_search import Bisection, LamSearch
from episafe.learning.planner import Aim, Proposal, SoftmaxPlanner
from episafe.problems.sampled_problem import AnyTask
from episafe.types import Array, IntArray, amounts

ROOM = 0.5  # of the slack: how far above b a sum aims at least, as it says little of its parts


class WeightedPlanner(SoftmaxPlanner):
    """The planner of the task with utility Σ_c v_c u_c, v_c ∝ 1/ξ_c, so that every constraint has the same slack in it.

    Args:
        task: what the learner is told, with several constraints.
        constants, pessimistic, search: as of the planner of one constraint.
    """

    def __init__(
        self, task: AnyTask, constants: Constants, *, pessimistic: bool, search: LamSearch = Bisection()
    ) -> None:
        assert not task.is_listed
        slacks = np.array([one.slack or 1.0 for one in task.constraints])
        self.weights: Array = (1 / slacks) / (1 / slacks).sum()
        super().__init__(task.weighted(self.weights), constants, pessimistic=pessimistic, search=search)

    def changed(self, task: AnyTask, constants: Constants) -> "SoftmaxPlanner":
        """The same, with the weights that the regression was made with."""
        assert not task.is_listed
        return super().changed(task.weighted(self.weights), constants)

    def observe_signals(self, states: Any, actions: IntArray, seen: Array) -> None:
        """Add the reward, and the weighted sum of the utilities `seen` (H, 1 + m)."""
        super().observe_signals(states, actions, np.column_stack([seen[:, 0], seen[:, 1:] @ self.weights]))

    def propose(self, aim: Aim) -> Proposal:
        """The policy of largest hoped-for reward whose weighted utility reaches the aims', or half of the slack."""
        wanted = float(self.weights @ amounts(aim.utility))
        least = self._task.threshold + ROOM * (self._task.slack or 0.0)
        return super().propose(aim._replace(utility=max(wanted, least)))
