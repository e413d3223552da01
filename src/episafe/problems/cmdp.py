"""A task together with its transition kernel: what a simulator knows and a learner does not."""

import math
from collections.abc import Hashable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from episafe.checks import TOLERANCE, as_distributions, as_listed_state, as_norm_bound, as_number, as_unit_range
from episafe.errors import DamagedFile, Infeasible, InvalidProblem
from episafe.problems import exact_answers
from episafe.problems.cutting_planes import require_reachable
from episafe.problems.exact_answers import policy_values
from episafe.problems.listed_move import ARRAYS, NOWHERE, ExogenousLaw, ListedMove
from episafe.problems.model_answers import occupancy
from episafe.problems.policy import TablePolicy, as_table
from episafe.problems.short_repr import short_repr, task_facts
from episafe.problems.task import Constraint, Task, as_constraints, constraints_of
from episafe.storage import sealed_npz
from episafe.storage.atomic_files import as_output, read_arrays, write_arrays
from episafe.storage.json_values import keys_as_bytes, keys_from_bytes
from episafe.types import Array, amount

# what a file holds of a problem, in this order; and those that are one number
SAVED = (
    "P", "reward", "utility", "initial_state", "threshold", "safe_policy", "slack", "time_homogeneous", "phi",
    "norm_bound", "constraint_names", "least_total", "state_names",
)  # fmt: skip
EXOGENOUS = (*ARRAYS, "law")  # and, of an exogenous one, these
NUMBERS = {"initial_state": int, "time_homogeneous": bool, "norm_bound": float}
AMOUNTS = ("threshold", "slack", "least_total")  # and those that are one number, or one a constraint
OPTIONAL = {"phi", "time_homogeneous", "norm_bound", "constraint_names", "least_total", "state_names"}
LARGEST = 2 << 30  # bytes of tables that are read or listed
MOST_PARTS = 8  # components whose values are kept


