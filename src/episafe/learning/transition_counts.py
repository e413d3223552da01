"""What tabular agents learn: how often each (h, s, a) led to each s', the radii that are made of it, and a multiplier
that some of them step once a plan."""

import copy
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from episafe.checks import as_probability, as_scale, as_whole
from episafe.kernels.extended_value_iteration import KernelBox, confidence_box
from episafe.problems.task import Task
from episafe.storage.state_reader import Saved, State, under
from episafe.types import Array, IntArray

Choice = Callable[[int, Array], Array]  # (h, Q (2, S, A)) ↦ π_h (S, A)


@dataclass(frozen=True)
class Confidence:
    """What a published radius is made of beside the counts.

    Attributes:
        num_episodes: K, in its logarithms; None where they have none.
        delta: δ, the probability with which it may fail.
        bonus: by which every bonus is multiplied; at 1 it is the published one.
    """

    num_episodes: int | None
    delta: float
    bonus: float

    def __post_init__(self) -> None:
        if self.num_episodes is not None:
            object.__setattr__(self, "num_episodes", as_whole("num_episodes", self.num_episodes, 1))
        object.__setattr__(self, "delta", as_probability("delta", self.delta))
        object.__setattr__(self, "bonus", as_scale("bonus", self.bonus))

    def said(self) -> dict[str, Any]:
        """K, where there is one, δ and the multiplier, by the names that agents are given them by."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def log_term(self, count: float) -> float:
        """ln(count·K/δ)."""
        assert self.num_episodes is not None
        return math.log(count * self.num_episodes / self.delta)


@dataclass(frozen=True)
class Radius:
    """Half-width of the kernel's box, γ = min{cap, deviation·√(p̂(1−p̂)/(n∨1)) + bias/(n∨1)}.

    The default is the paper's, without constants or logarithms, plus the 1/(n∨1) of the released code: the text's
    radius alone is 0 after one visit, and so no confidence set.
    """

    deviation: float = 1.0
    bias: float = 1.0
    cap: float = math.inf

    def __post_init__(self) -> None:
        for name in ("deviation", "bias", "cap"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be >= 0, got {getattr(self, name)!r}")

    @classmethod
    def authors(cls, task: Task, num_episodes: int, delta: float = 0.05, bonus: float = 1.0) -> "Radius":
        """Bura et al.'s own: min{1, √(4p̂(1−p̂)L/(n∨1)) + 14L/(3(n∨1))} times `bonus`, L = ln(2SAHK/δ)."""
        log_term = Confidence(num_episodes, delta, bonus).log_term(2 * _num_triples(task))
        return cls(bonus * math.sqrt(4 * log_term), bonus * 14 * log_term / 3, bonus)

    @classmethod
    def efroni(cls, task: Task, said: Confidence) -> "Radius":
        """After Efroni et al.: 2√(p̂(1−p̂)L/(n∨1)) + 14L/(3(n∨1)) times `bonus`, L = ln(6SAHK/δ)."""
        log_term = said.log_term(6 * _num_triples(task))
        return cls(said.bonus * 2 * math.sqrt(log_term), said.bonus * 14 * log_term / 3)


class TransitionCounts:
    """n_h(s, a, s') of all episodes, as a learner that agents share.

    Args:
        task: what the learner is told; its states are listed.

    Attributes:
        times, visits: n_h(s, a, s'), shape (H, S, A, S), and n_h(s, a), shape (H, S, A).
    """

    def __init__(self, task: Task) -> None:
        if not task.is_listed:
            raise TypeError("it counts every (s, a, s'): it needs a task with listed states, as of LinearCMDP")
        self._task = task
        self.times: Array = np.zeros((*task.reward.shape, task.num_states))
        self.visits: Array = np.zeros(task.reward.shape)
        self.num_learned = 0

    @property
    def information(self) -> Array:
        """ln(n_h(s, a) ∨ 1), shape (H, S, A)."""
        return np.log(np.maximum(self.visits, 1))

    def kernel(self) -> Array:
        """P̂_h(s'|s,a) = n_h(s,a,s')/n_h(s,a), shape (H, S, A, S); uniform where nothing was seen."""
        P_hat = self.times / np.maximum(self.visits, 1)[..., None]
        P_hat[self.visits == 0] = 1 / self._task.num_states
        return P_hat

    def box(self, radius: Radius) -> KernelBox:
        """P̂ ± γ, and Σ_{s'} γ."""
        return KernelBox(*confidence_box(self.times, radius.deviation, radius.bias, radius.cap))

    def observe(self, states: Any, actions: IntArray) -> None:
        """Count one episode."""
        at = np.arange(self._task.horizon), states[:-1], actions
        self.times[*at, states[1:]] += 1
        self.visits[at] += 1
        self.num_learned += 1

    def check_length(self, num_episodes: int) -> None:
        """Any number of episodes more is counted."""

    def state(self) -> State:
        """The counts as named arrays."""
        return under("counts", {"times": self.times, "num_episodes": self.num_learned})

    def restored(self, saved: Saved) -> Self:
        """Counts like these that were stored; these are not changed."""
        saved, made = saved.under("counts"), copy.copy(self)
        made.times = saved.numbers("times", self.times.shape, least=0)
        made.visits = made.times.sum(axis=-1)
        made.num_learned = saved.whole("num_episodes")
        return made

    def settings(self) -> dict[str, str | int | float]:
        """Nothing: counts are counts."""
        return {}

    def arguments(self) -> dict[str, Any]:
        """Nothing beside the task."""
        return {}


def _num_triples(task: Task) -> int:
    """S·A·H."""
    return task.num_states * task.num_actions * task.horizon


class DualCounts(TransitionCounts):
    """The counts and the multiplier λ ≥ 0, 0 at first."""

    lam = 0.0

    def step(self, size: float, shortfall: float) -> None:
        """λ ← [λ + size·shortfall]₊."""
        self.lam = max(0.0, self.lam + size * shortfall)

    def state(self) -> State:
        """Counts and multiplier as named arrays."""
        return super().state() | under("dual", {"lam": np.float64(self.lam)})

    def restored(self, saved: Saved) -> Self:
        """Those that were stored; these are not changed."""
        made = super().restored(saved)
        made.lam = float(saved.under("dual").numbers("lam", (), least=0))
        return made


def clipped_pass(P: Array, signals: Array, limits: Array, choose: Choice) -> tuple[Array, Array, Array]:
    """Q^g_h = min{g + PV^g_{h+1}, limits_h}, V^g_h = Σ_a π(a|s) Q^g_h, for both signals g and a π chosen by Q.

    Args:
        P: (H, S, A, S).
        signals: reward and utility (2, H, S, A).
        limits: (H,).
        choose: π_h by what is known at step h.

    Returns:
        Q (2, H, S, A), π (H, S, A) and V at step 0, (2, S).
    """
    _, H, S, A = signals.shape
    V, Q, policy = np.zeros((2, S)), np.empty(signals.shape), np.empty((H, S, A))
    for h in reversed(range(H)):
        later = (P[h].reshape(S * A, S) @ V.T).T.reshape(2, S, A)
        Q[:, h] = np.minimum(signals[:, h] + later, limits[h])
        policy[h] = choose(h, Q[:, h])
        V = (policy[h] * Q[:, h]).sum(axis=-1)
    return Q, policy, V
