"""OPSE without one of its parts, to measure what that part is for: compensation, entropy, randomness, incumbent."""

import math
import warnings
from typing import ClassVar, Literal, get_args

import numpy as np

from episafe.agents.base import Agent
from episafe.kernels.mixing import admits
from episafe.learning.constants import Constants
from episafe.learning.planner import Decision, Replanning, SoftmaxPlanner
from episafe.learning.released_planner import ReleasedPlanner
from episafe.problems.sampled_problem import AnyTask
from episafe.types import SAFE, SOURCES, ZERO, Array, Plan

Part = Literal["compensation", "entropy", "randomness", "incumbent"]
GREEDY = 1e-10  # κ of policies that are deterministic, but where two actions are worth the same to some 1e-9


class UnguardedPlanner(SoftmaxPlanner):
    """Deploys C_λ where even that does not pass: there is no incumbent to fall back on."""

    def use(self, constants: Constants) -> None:
        """Plan with these scales and search limits from now on."""
        super().use(constants)
        self.search = self.search._replace(fallback=False)


class PlainSoftmaxPlanner(ReleasedPlanner):
    """By the rules of the text, but V̄ʳ = Σ π Q̄ʳ: policies are softmax, and no entropy is counted. On tables.

    Args:
        task: with listed states.
        constants: hand-set ones, without curve or spread.
        pessimistic: True.
    """

    entropy = (0.0, 1.0)
    value_after = 0.0

    @property
    def steps_limited(self) -> Array:
        """How many steps are left after each, (H,)."""
        return np.arange(self._listed.horizon - 1, -1, -1.0)

    def decide(self) -> Decision:
        """Which λ to deploy: as Algorithm 2 does."""
        tables, b = self._tables(), self.search.threshold
        bound = self._evaluate(tables, self.search.lam_max)
        if not admits(bound, b):
            return Decision(SAFE, math.nan, bound)
        bound = self._evaluate(tables, 0.0)
        return Decision(ZERO, 0.0, bound) if admits(bound, b) else self._halved(tables)


def planner_without(part: Part, task: AnyTask, constants: Constants) -> SoftmaxPlanner:
    """OPSE’s planner without one part:

    compensation: C_† = B_† = 0, no Q̄†;
    entropy: V̄ʳ = Σ π Q̄ʳ;
    randomness: κ = 10⁻¹⁰;
    incumbent: C_λ where nothing passes.
    """
    if part == "entropy":
        return PlainSoftmaxPlanner(task, constants, pessimistic=True)
    if part == "incumbent":
        return UnguardedPlanner(task, constants, pessimistic=True)
    if part == "compensation":
        return SoftmaxPlanner(task, constants.replace(C_dagger=0.0, B_dagger=0.0), pessimistic=True)
    if part == "randomness":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the bracket of λ must stay wide: at its kinks two actions are alike again
            return SoftmaxPlanner(task, constants.replace(kappa=GREEDY), pessimistic=True)
    raise ValueError(f"without must be one of {', '.join(get_args(Part))}, got {part!r}")


class AblatedOPSE(Agent):
    """Algorithm 2 without one part, all else alike: an ablation. It promises nothing, whatever its constants.

    Args:
        task: what the learner is told.
        constants: as for `OPSE`; without entropy hand-set ones, such as `Constants.paper`, and listed states.
        replan: when to plan again; None for the rule that goes with the constants.
        without: "compensation", "entropy" (plain softmax), "randomness" (deterministic policies) or "incumbent"; see
            `planner_without`.
    """

    name: ClassVar[str] = "ablated-opse"
    certified: ClassVar[bool] = False
    learner: SoftmaxPlanner
    _learned_state, _restore_learned = Agent._learner_state, Agent._restore_learner

    def __init__(self, task: AnyTask, constants: Constants, replan: Replanning | None = None, *, without: Part) -> None:
        super().__init__(task, constants.replan if replan is None else replan, f"opse-no-{without}")
        self.without: Part = without
        self.learner = planner_without(without, task, constants)

    def _propose(self) -> Plan:
        decision = self.learner.decide()
        if decision.source == SAFE:
            return self._incumbent("no λ up to lam_max is known to be safe yet", decision.utility_bound)
        policy = self.learner.policy(decision.lam)
        return Plan(policy, SOURCES[decision.source], decision.lam, decision.utility_bound, self.level)

    def settings(self) -> dict[str, str | int | float]:
        """Those of the planner, and what it does without; a level is no longer that of the constants."""
        return super().settings() | {"level": self.level, "statement": "", "without": self.without}
