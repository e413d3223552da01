"""What a learner is told of a problem. There is no transition kernel in here, and none can be reached from it."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from episafe.checks import (
    TOLERANCE,
    as_count,
    as_features,
    as_flag,
    as_least_total,
    as_listed_state,
    as_norm_bound,
    as_number,
    as_slack,
    as_unit_range,
    as_whole_numbers,
)
from episafe.errors import Infeasible, InvalidEpisode, InvalidProblem
from episafe.problems.episodic_task import EpisodicTask, Signal
from episafe.problems.listed_move import ListedMove
from episafe.problems.policy import Policy, TablePolicy, as_policy, as_table, over_states
from episafe.types import Array, IntArray, Move, amount

NAMELESS = "name them, names=…, of rules the attribute `names`, or give lists"


@dataclass(frozen=True, eq=False)
class Constraint:
    """All that belongs to one constraint: V^u(s₁) ≥ b, which the incumbent keeps with ξ to spare.

    Attributes:
        utility: u (H, S, A) in [0, 1]; of a problem given by functions, (h, state) ↦ u_h(state, ·), or None where it
            has to be learned.
        threshold: b.
        slack: ξ > 0 with V^u(π_sf) ≥ b + ξ; None where the learner is not told it.
        name: what people read of it; of several that have none, "constraint 0", "constraint 1", …
        least_total: what the total utility of every episode is at least, whatever is done; where the limit is on a
            cost, H less the most that an episode can cost. An episode that has less voids all certificates.
    """

    utility: Any = field(repr=False)
    threshold: float
    slack: float | None
    name: str = ""
    least_total: float = 0.0

    @property
    def of(self) -> str:
        """What an error says of whose a number is; nothing where it has no name."""
        return f" of {self.name}" if self.name else ""


def as_constraints(given: Any, *, slacks: bool = True) -> tuple[Constraint, ...]:
    """One es.Constraint or several, each with a number and, where there are several, a name of its own.

    `slacks`: whether these are looked at too; who knows the incumbent's utilities has more to say of them.
    """
    several = tuple(given) if isinstance(given, Sequence) else (given,)
    if not several or not all(isinstance(one, Constraint) for one in several):
        raise InvalidProblem(
            f"constraint must be one es.Constraint(utility, threshold, slack) or a list of them, got a "
            f"{type(given).__name__}: make one of its three parts"
        )
    names = tuple(_name(one.name, c, len(several)) for c, one in enumerate(several))
    if len(set(names)) < len(names):
        raise InvalidProblem(f"the constraints are called {', '.join(names)}: give each a name of its own")
    return tuple(_checked(one, name, slacks) for one, name in zip(several, names, strict=True))


def _checked(one: Constraint, name: str, slacks: bool) -> Constraint:
    threshold, slack = as_number("threshold", one.threshold), as_slack(one.slack) if slacks else one.slack
    least = as_least_total(one.least_total, threshold)
    return replace(one, threshold=threshold, slack=slack, name=name, least_total=least)


def constraints_of(
    utility: Any, threshold: Any, slack: Any, names: Sequence[str] = (), least_total: Any = 0.0
) -> tuple[Constraint, ...]:
    """The constraints of a problem from what a user gives: one of each, or lists of as many, or mappings by the names;
    one slack None for all."""
    threshold, slack = _in_order("threshold", threshold, names), _in_order("slack", slack, names)
    least_total = _in_order("least_total", least_total, names)
    if np.ndim(threshold) == 0 and len(names) > 1:
        raise InvalidProblem(
            f"there are {len(names)} constraints ({', '.join(names)}), and threshold is one number: give as many"
        )
    if np.ndim(threshold) == 0:
        name = names[0] if names else ""
        return (Constraint(utility, threshold, slack, name, least_total),)
    m = len(threshold)
    least = least_total if np.ndim(least_total) else [least_total] * m
    given = {"utility": utility, "slack": slack, "names": names or [""] * m, "least_total": least}
    given |= {name: [None] * m for name in ("utility", "slack") if given[name] is None}
    for name, values in given.items():
        if not hasattr(values, "__len__") or len(values) != m:
            shown = f"a list of {len(values)}" if hasattr(values, "__len__") else repr(values)
            raise InvalidProblem(f"threshold has {m} entries, and {name} is {shown}: give {m}, one a constraint")
    return tuple(map(Constraint, given["utility"], threshold, given["slack"], given["names"], given["least_total"]))


def _in_order(what: str, given: Any, names: Sequence[str]) -> Any:
    """What a mapping has for each name, in their order; anything else as it is."""
    if not isinstance(given, Mapping):
        return given
    if set(given) != set(names):
        raise InvalidProblem(
            f"{what} is given for {', '.join(map(str, given))}, and the constraints are called "
            f"{', '.join(names) or 'nothing'}: " + ("give one for each of these" if names else NAMELESS)
        )
    return [given[name] for name in names]


def _name(given: Any, c: int, count: int) -> str:
    if not isinstance(given, str):
        raise InvalidProblem(f"the name of a constraint must be a word, got {given!r}: give a string")
    return given or (f"constraint {c}" if count > 1 else "")


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
        constraint: utility, threshold and slack; also as `utility`, `threshold`, `slack`. A list of several is a tuple
            here, and these three refuse; `constraints` is a tuple in either case.
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
    constraint: Any
    safe_policy: Policy
    time_homogeneous: bool = False
    move: Move | None = None
    norm_bound: float = None  # type: ignore[assignment]  # √d, once it is made

    is_listed: ClassVar[Literal[True]] = True

    def __post_init__(self) -> None:
        H, S, A = (as_count(name, getattr(self, name)) for name in ("horizon", "num_states", "num_actions"))
        constraints = tuple(
            replace(one, utility=as_unit_range(f"utility{one.of}", one.utility, (H, S, A)))
            for one in as_constraints(self.constraint)
        )
        for one in constraints:
            if one.threshold + (one.slack or 0.0) > H + TOLERANCE:
                raise Infeasible(
                    f"threshold {one.threshold:.12g} + slack {one.slack or 0:.12g}{one.of} exceeds the horizon {H}"
                )
        given = over_states(self.safe_policy, (H, S, A))
        table = as_table("safe_policy", given, (H, S, A))
        self.__dict__.update(
            safe_policy=as_policy(given) if hasattr(given, "table") else TablePolicy(table),
            reward=as_unit_range("reward", self.reward, (H, S, A)),
            phi=None if self.phi is None else _unless_one_hot(as_features(self.phi, S, A)),
            initial_state=as_listed_state("initial_state", self.initial_state, S),
            constraint=constraints if len(constraints) > 1 else constraints[0],
            time_homogeneous=as_flag("time_homogeneous", self.time_homogeneous),
        )
        self.__dict__.update(norm_bound=as_norm_bound(self.norm_bound, self.dim))

    @property
    def utility(self) -> Array:
        """u (H, S, A)."""
        return self.only("utility")

    @property
    def utilities(self) -> Array:
        """u of every constraint, (m, H, S, A)."""
        return np.stack([one.utility for one in self.constraints])

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
        return np.eye(self.num_actions, self.dim, state * self.num_actions) if self.phi is None else self.phi[state]

    def reward_at(self, h: int, state: int) -> Array:
        """r_h(state, ·), shape (A,)."""
        return self.reward[h, state]

    def utility_at(self, h: int, state: int) -> Array:
        """u_h(state, ·), shape (A,), or (A, m) where there are several constraints."""
        if len(self.constraints) > 1:
            return np.stack([one.utility[h, state] for one in self.constraints], axis=-1)
        return self.constraints[0].utility[h, state]

    def as_policy(self, given: Any) -> Policy:
        """A policy or a table (H, S, A), checked, as a table."""
        return TablePolicy(as_table("policy", given, self.reward.shape))

    def as_candidate(self, given: Any) -> Any:
        """A policy as it is put on trial, checked: itself, or the table of what it answers in every state."""
        found = over_states(given, self.reward.shape)
        as_table("policy", found, self.reward.shape)
        return found

    def as_arrays(self) -> dict[str, NDArray[Any]] | None:
        """The task as named arrays, from which `from_arrays` makes it again; None where its move is a function."""
        if self.move is not None and not hasattr(self.move, "as_arrays"):
            return None
        names = ("reward", "initial_state", "phi", "time_homogeneous")
        told = {name: np.asarray(getattr(self, name)) for name in names if getattr(self, name) is not None}
        told |= constraint_arrays(self.constraints)
        moved = {} if self.move is None else self.move.as_arrays()
        stated = {} if self.norm_bound == math.sqrt(self.dim) else {"norm_bound": np.asarray(self.norm_bound)}
        return {**told, **stated, "safe_policy": self.safe_policy.table(), **moved}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "Task":
        """The task that `as_arrays` gave."""
        constraint = constraints_from(arrays)
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
        if len(states) == self.horizon + 1 and any(isinstance(state, tuple | list) for state in states):
            raise InvalidEpisode(
                f"states must be numbers from 0 to {self.num_states - 1}, got {states[0]!r}: give the number of each, "
                "its place in problem.state_names"
            )
        return as_whole_numbers("states", states, self.horizon + 1, self.num_states)

    def _told(self, signal: Signal, states: Any, actions: Any) -> Any:
        at = np.arange(self.horizon), np.asarray(states)[:-1], np.asarray(actions)
        if signal == "reward":
            return self.reward[at]
        several = [one.utility[at] for one in self.constraints]
        return several[0] if len(several) == 1 else np.stack(several, axis=-1)

    def _told_numbers(self, policies: list[Policy]) -> list[Any]:
        phi, sizes = np.zeros(0) if self.phi is None else self.phi, np.array([self.num_states, self.initial_state])
        utility = self.utility if len(self.constraints) == 1 else self.utilities
        return [self.reward, utility, phi, sizes, *(policy.table() for policy in policies)]


def constraint_arrays(constraints: Sequence[Constraint]) -> dict[str, NDArray[Any]]:
    """Utility, threshold and slack as named arrays, with one more axis where there are several; NaN: not known."""
    several = [one.utility for one in constraints]
    return {"utility": several[0] if len(several) == 1 else np.stack(several), **limit_arrays(constraints)}


def limit_arrays(constraints: Sequence[Constraint]) -> dict[str, NDArray[Any]]:
    """The same without the utility."""
    told = {"threshold": np.asarray(amount([one.threshold for one in constraints]))}
    if len(constraints) > 1 or constraints[0].slack is not None:
        slacks = [math.nan if one.slack is None else one.slack for one in constraints]
        told["slack"] = np.asarray(amount(slacks))
    if any(one.least_total for one in constraints):
        told["least_total"] = np.asarray(amount([one.least_total for one in constraints]))
    named = any(one.name for one in constraints)
    return told | ({"constraint_names": np.array([one.name for one in constraints])} if named else {})


def constraints_from(arrays: Mapping[str, NDArray[Any]]) -> Any:
    """The constraint that `constraint_arrays` gave, or a tuple of several."""
    utilities = arrays["utility"][None] if arrays["threshold"].ndim == 0 else arrays["utility"]
    made = tuple(Constraint(*facts) for facts in zip(utilities, *limits_from(arrays), strict=True))
    return made if len(made) > 1 else made[0]


def limits_from(arrays: Mapping[str, NDArray[Any]]) -> tuple[list[Any], ...]:
    """Thresholds, slacks, names and least totals that `limit_arrays` gave, lists of one a constraint."""
    thresholds = np.atleast_1d(arrays["threshold"]).tolist()
    slacks = np.atleast_1d(arrays["slack"]).tolist() if "slack" in arrays else [math.nan] * len(thresholds)
    names = arrays["constraint_names"].tolist() if "constraint_names" in arrays else [""] * len(thresholds)
    least = np.atleast_1d(arrays.get("least_total", np.zeros(len(thresholds)))).tolist()
    return thresholds, [None if math.isnan(slack) else slack for slack in slacks], names, least


def _unless_one_hot(phi: Array) -> Array | None:
    """None where each pair (s, a) has a unit vector of its own and d = S·A, exactly; else φ itself."""
    rows = phi.reshape(-1, phi.shape[2])
    marks = len(rows) == phi.shape[2] and ((rows == 0) | (rows == 1)).all()
    return None if marks and (rows.sum(0) == 1).all() and (rows.sum(1) == 1).all() else phi
