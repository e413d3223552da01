"""Listed problems: a task together with its transition kernel, which simulators know and learners do not."""

import io
import json
import math
import zipfile
from collections.abc import Hashable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike

from episafe.core.checks import TOLERANCE, as_array, as_count, as_distributions, as_unit_range, distinct_steps, require
from episafe.core.errors import DamagedLog, Infeasible, InvalidProblem
from episafe.core.files import write_atomically
from episafe.core.policy import Mixture, Policy, TablePolicy, uniform_table
from episafe.core.task import Constraint, OneHot, TableFeatures, Task, make_constraints
from episafe.core.types import Array, Document, PerLimit
from episafe.kernels import tabular_optimum
from episafe.problems import exact
from episafe.problems.moves import NOWHERE, ChanceLaw, ListedMove

Origin = dict[str, str | int | float]
Tables = dict[str, Any]  # the arguments of a `LinearCMDP`, by name


class LinearCMDP:
    """A finite-horizon constrained MDP with known kernel: max V^r(s₁) s.t. V^u(s₁) ≥ b, for one utility or several.

    Args:
        P: transition kernel P_h(s'|s,a), shape (H, S, A, S).
        reward: r (H, S, A) in [0, 1].
        utility: u (H, S, A) in [0, 1], or a list of m.
        phi: features (S, A, d), norms at most 1; None for one-hot features (d = S·A, not stored).
        initial_state: s₁.
        threshold: b, the expected total utility that every deployed policy must reach, or a list of m.
        safe_policy: the incumbent (H, S, A); None for the policy with the largest utility, or largest sum of several.
        slack: ξ with 0 < ξ ≤ V^u(incumbent) − b, or a list of m; None for V^u(incumbent) − b itself.
        threshold_share: instead of `threshold`: b as a share of the largest expected utility of any policy.
        time_homogeneous: True if P_h is the same at every step; steps then share memory, and the agent knows it.
        move, law: for exogenous chance. `move` says how the problem moves given chance; the agent knows it. `law` is
            ℙ(w_h = w | s_h = s), (1 or H, S, W), which the agent does not know; None if it is unknown.
        norm_bound: B of `Task`; None for the least B that holds for P.
        least_total: a total utility that every episode is certain to reach; checked.
        names: the names of the limits.
        state_names, action_names, units: for display; `encode` accepts state names as observations.
        origin: where the problem comes from, as plain values; kept with every record.

    Example:
        >>> import numpy as np, episafe as es
        >>> P = np.ones((1, 1, 2, 1))
        >>> cmdp = es.LinearCMDP(P, reward=[[[1.0, 0.0]]], utility=[[[0.0, 1.0]]], threshold=0.25)
        >>> cmdp.optimal_value()
        0.75
    """

    def __init__(
        self,
        P: ArrayLike,
        reward: ArrayLike,
        utility: object,
        phi: ArrayLike | None = None,
        initial_state: int = 0,
        threshold: PerLimit = None,
        safe_policy: Any = None,
        slack: PerLimit = None,
        *,
        threshold_share: float | None = None,
        time_homogeneous: bool = False,
        move: ListedMove | None = None,
        law: ArrayLike | None = None,
        norm_bound: float | None = None,
        least_total: PerLimit = 0.0,
        names: Sequence[str] = (),
        state_names: Sequence[Hashable] = (),
        action_names: Sequence[str] = (),
        units: Mapping[str, str] | None = None,
        origin: Mapping[str, str | int | float] | None = None,
    ) -> None:
        self.P = _as_kernel(P, time_homogeneous)
        self.origin: Origin = dict(origin or {})
        H, S, A, _ = self.P.shape
        start = as_count("initial_state", initial_state, 0, S)
        if threshold_share is not None and threshold is None:
            threshold = self._shared_threshold(utility, start, threshold_share)
        require(threshold is not None, "threshold is missing: give the expected total utility b to keep")
        limits = make_constraints(utility, threshold, slack, names, least_total)
        task = Task(
            *(H, A),
            constraints=tuple(replace(one, slack=None) for one in limits),
            incumbent=TablePolicy(uniform_table(H, S, A)) if safe_policy is None else safe_policy,
            initial_state=start,
            num_states=S,
            reward=reward,
            features=OneHot() if phi is None else TableFeatures(as_array("phi", phi, (S, A, None))),
            time_homogeneous=bool(time_homogeneous),
            move=move,
            support=None if move is None else move.support,
            state_names=state_names,
            action_names=action_names,
            units=units or {},
        )
        self._reward, self._utilities = task.reward, tuple(one.utility for one in task.constraints)
        if safe_policy is None:
            incumbent: Policy = TablePolicy(exact.safest(self.P, self._utilities, start)[0], "incumbent")
        else:
            incumbent = task.incumbent
        self._known: WeakKeyDictionary[Policy, Array] = WeakKeyDictionary()
        self.task = replace(task, incumbent=incumbent)
        slacks = [self._slack(*each) for each in zip(limits, self._utilities, self.values(incumbent)[1:], strict=True)]
        least = exact.least_norm_bound(self.P, task.features.phi if isinstance(task.features, TableFeatures) else None)
        limits = tuple(replace(one, slack=slack) for one, slack in zip(task.constraints, slacks, strict=True))
        self.task = replace(self.task, constraints=limits, norm_bound=_norm_bound(norm_bound, least, task.dim))
        for c, one in enumerate(limits):
            self._require_least_total(c, one)
        self.chance_law = self._checked_law(move, law)

    def __repr__(self) -> str:
        H, S, A, _ = self.P.shape
        sizes = {"H": H, "S": S, "A": A, "d": self.task.dim, "threshold": self.task.thresholds.tolist()}
        return f"LinearCMDP({', '.join(f'{name}={value}' for name, value in (self.origin | sizes).items())})"

    def _shared_threshold(self, utility: object, initial_state: int, share: float) -> Array | float:
        several = utility if isinstance(utility, Sequence) and np.ndim(utility) == 4 else None
        each = [as_unit_range("utility", one, self.P.shape[:3]) for one in several or [utility]]
        reached: Array = share * exact.safest(self.P, each, initial_state)[1]
        return float(reached[0]) if several is None else reached

    def _slack(self, one: Constraint, utility: Array, value: float) -> float:
        """Return the slack for the task: the given one, checked, or else the incumbent's exact slack."""
        true = value - one.threshold
        if true <= TOLERANCE:
            largest = float(exact.utility_greedy(self.P, utility)[1][self.task.initial_state])
            exact.require_reachable(one.threshold, largest, one.name if self.task.num_constraints > 1 else "")
            raise Infeasible(
                f"safe_policy does not exceed the limit on {one.name}: it reaches {value:.12g}, and the threshold is "
                f"{one.threshold:.12g}; give a safer incumbent or lower the threshold"
            )
        slack = float(true) if one.slack is None else one.slack
        wanted = f"slack of {one.name} must lie in (0, {true:.12g}], the incumbent's margin above the threshold"
        require(slack <= true + TOLERANCE, f"{wanted}, got {slack:.12g}", Infeasible)
        return slack

    def _checked_law(self, move: ListedMove | None, law: object) -> ChanceLaw | None:
        """Return the law of chance, if it agrees with the arrays."""
        require(law is None or move is not None, "a law of chance needs move: give both")
        if move is None:
            return None
        _, S, A, _, m = move.utilities.shape
        sizes = *self.P.shape[1:3], self.task.num_constraints
        fault = f"move has {S} states, {A} actions and {m} utilities, and the problem has {', '.join(map(str, sizes))}"
        require((S, A, m) == sizes, f"{fault}: give utilities of shape (n, S, A, W, m)")
        if law is None:
            return None
        found = ChanceLaw(move, law, self.task.initial_state, self.P.shape[0])
        arrays = {"P": self.P, "reward": self._reward, "utility": np.stack(self._utilities)}
        for (name, told), made in zip(arrays.items(), move.means(found.law), strict=True):
            fault = f"{name} is not the mean of move under the law: make both from the same rules"
            require(np.abs(told - made).max() <= TOLERANCE, fault)
        return found

    def _require_least_total(self, c: int, one: Constraint) -> None:
        """Raise if an episode can have a smaller total utility than the constraint states."""
        least, move = np.zeros(self.P.shape[1]), self.task.move
        for h in reversed(range(self.P.shape[0] if one.least_total else 0)):
            if isinstance(move, ListedMove):  # utilities depend on chance
                row = move.row(h)
                comes, utilities = move.next_states[row], move.utilities[row, ..., c]
                ahead = np.where(comes == NOWHERE, np.inf, least[comes] + utilities).min(axis=2)
            else:
                ahead = np.where(self.P[h] > 0, least, np.inf).min(axis=2) + one.utility[h]
            least = ahead.min(axis=1)
        found = float(least[self.task.initial_state])
        fault = f"least_total of {one.name} is {one.least_total:.12g}, and an episode may have {found:.12g}: give that"
        require(one.least_total <= found + TOLERANCE * self.P.shape[0], fault, Infeasible)

    def evaluate(self, policy: object) -> tuple[float, float | Array]:
        """Return the exact V^r(s₁) and V^u(s₁) of a policy, a table (H, S, A) or a mixture (Σ weight · value).

        V^u is a float, or an array (m,) for several limits.
        """
        reward, *utilities = self.values(policy).tolist()
        return reward, utilities[0] if len(utilities) == 1 else np.array(utilities)

    def values(self, policy: object) -> Array:
        """Return V^r(s₁) and V^u(s₁) of each limit, shape (1 + m,)."""
        if isinstance(policy, Mixture):
            weighted = zip(policy.weights, policy.components, strict=True)
            return np.add.reduce([weight * self.values(component) for weight, component in weighted])
        policy = self.task.as_policy(policy)
        if policy not in self._known:
            given = policy.table(), self.task.initial_state
            each = [exact.policy_values(self.P, self._reward, utility, *given) for utility in self._utilities]
            self._known[policy] = np.array([each[0][0], *(utility for _, utility in each)])
        return self._known[policy]

    def optimal_value(self) -> float:
        """Return the exact constrained optimum at s₁."""
        return float(self._optimum[0][0])

    def optimal_policy(self) -> TablePolicy:
        """Return a Markov policy that attains the optimum."""
        return TablePolicy(self._optimum[1], "optimum")

    @cached_property
    def _optimum(self) -> tabular_optimum.Optimum:
        names, limits = self.task.limit_names, (np.stack(self._utilities), self.task.thresholds)
        return exact.optimum(self.P, self._reward, *limits, self.task.initial_state, names)

    def occupancy(self, policy: object) -> Array:
        """Return w_h(s, a) = ℙ(s_h = s, a_h = a), shape (H, S, A)."""
        return tabular_optimum.occupancy(self.P, self.task.as_policy(policy).table(), self.task.initial_state)

    def draw_trace(self, rng: np.random.Generator) -> tuple[int, tuple[object, ...]]:
        """Draw the values of chance in one episode: (start, (w_1, …, w_H))."""
        if self.chance_law is None:
            raise InvalidProblem("the problem has no law of chance, so it has no traces: give move and law")
        return self.chance_law.draw(rng)

    def linearity_gap(self) -> float:
        """Return how far P is from being linear in φ: the largest ‖P_h(·|s,a) − φᵀμ̂_h‖₁; 0 for one-hot features."""
        features = self.task.features
        return exact.linear_measures(self.P, features.phi)[1] if isinstance(features, TableFeatures) else 0.0

    def without_signals(self) -> "LinearCMDP":
        """Return the same problem for an agent that does not know reward and utility and learns both."""
        hidden = tuple(replace(one, utility=None) for one in self.task.constraints)
        made = copy(self)
        made.task = replace(self.task, reward=None, constraints=hidden, move=None, support=None)
        return made

    def save(self, path: str | Path) -> None:
        """Write the problem to one .npz file without pickle; an existing file is replaced atomically."""
        task = self.task
        arrays: dict[str, Any] = {"P": distinct_steps(self.P), "reward": self._reward, "utility": self._utilities}
        arrays |= {"threshold": task.thresholds, "slack": task.slacks, "least_total": task.least_totals}
        arrays |= {"safe_policy": task.incumbent.table()}
        if isinstance(task.features, TableFeatures):
            arrays["phi"] = task.features.phi
        facts: Document = {
            "origin": self.origin, "initial_state": task.initial_state, "time_homogeneous": task.time_homogeneous,
            "norm_bound": task.norm_bound, "names": task.limit_names,
            "units": {name: one.text for name, one in task.units.items()},
            "state_names": list(task.state_names), "action_names": list(task.action_names),
        }  # fmt: skip
        if isinstance(task.move, ListedMove):
            arrays |= {"next_states": task.move.next_states, "rewards": task.move.rewards}
            arrays |= {"utilities": task.move.utilities}
            facts["chance_values"] = list(task.move.values)
            if self.chance_law is not None:
                arrays["law"] = self.chance_law.law
        buffer = io.BytesIO()
        np.savez_compressed(buffer, facts=np.frombuffer(json.dumps(facts).encode(), np.uint8), **arrays)
        write_atomically(Path(path), buffer.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> "LinearCMDP":
        """Return the problem that `save` wrote; every check of the constructor is repeated."""
        try:
            with Path(path).open("rb") as stream, np.load(stream, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            facts = json.loads(arrays.pop("facts").tobytes())
            facts["state_names"] = [_as_name(name) for name in facts["state_names"]]
            values = tuple(_as_name(value) for value in facts.pop("chance_values", ()))
            move = None
            if "next_states" in arrays:
                move = ListedMove(values, *(arrays.pop(name) for name in ("next_states", "rewards", "utilities")))
            arrays["utility"] = list(arrays["utility"])
            arrays["P"] = np.broadcast_to(arrays["P"], (len(arrays["reward"]), *arrays["P"].shape[1:]))
            return cls(**arrays, **facts, move=move)
        except FileNotFoundError:
            raise
        except (KeyError, TypeError, ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
            raise DamagedLog(f"{path} is not a saved problem: {error}") from error


def _as_kernel(given: ArrayLike, time_homogeneous: bool) -> Array:
    """Return P (H, S, A, S), checked; steps share memory if all are the same."""
    shape = np.shape(given)
    fits = len(shape) == 4 and shape[1] == shape[3] and min(shape) > 0
    require(fits, f"P must have shape (H, S, A, S) with no axis empty, got {shape}")
    P = as_distributions("P", given, shape)
    if not time_homogeneous:
        P = np.ascontiguousarray(P)
        P.setflags(write=False)
        return P
    if P.strides[0] == 0:
        return P
    gaps = [float(np.abs(P_h - P[0]).max()) for P_h in P]
    h = int(np.argmax(gaps))
    fault = f"time_homogeneous=True, but P[{h}] differs from P[0] by {gaps[h]:.3g}"
    require(gaps[h] <= TOLERANCE, f"{fault}: leave it out, or give one kernel")
    return np.broadcast_to(P[0].copy(), shape)


def _as_name(value: object) -> Hashable:
    """Return a JSON value with lists as tuples."""
    return tuple(map(_as_name, value)) if isinstance(value, list) else value


def _norm_bound(given: float | None, least: float, dim: int) -> float:
    """Return the B for the task: the given one, checked, or else the least one, or √d if that agrees up to rounding."""
    if given is None:
        root = math.sqrt(dim)
        return root if math.isclose(least, root, rel_tol=TOLERANCE) else least * (1 + TOLERANCE)
    fault = f"norm_bound is {given:.12g}, and P needs {least:.12g} with these features: leave it out"
    require(given >= least * (1 - TOLERANCE), fault, Infeasible)
    return float(given)
