"""What a learner is told of a bandit. θ_r and θ_u are not in here, and cannot be reached from it."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from episafe.checks import (
    TOLERANCE,
    as_count,
    as_distributions,
    as_finite,
    as_number,
    as_slack,
    require_takes,
    within_unit_norm,
)
from episafe.errors import InvalidEpisode, InvalidProblem
from episafe.problems.bandit_actions import Actions, ArmsOfRound, Ball, ConvexSet, Ellipsoid, as_actions, as_arms
from episafe.problems.bandit_policy import BanditPlan, Mixture, over_arms, without_negatives
from episafe.types import Array

ROUNDS = 16  # by which a function of the round is recognised in a saved state


@dataclass(frozen=True, eq=False)
class BanditTask:
    """A linear bandit as the learner knows it. All fields are checked.

    Attributes:
        dim: d.
        actions: arms (n, d), a Ball, an Ellipsoid, or a function k ↦ arms of round k, counted from 0. A function must
            be pure: the same k always gives the same arms, however often it is asked.
        threshold: b; every policy must have expected utility ≥ b.
        safe_policy: the incumbent: a distribution (n,) over the arms, a point (d,) of a ball or ellipsoid, or a
            function k ↦ distribution over the arms of round k, pure too.
        slack: ξ > 0 such that the incumbent has expected utility ≥ b + ξ, in every round; None where it is unknown,
            which `OPLBSP(…, slack="estimated")` and agents that do not use ξ accept.
        noise: R; what is observed differs from its mean by R-sub-Gaussian noise.
        norm_bound: B ≥ ‖θ_r‖₂, ‖θ_u‖₂.
    """

    dim: int
    actions: Actions
    threshold: float
    safe_policy: Any
    slack: float | None
    noise: float
    norm_bound: float

    num_constraints = 1
    constraint_names = ("utility",)
    kind = "bandit"
    report_length = 3  # action, reward and utility

    def __post_init__(self) -> None:
        if np.ndim(self.threshold):
            raise InvalidProblem(
                f"threshold is {self.threshold!r}, and a bandit has one constraint: state finitely many arms with "
                "several as an es.LinearCMDP of one step"
            )
        dim = as_count("dim", self.dim)
        self.__dict__.update(dim=dim, actions=as_actions(self.actions, dim))
        for name in ("threshold", "noise", "norm_bound"):
            self.__dict__[name] = as_number(name, getattr(self, name))
        self.__dict__["slack"] = as_slack(self.slack)
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

    @property
    def limits(self) -> float:
        """b."""
        return self.threshold

    @property
    def stated_utility(self) -> float:
        """b + ξ, what the incumbent is said to have; b where the slack is not known."""
        return self.threshold + (self.slack or 0.0)

    def told_slack(self, who: str, otherwise: str = "") -> float:
        """ξ, for what cannot do without; `otherwise` is one more remedy."""
        if self.slack is None:
            remedy = ", ".join(filter(None, ["give the task a slack that the incumbent surely has", otherwise]))
            raise InvalidProblem(f"{who} needs the slack ξ, and the task has slack=None: {remedy}")
        return self.slack

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

    def incumbent_policy(self, round: int) -> Mixture:
        """The incumbent of a round as what it plays."""
        incumbent = self.incumbent(round)
        return over_arms(self.arms(round), incumbent) if self.is_finite else Mixture(incumbent[None, :], np.ones(1))

    def as_plan(self, policy: Mixture, *facts: Any) -> BanditPlan:
        """A plan of a policy, by the facts that `BanditPlan` has after it."""
        return BanditPlan(policy.atoms, policy.probabilities, *facts)

    def read_report(self, action: Any, reward: Any, utility: Any) -> tuple[tuple[Array, Array, Array], None]:
        """One observation or a batch: actions (m, d), rewards (m,), utilities (m,); else an InvalidEpisode."""
        rewards, utilities = (np.atleast_1d(_observed(*pair)) for pair in (("reward", reward), ("utility", utility)))
        try:
            actions = as_finite("action", np.atleast_2d(np.asarray(action)), (len(rewards), self.dim))
            within_unit_norm("action", actions, getattr(self.actions, "tolerance", TOLERANCE))
        except InvalidProblem as error:
            raise InvalidEpisode(str(error)) from error
        if rewards.shape != utilities.shape or rewards.ndim != 1:
            raise InvalidEpisode(f"as many rewards as utilities, one an action: got {rewards.shape}, {utilities.shape}")
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
        return {"actions": actions, "safe_policy": policy, "dim": self.dim, "threshold": self.threshold}

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
        names = ("dim", "threshold", "safe_policy", "slack", "noise", "norm_bound")
        told = {name: np.asarray(getattr(self, name)) for name in names if getattr(self, name) is not None}
        return {actions: self._action_numbers(0), **told}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "BanditTask":
        """The task that `as_arrays` gave."""
        dim, slack = int(arrays["dim"]), float(arrays["slack"]) if "slack" in arrays else None
        actions: Any = arrays.get("arms")
        if actions is None:
            actions = Ellipsoid(arrays["M"]) if "M" in arrays else Ball(float(arrays["radius"][0]), dim)
        threshold, noise, bound = (float(arrays[name]) for name in ("threshold", "noise", "norm_bound"))
        return cls(dim, actions, threshold, arrays["safe_policy"], slack, noise, bound)

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
            return given  # type: ignore[no-any-return]
        if isinstance(self.actions, np.ndarray):
            return without_negatives(as_distributions("safe_policy", given, (len(self.actions),)))
        point = as_finite("safe_policy", given, (self.dim,))
        if not self.convex_set.contains(point):
            raise InvalidProblem(f"safe_policy {point.tolist()} lies outside the action set: scale it down")
        return point


def require_bandit_task(task: Any) -> None:
    """An error that says what to pass in place of what is no task of a bandit."""
    if not isinstance(task, BanditTask):
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
