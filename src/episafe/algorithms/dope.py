"""DOPE (Bura et al. 2022): optimistic in the kernel and the reward, pessimistic in the utility. Tabular."""

import math

from episafe.core.agent import AGENTS, EVERY, Agent, AgentFacts, Replanning, register
from episafe.core.checks import as_count
from episafe.core.task import ProblemLike, task_of
from episafe.core.types import Plan, Settings
from episafe.kernels.tabular_optimum import passes
from episafe.linear.constants import Constants
from episafe.linear.counts import (
    PLAIN,
    Confidence,
    CountingAgent,
    Radius,
    TransitionCounts,
    extended_optimum,
    markov_table,
    needs_tables,
)

INFEASIBLE = "the optimistic-pessimistic problem is infeasible"


@register(
    name="dope", label="DOPE",
    summary="DOPE (Bura et al. 2022) as the OPSE paper runs it: optimistic kernel and reward, pessimistic utility",
    colour="#CC79A7", needs=needs_tables,
)  # fmt: skip
class DOPE(CountingAgent):
    """Solves, before each episode, the optimistic-pessimistic problem over the box 𝒫 of kernels:

        max_π max_{P'∈𝒫} V^{π, r + C_r β}_{P'}(s₁)   s.t.   V^{π, u_i − C_u β}_{P'}(s₁) ≥ b_i,   β = Σ_{s'} γ

    The literature solves this as a linear program of HS²A variables; here extended value iteration solves the dual. The
    optimum mixes at most m + 1 (policy, kernel) pairs; states that the mixture never reaches get the uniform policy.
    The incumbent is deployed while the problem is infeasible. Differs from the released code of the OPSE paper: γ is
    that of the paper's text, with n_h(s,a) ∨ 1 for n_h(s,a), and P̂ = 0 at pairs that were never seen.

    Args:
        problem: a problem or its task.
        constants: only C_r and C_u are used.
        replan: when to plan again; information is ln(n_h(s,a) ∨ 1).
        radius: half-width of the box.
        num_safe_episodes: episodes of the incumbent before anything else (K₀ of Bura et al.); the OPSE paper uses none.
        label: the name in records.
    """

    def __init__(
        self, problem: ProblemLike, constants: Constants, replan: Replanning = EVERY, *, radius: Radius = PLAIN,
        num_safe_episodes: int = 0, label: str = "dope",
    ) -> None:  # fmt: skip
        super().__init__(problem, None, replan=replan)
        self.constants, self.radius, self.label, self.bonus = constants, radius, label, 1.0
        self.num_safe_episodes = as_count("num_safe_episodes", num_safe_episodes, 0)

    @classmethod
    def authors(
        cls, problem: ProblemLike, num_episodes: int, delta: float = 0.05, bonus: float = 1.0,
        replan: Replanning = EVERY,
    ) -> "DOPE":  # fmt: skip
        """Return DOPE with the ratio of Bura et al.: C_u = H, C_r = H²/ξ, their radius and K₀ = S²AH³/ξ² episodes.

        This follows the authors' code, whose policies agree to 1e-8 for equal counts, radius and logarithm. That code
        counts all steps together, and its logarithm is ln(6S²HK/δ). `bonus` multiplies the radius, and its square
        multiplies K₀. With bonus 1 the incumbent is deployed throughout a short run.
        """
        task = task_of(problem)
        _, H, S, A = TransitionCounts(task).signals.shape
        slack = float(task.slacks.min())
        constants = Constants(H**2 / slack, H, 0, 0, kappa=1, lam_max=0, num_halvings=0)
        first = math.ceil(bonus**2 * S**2 * A * H**3 / slack**2)
        radius = Radius.bernstein(task, Confidence(delta, bonus, num_episodes), 2, cap=bonus)
        made = cls(task, constants, replan, radius=radius, num_safe_episodes=first, label="dope-authors")
        made.bonus = bonus
        return made

    def decide(self) -> Plan:
        """Return the solution of the problem, or the incumbent."""
        if self.counts.num_episodes < self.num_safe_episodes:
            return self.incumbent_plan(f"one of the first {self.num_safe_episodes} episodes")
        task, box, signals = self.task, self.counts.box(self.radius), self.counts.signals.copy()
        signals[0] += self.constants.C_r * box.bonus
        signals[1:] -= self.constants.C_u * box.bonus
        found = extended_optimum(signals, box, task.thresholds, task.initial_state)
        bounds = found.values[1:]
        if not passes(bounds, task.thresholds):
            return self.incumbent_plan(INFEASIBLE, bounds)
        return self.as_plan(markov_table(box, found.parts, task.initial_state), bounds, found.multipliers)

    def settings(self) -> Settings:
        """Return the general settings with C_r, C_u, the radius and the number of first episodes."""
        scales: Settings = {"agent": self.label, "C_r": self.constants.C_r, "C_u": self.constants.C_u}
        scales |= {} if self.bonus == 1 else {"bonus": self.bonus}
        return (
            Agent.settings(self) | scales | {"radius": repr(self.radius), "num_safe_episodes": self.num_safe_episodes}
        )


AGENTS["dope-authors"] = (
    AgentFacts(
        name="dope-authors",
        label="DOPE, authors’ constants, scaled",
        summary="DOPE with its authors' constants; radius times 0.003, because at 1 only the incumbent acts",
        arguments=lambda problem, num_episodes: {"num_episodes": num_episodes, "bonus": 0.003},
        needs=needs_tables,
    ),
    DOPE.authors,
)
