"""OPSE-LCMDP, Algorithm 2 of the paper: optimistic-pessimistic softmax exploration for linear CMDPs.

Steps are counted from 0: H − h of the paper is H − 1 − h here. `es.OPSE` runs the compiled `linear.planner.decide`, a
subclass `decide` below; `TEXT` has the paper's rules. Differs: line 10 takes λ after all T halvings. Extensions: shaped
bonuses (β at curve = spread = 0), learned signals, steps that share their data, several limits.
"""

from typing import NamedTuple

import numpy as np

from episafe.algorithms.softmax_agent import SoftmaxAgent
from episafe.core.agent import EVERY, Replanning, register
from episafe.core.errors import InvalidProblem
from episafe.core.policy import Policy
from episafe.core.task import ProblemLike
from episafe.core.types import Array, Plan, Source
from episafe.linear import planner
from episafe.linear.constants import Constants
from episafe.linear.planner import RELEASED, TEXT, Decision, Rules, Variant, policy_of, rules_of
from episafe.linear.ridge import SoftmaxModel


class Evaluation(NamedTuple):
    """V̄ʳ, V̄†, V̲ᵘ (G,) of π^λ at s₁, and what it is made of: λ (m,), tables (A, n) and weights w (G, d) of each step."""

    V: Array
    lam: Array
    tables: list[Array]
    weights: list[Array]


def ridge(model: SoftmaxModel, h: int, V: Array) -> tuple[Array, Array, Array]:
    """Return β_h (A, n), P̂_hV (G, A, n) and w_h of G values V (G, n') at the next states.

        Λ_h = ρI + Σ_i φ_i φ_iᵀ      β_h = ‖φ‖_{Λ_h⁻¹}      w_h = Λ_h⁻¹ Σ_i φ_i V(s_{h+1}^i)      P̂_hV = φᵀ w_h

    With one-hot features Λ_h is diagonal, n_h(s, a) + ρ, and w_h is not needed.
    """
    Lambda, total = model.gram(h), model.target_sums(h, V)  # Λ_h and Σ_i φ_i V(s_{h+1}^i)
    if model.task.one_hot:
        return Lambda**-0.5, total / Lambda, np.zeros(0)
    phi = model.features(h)  # (A, n, d)
    beta: Array = np.sqrt(np.einsum("and,adn->an", phi, np.linalg.solve(Lambda, phi.transpose(0, 2, 1))))
    w = np.asarray(np.linalg.solve(Lambda, total.T).T, dtype=np.float64)
    return beta, np.asarray(np.einsum("and,gd->gan", phi, w)), w


def log_softmax(x: Array) -> Array:
    """Return ln softmax(x) over the actions, the first axis."""
    x = x - x.max(axis=0)
    return np.asarray(x - np.log(np.exp(x).sum(axis=0)))


def evaluate(model: SoftmaxModel, constants: Constants, rules: Rules, lam: Array) -> Evaluation:
    """Evaluate π^λ: Def. "Clipped value functions" under the policy of Def. "Composite softmax policy"."""
    H, scales, tables, weights = model.horizon, rules.scales(constants, model.num_actions), list[Array](), list[Array]()
    C_r, minus_C_u, C_dagger, B_dagger, kappa, most = scales[:6]  # for peers of OPSE +C_u, C_† = B_† = 0
    V = np.array([[scales.value_after], *[[0.0]] * (1 + len(lam))])  # V̄ʳ, V̄†, V̲ᵘ of each limit; V_{H+1} = 0
    for h in reversed(range(H)):
        left = H - 1 - h + rules.extra_steps  # H − h in the paper, and 0 extra steps
        (r, u), (beta, PV, w) = model.told(h), ridge(model, h, V)
        beta_r, beta_dagger, *beta_u = model.shaped_bonuses(h, V, beta, PV, constants.curve, constants.spread)  # all β
        # Q̄ʳ = r + clip{C_r β + P̂V̄ʳ, 0, H_κ − h_κ},  H_κ − h_κ = (H − h)(1 + κ ln A)
        Q_r = r + np.clip(C_r * beta_r + PV[0], 0.0, left * most)
        # Q̄† = B_†β + clip{C_† β + P̂V̄†, 0, B_†(H − h)}
        Q_dagger = B_dagger * beta_dagger + np.clip(C_dagger * beta_dagger + PV[1], 0.0, B_dagger * left)
        # Q̲ᵘ = u + clip{−C_u β + P̂V̲ᵘ, 0, H − h}
        Q_u = u + np.clip(minus_C_u * np.array(beta_u) + PV[2:], 0.0, left)
        # π = softmax((Q̄† + Q̄ʳ + λQ̲ᵘ)/κ)
        ln_pi = log_softmax((Q_dagger + Q_r + np.tensordot(lam, Q_u, 1)) / kappa)
        pi = np.exp(ln_pi)
        # V̄ʳ = π(Q̄ʳ − κ ln π),  V̄† = πQ̄†,  V̲ᵘ = πQ̲ᵘ
        V_r, V_dagger = pi * (Q_r - kappa * rules.log_factor(pi) * ln_pi), pi * Q_dagger  # the factor is 1 by the text
        V = np.concatenate([[V_r, V_dagger], pi * Q_u]).sum(axis=1)
        tables.insert(0, pi)
        weights.insert(0, w)
    return Evaluation(V[:, 0], lam, tables, weights)  # the first state is s₁