class LinearCMDP:
    """A finite-horizon constrained MDP with known kernel, max V^r(s₁) s.t. V^u(s₁) ≥ b, for one utility or several.

    Args:
        P: transition kernel P_h(s'|s,a), shape (H, S, A, S).
        reward: r (H, S, A) in [0, 1].
        utility: u (H, S, A) in [0, 1]; a list of them where there are several constraints.
        phi: features (S, A, d), norms at most 1; None for one-hot features (d = S·A, never built).
        initial_state: s₁.
        threshold: b, the expected total utility that every deployed policy must reach; a list, one a utility.
        safe_policy: the incumbent π_sf (H, S, A); None for the policy of largest utility, or largest sum of several.
        slack: ξ with 0 < ξ ≤ V^u(π_sf) − b; None for V^u(π_sf) − b itself; a list, one a utility.
        time_homogeneous: True to tell the learner that P_h is the same at every step; refused if it is not.
        move, law: of an exogenous problem: how it moves given chance, which the learner is told, and the law of chance,
            ℙ(w_h = w | s_h = s), (1 or H, S, W), which it is not; as `episafe.problems.rules.listed` makes them.
        least_total: what the total utility of every episode is at least, whatever is done; refused if it is not so.
        norm_bound: B of `Task` to tell the learner; refused if it is below `least_norm_bound()`, None for that.
        names: what people read of the constraints.
        state_names: what the states are called, one each, as `episafe.problems.rules.listed` knows them; None for
            their numbers.
        origin: where the problem comes from, as plain values; kept with every record.

    Example:
        >>> import numpy as np, episafe as es
        >>> P = np.ones((1, 1, 2, 1))
        >>> cmdp = es.LinearCMDP(P, reward=[[[1.0, 0.0]]], utility=[[[0.0, 1.0]]], threshold=0.25)
        >>> cmdp.optimal_value()
        0.75
    """

    is_exact: ClassVar[Literal[True]] = True  # values and optimum can be computed

    def __init__(
        self,
        P: Any,
        reward: Any,
        utility: Any,
        phi: Any = None,
        initial_state: int = 0,
        threshold: Any = None,
        safe_policy: Any = None,
        slack: Any = None,
        *,
        time_homogeneous: bool = False,
        move: ListedMove | None = None,
        law: Any = None,
        norm_bound: float | None = None,
        least_total: Any = 0.0,
        names: Sequence[str] = (),
        state_names: Sequence[Hashable] | None = None,
        origin: Mapping[str, str | int | float] | None = None,
    ) -> None:
        if threshold is None:
            raise InvalidProblem("threshold is missing: give the expected total utility b that is to be kept")
        self.P = _as_kernel(P)
        H, S, A, _ = self.P.shape
        reward = as_unit_range("reward", reward, (H, S, A))
        initial_state = as_listed_state("initial_state", initial_state, S)
        constraints = [
            replace(one, utility=as_unit_range(f"utility{one.of}", one.utility, (H, S, A)))
            for one in as_constraints(constraints_of(utility, threshold, slack, names, least_total), slacks=False)
        ]
        table = self._safe_table(safe_policy, constraints, initial_state)
        self.origin: dict[str, str | int | float] = dict(origin or {})
        self.state_names = _as_state_names(state_names, S)
        self._parts: list[tuple[Array, Array]] = []  # tables of components evaluated last, and their values
        told = tuple(
            replace(one, slack=_told_slack(one, policy_values(self.P, reward, one.utility, table, initial_state)[1]))
            for one in constraints
        )
        self.task = Task(H, S, A, reward, phi, initial_state, told, TablePolicy(table), time_homogeneous, move)
        norm = _told_norm_bound(norm_bound, self.least_norm_bound(), self.task.dim)
        self.task = replace(self.task, norm_bound=norm)
        if self.task.time_homogeneous:
            require_equal_steps(self.P)
        self.law = self._checked_law(move, law)

    def _checked_law(self, move: ListedMove | None, law: Any) -> ExogenousLaw | None:
        """The law of chance of an exogenous problem, if that and the constraints are true of what it moves."""
        task = self.task
        _require_one_utility_each(move, law, task.num_constraints)
        for c, one in enumerate(task.constraints):
            if one.least_total:
                _require_least_total(task.of_constraint(c), one, self.P)
        if move is None:
            return None
        found = ExogenousLaw(move, law, task.initial_state, task.horizon)
        utilities = np.moveaxis(task.utilities, 0, -1)
        found.require_means(self.P, task.reward, utilities if task.num_constraints > 1 else task.utility)
        return found

    def _safe_table(self, given: Any, constraints: Sequence[Constraint], initial_state: int) -> Array:
        """The incumbent (H, S, A): the given one, else the policy of largest utility, or largest sum of several."""
        for one in constraints:
            table, most = exact_answers.utility_greedy(self.P, one.utility)
            require_reachable(one.threshold, float(most[initial_state]), one.of)
        if given is not None:
            return as_table("safe_policy", given, self.P.shape[:3])
        if len(constraints) == 1:
            return table
        return exact_answers.utility_greedy(self.P, np.add.reduce([one.utility for one in constraints]))[0]

    def __repr__(self) -> str:
        return short_repr(self, self.origin | task_facts(self.task))

    def of_constraint(self, c: int) -> "LinearCMDP":
        """The same problem and incumbent as if constraint c were the only one."""
        twin = copy(self)
        twin._parts = []
        for known in ("_incumbent_values", "_optimum"):  # of all constraints
            twin.__dict__.pop(known, None)
        twin.task = self.task.of_constraint(c)
        return twin

    def evaluate(self, policy: Any) -> tuple[float, Any]:
        """Exact (V^r(s₁), V^u(s₁)) of a table (H, S, A), of a policy with a table, or of a mixture: Σ weight·value.

        V^u is a number, or an array (m,) where there are several constraints.
        """
        reward, *utilities = self._values(policy).tolist()
        return reward, utilities[0] if len(utilities) == 1 else np.array(utilities)

    def _values(self, policy: Any) -> Array:
        """V^r, and V^u of each constraint, (1 + m,)."""
        if policy is self.task.safe_policy:
            return self._incumbent_values
        components = getattr(policy, "components", (policy,))
        if components[0] is not policy:
            weighted = zip(policy.weights, components, strict=True)
            mixed: Array = np.add.reduce([weight * self._part_values(component) for weight, component in weighted])
            return mixed
        return self._table_values(as_table("policy", policy, self.task.reward.shape))

    def _part_values(self, policy: Any) -> Array:
        """Those of a component, which many mixtures have: kept with its table, where that cannot change."""
        table = policy.table() if hasattr(policy, "table") else None
        for known, values in self._parts:
            if known is table:
                return values
        values = self._values(policy)
        if table is not None and not table.flags.writeable:
            self._parts = [(table, values), *self._parts[: MOST_PARTS - 1]]
        return values

    @cached_property
    def _incumbent_values(self) -> Array:
        return self._table_values(self.task.safe_policy.table())

    def _table_values(self, table: Array) -> Array:
        task = self.task
        told = (table, task.initial_state)
        each = [policy_values(self.P, task.reward, one.utility, *told) for one in task.constraints]
        return np.array([each[0][0], *(utility for _, utility in each)])

    def optimal_value(self, method: Literal["dual", "lp"] = "dual") -> float:
        """The exact constrained optimum at s₁; "lp" asks HiGHS instead, slower and good to about 1e-7."""
        if method == "dual":
            return self._optimum.value
        if method != "lp":
            raise ValueError(f'method must be "dual" or "lp", got {method!r}')
        task = self.task
        return exact_answers.lp_optimum(self.P, task.reward, task.utilities, task.thresholds, task.initial_state)

    def optimal_policy(self) -> TablePolicy:
        """A Markov policy that attains the optimum: the occupancy mixture of at most m + 1 deterministic ones."""
        return TablePolicy(self._optimum.table)

    def occupancy(self, policy: Any) -> Array:
        """w_h(s, a) = ℙ(s_h = s, a_h = a), shape (H, S, A)."""
        table = as_table("policy", policy, self.task.reward.shape)
        return occupancy(self.P, table, self.task.initial_state)

    def draw_trace(self, rng: np.random.Generator) -> tuple[int, tuple[Any, ...]]:
        """What chance brings in an episode, whatever is done; of an exogenous problem."""
        if self.law is None:
            raise InvalidProblem("the problem is not exogenous, so it has no traces: give move and law")
        return self.law.draw(rng)

    def linearity_gap(self) -> float:
        """How far P is from linear in φ: the largest ‖P_h(·|s,a) − φᵀμ̂_h‖₁; 0 for one-hot features."""
        return 0.0 if self.task.phi is None else exact_answers.linearity_gap(self.P, self.task.phi)

    def least_norm_bound(self) -> float:
        """The least norm bound that P is known to keep; √d for one-hot features, inf where it is not linear in φ."""
        return exact_answers.least_norm_bound(self.P, self.task.phi)

    @cached_property
    def _optimum(self) -> exact_answers.Optimum:
        task = self.task
        told = (task.utilities, task.thresholds, task.initial_state, task.constraint_names)
        return exact_answers.optimum_of_several(self.P, task.reward, *told)

    def save(self, path: str | Path) -> None:
        """Write the problem to one .npz file, atomically and without pickle."""
        arrays = {"P": self.P, **(self.task.as_arrays() or {})}
        if self.law is not None:
            arrays["law"] = self.law.law
        if self.state_names is not None:
            arrays["state_names"] = keys_as_bytes(self.state_names)
        names = (*SAVED, *EXOGENOUS)
        write_arrays(as_output(path), {name: arrays[name] for name in names if name in arrays}, self.origin)

    @classmethod
    def load(cls, path: str | Path) -> "LinearCMDP":
        """The problem that `save` wrote; every check of the constructor is made again."""
        require_room(f"{path}, unpacked,", sealed_npz.unpacked_size(Path(path)))
        arrays, origin = read_arrays(Path(path), {*SAVED, *EXOGENOUS})
        lacking = set(SAVED) - OPTIONAL - arrays.keys()
        if lacking:
            raise DamagedFile(f"{path} is not a saved problem: it lacks {', '.join(sorted(lacking))}")
        arrays.setdefault("time_homogeneous", np.array(False))
        numbers = {name: kind for name, kind in NUMBERS.items() if name in arrays}
        for name in numbers:
            if arrays[name].shape != ():
                raise DamagedFile(f"{path} is not a saved problem: its {name} has shape {arrays[name].shape}")
        several = arrays["threshold"].shape
        if len(several) > 1 or any(arrays[name].shape != several for name in AMOUNTS if name in arrays):
            raise DamagedFile(f"{path} is not a saved problem: its threshold has shape {several}")
        try:
            told: dict[str, Any] = {name: kind(arrays[name]) for name, kind in numbers.items()}
            told |= {name: amount(np.atleast_1d(arrays[name])) for name in AMOUNTS if name in arrays}
            told["names"] = arrays.pop("constraint_names", np.array([])).tolist()
            if "state_names" in arrays:
                told["state_names"] = keys_from_bytes(arrays.pop("state_names").tobytes())
            move, rest = ListedMove.from_arrays(arrays), {n: a for n, a in arrays.items() if n not in ARRAYS}
            return cls(**rest | told, move=move, origin=origin)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise DamagedFile(f"{path} is not a saved problem: {error}") from error


