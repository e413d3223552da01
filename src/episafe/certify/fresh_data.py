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

from episafe.certify.base import Deployment
from episafe.checks import TOLERANCE, as_probability
from episafe.errors import InvalidEpisode
from episafe.kernels.confidence_sequence import BETS, lower_bounds
from episafe.kernels.mixing import admits, nudged_until
from episafe.learning.planner import Aim, Proposal
from episafe.learning.policy_arrays import PolicyArrays, saved_distributions
from episafe.problems.policy import Policy, TablePolicy
from episafe.problems.sampled_problem import AnyTask, known_slack
from episafe.problems.task import Task
from episafe.storage.state_reader import Saved, State, under
from episafe.types import Array, IntArray, Level

FIRST_EPOCH, EPOCH_GROWTH = 500, 1.5  # episodes; fixed in advance, as the proof needs
STEPS = (1.0, 0.7, 0.5, 0.35, 0.25, 0.15, 0.1, 0.05, 0.0)  # how far candidates go towards the proposal, boldest first
LEAST_DEVIATION = 0.01  # room for exploring that a certified policy must leave
RIDGE = 0.1  # ρ of the regression on features; any ρ > 0 is valid


@dataclass(frozen=True)
class FreshData:
    """Every deployed policy is Markov with utility at least b, in all episodes at once, with probability 1 − delta.

    It assumes: the transition kernel is linear in the features (or these are one-hot), with ‖∫V dμ‖ ≤ √d max|V|; the
    utility is known and ≥ 0; the states are listed and the first one is fixed; episodes are independent given the
    policy, without drift; every episode is reported, once; the incumbent has V^u ≥ b + slack. There is no coin: each
    policy is safe by itself.

    Args:
        delta: the probability with which some deployed policy may be below b.
    """

    delta: float = 0.05
    name: ClassVar[str] = "fresh-data"
    level: ClassVar[Level] = "theorem"

    def __post_init__(self) -> None:
        object.__setattr__(self, "delta", as_probability("delta", self.delta))

    def begin(self, task: AnyTask) -> "FreshDataCertificate":
        """A certificate for this task: the incumbent, and small deviations from it."""
        if not task.is_listed:
            raise TypeError("FreshData bounds values at every state: it needs listed states; else use Observation")
        return FreshDataCertificate(task, self.delta)

    def settings(self) -> dict[str, str | int | float]:
        """The certifier, its delta and what is proved."""
        statement = (
            f"every deployed policy has expected utility at least b, in all episodes together, with probability "
            f"{1 - self.delta:g}, if the kernel is linear in the features, episodes are independent and alike, each is "
            f"reported once, and the incumbent has b + slack"
        )
        return {"certifier": self.name, "delta": self.delta, "statement": statement}