def decide(model: SoftmaxModel, constants: Constants, rules: Rules = TEXT) -> Decision:
    """Return π⁽ᵏ⁾, what is deployed in episode k."""
    b, C_lam, T = model.task.thresholds, constants.lam_max, constants.num_halvings
    if len(b) > 1:  # an extension of the paper, which is compiled only
        return planner.decide(model, constants, rules)
    model.estimate_signals(constants.curve)  # reward and utility, where the task does not tell them

    def V_u(*lam: float) -> Array:  # noqa: N802  # Alg. 2, line 2 -> V̲ᵘ of π^λ
        return evaluate(model, constants, rules, np.array(lam)).V[2:]

    source: Source = "search"
    if rules.ends and not V_u(C_lam) >= b:  # Alg. 2, line 3 -> V̲ᵘ(π^{C_λ}) < b: π⁽ᵏ⁾ := π_sf
        source, lam = "safe", np.array([C_lam])
    elif rules.ends and V_u(0.0) >= b:  # Alg. 2, line 4 -> V̲ᵘ(π⁰) ≥ b: π⁽ᵏ⁾ := π⁰
        source, lam = "zero", np.zeros(1)
    else:
        low, high = 0.0, C_lam  # Alg. 2, line 6 -> λ_low := 0, λ_high := C_λ
        for _ in range(T):  # Alg. 2, line 7 -> t = 1, …, T
            middle = (low + high) / 2
            if V_u(middle) >= b:  # Alg. 2, line 8 -> V̲ᵘ(π^λ) ≥ b: λ_high := λ
                high = middle
            else:  # Alg. 2, line 9 -> λ_low := λ
                low = middle
        source, lam = "search" if V_u(high) >= b else "safe", np.array([high])  # Alg. 2, line 10 -> π⁽ᵏ⁾ := π^{λ_high}
    if rules.incumbent_first and model.num_episodes == 0:  # by the released code only, like "safe" after a search
        source = "safe"
    found = evaluate(model, constants, rules, lam)
    return Decision(source, lam, found.V[2:], None if source == "safe" else as_policy(model, constants, rules, found))


def as_policy(model: SoftmaxModel, constants: Constants, rules: Rules, found: Evaluation) -> Policy:
    """Return π^λ as a policy that acts at any state."""
    scales, table = rules.scales(constants, model.num_actions), model.by_state(found.tables)
    return policy_of(model, scales, found.lam, table, np.array(found.weights))


@register(
    name="opse", label="OPSE-LCMDP", colour="#0072B2",
    summary="OPSE-LCMDP, Algorithm 2 of the paper: the incumbent, or a policy that passed the pessimistic check",
)  # fmt: skip
class OPSE(SoftmaxAgent):
    """Deploys π^λ of a small λ whose pessimistic utility reaches the limit; the incumbent while there is none.

    With `Constants.theory` every deployed policy is safe with probability 1 − δ; other constants prove nothing. With
    several limits it is an extension of the paper.

    Args:
        problem: a problem or its task.
        constants: scales, κ and search limits; C_u > 0.
        replan: when to plan again; the paper plans before every episode.
        variant: "text" for the rules of the paper, "released" for those of its released code.
    """

    reason = "no λ up to C_λ is known to be safe yet"

    def __init__(
        self, problem: ProblemLike, constants: Constants, replan: Replanning = EVERY, variant: Variant = "text"
    ) -> None:
        if constants.C_u == 0:
            raise InvalidProblem("C_u is 0, so the check of OPSE proves nothing: give C_u > 0, or use es.SafeAgent")
        super().__init__(problem, constants, replan, optimistic=False)
        self.rules, self.variant = rules_of(variant, constants, TEXT, RELEASED), variant
        if variant == "text" and self.model.signals is None:
            self.level = constants.level

    def decide(self) -> Plan:
        """Return the plan for the next episode, whose trajectory line 11 of Algorithm 2 samples."""
        self.constants.require_scope(self.task, self.model.num_episodes + 1)
        search = planner.decide if type(self) is OPSE else decide
        return self.as_plan(search(self.model, self.constants, self.rules))