def require_room(what: str, num_bytes: int) -> None:
    """Refuse tables before they are made, where there is hardly a machine for them."""
    if num_bytes > LARGEST:
        raise InvalidProblem(
            f"{what} takes {num_bytes / 2**30:.3g} GiB, more than the {LARGEST / 2**30:.3g} that tables may: state "
            "fewer steps, states or actions, or play it unlisted, as es.SampledCMDP or by es.from_gymnasium"
        )


def _as_kernel(given: Any) -> Array:
    """P (H, S, A, S), checked."""
    shape = np.shape(given) if not isinstance(given, str) else ()
    if shape and (len(shape) != 4 or shape[1] != shape[3] or min(shape) == 0):
        raise InvalidProblem(f"P must have shape (H, S, A, S) with no axis empty, got {shape}")
    return as_distributions("P", given, (None, None, None, None))


def _as_state_names(given: Sequence[Hashable] | None, num_states: int) -> tuple[Hashable, ...] | None:
    """A name for each state; None where they have numbers alone."""
    if given is None:
        return None
    names = tuple(given)
    if len(names) != num_states or len(set(names)) < len(names):
        raise InvalidProblem(
            f"state_names has {len(names)} names, {len(set(names))} of them different, for {num_states} states: give "
            "each a name of its own"
        )
    return names


