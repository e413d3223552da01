"""Policies that do not learn: the incumbent, the uniform policy, the exact optimum, or a given one."""

import numpy as np

from episafe.core.agent import Agent, Doubling, register
from episafe.core.errors import InvalidProblem
from episafe.core.policy import Policy, StepPolicy, TablePolicy, uniform_table
from episafe.core.task import ProblemLike
from episafe.core.types import Episode, Plan, Settings


@register(
    name="optimum", label="Exact optimum", summary="the exact optimum",
    arguments=lambda problem, num_episodes: {"policy": problem.optimal_policy(), "label": "optimum"},
    needs=lambda problem: "" if problem.task.is_listed else "its optimum is unknown: the states are not listed",
)  # fmt: skip
@register(
    name="uniform", label="Uniform policy", summary="every action with the same probability", colour="#8B4513",
    arguments=lambda problem, num_episodes: {"policy": "uniform"},
)  # fmt: skip
@register(
    name="incumbent", label="Incumbent", summary="the incumbent in every episode", colour="#6B6B6B",
    arguments=lambda problem, num_episodes: {"policy": "incumbent"},
)  # fmt: skip
@register(name="fixed", label="Fixed policy", summary="a policy of your own in every episode")
class Fixed(Agent):
    """Deploys one policy in every episode.

    Args:
        problem: a problem or its task.
        policy: "incumbent", "uniform", a table (H, S, A), a policy, or a function (h, state) -> π (A,).
        label: the name in records; by default the name of the policy, or "fixed".
    """

    def __init__(self, problem: ProblemLike, policy: object = "incumbent", label: str = "") -> None:
        super().__init__(problem, Doubling(1.0))  # it has no information that grows: one plan for all episodes
        self.label = label or (policy if isinstance(policy, str) else "fixed")
        self.policy = self._as_policy(policy)

    def _as_policy(self, given: object) -> Policy:
        task = self.task
        if not isinstance(given, str):
            return task.as_policy(given)
        if given == "incumbent":
            return task.incumbent
        if given != "uniform":
            raise InvalidProblem(f'policy must be a table, a policy, "uniform" or "incumbent", got {given!r}')
        if task.horizon is None or task.num_actions is None:
            raise InvalidProblem("the actions of this task are not listed: there is no uniform policy")
        if task.num_states is not None:
            return TablePolicy(uniform_table(task.horizon, task.num_states, task.num_actions), "uniform")
        return StepPolicy(np.full((task.horizon, task.num_actions), 1 / task.num_actions), "uniform")

    def decide(self) -> Plan:
        """Return the plan that deploys the policy."""
        return Plan(self.policy, "fixed", np.full(self.task.num_constraints, np.nan), self.level)

    def observe(self, episode: Episode) -> None:
        """Learn nothing."""

    def settings(self) -> Settings:
        """Return the name of the policy."""
        return {"agent": self.label, "level": self.level}
