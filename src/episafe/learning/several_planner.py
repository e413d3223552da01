"""Planners of a task with several constraints: m multipliers where states are listed, else one for a weighted sum.

Whatever finds the multipliers, what is deployed passes the check of every constraint: safety survives any search. What
is lost is the regret proof of the paper, which needs the λ that bisection finds: with m > 1 multipliers some λ passes
all checks at small regret, and nobody knows how to find it in polynomial time (docs/several-constraints.md).

The weighted sum only proposes, and is heuristic: a policy whose sum is large may still miss one of the utilities. The
certifier checks each, and what it does not prove is deployed in mixtures alone, or not at all.
"""

import math
from typing import Any

import numpy as np

from episafe.kernels.backward_pass import shaped
from episafe.kernels.mixing import admits_all
from episafe.kernels.mixture_weights import solved_program
from episafe.kernels.model_arrays import Scales, Search
from episafe.kernels.policy_values import policy_values
from episafe.kernels.table_passes import several_pass
from episafe.learning.constants import Constants
from episafe.learning.multiplier_search import Bisection, LamSearch, smallest_passing
from episafe.learning.planner import Aim, Decision, Proposal, SoftmaxPlanner
from episafe.learning.regression import AnyRegression, regression_for
from episafe.problems.model_answers import greedy_actions, markov_policy, occupancy
from episafe.problems.policy import Policy, TablePolicy
from episafe.problems.sampled_problem import AnyTask
from episafe.types import SAFE, SEARCH, ZERO, Array, IntArray, amounts

PASSES = 200  # of the descent on the multipliers
HALVINGS = 20  # of the multipliers that were found, towards 0
ROUNDS = 40  # of cutting planes, for a proposal
ROOM = 0.5  # of the slack: how far above b a weighted sum aims at least, as it says little of its parts
PENALTY, ENOUGH = 1e3, 1e-9  # per unit of utility that is missed; of reward


class SeveralPlanner(SoftmaxPlanner):
    """π^λ with λ (m,), by projected descent on the dual; every λ that is tried is checked.

        λ ← [λ + (b − V̲(λ))/√t]₊   up to C_λ each

    Of those that pass the check of every constraint the one of largest V̄ʳ + V̄† is taken, and made smaller as long as it
    passes. Where none does, the ray λ·(1, …, 1) is tried at C_λ, then the incumbent acts.

    Args:
        task: what the learner is told; its states are listed.
        constants: scales, κ, ρ and the limit of each multiplier.
        pessimistic: True; Ghosh et al. have one constraint.
        search: `Bisection()`, which stands for the descent here.
    """

    def __init__(
        self, task: AnyTask, constants: Constants, *, pessimistic: bool, search: LamSearch = Bisection()
    ) -> None:
        if not pessimistic or search != Bisection():
            raise ValueError("with several constraints there is OPSE's own search only: leave out search=…")
        if constants.level == "theorem":
            raise ValueError(
                "Constants.theory is derived for one constraint: with several use a certifier, such as "
                "es.certify.Observation(delta=0.05) with Constants.proposing()"
            )
        assert task.is_listed
        super().__init__(task, constants, pessimistic=True, search=search)
        self._table: Array = np.zeros(task.reward.shape)

    def blank(self) -> AnyRegression:
        """A regression that has learned nothing yet; of transitions, which are the same for every constraint."""
        return regression_for(self._task.of_constraint(0), *self._learning)

    def _search(self, constants: Constants) -> Search:
        return Search(math.nan, constants.lam_max, constants.num_halvings, True, 0.0)

    def decide(self) -> Decision:
        """Which multipliers to deploy; the decision has their sum and a bound for each constraint."""
        limits, most = amounts(self._task.limits), self.constants_now.lam_max
        model, lams = self._model(), np.zeros(len(limits))
        found, best = None, -math.inf
        for t in range(1, PASSES + 1):
            reward, bounds = self._values(model, lams, self.scales)
            if admits_all(bounds, limits):
                if not lams.any():
                    return Decision(ZERO, 0.0, bounds)
                if reward > best:
                    found, best = lams.copy(), reward
            lams = np.clip(lams + (limits - bounds) / math.sqrt(t), 0.0, most)
        if found is None:
            found = np.full(len(limits), most)
            bounds = self._values(model, found, self.scales)[1]
            if not admits_all(bounds, limits):
                return Decision(SAFE, math.nan, bounds)
        return self._shrunk(model, found)

    def _shrunk(self, model: tuple[Array, Array], lams: Array) -> Decision:
        """The smallest share of these multipliers that passes, by halving; they pass themselves."""

        def passes(share: float) -> bool:
            return admits_all(self._values(model, share * lams, self.scales)[1], self._task.limits)

        kept = smallest_passing(passes, 1.0, HALVINGS) * lams
        bounds = self._values(model, kept, self.scales)[1]  # of what is deployed, and left in the table
        return Decision(SEARCH, float(kept.sum()), bounds)

    def policy(self, lam: float, scales: Scales | None = None) -> Policy:
        """The policy that was evaluated last."""
        return TablePolicy(self._table.copy())

    def bound_now(self, lam: float) -> float:
        """Not to be had: the sum of several multipliers does not say which they were."""
        raise NotImplementedError("with several constraints a bound cannot be computed again from λ alone")

    def propose(self, aim: Aim) -> Proposal:
        """The policy of largest hoped-for reward whose estimated utilities reach the aim, (m,); nothing is proved.

        It is the optimum under several constraints of the estimated model, with bonuses of at most the steps left;
        where no policy reaches the aim, one that comes near.
        """
        task, scales = self._task, self.scales
        assert task.is_listed
        P_hat, beta = self._model()
        left = np.arange(task.horizon - 1, -1, -1.0)[:, None, None]
        bonus = shaped.py_func(beta, 0.0, scales)
        reward = task.reward + np.minimum(aim.boldness * scales.C_r * bonus, left)
        utility_bonus = aim.optimism if aim.optimism > 0 else scales.utility_bonus
        utilities = task.utilities + np.clip(utility_bonus * bonus, -left, left)
        table, lam = hopeful_policy(P_hat, reward, utilities, amounts(aim.utility), task.initial_state)
        value = float(policy_values(P_hat, reward, utilities[0], table, task.initial_state)[0])
        return Proposal(TablePolicy(table), lam, min(value, float(task.horizon)))

    def _values(self, model: tuple[Array, Array], lams: Array, scales: Scales) -> tuple[float, Array]:
        """V̄ʳ + V̄† and V̲ (m,) at s₁ of π^λ, which is left in the table."""
        task = self._task
        assert task.is_listed
        signals, strays = np.concatenate([task.reward[None], task.utilities]), not self.regression.model.is_dense
        V = several_pass(model[0], signals, model[1], strays, scales, lams, self._table)[:, task.initial_state]
        return float(V[0] + V[1]), V[2:].copy()

    def _model(self) -> tuple[Array, Array]:
        """P̂ (H, S, A, S) and β (H, S, A) at every state."""
        self.regression.prepare(self.scales)
        assert self.regression.is_listed
        return self.regression.tables()


