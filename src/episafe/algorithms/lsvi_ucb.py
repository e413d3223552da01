"""LSVI-UCB (Jin, Yang, Wang and Jordan 2020): optimistic least-squares value iteration, without constraints."""

import math
from dataclasses import replace

import numpy as np

from episafe.algorithms.opse import as_policy, evaluate
from episafe.algorithms.softmax_agent import SoftmaxAgent
from episafe.core.agent import EVERY, Replanning, register
from episafe.core.task import ProblemLike, task_of
from episafe.core.types import Plan
from episafe.kernels.softmax_arrays import Search
from episafe.linear.constants import Constants
from episafe.linear.counts import Confidence
from episafe.linear.planner import GHOSH, Decision, searched
from episafe.linear.ridge import SoftmaxModel

GREEDY = 1e-10  # κ: actions whose values differ by more than about 1e-9 are distinguished


def decide(model: SoftmaxModel, constants: Constants) -> Decision:
    """Return the policy that is greedy for Q_h = r + clip(P̂_hV_{h+1} + Cβ, 0, H−h); equal actions share it."""
    model.estimate_signals(constants.curve)
    found = evaluate(model, constants, GHOSH, np.zeros(model.task.num_constraints))
    none = np.full(len(found.lam), np.nan)
    return Decision("zero", found.lam, none, as_policy(model, constants, GHOSH, found))


@register(
    name="lsvi-ucb", label="LSVI-UCB",
    summary="after Jin et al. 2020: maximises the reward and ignores the limit",
    arguments=lambda problem, num_episodes: {"num_episodes": num_episodes, "bonus": 0.01},
)  # fmt: skip
class LSVIUCB(SoftmaxAgent):
    """Deploys the policy that is greedy for Q_h = r + clip(P̂_hV_{h+1} + Cβ, 0, H−h),  C = bonus·dH√ln(2dKH/δ).

    The paper proves regret Õ(√(d³H⁴K)) against the best policy, safe or not. It serves as a reference without a limit:
    it promises nothing about the utility. It has no incumbent.

    After Jin et al., COLT 2020. Only the abstract was available, not the algorithm. `bonus` replaces an absolute
    constant of C that is not stated. Differences: a known reward is used, and values are clipped at the number of
    remaining steps, not at H. The greedy policy is a softmax with κ = 10⁻¹⁰.

    Args:
        problem: a problem or its task.
        num_episodes: K, in the logarithm.
        delta: δ.
        bonus: factor on C.
        replan: when to plan again.
    """

    def __init__(
        self, problem: ProblemLike, num_episodes: int, delta: float = 0.05, bonus: float = 1.0,
        replan: Replanning = EVERY,
    ) -> None:  # fmt: skip
        task, self.confidence = task_of(problem), Confidence(delta, bonus, num_episodes)
        H, d = task.horizon or 1, task.dim
        C = bonus * d * H * math.sqrt(self.confidence.log_term(2 * d * H))
        constants = Constants(C, 0.0, 0.0, 0.0, kappa=GREEDY, lam_max=0.0, num_halvings=0, C_theta=bonus)
        super().__init__(task, constants, replan, optimistic=True)

    @property
    def search(self) -> Search:
        """Return the inputs of the compiled form: λ = 0 passes every check."""
        return GHOSH.search(self.constants, np.full(self.task.num_constraints, -np.inf))

    def decide(self) -> Plan:
        """Return the plan for the next episode."""
        if type(self) is LSVIUCB:
            found = searched(self.model, self.scales, self.search)
        else:
            found = decide(self.model, self.constants)
        return replace(self.as_plan(found), bounds=np.full(self.task.num_constraints, np.nan))
