"""What is told of a rollout: a threshold, an incumbent, and nothing of what policies see or do."""

import hashlib
import math
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath
from typing import Any, ClassVar, Literal

import numpy as np

from episafe.checks import TOLERANCE, as_number, is_number
from episafe.errors import Infeasible, InvalidEpisode, InvalidProblem
from episafe.problems.episodic_task import EpisodicTask
from episafe.problems.policy import Component, Policy
from episafe.problems.short_repr import short_repr
from episafe.problems.task import as_constraints
from episafe.types import Episode, amount, amounts


@dataclass(frozen=True, eq=False, repr=False)
class RolloutTask(EpisodicTask):
    """A task whose policies are opaque and whose episodes have totals alone. All fields are checked.

    Attributes:
        constraint: one or several, without a utility. threshold b: every deployed mixture must have expected total
            utility ≥ b. slack ξ > 0 with V^u(incumbent) ≥ b + ξ; None where nobody knows it, and then V^u(incumbent) ≥
            b. least_total: the least that an episode's utility can be, below b; one that has less voids all
            certificates.
        incumbent: whatever acts today.
        utility_max: the most that an episode's utility can be; None where there is no such number.
    """

    constraint: Any
    incumbent: Any
    utility_max: float | None = None

    kind = "rollout"
    is_listed: ClassVar[Literal[False]] = False  # there are no states
    one_hot = True  # and no features

    def __post_init__(self) -> None:
        most = None if self.utility_max is None else as_number("utility_max", self.utility_max)
        constraints = as_constraints(self.constraint)
        for one in constraints:
            b, slack = one.threshold, one.slack or 0.0
            if b <= one.least_total:
                raise InvalidProblem(
                    f"threshold{one.of} must be > {one.least_total:.12g}, got {b:.12g}: every episode has that "
                    "utility, so that all are safe"
                )
            if most is not None and b + slack > most + TOLERANCE * abs(most):
                raise Infeasible(
                    f"threshold {b:.12g} + slack {slack:.12g}{one.of} exceeds utility_max {most:.12g}: state all "
                    "three in the units of an episode's total utility"
                )
        self.__dict__.update(constraint=constraints if len(constraints) > 1 else constraints[0], utility_max=most)
        self.__dict__["safe_policy"] = Component(self.incumbent, "incumbent")

    def __repr__(self) -> str:
        facts = [{f"threshold{one.of}": one.threshold, f"slack{one.of}": one.slack} for one in self.constraints]
        return short_repr(
            self, {name: fact for one in facts for name, fact in one.items()} | {"utility_max": self.utility_max}
        )

    @property
    def incumbent_name(self) -> str:
        """A hash of the name, path or address that stands for the incumbent; "" where it is anything else."""
        return hashlib.sha256(repr(self.incumbent).encode()).hexdigest()[:16] if _is_name(self.incumbent) else ""

    @property
    def horizon(self) -> float:  # type: ignore[override]
        """The most that an episode's utility can be, as H is for a task of H steps; infinite where nobody says."""
        return math.inf if self.utility_max is None else self.utility_max

    @property
    def known(self) -> Any:
        """b + ξ, or a list of them where there are several constraints; None where a slack is not known."""
        each = [None if one.slack is None else one.threshold + one.slack for one in self.constraints]
        return each if len(each) > 1 else each[0]

    def read_report(self, episode: Episode) -> tuple[None, None]:
        """Nothing but totals, which are checked here; what does not fit is an InvalidEpisode.

        A total below `least_total` fits: it happened, and to refuse it would be to count it as that.
        """
        steps = ("states", "actions", "rewards", "utilities", "trace")
        if any(getattr(episode, name) is not None for name in steps):
            raise InvalidEpisode("a rollout knows no steps: report es.Episode.of_totals(utility, reward, component)")
        for name in ("total_utility", "total_reward"):
            total, m = getattr(episode, name), self._width("utility" if name == "total_utility" else "reward")
            numbers: list[Any] = [total] if m is None else list(total) if np.shape(total) == (m,) else [None]
            if not all(is_number(number) and math.isfinite(number) for number in numbers):
                wanted = "a finite number" if m is None else f"{m} finite numbers, one a constraint"
                raise InvalidEpisode(
                    f"{name} must be {wanted}, got {total!r}: report es.Episode.of_totals(utility, reward); a "
                    "time-out or a failure counts for whoever was drawn, as utility 0"
                )
        for one, total in zip(self.constraints, amounts(episode.total_utility).tolist(), strict=True):
            if not total <= self.horizon + TOLERANCE * abs(self.horizon):
                raise InvalidEpisode(
                    f"total_utility{one.of} must be at most {self.horizon:.12g}, got {total!r}: state a larger "
                    "utility_max, or rescale utilities and threshold"
                )
        return None, None

    def total(self, signal: Any, episode: Episode) -> Any:
        """The total reward or utility of an episode that fits."""
        return amount(amounts(getattr(episode, f"total_{signal}")))

    def numbers(self, policies: list[Policy]) -> list[Any]:
        """Thresholds, slacks and utility_max, NaN for what is not known; and the least totals, where one is not 0."""
        said = [number for one in self.constraints for number in (one.threshold, one.slack)] + [self.utility_max]
        numbers = [math.nan if number is None else number for number in said]
        least = [one.least_total for one in self.constraints]
        return [np.array(numbers + (least if any(least) else []))]


def _is_name(incumbent: Any) -> bool:
    """Whether something is plain values alone, which say the same in every process."""
    if isinstance(incumbent, tuple | list):
        return all(map(_is_name, incumbent))
    if isinstance(incumbent, dict):
        return all(map(_is_name, (*incumbent.keys(), *incumbent.values())))
    return isinstance(incumbent, str | bytes | int | float | PurePath | Enum | np.generic)
