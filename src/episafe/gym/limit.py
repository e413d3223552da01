"""The limit of a live problem: what is kept of which signal, in raw units and scaled to [0, 1]."""

from typing import NamedTuple

from episafe.checks import TOLERANCE, as_number
from episafe.errors import Infeasible, InvalidProblem
from episafe.gym.step_reader import Range, read_range

Pair = tuple[float, float]


class Limit(NamedTuple):
    """What is kept, in raw units: the threshold or the cost limit, the slack, and the ranges of reward and signal."""

    kept: float
    slack: float | None
    scales: tuple[Range, Range]

    def scaled(self, horizon: int) -> tuple[float, float | None]:
        """b and ξ of utilities in [0, 1]: Σ(u − low)/width ≥ (b − H·low)/width, and H − (c − H·low)/width for costs."""
        name, low, high = self.scales[1]
        share = (self.kept - horizon * low) / (high - low)
        b, slack = horizon - share if name == "cost" else share, self.slack and self.slack / (high - low)
        if b + (slack or 0.0) > horizon + TOLERANCE:
            raise Infeasible(
                f"the limit {self.kept:g} with slack {self.slack or 0:g} cannot be kept in {horizon} steps: relax one"
            )
        return b, slack

    def after_the_end(self) -> tuple[float, float]:
        """Reward and utility a step in the absorbing state: raw zeros, scaled."""
        found = []
        for name, low, high in self.scales:
            zero = (0.0 - low) / (high - low)
            if not 0 <= zero <= 1:
                raise InvalidProblem(
                    f"{name}_range [{low:g}, {high:g}] leaves out 0, which is what an episode gets after it has ended: "
                    "widen it"
                )
            found.append(1.0 - zero if name == "cost" else zero)
        return found[0], found[1]


def read_limit(
    threshold: float | None,
    cost_limit: float | None,
    slack: float | None,
    reward_range: Pair,
    utility_range: Pair | None,
    cost_range: Pair | None,
) -> Limit:
    """The limit from what a user gives; a range of the other signal is refused."""
    signal, kept = _constraint(threshold, cost_limit)
    ranges = {"utility": utility_range, "cost": cost_range}
    other = "cost" if signal == "utility" else "utility"
    if ranges[other] is not None:
        raise InvalidProblem(f"{other}_range is given, but the limit is on the {signal}: give {signal}_range")
    found = read_range(signal, (0.0, 1.0) if ranges[signal] is None else ranges[signal])
    return Limit(kept, slack, (read_range("reward", reward_range), found))


def _constraint(threshold: float | None, cost_limit: float | None) -> tuple[str, float]:
    if (threshold is None) == (cost_limit is None):
        raise InvalidProblem(
            'give exactly one of threshold (a lower limit on info["utility"]) and cost_limit (an upper limit on '
            'info["cost"])'
        )
    if threshold is not None:
        return "utility", as_number("threshold", threshold)
    return "cost", as_number("cost_limit", cost_limit)