class FreshDataCertificate:
    """A certified policy π_c with bound L, and an epoch of fixed length in which π_c, deviating, meets a proposal π_x.

    Deployed is (1−ε)π_c + επ_x at every state, with (1−ε)^H L ≥ b: utilities are ≥ 0, so what is earned while nothing
    deviates is enough. When the epoch ends, (1−α)π_c + απ_x is evaluated for each α in `STEPS` on its data, and the
    boldest one that passes is the new π_c. Epoch e = 1, 2, … has δ_e = δ/(e(e+1)), shared by its evaluations.
    """

    def __init__(self, task: Task, delta: float) -> None:
        self.task, self.delta = task, delta
        self.certified: Array = task.safe_policy.table()
        self.bound = task.threshold + known_slack(task)
        self.lam = math.nan
        self.num_epochs = 0
        self.num_certified = 0
        self._proposal: Proposal | None = None
        self._deployed: Deployment | None = None
        self._folds: list[list[tuple[int, int, int]]] = []
        self._num_seen = self._length = 0

    def is_due(self) -> bool:
        """Whether the epoch is over, so that something else may be deployed."""
        return self._num_seen >= self._length

    def wants_candidate(self) -> bool:
        """Whether the epoch is over."""
        return self.is_due()

    def aim(self) -> Aim:
        """b + (ξ/2)(n₁/n_e)^{1/2}, n_e the length of the epoch that follows."""
        return self.task.threshold + known_slack(self.task) / 2 * math.sqrt(EPOCH_GROWTH**-self.num_epochs), 0.0

    def consider(self, proposal: Proposal) -> None:
        """End the epoch, certify what its data allow, and begin the next one with this proposal."""
        if self._proposal is not None:
            self._certify(self._proposal)
        self.num_epochs += 1
        self._proposal = proposal
        num_folds = max(self.task.horizon - 1, 1)
        self._folds = [[] for _ in range(num_folds)]
        self._num_seen = 0
        self._length = num_folds * math.ceil(FIRST_EPOCH * EPOCH_GROWTH ** (self.num_epochs - 1) / num_folds)
        self._deployed = self._deviating(proposal)

    def deployment(self) -> Deployment:
        """The certified policy with as many deviations towards the proposal as its bound allows."""
        assert self._deployed is not None
        return self._deployed

    def weigh(
        self, policy: Policy, states: Any, actions: IntArray, utility: float, reward: float
    ) -> tuple[Policy, Any, IntArray]:
        """The episode as it is; what it says is a transition. What contradicts the task is refused."""
        task = self.task
        if states[0] != task.initial_state:
            raise InvalidEpisode(f"states[0] is {states[0]}, but FreshData is for the fixed start {task.initial_state}")
        told = sum(float(task.utility_at(h, states[h])[action]) for h, action in enumerate(actions.tolist()))
        if not abs(utility - told) <= TOLERANCE * task.horizon:
            raise InvalidEpisode(
                f"the utilities sum to {utility}, and to {told} by the task: FreshData needs a known utility; else use "
                f"Observation"
            )
        return policy, states, actions

    def take_in(self, weighed: tuple[Policy, Any, IntArray]) -> None:
        """Put aside the transition at the step of the fold whose turn it is; episodes of past epochs do not count."""
        policy, states, actions = weighed
        if self._deployed is None or policy is not self._deployed.policy or self.is_due():
            return
        h = self._num_seen % len(self._folds)
        self._folds[h].append((int(states[h]), int(actions[h]), int(states[h + 1])))
        self._num_seen += 1

    def state(self, policies: PolicyArrays) -> State:
        """The certified policy, the epoch and its data."""
        proposal, deployed = self._proposal, self._deployed
        folds = [row for fold in self._folds for row in fold]
        own = {
            "certified": self.certified,
            "bound": self.bound,
            "lam": self.lam,
            "num_epochs": self.num_epochs,
            "num_certified": self.num_certified,
            "proposal": policies.number(None if proposal is None else proposal.policy),
            "promised": np.array([math.nan, math.nan] if proposal is None else [proposal.lam, proposal.reward]),
            "deployed": policies.number(None if deployed is None else deployed.policy),
            "deployed_bounds": np.array([math.nan] * 2 if deployed is None else [deployed.lam, deployed.utility_bound]),
            "transitions": np.array(folds, dtype=np.int64).reshape(-1, 3),
            "fold_sizes": np.array([len(fold) for fold in self._folds], dtype=np.int64),
            "num_seen": self._num_seen,
            "length": self._length,
        }
        return under("certificate", own)

    def restore(self, saved: Saved, policies: Sequence[Policy]) -> None:
        """Fill a new certificate with what `state` said."""
        self.certified = saved_distributions(saved, "certified", self.certified.shape)
        self.bound, self.lam = saved.number("bound"), saved.number("lam", nan=True)
        self.num_epochs, self.num_certified = saved.whole("num_epochs"), saved.whole("num_certified")
        proposed, deployed = (saved.whole(name, -1, len(policies)) for name in ("proposal", "deployed"))
        lam, reward = saved.numbers("promised", (2,), nan=True).tolist()
        deployed_lam, bound = saved.numbers("deployed_bounds", (2,), nan=True).tolist()
        self._num_seen, self._length = saved.whole("num_seen"), saved.whole("length")
        self._restore_folds(saved)
        if (proposed < 0) != (self.num_epochs == 0) or (deployed < 0) != (self.num_epochs == 0):
            saved.refuse("proposal", f"does not fit {self.num_epochs} epochs")
        if self.num_epochs:
            self._proposal = Proposal(policies[proposed], lam, reward)
            self._deployed = Deployment(policies[deployed], "search", deployed_lam, bound)

    def _restore_folds(self, saved: Saved) -> None:
        task, num_folds = self.task, max(self.task.horizon - 1, 1) if self.num_epochs else 0
        n = self._num_seen
        sizes = saved.wholes("fold_sizes", (num_folds,), 0, n + 1)
        rows = saved.wholes("transitions", (n, 3), 0, max(task.num_states, task.num_actions))
        if sizes.sum() != n or n > self._length:
            saved.refuse("fold_sizes", f"does not add up to {n} episodes of {self._length}")
        if (rows >= (task.num_states, task.num_actions, task.num_states)).any():
            saved.refuse("transitions", "has a state or action that the task has not")
        parts = np.split(rows, np.cumsum(sizes)[:-1]) if num_folds else []
        self._folds = [[(s, a, then) for s, a, then in part.tolist()] for part in parts]

    def _certify(self, proposal: Proposal) -> None:
        folds = [np.array(fold, dtype=np.int64).reshape(-1, 3) for fold in self._folds]
        needed = self.task.threshold * (1 - LEAST_DEVIATION) ** -self.task.horizon
        log_term = self._log_term()
        for step in STEPS:
            candidate = (1 - step) * self.certified + step * proposal.policy.table()
            bound = pessimistic_utility(self.task, candidate, folds, log_term)
            if step > 0 and bound >= needed:
                self.certified, self.bound, self.lam = candidate, bound, proposal.lam
                self.num_certified += 1
                return
            if step == 0:
                self.bound = max(self.bound, bound)

    def _log_term(self) -> float:
        """ln(1/δ') with δ' = δ_e / (evaluations · bounds · bets)."""
        e = self.num_epochs
        bets = len(BETS) if self.task.phi is None else 1
        return math.log(e * (e + 1) * len(STEPS) * num_bounds(self.task) * bets / self.delta)

    def _deviating(self, proposal: Proposal) -> Deployment:
        b, H = self.task.threshold, self.task.horizon
        kept = nudged_until(lambda kept: admits(kept**H * self.bound, b), (max(b, 0.0) / self.bound) ** (1 / H))
        table = kept * self.certified + (1 - kept) * proposal.policy.table()
        return Deployment(TablePolicy(table), "search", self.lam, kept**H * self.bound)


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

    ŵ = Λ⁻¹ Σ φ_i V(s'_i),   r = √(ρd) max V + ½(max V − min V) √(ln(det Λ/ρ^d) + 2 ln(1/δ'))
    """
    assert task.phi is not None
    phi, d = task.phi[fold[:, 0], fold[:, 1]], task.dim
    gram = RIDGE * np.eye(d) + phi.T @ phi
    inverse = np.linalg.inv(gram)
    information = np.linalg.slogdet(gram)[1] - d * np.log(RIDGE)
    half_range = (V.max() - V.min()) / 2
    radius = np.sqrt(RIDGE * d) * V.max() + half_range * np.sqrt(information + 2 * log_term)
    width = np.sqrt(np.maximum(np.einsum("sad,de,sae->sa", task.phi, inverse, task.phi), 0))
    bounds: Array = task.phi @ (inverse @ (phi.T @ V[fold[:, 2]])) - radius * width
    return bounds