class WeightedPlanner(SoftmaxPlanner):
    """The planner of the task with utility Σ_c v_c u_c, v_c ∝ 1/ξ_c, so that every constraint has the same slack in it.

    Args:
        task: what the learner is told, with several constraints.
        constants, pessimistic, search: as of the planner of one constraint.
    """

    def __init__(
        self, task: AnyTask, constants: Constants, *, pessimistic: bool, search: LamSearch = Bisection()
    ) -> None:
        assert not task.is_listed
        slacks = np.array([one.slack or 1.0 for one in task.constraints])
        self.weights: Array = (1 / slacks) / (1 / slacks).sum()
        super().__init__(task.weighted(self.weights), constants, pessimistic=pessimistic, search=search)

    def changed(self, task: AnyTask, constants: Constants) -> "SoftmaxPlanner":
        """The same, with the weights that the regression was made with."""
        assert not task.is_listed
        return super().changed(task.weighted(self.weights), constants)

    def observe_signals(self, states: Any, actions: IntArray, seen: Array) -> None:
        """Add the reward, and the weighted sum of the utilities `seen` (H, 1 + m)."""
        super().observe_signals(states, actions, np.column_stack([seen[:, 0], seen[:, 1:] @ self.weights]))

    def propose(self, aim: Aim) -> Proposal:
        """The policy of largest hoped-for reward whose weighted utility reaches the aims', or half of the slack."""
        wanted = float(self.weights @ amounts(aim.utility))
        least = self._task.threshold + ROOM * (self._task.slack or 0.0)
        return super().propose(aim._replace(utility=max(wanted, least)))


def hopeful_policy(P: Array, reward: Array, utilities: Array, aims: Array, start: int) -> tuple[Array, float]:
    """About max V^r(s₁) s.t. V_c(s₁) ≥ aim_c for all c, by cutting planes; a table (H, S, A), and Σλ.

    `model_answers.optimum_of_several` is the exact one. Here what misses the aim is paid for by a fictitious policy
    that reaches it and has a reward of −PENALTY, so that there always is an answer.
    """
    signals, m = np.stack([reward, *utilities], axis=-1), len(aims)
    found = [greedy_actions(P, signals, direction) for direction in np.eye(1 + m)]
    for _ in range(ROUNDS):
        points = np.array([np.append(-PENALTY, aims + 1), *(V[start] for _, V in found)])
        rewards, bounds = np.ascontiguousarray(points[:, 0]), np.ascontiguousarray(points[:, 1:])
        weights, lams = solved_program(rewards, bounds, aims, np.ones(len(points), dtype=np.int64))
        actions, V = greedy_actions(P, signals, np.append(1.0, lams))
        if V[start, 0] + lams @ (V[start, 1:] - aims) <= rewards @ weights + ENOUGH * max(1.0, lams.max()):
            break  # no policy is beyond the mixture in this direction
        found.append((actions, V))
    parts = np.flatnonzero(weights[1:]).tolist() or [int(np.argmax(bounds[1:].sum(axis=1)))]
    shares = weights[1:][parts] if weights[1:].any() else np.ones(1)
    tables = [np.eye(reward.shape[2])[found[j][0]] for j in parts]
    mass = np.add.reduce([share * occupancy(P, one, start) for share, one in zip(shares, tables, strict=True)])
    return markov_policy(mass, tables[-1]), float(lams.sum())