def require_equal_steps(P: Array) -> None:
    """An error where P_h depends on h, with the step."""
    gaps = np.abs(P - P[0]).max(axis=(1, 2, 3))
    h = int(gaps.argmax())
    if gaps[h] > TOLERANCE:
        raise InvalidProblem(
            f"time_homogeneous=True, but P[{h}] differs from P[0] by {gaps[h]:.3g}: leave it out, or give one kernel"
        )


def _require_least_total(task: Task, one: Constraint, P: Array) -> None:
    """An error where some path has a smaller total utility than a constraint says, with the least one."""
    least, move = np.zeros(task.num_states), task.move  # type: Array, Any
    for h in reversed(range(task.horizon)):
        ahead = np.where(P[h] > 0, least, np.inf).min(axis=2) + one.utility[h]
        if move is not None:  # its utilities depend on chance
            row, comes = move.row(h), move.next_states[move.row(h)]
            ahead = np.where(comes == NOWHERE, np.inf, least[comes] + move.utilities[row]).min(axis=2)
        least = ahead.min(axis=1)
    found = float(least[task.initial_state])
    if one.least_total > found + TOLERANCE * task.horizon:
        raise Infeasible(
            f"least_total{one.of} is {one.least_total:.12g}, and an episode may have {found:.12g}: give that"
        )


def _require_one_utility_each(move: ListedMove | None, law: Any, num_constraints: int) -> None:
    """An error where the moves have other utilities than there are constraints, or no law."""
    if (move is None) != (law is None):
        raise InvalidProblem("move and law belong together: give both, or neither")
    if move is not None and move.num_constraints != num_constraints:
        raise InvalidProblem(
            f"move has {move.num_constraints} utilities, and there are {num_constraints} constraints: give its "
            "utilities as (n, S, A, W, m), one a constraint, or leave move and law out, and have no traces"
        )


def _told_norm_bound(given: float | None, least: float, dim: int) -> float:
    """The B to tell the learner: the given one, which must be true, else the least, √d where it is that to rounding."""
    if given is None:
        root = math.sqrt(dim)
        return root if math.isclose(least, root, rel_tol=TOLERANCE) else least * (1 + TOLERANCE)
    if as_norm_bound(given, dim) < least * (1 - TOLERANCE):
        raise Infeasible(f"norm_bound is {given:.12g}, and P needs {least:.12g} with these features: leave it out")
    return given


def _told_slack(one: Constraint, value: float) -> float:
    """The slack to tell the learner: the given one, which must be true, else the incumbent's own."""
    true = value - one.threshold
    if true <= TOLERANCE:
        raise Infeasible(
            f"safe_policy is not strictly safe: its utility{one.of} is {value:.12g} and the threshold "
            f"{one.threshold:.12g}; give a safer incumbent or lower the threshold"
        )
    if one.slack is None:
        return true
    slack = as_number("slack", one.slack)
    if not 0 < slack <= true + TOLERANCE:
        raise Infeasible(
            f"slack{one.of} must lie in (0, {true:.12g}], what the incumbent has above the threshold, got {slack:.12g}"
        )
    return slack
