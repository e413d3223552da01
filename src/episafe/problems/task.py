"""What a learner is told of a problem. There is no transition kernel in here, and none can be reached from it."""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from episafe.checks import (
    TOLERANCE,
    as_count,
    as_features,
    as_flag,
    as_least_total,
    as_norm_bound,
    as_number,
    as_slack,
    as_state,
    as_unit_range,
    as_whole_numbers,
)
from episafe.errors import Infeasible, InvalidProblem
from episafe.problems.episodic_task import EpisodicTask
from episafe.problems.listed_move import ListedMove
from episafe.problems.policy import Policy, TablePolicy, as_policy, as_table
from episafe.types import Array, IntArray, Move


@dataclass(frozen=True, eq=False)
class Constraint:
    """All that belongs to one constraint: V^u(s₁) ≥ b, which the incumbent keeps with ξ to spare.

    Attributes:
        utility: u (H, S, A) in [0, 1].
        threshold: b.
        slack: ξ > 0 with V^u(π_sf) ≥ b + ξ; None where the learner is not told it.
        least_total: what the total utility of every episode is at least, whatever is done; where the limit is on a
            cost, H less the most that an episode can cost. An episode that has less voids all certificates.
    """

    utility: Array = field(repr=False)
    threshold: float
    slack: float | None
    least_total: float = 0.0


