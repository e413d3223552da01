"""What is told of a rollout: a threshold, an incumbent, and nothing of what policies see or do."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from episafe.checks import TOLERANCE, as_number, as_slack, is_number
from episafe.errors import Infeasible, InvalidEpisode, InvalidProblem
from episafe.problems.episodic_task import EpisodicTask
from episafe.problems.policy import Component, Policy
from episafe.problems.short_repr import short_repr
from episafe.types import Episode


@dataclass(frozen=True, eq=False, repr=False)
class RolloutTask(EpisodicTask):
    """A task whose policies are opaque and whose episodes have totals alone. All fields are checked.

    Attributes:
        threshold: b; every deployed mixture must have expected total utility ≥ b.
        slack: ξ > 0 with V^u(incumbent) ≥ b + ξ; None where nobody knows it, and then V^u(incumbent) ≥ b.
        incumbent: whatever acts today.
        utility_max: the most that an episode's utility can be; None where there is no such number.
        least_total: the least that it can be, below b. An episode that has less voids all certificates.
    """

    threshold: float
    slack: float | None
    incumbent: Any
    utility_max: float | None = None
    least_total: float = 0.0

    kind = "rollout"
    is_listed: ClassVar[Literal[False]] = False  # there are no states
    one_hot = True  # and no features

    def __post_init__(self) -> None:
        b, slack = as_number("threshold", self.threshold), as_slack(self.slack)
        most = None if self.utility_max is None else as_number("utility_max", self.utility_max)
        least = as_number("least_total", self.least_total)
        if b <= least:
            raise InvalidProblem(
                f"threshold must be > {least:.12g}, got {b:.12g}: every episode has that utility, so that all are safe"
            )
        if most is not None and b + (slack or 0.0) > most + TOLERANCE:
            raise Infeasible(f"threshold {b:.12g} + slack {slack or 0:.12g} exceeds utility_max {most:.12g}")
        self.__dict__.update(threshold=b, slack=slack, utility_max=most, least_total=least)
        self.__dict__["safe_policy"] = Component(self.incumbent, "incumbent")

    def __repr__(self) -> str:
        return short_repr(self, {name: getattr(self, name) for name in ("threshold", "slack", "utility_max")})

    @property
    def horizon(self) -> float:  # type: ignore[override]
        """The most that an episode's utility can be, as H is for a task of H steps; infinite where nobody says."""
        return math.inf if self.utility_max is None else self.utility_max

    @property
    def known(self) -> float | None:
        """b + ξ; None where the slack is not known."""
        return None if self.slack is None else self.threshold + self.slack

    def read_report(self, episode: Episode) -> tuple[None, None]:
        """Nothing but totals, which are checked here; what does not fit is an InvalidEpisode.

        A total below `least_total` fits: it happened, and to refuse it would be to count it as that.
        """
        steps = ("states", "actions", "rewards", "utilities", "trace")
        if any(getattr(episode, name) is not None for name in steps):
            raise InvalidEpisode("a rollout knows no steps: report es.Episode.of_totals(utility, reward, component)")
        for name in ("total_utility", "total_reward"):
            total = getattr(episode, name)
            if not is_number(total) or not math.isfinite(total):
                raise InvalidEpisode(
                    f"{name} must be a finite number, got {total!r}: report es.Episode.of_totals(utility, reward); a "
                    "time-out or a failure counts for whoever was drawn, as utility 0"
                )
        if not episode.total_utility <= self.horizon * (1 + TOLERANCE):
            raise InvalidEpisode(
                f"total_utility must be at most {self.horizon:.12g}, got {episode.total_utility!r}: state a larger "
                "utility_max, or rescale utilities and threshold"
            )
        return None, None

    def total(self, signal: Any, episode: Episode) -> float:
        """The total reward or utility of an episode that fits."""
        return float(getattr(episode, f"total_{signal}"))

    def numbers(self, policies: list[Policy]) -> list[Any]:
        """Threshold, slack and utility_max, NaN for what is not known; and the least total, where it is not 0."""
        said = (self.threshold, self.slack, self.utility_max)
        numbers = [math.nan if number is None else number for number in said]
        return [np.array(numbers + ([self.least_total] if self.least_total else []))]
