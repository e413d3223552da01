"""EpsMix, after Li et al. 2023: a coin between a candidate and the incumbent, for a constraint on the utility."""

from typing import ClassVar, NamedTuple

from episafe.agents.base import Agent
from episafe.kernels.mixing import mixed
from episafe.learning.box_problem import MULTIPLIERS
from episafe.learning.mixing_bounds import Bounded, MixingBounds, as_told, largest, share_of_safer
from episafe.learning.replanning import Every, Replanning
from episafe.learning.transition_counts import Confidence, TransitionCounts
from episafe.problems.policy import MixturePolicy, TablePolicy
from episafe.problems.task import Task
from episafe.types import Array, Plan


class EpsMix(Agent):
    """A candidate π̄ where its lower bound passes, else a coin that is as often π̄ as the bounds allow:

        π̄ with probability ρ = (V̲ᵘ_sf − b)/(V̲ᵘ_sf − V̲ᵘ_π̄), the incumbent otherwise

    with the bounds of `MixingBounds` at δ' = δ/4, and V̲ᵘ_sf the larger of its own and b + ξ, which the task tells.

    The paper has one signal, V^r ≥ γ, and proves zero violation, over the coin, and regret
    Õ(√(H³SAK) + H³S²A + H³SAΔ(1/κ² + S/κ)), at bonus 1. The first carries over to a utility; the second does not: a
    candidate that is greedy for the reward alone is not the best that a coin can be tossed with. So here candidates are
    greedy for Q̃ʳ + λQ̲ᵘ, with λ = 0, the paper's, and six others; the coin of the largest optimistic reward is tossed.

    After Li, Huang, Shen and Yang, ICML 2023, Algorithm 4. What a candidate does by itself is not bounded.

    Args:
        task: what the learner is told.
        delta: δ.
        bonus: multiplies every bonus.
        replan: when to plan again.
    """

    name: ClassVar[str] = "epsmix"
    certified: ClassVar[bool] = True
    learner: TransitionCounts
    _learned_state, _restore_learned = Agent._learner_state, Agent._restore_learner

    def __init__(self, task: Task, delta: float = 0.05, bonus: float = 1.0, replan: Replanning = Every()) -> None:
        super().__init__(task, replan)
        task.only("threshold")
        self.learner = TransitionCounts(task, Confidence(None, delta, bonus))

    def _propose(self) -> Plan:
        task, counts = self.task, self.learner
        problem = MixingBounds(task, counts, counts.confidence.delta / 4)
        safe = as_told(task, problem.of_table(task.safe_policy.table()))
        coins = {lam: _coin(problem.of_greedy(lam), safe, task.threshold) for lam in MULTIPLIERS}
        lam, coin = largest(coins)
        if coin.share == 1:
            return self._incumbent("no mixture with a candidate passes")
        candidate = TablePolicy(coin.policy)
        if coin.share == 0:
            return Plan(candidate, "search", lam, coin.utility, self.level)
        mixture = MixturePolicy((candidate, task.safe_policy), (1 - coin.share, coin.share), ("candidate", "incumbent"))
        return Plan(mixture, "search", lam, coin.utility, self.level)


class _Coin(NamedTuple):
    """Ṽʳ(s₁) and V̲ᵘ(s₁) over the coin, the candidate's table, and the share of the incumbent."""

    reward: float
    utility: float
    policy: Array
    share: float


def _coin(candidate: Bounded, safe: Bounded, threshold: float) -> _Coin:
    share = share_of_safer(candidate, safe, threshold)
    reward, utility = (float(mixed(getattr(candidate, g), getattr(safe, g), share)) for g in ("reward", "utility"))
    return _Coin(reward, utility, candidate.policy, share)
