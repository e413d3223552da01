"""OPSE-LCMDP, Algorithm 2 of the paper: optimistic-pessimistic softmax exploration."""

from typing import ClassVar

from episafe.agents.base import Agent, Plan, Source
from episafe.arrays import Array, IntArray
from episafe.learning.constants import Constants
from episafe.learning.kernels import admits
from episafe.learning.replanning import Every, Replanning
from episafe.learning.softmax import SoftmaxPlanner
from episafe.problems.task import Task


class OPSE(Agent):
    """Explores with the composite softmax policy of the smallest λ whose pessimistic utility reaches the threshold.

    Args:
        task: what the learner is told.
        constants: scales, κ and search limits; their level is the level of every plan.
        replan: when to plan again.

    Example:
        >>> import episafe as es
        >>> cmdp = es.make("tabular", seed=0)
        >>> agent = es.OPSE(cmdp.task, es.Constants.paper("tabular"))
        >>> agent.plan().source  # nothing is known yet
        'safe'
    """

    name: ClassVar[str] = "opse"
    certified: ClassVar[bool] = True

    def __init__(self, task: Task, constants: Constants, replan: Replanning = Every()) -> None:
        super().__init__(task, replan)
        self.constants = constants
        self.level = constants.level
        self._planner = SoftmaxPlanner(task, constants, utility_sign=-1, compensate=True)

    def _propose(self) -> Plan:
        planner, threshold = self._planner, self.task.threshold
        planner.refresh()
        # Alg. 2, incumbent trigger -> V̲ᵘ(π^{C_λ}) < b
        bound = planner.utility_bound(float(self.constants.lam_max))
        if not admits(bound, threshold):
            return self._incumbent("no λ up to lam_max is known to be safe yet", bound)
        # Alg. 2, λ = 0 -> V̲ᵘ(π⁰) ≥ b
        if admits(planner.utility_bound(0.0), threshold):
            return self._certified("zero", 0.0)
        # Alg. 2, bisection -> π^{λ̄}
        return self._certified("search", planner.smallest_admitted())

    def _certified(self, source: Source, lam: float) -> Plan:
        """π^λ if the bound of this very policy, computed once more, passes; else the incumbent."""
        policy, bound = self._planner.policy(lam)
        if not admits(bound, self.task.threshold):
            return self._incumbent(f"the policy found at λ = {lam!r} did not pass its final check", bound)
        return Plan(policy, source, lam, bound, self.level)

    def _observe(self, states: IntArray, actions: IntArray) -> None:
        self._planner.observe(states, actions)

    def _information(self) -> Array:
        return self._planner.information

    def settings(self) -> dict[str, str | int | float]:
        """Agent, replanning rule, level and every constant."""
        return super().settings() | self.constants.settings()
