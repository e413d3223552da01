"""What a learner is told of a bandit. θ_r and θ_u are not in here, and cannot be reached from it."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from episafe.checks import (
    TOLERANCE,
    as_count,
    as_distributions,
    as_finite,
    as_number,
    require_takes,
    within_unit_norm,
)
from episafe.errors import InvalidEpisode, InvalidProblem, reason_of
from episafe.problems.bandit_actions import Actions, ArmsOfRound, Ball, ConvexSet, Ellipsoid, as_actions, as_arms
from episafe.problems.bandit_policy import BanditPlan, Mixture, over_arms, without_negatives
from episafe.problems.constrained_task import ConstrainedTask
from episafe.problems.short_repr import short_repr
from episafe.problems.task import as_constraints, constraints_of, limit_arrays, limits_from
from episafe.types import Array

ROUNDS = 16  # by which a function of the round is recognised in a saved state


@dataclass(frozen=True, eq=False, repr=False)
class BanditTask(ConstrainedTask):
    """A linear bandit as the learner knows it. All fields are checked.

    Args:
        dim: d.
        actions: arms (n, d), a Ball, an Ellipsoid, or a function k ↦ arms of round k, counted from 0. A function must
            be pure: the same k always gives the same arms, however often it is asked.
        threshold: b; every policy must have expected utility ≥ b. A list, where there are several constraints: these
            need finitely many arms.
        safe_policy: the incumbent: a distribution (n,) over the arms, a point (d,) of a ball or ellipsoid, or a
            function k ↦ distribution over the arms of round k, pure too.
        slack: ξ > 0 such that the incumbent has expected utility ≥ b + ξ, in every round; None where it is unknown,
            which `OPLBSP(…, slack="estimated")` and agents that do not use ξ accept. A list of several.
        noise: R; what is observed differs from its mean by R-sub-Gaussian noise.
        norm_bound: B ≥ ‖θ_r‖₂, ‖θ_u‖₂, of every utility.
        names: what people read of each constraint.
    """

    dim: int
    actions: Actions
    threshold: Any = field()  # and not what tasks have in common, which refuses several
    safe_policy: Any = field()
    slack: Any = field()
    noise: float = field()
    norm_bound: float = field()
    names: Sequence[str] = ()

    kind = "bandit"
    report_length = 3  # action, reward and utility

    def __post_init__(self) -> None:
        told, dim = self.__dict__, as_count("dim", self.dim)
        constraints = as_constraints(constraints_of(None, told.pop("threshold"), told.pop("slack"), self.names))
        told.update(dim=dim, actions=as_actions(self.actions, dim))
        told.update({name: as_number(name, told[name]) for name in ("noise", "norm_bound")})
        told["constraint"] = constraints if len(constraints) > 1 else constraints[0]
        if not self.is_finite and len(constraints) > 1:
            raise InvalidProblem(
                f"threshold has {len(constraints)} entries, and actions are no arms: several constraints need finitely "
                f"many, list arms of the {type(self.actions).__name__.lower()}"
            )
        if self.noise < 0:
            raise InvalidProblem(f"noise must be >= 0, got {self.noise}: it is the R of R-sub-Gaussian noise")
        if self.norm_bound <= 0:
            raise InvalidProblem(f"norm_bound must be > 0, got {self.norm_bound}: it is B with ‖θ‖₂ <= B")
        self.__dict__["safe_policy"] = self._checked_incumbent()
        for name, ask in (("actions", self.arms), ("safe_policy", self.incumbent)) if self.changes else ():
            if not np.array_equal(ask(0), ask(0)):
                raise InvalidProblem(
                    f"{name}(0) gave two answers to one question: it must be a pure function of the round; draw "
                    "what is random beforehand, or seed it by k"
                )

    def __repr__(self) -> str:
        said = {"actions": f"{len(self.incumbent(0))} arms" if self.is_finite else self.actions, "dim": self.dim}
        limits = {f"threshold{one.of}": one.threshold for one in self.constraints}
        limits |= {f"slack{one.of}": one.slack for one in self.constraints}
        return short_repr(self, {**said, **limits, "noise": self.noise, "norm_bound": self.norm_bound})

    def told_slacks(self, who: str, otherwise: str = "") -> list[float]:
        """ξ of every constraint, for what cannot do without; `otherwise` is one more remedy."""
        for one in self.constraints:
            if one.slack is None:
                remedy = ", ".join(filter(None, ["give the task a slack that the incumbent surely has", otherwise]))
                raise InvalidProblem(f"{who} needs the slack ξ{one.of}, and the task has slack=None: {remedy}")
        return [one.slack for one in self.constraints]

    def require_one(self, who: str) -> None:
        """Refuse several constraints for an agent whose argument has one."""
        if self.num_constraints > 1:
            raise InvalidProblem(
                f"{who} takes one constraint, and the task has {self.num_constraints} "
                f"({', '.join(self.constraint_names)}): use es.bandits.OPLBSP, which takes several"
            )

    def of_constraint(self, c: int) -> "BanditTask":
        """The same task as if constraint c were the only one."""
        one = self.constraints[c]
        told = (self.safe_policy, one.slack, self.noise, self.norm_bound)
        return BanditTask(self.dim, self.actions, one.threshold, *told)

    @property
    def changes(self) -> bool:
        """Whether the arms change from round to round."""
        return callable(self.actions)

    @property
    def is_finite(self) -> bool:
        """Whether each round has finitely many arms."""
        return not isinstance(self.actions, ConvexSet)

    @property
    def convex_set(self) -> Ball | Ellipsoid:
        """The ball or ellipsoid."""
        assert isinstance(self.actions, ConvexSet)
        return self.actions

    def arms(self, round: int) -> Array:
        """The arms (n, d) of a round, checked."""
        if not callable(self.actions):
            assert isinstance(self.actions, np.ndarray)
            return self.actions
        return as_arms(f"actions({round})", self.actions(round), self.dim)

    def incumbent(self, round: int) -> Array:
        """The incumbent of a round, checked: a distribution (n,) over its arms, or a point (d,)."""
        if not callable(self.safe_policy):
            found: Array = self.safe_policy
            return found
        given = as_distributions(f"safe_policy({round})", self.safe_policy(round), (len(self.arms(round)),))
        return without_negatives(given)

    def require_round(self, round: int) -> None:
        """Refuse a round of which nobody knows arms or incumbent: nothing at all could act in it."""
        try:
            self.incumbent_policy(round)
        except Exception as error:  # of functions of somebody's own
            raise ValueError(
                f"nothing is known of round {round}, and nothing was deployed: {reason_of(error)}"
            ) from error

    def incumbent_policy(self, round: int) -> Mixture:
        """The incumbent of a round as what it plays."""
        incumbent = self.incumbent(round)
        return over_arms(self.arms(round), incumbent) if self.is_finite else Mixture(incumbent[None, :], np.ones(1))

    def incumbent_plan(self, round: int, *facts: Any) -> BanditPlan:
        """A plan of the incumbent of a round, by the facts that `BanditPlan` has after the policy."""
        return self.as_plan(self.incumbent_policy(round), *facts)

    def as_plan(self, policy: Mixture, *facts: Any) -> BanditPlan:
        """A plan of a policy, by the facts that `BanditPlan` has after it."""
        return BanditPlan(policy.atoms, policy.probabilities, *facts)

    def read_report(self, action: Any, reward: Any, utility: Any) -> tuple[tuple[Array, Array, Array], None]:
        """One observation or a batch: actions (n, d), rewards (n,), utilities (n,), or (n, m) of several constraints.

        What does not fit is an InvalidEpisode.
        """
        rewards, utilities = (_observed(*pair) for pair in (("reward", reward), ("utility", utility)))
        m = self.num_constraints
        if not (np.size(action) or rewards.size or utilities.size):  # nobody came
            return (np.zeros((0, self.dim)), np.zeros(0), np.zeros(0 if m == 1 else (0, m))), None
        rewards, utilities = np.atleast_1d(rewards), np.atleast_1d(utilities) if m == 1 else np.atleast_2d(utilities)
        try:
            actions = as_finite("action", np.atleast_2d(np.asarray(action)), (len(rewards), self.dim))
            within_unit_norm("action", actions, getattr(self.actions, "tolerance", TOLERANCE))
        except InvalidProblem as error:
            raise InvalidEpisode(str(error)) from error
        if rewards.ndim != 1 or utilities.shape != (rewards.shape if m == 1 else (len(rewards), m)):
            each = "" if m == 1 else f", {m} utilities, one a constraint"
            raise InvalidEpisode(
                f"as many rewards as utilities, one an action{each}: got {rewards.shape}, {utilities.shape}"
            )
        return (actions, rewards, utilities), None

    def draw(self, plan: BanditPlan, rng: np.random.Generator) -> tuple[int, BanditPlan]:
        """Nothing is tossed: whoever acts draws from the plan."""
        return 0, plan

    def component(self, plan: BanditPlan, index: int) -> BanditPlan:
        """What whoever acts draws from."""
        return plan

    def report_values(self, action: Any, reward: Any, utility: Any) -> list[Any]:
        """An observation, or a batch, as a journal keeps it; `report_from` gives it back."""
        return [np.asarray(value) for value in (action, reward, utility)]

    def report_from(self, values: list[Any]) -> tuple[Any, ...]:
        """What an agent learns from, of what `report_values` gave."""
        return tuple(values)

    def seen_by(self, c: int, report: tuple[Any, ...]) -> tuple[Any, ...]:
        """A report as constraint c sees it, of several; its last part is the utility."""
        utilities = np.asarray(report[-1])
        return (*report[:-1], utilities[..., c] if utilities.size else np.zeros(0))

    def with_component(self, report: tuple[Any, ...], component: int | None) -> tuple[Any, ...]:
        """The report as it is: a plan of a bandit is drawn from by whoever acts."""
        return report

    def check_report(self, action: Any, reward: Any, utility: Any) -> None:
        """Refuse an observation, or a batch, that does not fit."""
        self.read_report(action, reward, utility)

    def identity(self) -> dict[str, Any]:
        """What the task is known by; arms that change, by their first rounds."""
        rounds = range(ROUNDS) if self.changes else range(1)
        actions, policy = (_digest(map(ask, rounds)) for ask in (self._action_numbers, self.incumbent))
        threshold = np.asarray(self.limits).tolist()
        return {"actions": actions, "safe_policy": policy, "dim": self.dim, "threshold": threshold}

    def differing(self, other: "BanditTask", rounds: Iterable[int]) -> str:
        """The name of what two tasks do not share of actions and incumbent, "" where they agree in all the rounds."""
        if self.changes != other.changes or type(self.actions) is not type(other.actions):
            return "actions"
        if self.actions is other.actions and self.safe_policy is other.safe_policy:
            return ""
        for k in rounds if self.changes else range(1):
            if not np.array_equal(self._action_numbers(k), other._action_numbers(k)):
                return "actions"
            if not np.array_equal(self.incumbent(k), other.incumbent(k)):
                return "safe_policy"
        return ""

    def numbers(self, policies: list[Any]) -> list[Any]:
        """None beside its identity."""
        return []

    def places(self, *report: Any) -> list[Any]:
        """None: the incumbent is part of its identity; where arms change, by its first rounds."""
        return []

    def _action_numbers(self, round: int) -> Array:
        return self.arms(round) if self.is_finite else self.convex_set.numbers

    def as_arrays(self) -> dict[str, NDArray[Any]] | None:
        """The task as named arrays, from which `from_arrays` makes it again; None where arms change."""
        if self.changes:
            return None
        actions = "arms" if self.is_finite else self.convex_set.kind
        names = ("dim", "safe_policy", "noise", "norm_bound")
        told = {name: np.asarray(getattr(self, name)) for name in names}
        return {actions: self._action_numbers(0), **told, **limit_arrays(self.constraints)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "BanditTask":
        """The task that `as_arrays` gave."""
        dim, actions = int(arrays["dim"]), arrays.get("arms")  # type: int, Any
        if actions is None:
            actions = Ellipsoid(arrays["M"]) if "M" in arrays else Ball(float(arrays["radius"][0]), dim)
        thresholds, slacks, names, _ = limits_from(arrays)
        several, rest = len(thresholds) > 1, (float(arrays["noise"]), float(arrays["norm_bound"]))
        threshold, slack = (thresholds, slacks) if several else (thresholds[0], slacks[0])
        return cls(dim, actions, threshold, arrays["safe_policy"], slack, *rest, names)

    def _checked_incumbent(self) -> Array | ArmsOfRound:
        given = self.safe_policy
        if callable(self.actions) != callable(given):
            raise InvalidProblem(
                "actions and safe_policy must both be functions of the round, or neither: "
                "where the arms change, the incumbent is a distribution over the arms of the round"
            )
        if callable(given):
            for name in ("actions", "safe_policy"):
                require_takes(name, getattr(self, name), f"{name}(round)", 0)
            return given
        if isinstance(self.actions, np.ndarray):
            return without_negatives(as_distributions("safe_policy", given, (len(self.actions),)))
        point = as_finite("safe_policy", given, (self.dim,))
        if not self.convex_set.contains(point):
            raise InvalidProblem(f"safe_policy {point.tolist()} lies outside the action set: scale it down")
        return point


def require_bandit_task(task: Any) -> None:
    """An error that says what to pass in place of what is no task of a bandit."""
    if getattr(task, "kind", "") != BanditTask.kind:
        hint = ": pass its .task" if hasattr(task, "task") else ""
        raise TypeError(f"give a BanditTask, got {type(task).__name__}{hint}")


def _observed(name: str, value: Any) -> Array:
    found = np.asarray(value)
    if found.dtype.kind not in "biuf" or not np.isfinite(found).all():
        raise InvalidEpisode(f"{name} must be finite numbers, got {value!r}: leave out what was not seen")
    return found.astype(np.float64)


def _digest(arrays: Iterable[Array]) -> str:
    found = hashlib.sha256()
    for array in arrays:
        found.update(str(array.shape).encode() + np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]
