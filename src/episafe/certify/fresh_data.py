"""A certificate for Markov policies: their utility is bounded from an epoch of data that they were fixed before.

The bound is from transitions that the policy does not depend on, one fold a step:

    V̲_h(s) = Σ_a π_h(a|s)(u_h(s,a) + L_h(s,a)),   V̲_{H+1} = 0,   L_h(s,a) ≤ P_hV̲_{h+1}(s,a) with probability 1 − δ'

V̲_{h+1} is a function of the folds of later steps alone, so the transitions of fold h are fresh to it: the bound need
hold for one function, where the paper's holds for all that its algorithm might ever meet. docs/theory-certificates.md.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from episafe.certify.base import INCUMBENT, Deployable, ReportedEpisode, require_told
from episafe.checks import as_probability
from episafe.kernels.confidence_sequence import BETS, lower_bounds
from episafe.kernels.mixing import admits_all, nudged_until
from episafe.learning.planner import Aim, Proposal
from episafe.learning.policy_arrays import PolicyArrays, saved_distributions
from episafe.problems.policy import Policy, TablePolicy
from episafe.problems.sampled_problem import AnyTask, known_slacks, linear_norm_bound
from episafe.problems.task import Task
from episafe.storage.state_reader import Saved, State, under
from episafe.types import Amount, Array, IntArray, Level, amount, amounts, every_constraint

FIRST_EPOCH, EPOCH_GROWTH = 500, 1.5  # episodes; fixed in advance, as the proof needs
STEPS = (1.0, 0.7, 0.5, 0.35, 0.25, 0.15, 0.1, 0.05, 0.0)  # how far candidates go towards the proposal, boldest first
LEAST_DEVIATION = 0.01  # room for exploring that a certified policy must leave
RIDGE = 0.1  # ρB²/d of the regression on features; any ρ > 0 is valid, and this one undoes a scaling of features


@dataclass(frozen=True)
class FreshData:
    """Every deployed policy is Markov with utility at least b, in all episodes at once, with probability 1 − delta.

    It assumes: features are one-hot, or P_h(s'|s,a) = φ(s,a)ᵀμ_h(s') with ‖Σ_s' μ_h(s') g(s')‖ ≤ B max g for every
    g ≥ 0, B the task's `norm_bound`; the utility is known and ≥ 0; the states are listed and the first one is fixed;
    episodes are independent given the policy, without drift; the incumbent has V^u ≥ b + slack. Reports as for
    `Observation`; an epoch that misses one certifies nothing. There is no coin: each policy is safe by itself.

    Args:
        delta: the probability with which some deployed policy may be below b.
    """

    delta: float = 0.05
    name: ClassVar[str] = "fresh-data"
    level: ClassVar[Level] = "theorem"
    needs_linear_kernel: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "delta", as_probability("delta", self.delta))

    def begin(self, task: AnyTask) -> "FreshDataCertificate":
        """A certificate for this task: the incumbent, and small deviations from it."""
        if not task.is_listed:
            raise TypeError("FreshData bounds values at every state: it needs listed states; else use Observation")
        linear_norm_bound(task)
        return FreshDataCertificate(task, self.delta)

    def settings(self) -> dict[str, str | int | float]:
        """The certifier, its delta and what is proved."""
        statement = (
            f"every deployed policy has expected utility at least b, in all episodes together, with probability "
            f"{1 - self.delta:g}, if the features are one-hot, or the kernel is linear in them, P = φᵀμ, with "
            f"‖Σ μ(s')g(s')‖ <= norm_bound · max g for every g >= 0; if episodes are independent and alike, and the "
            f"incumbent has b + slack; reports may be late or lost in a session, which counts deployments, and without "
            f"one each comes once"
        )
        return {"certifier": self.name, "delta": self.delta, "statement": statement}


class FreshDataCertificate:
    """A certified policy π_c with bound L, and an epoch of fixed length in which π_c, deviating, meets a proposal π_x.

    Deployed is (1−ε)π_c + επ_x at every state, with (1−ε)^H L ≥ b: utilities are ≥ 0, so what is earned while nothing
    deviates is enough. When the epoch ends, (1−α)π_c + απ_x is evaluated for each α in `STEPS` on its data, and the
    boldest one that passes is the new π_c. Epoch e = 1, 2, … has δ_e = δ/(e(e+1)), shared by its evaluations.

    A candidate of somebody else is π_x in every other epoch, in turn with others, until it is itself certified.
    """

    needs_names: ClassVar[bool] = True  # the fold of an episode must not depend on what came of it

    def __init__(self, task: Task, delta: float) -> None:
        self.task, self.delta = task, delta
        self.certified: Array = task.safe_policy.table()
        self._each = [task.of_constraint(c) for c in range(task.num_constraints)]
        self.bound: Amount = self._known
        self.lam = math.nan
        self.num_epochs = 0
        self.num_certified = 0
        self._candidates: dict[str, tuple[Policy, Amount]] = {}  # of somebody else, and what is proved of each
        self._proposal: Proposal | None = None
        self._deployed: Deployable | None = None
        self._length = self._num_seen = 0
        self._transitions: list[tuple[int, int, int] | None] = []  # of the epoch's episodes, in their order
        self._awaited: dict[int, int] = {}  # deployments without a report: which of the epoch's episodes they are
        self._void = False  # whether a report will never come, so that the epoch certifies nothing

    @property
    def _known(self) -> Amount:
        """What the incumbent is known to have, b + ξ."""
        return self.task.limits + amount(known_slacks(self.task))

    def is_due(self) -> bool:
        """Whether the epoch is over, so that something else may be deployed."""
        return self._void or self._num_seen >= self._length

    def wants_candidate(self) -> bool:
        """Whether the epoch is over."""
        return self.is_due()

    def aim(self) -> Aim:
        """b + (ξ/2)(n₁/n_e)^{1/2}, n_e the length of the epoch that follows."""
        half = amount(known_slacks(self.task)) / 2
        return Aim(self.task.limits + half * math.sqrt(EPOCH_GROWTH**-self.num_epochs))

    def consider(self, proposal: Proposal) -> None:
        """End the epoch, certify what its data allow, and begin the next one with this proposal."""
        if self._proposal is not None and not self._void:
            self._certify(self._proposal)
        self.num_epochs += 1
        self._proposal = proposal = self._next_candidate() or proposal
        num_folds = self._num_folds()
        self._transitions, self._awaited, self._void, self._num_seen = [], {}, False, 0
        self._length = num_folds * math.ceil(FIRST_EPOCH * EPOCH_GROWTH ** (self.num_epochs - 1) / num_folds)
        self._deployed = self._deviating(proposal)

    def add(self, candidate: Policy) -> None:
        """Let a policy of somebody else be a proposal, from the next epoch on."""
        self._candidates[candidate.name] = candidate, every_constraint(0.0, self.task.num_constraints)

    def _next_candidate(self) -> Proposal | None:
        """The candidate whose turn it is; None where it is the planner's, or all are certified."""
        waiting = [policy for policy, bound in self._candidates.values() if np.any(bound < self.task.limits)]
        turn, planners = divmod(self.num_epochs - 1, 2)
        return None if planners or not waiting else Proposal(waiting[turn % len(waiting)], math.nan, math.nan)

    def deployment(self) -> Deployable:
        """The certified policy with as many deviations towards the proposal as its bound allows."""
        assert self._deployed is not None
        return self._deployed

    def judge(self, policy: Policy, outcome: ReportedEpisode) -> tuple[Policy, int | None, Any, IntArray]:
        """The episode as it is; what it says is a transition. What contradicts the task is refused."""
        return policy, outcome.deployment, *require_told("FreshData", self.task, outcome)

    def expect(self, policy: Policy, deployment: int, plan_id: int) -> None:
        """Make a deployment the next episode of the epoch, if it wants more."""
        if self._belongs(policy):
            self._awaited[deployment] = len(self._transitions)
            self._transitions.append(None)

    def abandon(self, deployment: int) -> None:
        """An epoch without all of its episodes certifies nothing: which are missing may depend on their outcomes."""
        self._void = self._void or deployment in self._awaited

    def bounds(self) -> dict[str, Amount]:
        """What is proved of the incumbent, of what was certified in its place, and of each candidate."""
        known = self._known
        proved = {name: bound for name, (_, bound) in self._candidates.items()}
        return {INCUMBENT: known} | ({"certified": self.bound} if self.num_certified else {}) | proved

    def take_in(self, weighed: tuple[Policy, int | None, Any, IntArray]) -> None:
        """Put aside the transition at the step of the fold whose turn it is; episodes of past epochs do not count."""
        policy, deployment, states, actions = weighed
        if deployment is None and self._belongs(policy):
            k = len(self._transitions)
            self._transitions.append(None)
        elif deployment in self._awaited:
            k = self._awaited.pop(deployment)
        else:
            return
        h = k % self._num_folds()
        self._transitions[k] = int(states[h]), int(actions[h]), int(states[h + 1])
        self._num_seen += 1

    def _belongs(self, policy: Policy) -> bool:
        """Whether a deployment made now is an episode of the epoch: its length is fixed beforehand."""
        deployed = self._deployed is not None and policy is self._deployed.policy
        return deployed and not self._void and len(self._transitions) < self._length

    def _num_folds(self) -> int:
        return max(self.task.horizon - 1, 1)

    def lose(self, num_candidates: int) -> None:
        """End the epoch and certify nothing: deployments are lost, and with them up to so many epochs and their δ_e."""
        self.num_epochs += num_candidates
        self._proposal = self._deployed = None
        self._transitions, self._awaited, self._void = [], {}, False
        self._num_seen = self._length = 0

    def state(self, policies: PolicyArrays) -> State:
        """The certified policy, the epoch and its data."""
        proposal, deployed = self._proposal, self._deployed
        rows = [(-1, -1, -1) if row is None else row for row in self._transitions]
        nothing = every_constraint(math.nan, self.task.num_constraints)
        own = {
            "certified": self.certified,
            "bound": self.bound,
            "lam": self.lam,
            "num_epochs": self.num_epochs,
            "num_certified": self.num_certified,
            "proposal": policies.number(None if proposal is None else proposal.policy),
            "candidates": np.array([policies.number(one) for one, _ in self._candidates.values()], dtype=np.int64),
            "candidate_bounds": np.array([bound for _, bound in self._candidates.values()]).reshape(
                len(self._candidates), *np.shape(self.bound)
            ),
            "promised": np.array([math.nan, math.nan] if proposal is None else [proposal.lam, proposal.reward]),
            "deployed": policies.number(None if deployed is None else deployed.policy),
            "deployed_bounds": np.append(
                *((math.nan, nothing) if deployed is None else (deployed.lam, deployed.utility_bound))
            ),
            "num_episodes": len(rows),
            "transitions": np.array(rows, dtype=np.int64).reshape(-1, 3),
            "awaited": np.array(list(self._awaited.items()), dtype=np.int64).reshape(-1, 2),
            "void": self._void,
            "length": self._length,
        }
        return under("certificate", own)

    def restore(self, saved: Saved, policies: Sequence[Policy]) -> None:
        """Fill a new certificate with what `state` said."""
        self.certified = saved_distributions(saved, "certified", self.certified.shape)
        m = self.task.num_constraints
        self.bound = saved.number("bound") if m == 1 else saved.numbers("bound", (m,)).copy()
        self.lam = saved.number("lam", nan=True)
        self.num_epochs, self.num_certified = saved.whole("num_epochs"), saved.whole("num_certified")
        proposed, deployed = (saved.whole(name, -1, len(policies)) for name in ("proposal", "deployed"))
        lam, reward = saved.numbers("promised", (2,), nan=True).tolist()
        deployed_lam, *bound = saved.numbers("deployed_bounds", (1 + m,), nan=True).tolist()
        self._length, self._void = saved.whole("length"), bool(saved.flags("void", ()))
        self._restore_candidates(saved, policies)
        self._restore_epoch(saved)
        begun = self._length > 0
        if (proposed >= 0, deployed >= 0, begun and self.num_epochs > 0) != (begun, begun, begun):
            saved.refuse("proposal", f"does not fit an epoch of {self._length} episodes")
        if begun:
            self._proposal = Proposal(policies[proposed], lam, reward)
            self._deployed = Deployable(policies[deployed], "search", deployed_lam, amount(bound))

    def _restore_candidates(self, saved: Saved, policies: Sequence[Policy]) -> None:
        rows = saved.wholes("candidates", (None,), 0, len(policies)).tolist()
        several = () if self.task.num_constraints == 1 else (self.task.num_constraints,)
        bounds = saved.numbers("candidate_bounds", (len(rows), *several), least=0)
        for i, bound in zip(rows, bounds, strict=True):
            self._candidates[policies[i].name] = policies[i], amount(np.atleast_1d(bound))

    def _restore_epoch(self, saved: Saved) -> None:
        task = self.task
        rows = saved.wholes("transitions", (saved.whole("num_episodes"), 3), -1, max(task.num_states, task.num_actions))
        awaited = saved.wholes("awaited", (None, 2), 0, 2**62).tolist()
        absent = np.asarray((rows < 0).all(axis=1))
        if len(rows) > self._length or sorted(k for _, k in awaited) != np.flatnonzero(absent).tolist():
            saved.refuse("awaited", f"does not say which of {len(rows)} episodes of {self._length} are not reported")
        if (rows[~absent] < 0).any() or (rows >= (task.num_states, task.num_actions, task.num_states)).any():
            saved.refuse("transitions", "has a state or action that the task has not")
        self._transitions = [
            None if gone else tuple(row) for gone, row in zip(absent.tolist(), rows.tolist(), strict=True)
        ]
        self._awaited, self._num_seen = dict(awaited), int((~absent).sum())

    def _certify(self, proposal: Proposal) -> None:
        rows = np.array(self._transitions, dtype=np.int64).reshape(-1, 3)
        folds = [rows[h :: self._num_folds()] for h in range(self._num_folds())]
        needed = self.task.limits * (1 - LEAST_DEVIATION) ** -self.task.horizon
        log_term = self._log_term()
        for step in STEPS:
            candidate = (1 - step) * self.certified + step * proposal.policy.table()
            bound = amount([pessimistic_utility(one, candidate, folds, log_term) for one in self._each])
            if step == 1 and proposal.policy.name in self._candidates:
                self._note(proposal.policy.name, bound)
            if step > 0 and np.all(bound >= needed):
                self.certified, self.bound, self.lam = candidate, bound, proposal.lam
                self.num_certified += 1
                return
            if step == 0:
                self.bound = amount(np.maximum(amounts(self.bound), amounts(bound)))

    def _note(self, name: str, bound: Amount) -> None:
        """A candidate itself, and no step towards it, was bounded."""
        policy, before = self._candidates[name]
        self._candidates[name] = policy, amount(np.maximum(amounts(before), amounts(bound)))

    def _log_term(self) -> float:
        """ln(1/δ') with δ' = δ_e / (evaluations · constraints · bounds · bets)."""
        e = self.num_epochs
        bets = len(BETS) if self.task.phi is None else 1
        evaluations = len(STEPS) * self.task.num_constraints
        return math.log(e * (e + 1) * evaluations * num_bounds(self.task) * bets / self.delta)

    def _deviating(self, proposal: Proposal) -> Deployable:
        b, H = self.task.limits, self.task.horizon
        least = float(np.max(np.maximum(amounts(b), 0.0) / amounts(self.bound))) ** (1 / H)
        kept = nudged_until(lambda kept: admits_all(kept**H * self.bound, b), least)
        table = kept * self.certified + (1 - kept) * proposal.policy.table()
        return Deployable(TablePolicy(table), "search", self.lam, kept**H * self.bound)


def pessimistic_utility(task: Task, table: Array, folds: Sequence[IntArray], log_term: float) -> float:
    """V̲_1(s₁) of a policy `table` (H, S, A); fold h is an array (n, 3) of (s, a, s') at step h; log_term = ln(1/δ').

    δ' is the probability with which one bound may fail: of a step for features, of a (step, state, action) for one-hot
    ones.
    """
    V_next = np.zeros(task.num_states)
    for h in reversed(range(task.horizon)):
        Q = task.utility[h].copy()
        if h < task.horizon - 1:
            bound = _bound_by_counts if task.phi is None else _bound_by_features
            Q += np.clip(bound(task, folds[h], V_next, log_term), V_next.min(), V_next.max())
        V_next = np.einsum("sa,sa->s", table[h], Q)
    return float(V_next[task.initial_state])


def num_bounds(task: Task) -> int:
    """How many bounds one evaluation rests on."""
    steps = max(task.horizon - 1, 1)
    return steps if task.phi is not None else steps * task.num_states * task.num_actions


def _bound_by_counts(task: Task, fold: IntArray, V: Array, log_term: float) -> Array:
    """L(s,a) (S, A): min V plus the bound of `sequence` on V − min V ≥ 0, each pair by itself, every share 1."""
    n, first, second = (np.zeros((task.num_states, task.num_actions)) for _ in range(3))
    states, actions, values = fold[:, 0], fold[:, 1], (V - V.min())[fold[:, 2]]
    np.add.at(n, (states, actions), 1.0)
    np.add.at(first, (states, actions), values)
    np.add.at(second, (states, actions), values**2)
    sums = np.stack([first, n, second, first, n, np.zeros_like(n)], axis=-1).reshape(-1, 6)
    bounds: Array = V.min() + lower_bounds(sums, log_term).reshape(n.shape)
    return bounds


def _bound_by_features(task: Task, fold: IntArray, V: Array, log_term: float) -> Array:
    """L(s,a) = φᵀŵ − r‖φ‖_{Λ⁻¹}, (S, A), with the self-normalised radius for the one function V:

    ŵ = Λ⁻¹ Σ φ_i V(s'_i),   r = √ρ B max V + ½(max V − min V) √(ln(det Λ/ρ^d) + 2 ln(1/δ')),   ρ = 0.1 d/B²
    """
    assert task.phi is not None
    phi, d = task.phi[fold[:, 0], fold[:, 1]], task.dim
    ridge = RIDGE * (math.sqrt(d) / task.norm_bound) ** 2
    gram = ridge * np.eye(d) + phi.T @ phi
    inverse = np.linalg.inv(gram)
    information = np.linalg.slogdet(gram)[1] - d * np.log(ridge)
    half_range = (V.max() - V.min()) / 2
    radius = np.sqrt(RIDGE * d) * V.max() + half_range * np.sqrt(information + 2 * log_term)
    width = np.sqrt(np.maximum(np.einsum("sad,de,sae->sa", task.phi, inverse, task.phi), 0))
    bounds: Array = task.phi @ (inverse @ (phi.T @ V[fold[:, 2]])) - radius * width
    return bounds
