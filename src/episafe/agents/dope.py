"""DOPE (Bura et al. 2022): optimistic in the kernel and the reward, pessimistic in the utility. Tabular."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from episafe.agents.base import Agent
from episafe.kernels.extended_value_iteration import Box, Greedy, confidence_box, extended_occupancy
from episafe.kernels.mixing import admits
from episafe.learning.constants import Constants
from episafe.learning.dope_problem import optimistic_pessimistic
from episafe.learning.policy_arrays import PolicyArrays
from episafe.learning.replanning import Every, Replanning
from episafe.problems.dual_search import Parts
from episafe.problems.occupancies import markov_policy
from episafe.problems.policy import TablePolicy
from episafe.problems.sampled_problem import known_slack
from episafe.problems.task import Task
from episafe.storage.state_reader import Saved, State, under
from episafe.types import Array, IntArray, Plan


@dataclass(frozen=True)
class Radius:
    """Half-width of the kernel's box, γ = min{cap, deviation·√(p̂(1−p̂)/(n∨1)) + bias/(n∨1)}.

    The default is the paper's, without constants or logarithms, plus the 1/(n∨1) of the released code: the text's
    radius alone is 0 after one visit, and so no confidence set.
    """

    deviation: float = 1.0
    bias: float = 1.0
    cap: float = math.inf

    def __post_init__(self) -> None:
        for name in ("deviation", "bias", "cap"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be >= 0, got {getattr(self, name)!r}")

    @classmethod
    def authors(cls, task: Task, num_episodes: int, delta: float = 0.05, scale: float = 1.0) -> "Radius":
        """Bura et al.'s own: min{1, √(4p̂(1−p̂)L/(n∨1)) + 14L/(3(n∨1))} times `scale`, L = ln(2SAHK/δ)."""
        pairs = task.num_states * task.num_actions * task.horizon
        log_term = math.log(2 * pairs * num_episodes / delta)
        return cls(scale * math.sqrt(4 * log_term), scale * 14 * log_term / 3, scale)


class DOPE(Agent):
    """Solves, before each episode, the optimistic-pessimistic problem over the box 𝒫 of kernels:

        max_π max_{P'∈𝒫} V^{π, r + C_r β}_{P'}(s₁)   s.t.   V^{π, u − C_u β}_{P'}(s₁) ≥ b,   β = Σ_{s'} γ

    by extended value iteration inside a one-dimensional dual, where the literature solves a linear program of HS²A
    variables. The optimum mixes two (policy, kernel) pairs; states that the mixture never reaches get the uniform
    policy. The incumbent is deployed while the problem is infeasible.

    Args:
        task: what the learner is told.
        constants: C_r and C_u are read, nothing else.
        replan: when to plan again; information is ln(n_h(s,a) ∨ 1).
        radius: half-width of the box.
        num_safe_episodes: episodes of the incumbent before anything else (Bura et al.'s K₀); the paper uses none.
    """

    name: ClassVar[str] = "dope"
    certified: ClassVar[bool] = True

    def __init__(
        self,
        task: Task,
        constants: Constants,
        replan: Replanning = Every(),
        *,
        radius: Radius = Radius(),
        num_safe_episodes: int = 0,
    ) -> None:
        super().__init__(task, replan)
        if not isinstance(task, Task):
            raise TypeError("DOPE counts every (s, a, s'): it needs a task with listed states, as of LinearCMDP")
        self.constants, self.radius, self.num_safe_episodes = constants, radius, num_safe_episodes
        self._counts = np.zeros((*task.reward.shape, task.num_states))
        self._num_episodes = 0

    @classmethod
    def authors(
        cls, task: Task, num_episodes: int, delta: float = 0.05, scale: float = 1.0, replan: Replanning = Every()
    ) -> "DOPE":
        """Bura et al.'s own ratio: C_u = H, C_r = H²/ξ, their radius times `scale`, K₀ = S²AH³/ξ² incumbent episodes.

        From the authors' code; with scale 1 it deploys the incumbent for the whole of any short run.
        """
        H, slack = task.horizon, known_slack(task)
        constants = Constants(H**2 / slack, H, 0, 0, kappa=1, lam_max=0, num_halvings=0)
        first = math.ceil(scale**2 * task.num_states**2 * task.num_actions * H**3 / slack**2)
        radius = Radius.authors(task, num_episodes, delta, scale)
        return cls(task, constants, replan, radius=radius, num_safe_episodes=first)

    @property
    def num_learned(self) -> int:
        """How many episodes were learned from, logged ones included."""
        return self._num_episodes

    def _propose(self) -> Plan:
        if self._num_episodes < self.num_safe_episodes:
            return self._incumbent(f"one of the first {self.num_safe_episodes} episodes")
        task, radius = self.task, self.radius
        box = Box(*confidence_box(self._counts, radius.deviation, radius.bias, radius.cap))
        reward = task.reward + self.constants.C_r * box.bonus
        utility = task.utility - self.constants.C_u * box.bonus
        _, bound, parts, lam = optimistic_pessimistic(reward, utility, box, task.threshold, task.initial_state)
        if not admits(bound, task.threshold):
            return self._incumbent("the optimistic-pessimistic problem is infeasible", bound)
        return Plan(TablePolicy(_markov(task, box, parts)), "search", lam, bound, self.level)

    def _observe(self, states: Any, actions: IntArray) -> None:
        self._counts[np.arange(self.task.horizon), states[:-1], actions, states[1:]] += 1
        self._num_episodes += 1

    def _information(self) -> Array:
        log_counts: Array = np.log(np.maximum(self._counts.sum(axis=-1), 1))
        return log_counts

    def _learned_state(self, policies: PolicyArrays) -> State:
        return under("counts", {"times": self._counts, "num_episodes": self._num_episodes})

    def _restore_learned(self, saved: Saved) -> None:
        saved = saved.under("counts")
        self._counts = saved.numbers("times", self._counts.shape, least=0)
        self._num_episodes = saved.whole("num_episodes")

    def settings(self) -> dict[str, str | int | float]:
        """Agent, replanning rule, level, C_r, C_u, the radius and the incumbent's first episodes."""
        scales = {"C_r": self.constants.C_r, "C_u": self.constants.C_u}
        return super().settings() | scales | {"radius": repr(self.radius), "num_safe_episodes": self.num_safe_episodes}


def _markov(task: Task, box: Box, parts: Parts[Greedy]) -> Array:
    """π_h(a|s) = Σ_{s'} z_h(s,a,s') / Σ_{a,s'} z_h(s,a,s') of the mixed occupancy z; uniform where that is 0/0."""
    mass = np.zeros(task.reward.shape)
    steps, states = np.indices(mass.shape[:2])
    for weight, (actions, order) in parts:
        reached = extended_occupancy(box.lower, box.upper, actions, order, task.initial_state)
        mass[steps, states, actions] += weight * reached
    return markov_policy(mass, elsewhere=1 / task.num_actions)
