"""Ghosh, Zhou and Shroff 2022: softmax policies for a multiplier that is stepped once per episode."""

import math
import warnings

import numpy as np

from episafe.algorithms.opse import as_policy, evaluate
from episafe.algorithms.softmax_agent import SoftmaxAgent
from episafe.core.agent import EVERY, Replanning, register
from episafe.core.task import ProblemLike, task_of
from episafe.core.types import Array, Plan
from episafe.kernels.softmax_arrays import Search
from episafe.linear.constants import Constants
from episafe.linear.counts import Confidence
from episafe.linear.planner import GHOSH, Decision, searched
from episafe.linear.ridge import SoftmaxModel


def decide(model: SoftmaxModel, constants: Constants, lam: Array) -> Decision:
    """Return π_k = softmax(α(Q^r + λ_k Q^u)), α = 1/κ, and V^u(s₁); the values are those of Ghosh et al. 2024."""
    model.estimate_signals(constants.curve)
    found = evaluate(model, constants, GHOSH, lam)
    return Decision("search", lam, found.V[2:], as_policy(model, constants, GHOSH, found))


@register(
    name="ghosh2022", label="Ghosh et al. 2022",
    summary="after Ghosh et al. 2022: softmax policies, a step of the multiplier per episode; may violate limits",
    arguments=lambda problem, num_episodes: {"num_episodes": num_episodes, "bonus": 0.001},
)  # fmt: skip
class Ghosh2022(SoftmaxAgent):
    """Deploys a softmax policy for the optimistic values of r + λ_k u, and updates λ_k with each plan:

        π_k = softmax(α(Q^r + λ_k Q^u)),   λ_{k+1} = min{[λ_k + η(b − V^u(s₁))]₊, χ}
        α = K/H,   η = 10/(H√K),   χ = 2H/ξ,   C = bonus·dH√ln(4 ln A·dKH/δ)

    The paper proves regret and violation Õ(√(d³H⁴K)), *with cancellation* (soft). It has no incumbent.

    After Ghosh, Zhou and Shroff, NeurIPS 2022, whose text was not available. α and η are from Appendix K of the same
    authors' paper of 2024. C is also from that paper; χ is from Ding et al. 2021. `bonus` replaces an absolute constant
    of C that is not stated. Differences: known reward and utility are used, and values are clipped at the number of
    remaining steps. V^r has OPSE's entropy, −(H/K) ln π. Each limit has its own λ.

    Args:
        problem: a problem or its task, whose slack ξ is known.
        num_episodes: K, in the logarithm, the temperature and the step.
        delta: δ.
        bonus: factor on C.
        replan: when to plan again; each new plan changes λ.
    """

    def __init__(
        self, problem: ProblemLike, num_episodes: int, delta: float = 0.05, bonus: float = 1.0,
        replan: Replanning = EVERY,
    ) -> None:  # fmt: skip
        task, self.confidence = task_of(problem), Confidence(delta, bonus, num_episodes)
        H, A, d = task.horizon or 1, max(task.num_actions or 0, 2), task.dim
        C = bonus * d * H * math.sqrt(self.confidence.log_term(4 * math.log(A) * d * H))
        chi = 2 * H / float(task.slacks.min())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a wide bracket: there is no search
            constants = Constants(C, C, 0.0, 0.0, kappa=H / num_episodes, lam_max=chi, num_halvings=0, C_theta=bonus)
        super().__init__(task, constants, replan, optimistic=True)
        self.eta, self.lam = 10 / (H * math.sqrt(num_episodes)), np.zeros(task.num_constraints)

    @property
    def search(self) -> Search:
        """Return the inputs of the compiled form, which updates `lam` itself."""
        return super().search._replace(step=self.eta, dual=self.lam)

    def decide(self) -> Plan:
        """Return the plan of π_k, and step λ."""
        if type(self) is Ghosh2022:
            return self.as_plan(searched(self.model, self.scales, self.search))
        found = decide(self.model, self.constants, self.lam.copy())
        self.lam[:] = np.clip(self.lam + self.eta * (self.task.thresholds - found.bounds), 0.0, self.constants.lam_max)
        return self.as_plan(found)