@dataclass(frozen=True, eq=False, repr=False)
class Task(EpisodicTask):
    """A finite-horizon problem as the learner knows it: everything but P. All fields are checked.

    Attributes:
        horizon: H, steps per episode.
        num_states: S.
        num_actions: A.
        reward: r (H, S, A) in [0, 1].
        phi: φ (S, A, d) with norms at most 1, or None for one-hot features e_{(s,a)}; these may also be given in full.
        initial_state: s₁.
        constraint: utility, threshold and slack; also as `utility`, `threshold`, `slack`.
        safe_policy: the incumbent π_sf, a policy or a table (H, S, A).
        time_homogeneous: whether P_h is the same at every step; what is seen at one step then counts for all.
        move: how the system moves given chance, where chance is exogenous; the law of chance is not in it.
        norm_bound: B with ‖Σ_s' μ_h(s') g(s')‖₂ ≤ B max g for every g ≥ 0, where P_h(s'|s,a) = φ(s,a)ᵀμ_h(s'). By
            default √d, as the paper assumes; features that are divided by c need a B that is c times as large. Read by
            `FreshData` and `Constants.theory`; inf says that P is known not to be linear in φ, and they refuse it.
    """

    horizon: int
    num_states: int
    num_actions: int
    reward: Array
    phi: Array | None
    initial_state: int
    constraint: Constraint
    safe_policy: Policy
    time_homogeneous: bool = False
    move: Move | None = None
    norm_bound: float = None  # type: ignore[assignment]  # √d, once it is made

    is_listed: ClassVar[Literal[True]] = True

    def __post_init__(self) -> None:
        H, S, A = (as_count(name, getattr(self, name)) for name in ("horizon", "num_states", "num_actions"))
        if not isinstance(self.constraint, Constraint):
            raise InvalidProblem(
                f"constraint must be one es.Constraint(utility, threshold, slack), got a "
                f"{type(self.constraint).__name__}: make one of its three parts"
            )
        slack = as_slack(self.constraint.slack)
        utility = as_unit_range("utility", self.constraint.utility, (H, S, A))
        threshold = as_number("threshold", self.constraint.threshold)
        constraint = Constraint(utility, threshold, slack, as_least_total(self.constraint.least_total, threshold))
        if constraint.threshold + (slack or 0.0) > H + TOLERANCE:
            raise Infeasible(f"threshold {constraint.threshold:.12g} + slack {slack or 0:.12g} exceeds the horizon {H}")
        given = self.safe_policy
        table = as_table("safe_policy", given, (H, S, A))
        self.__dict__.update(
            safe_policy=as_policy(given) if hasattr(given, "table") else TablePolicy(table),
            reward=as_unit_range("reward", self.reward, (H, S, A)),
            phi=None if self.phi is None else _unless_one_hot(as_features(self.phi, S, A)),
            initial_state=as_state("initial_state", self.initial_state, S),
            constraint=constraint,
            time_homogeneous=as_flag("time_homogeneous", self.time_homogeneous),
        )
        self.__dict__.update(norm_bound=as_norm_bound(self.norm_bound, self.dim))

    @property
    def utility(self) -> Array:
        """u (H, S, A)."""
        return self.constraint.utility

    @property
    def threshold(self) -> float:
        """b; a policy is safe if its expected total utility is at least b."""
        return self.constraint.threshold

    @property
    def slack(self) -> float | None:
        """ξ; None where it is not known."""
        return self.constraint.slack

    @property
    def least_total(self) -> float:
        """What the total utility of every episode is at least."""
        return self.constraint.least_total

    @property
    def dim(self) -> int:
        """d, the dimension of the features; S·A for one-hot ones."""
        return self.num_states * self.num_actions if self.phi is None else int(self.phi.shape[2])

    @property
    def one_hot(self) -> bool:
        """Whether φ is one-hot, so that Gram matrices are diagonal counts."""
        return self.phi is None

    def key(self, state: int) -> Hashable:
        """What a state is looked up by: its number."""
        return int(state)

    def features(self, state: int) -> Array:
        """φ(state, ·), shape (A, d)."""
        block: Array
        block = np.eye(self.num_actions, self.dim, state * self.num_actions) if self.phi is None else self.phi[state]
        return block

    def reward_at(self, h: int, state: int) -> Array:
        """r_h(state, ·), shape (A,)."""
        row: Array = self.reward[h, state]
        return row

    def utility_at(self, h: int, state: int) -> Array:
        """u_h(state, ·), shape (A,)."""
        row: Array = self.utility[h, state]
        return row

    def as_policy(self, given: Any) -> Policy:
        """A policy or a table (H, S, A), checked, as a table."""
        return TablePolicy(as_table("policy", given, self.reward.shape))

    def as_arrays(self) -> dict[str, NDArray[Any]] | None:
        """The task as named arrays, from which `from_arrays` makes it again; None where its move is a function."""
        if self.move is not None and not hasattr(self.move, "as_arrays"):
            return None
        names = ("reward", "utility", "initial_state", "threshold", "slack", "phi", "time_homogeneous")
        told = {name: np.asarray(getattr(self, name)) for name in names if getattr(self, name) is not None}
        moved = {} if self.move is None else self.move.as_arrays()
        stated = {} if self.norm_bound == math.sqrt(self.dim) else {"norm_bound": np.asarray(self.norm_bound)}
        stated |= {"least_total": np.asarray(self.least_total)} if self.least_total else {}
        return {**told, **stated, "safe_policy": self.safe_policy.table(), **moved}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "Task":
        """The task that `as_arrays` gave."""
        slack = float(arrays["slack"]) if "slack" in arrays else None
        constraint = Constraint(
            arrays["utility"], float(arrays["threshold"]), slack, float(arrays.get("least_total", 0.0))
        )
        start, homogeneous = int(arrays["initial_state"]), bool(arrays["time_homogeneous"])
        policy = TablePolicy(arrays["safe_policy"])
        H, S, A = arrays["reward"].shape
        bound: Any = float(arrays["norm_bound"]) if "norm_bound" in arrays else None
        facts = (start, constraint, policy, homogeneous, ListedMove.from_arrays(arrays), bound)
        return cls(H, S, A, arrays["reward"], arrays.get("phi"), *facts)

    def least_norm(self) -> float:
        """The least ‖w‖ with φ(s,a)ᵀw = 1 everywhere, as w = Σ_s' μ_h(s') has it, whatever P is; inf: no P is linear.

        For one-hot features it is √d.
        """
        if self.phi is None:
            return math.sqrt(self.dim)
        rows = self.phi.reshape(-1, self.dim)
        w = np.linalg.lstsq(rows, np.ones(len(rows)), rcond=None)[0]
        return float(np.linalg.norm(w)) if np.abs(rows @ w - 1).max() <= TOLERANCE else math.inf

    def _read_states(self, states: Any) -> IntArray:
        return as_whole_numbers("states", states, self.horizon + 1, self.num_states)

    def _told_numbers(self, policies: list[Policy]) -> list[Any]:
        phi, sizes = np.zeros(0) if self.phi is None else self.phi, np.array([self.num_states, self.initial_state])
        return [self.reward, self.utility, phi, sizes, *(policy.table() for policy in policies)]


def _unless_one_hot(phi: Array) -> Array | None:
    """None where each pair (s, a) has a unit vector of its own and d = S·A, exactly; else φ itself."""
    rows = phi.reshape(-1, phi.shape[2])
    marks = len(rows) == phi.shape[2] and ((rows == 0) | (rows == 1)).all()
    return None if marks and (rows.sum(0) == 1).all() and (rows.sum(1) == 1).all() else phi
