"""Policies that do not learn: the incumbent, the uniform policy, the exact optimum."""

import math
from typing import Any, ClassVar

import numpy as np

from episafe.agents.base import Agent
from episafe.errors import InvalidProblem
from episafe.learning.planner import Doubling
from episafe.learning.policy_arrays import PolicyArrays
from episafe.problems.policy import FunctionPolicy, Policy, TablePolicy, uniform_table
from episafe.problems.sampled_problem import AnyTask
from episafe.storage.state_reader import Saved, State
from episafe.types import Array, IntArray, Plan


class Fixed(Agent):
    """Deploys one policy for ever.

    Args:
        task: what the learner is told.
        policy: a table (H, S, A), any policy, or one of the names "uniform" and "incumbent"; where states are not
            listed, a policy or a function (h, state) ↦ π (A,).
        label: what records call it; the name, or "fixed".
    """

    name: ClassVar[str] = "fixed"
    certified: ClassVar[bool] = False

    def __init__(self, task: AnyTask, policy: Any, label: str = "") -> None:
        super().__init__(task, Doubling(math.inf), label or (policy if isinstance(policy, str) else ""))
        self.policy = _policy(task, policy)

    def _propose(self) -> Plan:
        return Plan(self.policy, "fixed", level=self.level)

    def _observe(self, states: Any, actions: IntArray) -> None:
        """Nothing is learned."""

    def _information(self) -> Array:
        return np.zeros(0)

    def _own_policy(self) -> Policy:
        return self.policy

    def _learned_state(self, policies: PolicyArrays) -> State:
        return {}

    def _restore_learned(self, saved: Saved) -> None:
        return None

    def settings(self) -> dict[str, str | int | float]:
        """The name of the policy."""
        return {"agent": self.label, "level": self.level}


def _policy(task: AnyTask, policy: Any) -> Policy:
    if not isinstance(policy, str):
        return task.as_policy(policy)
    if policy == "incumbent":
        return task.safe_policy
    if policy != "uniform":
        raise InvalidProblem(f'policy must be a table, a policy, "uniform" or "incumbent", got {policy!r}')
    if task.num_states is not None:
        return TablePolicy(uniform_table(task.horizon, task.num_states, task.num_actions))
    row = np.full(task.num_actions, 1 / task.num_actions)
    return FunctionPolicy(lambda h, state: row, task.num_actions)
