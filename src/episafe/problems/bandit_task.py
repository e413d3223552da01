"""What a learner is told of a bandit. θ_r and θ_u are not in here, and cannot be reached from it."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from episafe.checks import as_count, as_distributions, as_finite, as_number
from episafe.errors import InvalidProblem
from episafe.problems.bandit_actions import Actions, ArmsOfRound, Ball, ConvexSet, Ellipsoid, as_actions, as_arms
from episafe.problems.bandit_policy import without_negatives
from episafe.types import Array


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

    def __post_init__(self) -> None:
        dim = as_count("dim", self.dim)
        checked: dict[str, Any] = {"dim": dim, "actions": as_actions(self.actions, dim)}
        for name in ("threshold", "noise", "norm_bound"):
            checked[name] = as_number(name, getattr(self, name))
        if self.slack is not None:
            checked["slack"] = as_number("slack", self.slack)
            if checked["slack"] <= 0:
                raise InvalidProblem(
                    f"slack must be > 0, got {checked['slack']}: the incumbent must beat the threshold strictly"
                )
        if checked["noise"] < 0:
            raise InvalidProblem(f"noise must be >= 0, got {checked['noise']}: it is the R of R-sub-Gaussian noise")
        if checked["norm_bound"] <= 0:
            raise InvalidProblem(f"norm_bound must be > 0, got {checked['norm_bound']}: it is B with ‖θ‖₂ <= B")
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "safe_policy", self._incumbent())
        if self.changes:
            self._refuse_what_is_not_pure()

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

    def _refuse_what_is_not_pure(self) -> None:
        for name, ask in (("actions", self.arms), ("safe_policy", self.incumbent)):
            if not np.array_equal(ask(0), ask(0)):
                raise InvalidProblem(
                    f"{name}(0) gave two answers to one question: it must be a pure function of the round; draw "
                    "what is random beforehand, or seed it by k"
                )

    def _incumbent(self) -> Array | ArmsOfRound:
        given = self.safe_policy
        if callable(self.actions) != callable(given):
            raise InvalidProblem(
                "actions and safe_policy must both be functions of the round, or neither: "
                "where the arms change, the incumbent is a distribution over the arms of the round"
            )
        if callable(given):
            return given  # type: ignore[no-any-return]
        if isinstance(self.actions, np.ndarray):
            return without_negatives(as_distributions("safe_policy", given, (len(self.actions),)))
        point = as_finite("safe_policy", given, (self.dim,))
        if not self.convex_set.contains(point):
            raise InvalidProblem(f"safe_policy {point.tolist()} lies outside the action set: scale it down")
        return point
