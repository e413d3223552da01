"""Ghosh, Zhou and Shroff 2024, as the OPSE paper implements it: softmax policies, optimistic in the utility too."""

import numpy as np

from episafe.algorithms.opse import Evaluation, as_policy, log_softmax, ridge
from episafe.algorithms.softmax_agent import SoftmaxAgent
from episafe.core.agent import EVERY, Replanning, register
from episafe.core.task import ProblemLike
from episafe.core.types import Array, Plan, Source
from episafe.linear import planner
from episafe.linear.constants import Constants
from episafe.linear.planner import GHOSH, GHOSH_RELEASED, Decision, Rules, Variant, rules_of
from episafe.linear.ridge import SoftmaxModel


def evaluate(model: SoftmaxModel, constants: Constants, rules: Rules, lam: Array) -> Evaluation:
    """Evaluate π^λ = softmax((Q̄ʳ + λQ̄ᵘ)/κ), optimistic in reward and utility.

        Q̄ʳ = r + clip{C_r β + P̂V̄ʳ, 0, (H−h)(1 + κ ln A)}     V̄ʳ = π(Q̄ʳ − κ ln π)
        Q̄ᵘ = u + clip{C_u β + P̂V̄ᵘ, 0, H−h}                   V̄ᵘ = πQ̄ᵘ

    The paper counts h from 1. In the released code there is no entropy and every limit has one step more.
    """
    H, kappa, tables, weights = model.horizon, constants.kappa, list[Array](), list[Array]()
    V = np.zeros((2 + len(lam), 1))  # V̄ʳ, no compensation, V̄ᵘ of each limit
    for h in reversed(range(H)):
        left, (r, u), (beta, PV, w) = H - 1 - h + rules.extra_steps, model.told(h), ridge(model, h, V)
        beta_r, _, *beta_u = model.shaped_bonuses(h, V, beta, PV, constants.curve, constants.spread)  # all β
        entropy = kappa * rules.log_factor(beta_r)  # κ, and 0 in the released code
        Q_r = r + np.clip(constants.C_r * beta_r + PV[0], 0.0, left * (1 + entropy * np.log(model.num_actions)))
        Q_u = u + np.clip(constants.C_u * np.array(beta_u) + PV[2:], 0.0, left)
        ln_pi = log_softmax((Q_r + np.tensordot(lam, Q_u, 1)) / kappa)
        pi = np.exp(ln_pi)
        V = np.concatenate([[pi * (Q_r - entropy * ln_pi), 0 * pi], pi * Q_u]).sum(axis=1)
        tables.insert(0, pi)
        weights.insert(0, w)
    return Evaluation(V[:, 0], lam, tables, weights)


def decide(model: SoftmaxModel, constants: Constants, rules: Rules = GHOSH) -> Decision:
    """Return π⁰ if its optimistic utility reaches b, else π^λ of the upper end after T halvings of [0, C_λ]."""
    b, C_lam, T = model.task.thresholds, constants.lam_max, constants.num_halvings
    if len(b) > 1:  # an extension, which is compiled only
        return planner.decide(model, constants, rules)
    model.estimate_signals(constants.curve)

    def utility(*lam: float) -> Array:
        return evaluate(model, constants, rules, np.array(lam)).V[2:]

    source: Source = "search"
    if rules.ends and utility(0.0) >= b:
        source, lam = "zero", np.zeros(1)
    else:
        low, high = 0.0, C_lam
        for _ in range(T):
            middle = (low + high) / 2
            low, high = (low, middle) if utility(middle) >= b else (middle, high)
        lam = np.array([high])
    if rules.incumbent_first and model.num_episodes == 0:
        source = "safe"
    found = evaluate(model, constants, rules, lam)
    policy = None if source == "safe" else as_policy(model, constants, rules, found)
    return Decision(source, found.lam, found.V[2:], policy)


@register(
    name="ghosh", label="Ghosh et al. 2024",
    summary="Ghosh et al. 2024 as the OPSE paper runs it: also optimistic about utility; violates limits at first",
    colour="#D55E00",
)  # fmt: skip
class Ghosh2024(SoftmaxAgent):
    """Deploys π^λ of the smallest λ whose *optimistic* utility reaches the limit, or C_λ; it has no incumbent.

    The cited paper proves that regret and hard violation are Õ(√K). The rules are those of the OPSE paper. Differences
    from Algorithm 1 of Ghosh et al.: λ is found by bisection instead of steps of order K^{-H}. V̄ʳ has an entropy.
    Values are clipped at the number of remaining steps instead of H. The estimate need not be monotone in λ.

    Args:
        problem: a problem or its task.
        constants: scales, κ and search limits; C_dagger and B_dagger are not used.
        replan: when to plan again.
        variant: "text" for the rules of the OPSE paper, "released" for those of its released code.
    """

    reason = "the released code begins with the incumbent"

    def __init__(
        self, problem: ProblemLike, constants: Constants, replan: Replanning = EVERY, variant: Variant = "text"
    ) -> None:
        super().__init__(problem, constants, replan, optimistic=True)
        self.rules, self.variant = rules_of(variant, constants, GHOSH, GHOSH_RELEASED), variant

    def decide(self) -> Plan:
        """Return the plan for the next episode."""
        search = planner.decide if type(self) is Ghosh2024 else decide
        return self.as_plan(search(self.model, self.constants, self.rules))
