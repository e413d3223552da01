"""Policies that do not learn: the incumbent, the uniform policy, the exact optimum."""

import math
from typing import Any, ClassVar

import numpy as np

from episafe.agents.base import Agent, Plan
from episafe.arrays import Array, IntArray
from episafe.errors import InvalidProblem
from episafe.learning.replanning import Doubling
from episafe.problems.checks import as_distributions
from episafe.problems.policy import Policy, TablePolicy, uniform_table
from episafe.problems.task import Task


class Fixed(Agent):
    """Deploys one policy for ever.

    Args:
        task: what the learner is told.
        policy: a table (H, S, A), any policy with a table, or one of the names "uniform" and "incumbent".
        label: what records call it; the name, or "fixed".
    """

    name: ClassVar[str] = "fixed"
    certified: ClassVar[bool] = False

    def __init__(self, task: Task, policy: Any, label: str = "") -> None:
        super().__init__(task, Doubling(math.inf))
        self.label = label or (policy if isinstance(policy, str) else "fixed")
        self._policy = _policy(task, policy)

    def _propose(self) -> Plan:
        return Plan(self._policy, "fixed", level=self.level)

    def _observe(self, states: IntArray, actions: IntArray) -> None:
        """Nothing is learned."""

    def _information(self) -> Array:
        return np.zeros(0)

    def settings(self) -> dict[str, str | int | float]:
        """The name of the policy."""
        return {"agent": self.label, "level": self.level}


def _policy(task: Task, policy: Any) -> Policy:
    shape = (task.horizon, task.num_states, task.num_actions)
    if isinstance(policy, str):
        if policy == "uniform":
            return TablePolicy(uniform_table(*shape))
        if policy == "incumbent":
            return task.safe_policy
        raise InvalidProblem(f'policy must be a table, a policy, "uniform" or "incumbent", got {policy!r}')
    return TablePolicy(as_distributions("policy", policy.table() if hasattr(policy, "table") else policy, shape))
