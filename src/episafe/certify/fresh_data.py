"""FreshData: a certificate for Markov policies, from an epoch of data that begins after they are fixed.

The bound uses transitions that the policy does not depend on, one fold per step:

    V̲_h(s) = Σ_a π_h(a|s)(u_h(s,a) + L_h(s,a)),   V̲_{H+1} = 0,   L_h(s,a) ≤ P_hV̲_{h+1}(s,a) with probability 1 − δ'

V̲_{h+1} depends only on the folds of later steps. So the transitions of fold h are fresh data for it, and the bound
needs to hold for this one function only.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from episafe.certify.box import transitions
from episafe.certify.evidence import admits
from episafe.certify.trials import PROPOSAL
from episafe.core.agent import Candidate, Certifier, Evidence, Goal, Proposer, promise
from episafe.core.checks import as_probability, require
from episafe.core.policy import TablePolicy
from episafe.core.task import Constraint, TableFeatures, Task
from episafe.core.types import INCUMBENT, Array, Episode, IntArray, Plan, Settings
from episafe.kernels.mixture import ROUNDING
from episafe.linear.theory import require_linear

FIRST_EPOCH, EPOCH_GROWTH = 500, 1.5  # episodes; fixed in advance, as the proof needs
STEPS = (1.0, 0.7, 0.5, 0.35, 0.25, 0.15, 0.1, 0.05, 0.0)  # how far candidates go towards the proposal, boldest first
LEAST_DEVIATION = 0.01  # per step: exploration that the bound of a certified policy must leave possible
RIDGE = 0.1  # ρB²/d of the regression on features; any ρ > 0 is valid, and this one undoes a scaling of features
BETS = 0.9 * 2.0 ** (-0.75 * np.arange(14))  # from bold to 0.001: the best bet is about √(ln(1/δ)/n)
COSTS = -np.log1p(-BETS) - BETS  # ψ(λ)


class FreshData(Certifier):
    """Every deployed policy is Markov and has expected utility at least b by itself, without mixtures.

    A certified policy π_c has the bound L, and π_x is a proposal. In an epoch of fixed length (1−ε)π_c + επ_x is
    deployed. It is safe if (1−ε)^H L ≥ b, because utilities are not negative. At the end of the epoch (1−α)π_c + απ_x
    is evaluated on its data for each α in `STEPS`. The largest α that passes gives the new π_c. Epoch e = 1, 2, … has
    δ_e = δ/(e(e+1)), shared by its evaluations. A user's candidate is π_x in every other epoch, until it is certified
    itself. With probability `delta` some deployed policy may be below b.
    """

    name: ClassVar[str] = "fresh-data"

    def __init__(self, delta: float = 0.05) -> None:
        self.delta = as_probability("delta", delta)
        self.num_epochs = self._length = self._num_seen = 0
        self._given: dict[str, tuple[Array, Array]] = {}  # candidates of users: table, proved bounds (m,)
        self._proposal: Candidate | None = None  # π_x
        self._transitions: list[tuple[int, int, int] | None] = []  # of the epoch's episodes, in deployment order
        self._awaited: dict[int, int] = {}  # deployments without a report: which of the epoch's episodes they are
        self._plan: Plan | None = None
        self._incomplete, self._num_made = False, 0  # each plan that was made has a name of its own

    def start(self, task: Task) -> None:
        """Begin with the incumbent; raise if the task cannot have a linear kernel with its norm bound."""
        text = "FreshData needs listed states and known utilities: use es.certify.Observation instead"
        require(task.utilities is not None, text)
        require_linear(task)
        super().start(task)
        self._num_folds = max((task.horizon or 1) - 1, 1)  # the last step leads nowhere
        self.certified, self.bound, self.lam = task.incumbent.table(), task.thresholds + task.slacks, math.nan

    def settings(self) -> Settings:
        """Return delta and the statement."""
        assumes = (
            "the states are listed and Markov, and the first one is fixed; the utility is known and not negative; the "
            "features are one-hot, or the kernel is linear in them, P = φᵀμ, with ‖Σ μ(s')g(s')‖ <= norm_bound · max g "
            f"for every g >= 0 (norm_bound {self.task.norm_bound:g}); episodes are independent given the policy, "
            "without drift; the incumbent's expected utility is at least threshold + slack; reports are true. The "
            "length of every epoch is fixed in advance. Reports may be late; an epoch that misses one certifies nothing"
        )
        return promise(self.name, self.delta, assumes, "policy")

    def goal(self) -> Goal | None:
        """Return b + (ξ/2)(n₁/n_e)^{1/2} when the epoch is over, where n_e is the length of the next one."""
        if self.invalid_reason or not (self._incomplete or self._num_seen >= self._length):
            return None
        return Goal(self.task.thresholds + self.task.slacks / 2 * math.sqrt(EPOCH_GROWTH**-self.num_epochs))

    def consult(self, proposer: Proposer) -> Candidate | None:
        """Return the proposal of the next epoch."""
        candidate = super().consult(proposer)
        return None if candidate is None else replace(candidate, name=f"{PROPOSAL}{self.num_epochs + 1}")

    def add(self, candidate: Candidate) -> None:
        """End the epoch, certify what its data allow, and begin the next one; a user's candidate waits for its turn."""
        if not candidate.name.startswith(PROPOSAL):
            self._given[candidate.name] = candidate.policy.table(), np.zeros(self.task.num_constraints)
            return
        if self._proposal is not None and not self._incomplete:
            self._certify(self._proposal)
        self.num_epochs += 1
        waiting = [name for name, (_, bound) in self._given.items() if not admits(bound, self.task.thresholds)]
        if waiting and self.num_epochs % 2:
            name = waiting[self.num_epochs // 2 % len(waiting)]
            candidate = Candidate(name, TablePolicy(self._given[name][0], name))
        length = FIRST_EPOCH * EPOCH_GROWTH ** (self.num_epochs - 1)
        self._proposal, self._length = candidate, self._num_folds * math.ceil(length / self._num_folds)
        self._transitions, self._awaited, self._num_seen, self._incomplete, self._plan = [], {}, 0, False, None

    def _certify(self, proposal: Candidate) -> None:
        """Evaluate the steps towards π_x on the epoch's data; the boldest one that passes is certified."""
        H, m, table = self.task.horizon or 1, self.task.num_constraints, proposal.policy.table()
        rows = np.array(self._transitions, dtype=np.int64).reshape(-1, 3)
        folds = [rows[h :: self._num_folds] for h in range(self._num_folds)]
        e, needed = self.num_epochs, self.task.thresholds * (1 - LEAST_DEVIATION) ** -H
        # one bound per step with features, else per step, state, action and bet
        num_bounds = self._num_folds * (self.task.dim * len(BETS) if self.task.one_hot else 1)
        log_term = math.log(e * (e + 1) * len(STEPS) * m * num_bounds / self.delta)
        for step in STEPS:
            candidate = (1 - step) * self.certified + step * table
            bound = np.array([pessimistic_utility(self.task, c, candidate, folds, log_term) for c in range(m)])
            if step == 1 and proposal.name in self._given:
                self._given[proposal.name] = table, np.maximum(self._given[proposal.name][1], bound)
            if step > 0 and (bound >= needed).all():
                self.certified, self.bound, self.lam = candidate, bound, proposal.lam
                return
        self.bound = np.maximum(self.bound, bound)  # the last step is π_c itself

    def plan(self) -> Plan:
        """Return π_c with as many deviations towards π_x as its bound allows; the same plan until something changes."""
        b, H, nudge = self.task.thresholds, self.task.horizon or 1, 0.0
        if self.invalid_reason or self._proposal is None:
            return self.fallback(self.invalid_reason or "no epoch has begun")
        if self._plan is None:
            least = float(np.max(np.maximum(b, 0.0) / self.bound)) ** (1 / H)
            while not admits(min(least + nudge, 1.0) ** H * self.bound, b):
                nudge = 2 * nudge + ROUNDING
            kept, self._num_made = min(least + nudge, 1.0), self._num_made + 1
            table = kept * self.certified + (1 - kept) * self._proposal.policy.table()
            policy = TablePolicy(table, f"{self.name}-{self._num_made}")
            self._plan = Plan(policy, "search", kept**H * self.bound, self.level, lam=self.lam)
        return self._plan

    def proves(self, plan: Plan) -> Array:
        """Return the bounds (m,) of a plan, which it recognises by its table."""
        own, given = self.plan(), plan.policy
        listed = isinstance(given, TablePolicy) and isinstance(own.policy, TablePolicy) and plan.source != "safe"
        if listed and np.allclose(given.table(), own.policy.table(), rtol=0, atol=1e-12):
            return own.bounds
        return super().proves(plan)

    def deployed(self, deployment: int, plan: Plan, component: int | None = None) -> None:
        """Count a deployment as the next episode of the epoch, unless the epoch is full."""
        if plan.source != "safe" and not self._incomplete and len(self._transitions) < self._length:
            self._awaited[deployment] = len(self._transitions)
            self._transitions.append(None)

    def abandoned(self, deployment: int) -> None:
        """End the epoch without a certificate, because missing reports may depend on their content."""
        self._incomplete = self._incomplete or deployment in self._awaited

    def evidence(self, deployment: int, episode: Episode) -> Evidence:
        """Return the episode itself; raise InvalidEpisode if it contradicts the task."""
        return transitions("FreshData", self.task, episode)

    def apply(self, deployment: int, evidence: Evidence) -> None:
        """Keep the transition at the step of the episode's fold; episodes of past epochs do not count."""
        k, episode = self._awaited.pop(deployment, None), evidence.episode
        if k is not None and episode is not None:
            h, self._num_seen = k % self._num_folds, self._num_seen + 1
            self._transitions[k] = int(episode.states[h]), int(episode.actions[h]), int(episode.states[h + 1])

    def bounds(self) -> dict[str, Array]:
        """Return the stated bounds of the incumbent and the proved bounds of the users' candidates, (m,)."""
        proved = {name: bound.copy() for name, (_, bound) in self._given.items()}
        return {INCUMBENT: self.task.thresholds + self.task.slacks} | proved

    def promote(self, name: str) -> None:
        """Replace π_c by a certified candidate or the incumbent; the current epoch then certifies nothing."""
        bound = self.bounds().get(name, np.zeros(0))
        if not admits(bound, self.task.thresholds):
            raise ValueError(f"{name!r} is not proved to reach the limits: promote one of {self.bounds()} that is")
        table = self.task.incumbent.table() if name == INCUMBENT else self._given[name][0]
        # a choice that may depend on the epoch's data must not be evaluated on them
        self._incomplete = self._incomplete or not np.array_equal(table, self.certified)
        self.certified, self.bound, self.lam, self._plan = table, bound, math.nan, None

    def withdraw(self, name: str) -> None:
        """Remove a user's candidate; if it is π_x, the epoch ends without a certificate."""
        self.require_on_trial(name)
        del self._given[name]
        if self._proposal is not None and self._proposal.name == name:
            self._proposal, self._incomplete, self._plan = None, True, None

    def change(self, constraints: Sequence[Constraint]) -> None:
        """Use other limits from now on; the incumbent replaces a certified policy that does not reach them."""
        self.task, self._plan = replace(self.task, constraints=tuple(constraints)), None
        if np.array_equal(self.certified, self.task.incumbent.table()) or not admits(self.bound, self.task.thresholds):
            self.promote(INCUMBENT)

    def void(self, reason: str) -> None:
        """Deploy the incumbent alone from now on."""
        super().void(reason)
        self._plan = None


def pessimistic_utility(task: Task, c: int, table: Array, folds: Sequence[IntArray], log_term: float) -> float:
    """Return V̲_1(s₁) of a policy (H, S, A) for limit c; fold h has rows (s, a, s') of step h; log_term = ln(1/δ')."""
    assert task.utilities is not None
    H, V = len(table), np.zeros(table.shape[1])
    for h in reversed(range(H)):
        Q = task.utilities[c, h].copy()
        if h < H - 1:
            bound = _bound_by_features if isinstance(task.features, TableFeatures) else _bound_by_counts
            Q += np.clip(bound(task, folds[h], V, log_term), V.min(), V.max())
        V = np.einsum("sa,sa->s", table[h], Q)
    return float(V[task.initial_state])


def _bound_by_counts(task: Task, fold: IntArray, V: Array, log_term: float) -> Array:
    """Return L(s,a) (S, A) from the values X = V(s') − min V ≥ 0 that followed each pair.

    For a bet λ every mean μ with Σ ln(1 + λ(X/μ − 1)) ≥ ln(1/δ') is refuted. By ln(1 + λz) ≥ λz − ψ(λ)z², z ≥ −1,
    that holds if −ψΣX² x² + (λ + 2ψ)ΣX x − (λ + ψ)n ≥ ln(1/δ'), x = 1/μ: the bound is 1/x for its smaller root.
    """
    n, first, second = (np.zeros((len(V), task.num_actions or 1)) for _ in range(3))
    values = (V - V.min())[fold[:, 2]]
    for sums, added in ((n, np.ones(len(values))), (first, values), (second, values**2)):
        np.add.at(sums, (fold[:, 0], fold[:, 1]), added)
    square, linear = COSTS * second[..., None], (BETS + 2 * COSTS) * first[..., None]
    constant = (BETS + COSTS) * n[..., None] + log_term
    discriminant = linear**2 - 4 * square * constant
    found = (linear + np.sqrt(np.maximum(discriminant, 0))) / (2 * constant)
    return V.min() + np.where((linear > 0) & (discriminant >= 0), found, 0.0).max(axis=-1)


def _bound_by_features(task: Task, fold: IntArray, V: Array, log_term: float) -> Array:
    """Return L(s,a) = φᵀŵ − r‖φ‖_{Λ⁻¹}, (S, A), with the self-normalised radius for the one function V:

    ŵ = Λ⁻¹ Σ φ_i V(s'_i),   r = √ρ B max V + ½(max V − min V) √(ln(det Λ/ρ^d) + 2 ln(1/δ')),   ρ = 0.1 d/B²
    """
    assert isinstance(task.features, TableFeatures) and task.norm_bound is not None
    phi, d = task.features.phi, task.dim
    met, ridge = phi[fold[:, 0], fold[:, 1]], RIDGE * d / task.norm_bound**2
    gram = ridge * np.eye(d) + met.T @ met
    gram_inv = np.linalg.inv(gram)
    information = np.linalg.slogdet(gram)[1] - d * np.log(ridge)
    radius = np.sqrt(RIDGE * d) * V.max() + (V.max() - V.min()) / 2 * np.sqrt(information + 2 * log_term)
    width = np.sqrt(np.maximum(np.einsum("sad,de,sae->sa", phi, gram_inv, phi), 0))
    return phi @ (gram_inv @ (met.T @ V[fold[:, 2]])) - radius * width
