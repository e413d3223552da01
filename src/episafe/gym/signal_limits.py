"""The limits of a live problem: what is kept of which signal, raw and scaled to [0, 1], and its own time limit."""

from typing import Any

from episafe.checks import TOLERANCE, as_number
from episafe.errors import Infeasible, InvalidProblem
from episafe.gym.autoreset import sub_environments
from episafe.gym.step_reader import LIMIT, OTHER, Range, read_range

Pair = tuple[float, float]
# what is kept in raw units, the threshold or the cost limit; the slack; and the ranges of reward and signal
Limit = tuple[float, float | None, tuple[Range, Range]]


def scale_limit(limit: Limit, horizon: int) -> tuple[float, float | None]:
    """b and ξ of utilities in [0, 1]: Σ(u − low)/width ≥ (b − H·low)/width, and H − (c − H·low)/width for costs."""
    kept, raw_slack, (_, (name, low, high)) = limit
    share = (kept - horizon * low) / (high - low)
    b, slack = horizon - share if name == "cost" else share, raw_slack and raw_slack / (high - low)
    if b + (slack or 0.0) > horizon + TOLERANCE:
        raise Infeasible(
            f"the limit {kept:g} with slack {raw_slack or 0:g} cannot be kept in {horizon} steps: relax one"
        )
    if name == "cost" and low < 0 and b <= 0:
        raise InvalidProblem(
            f"no policy can exceed the limit {kept:g} with costs in [{low:g}, {high:g}], so nothing would be kept: "
            f"report penalties as their size, with a cost_range from 0 up, or give a limit below {horizon * high:g}, "
            f"what {horizon} steps cost at most"
        )
    return b, slack


def scale_end(scales: tuple[Range, Range]) -> tuple[float, float]:
    """Reward and utility a step in the absorbing state: raw zeros, scaled."""
    found = []
    for name, low, high in scales:
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
    if (threshold is None) == (cost_limit is None):
        raise InvalidProblem(
            'give exactly one of threshold (a lower limit on info["utility"]) and cost_limit (an upper limit on '
            'info["cost"])'
        )
    signal, given = ("cost", cost_limit) if threshold is None else ("utility", threshold)
    kept = as_number(LIMIT[signal], given)
    ranges = {"utility": utility_range, "cost": cost_range}
    other = OTHER[signal]
    if ranges[other] is not None:
        raise InvalidProblem(f"{other}_range is given, but the limit is on the {signal}: give {signal}_range")
    found = read_range(signal, (0.0, 1.0) if ranges[signal] is None else ranges[signal])
    return kept, slack, (read_range("reward", reward_range), found)


def check_time_limit(env: Any, horizon: int) -> None:
    """Refuse a limit of its own that is not the horizon."""
    for one in sub_environments(env) or (env,):
        limit = _time_limit(one)
        if limit is not None and limit != horizon:
            raise InvalidProblem(
                f"the environment's own time limit is {limit} steps and the horizon {horizon}: the constraint is on "
                f"whole episodes, so make it with gymnasium.make(…, max_episode_steps={horizon}), or give "
                f"horizon={limit}; if a wrapper of yours repeats steps, wrap env.unwrapped, which has no limit"
            )


def _time_limit(env: Any) -> Any:
    """That of `gymnasium.make`, which `make_vec` leaves in the arguments of the spec; else of the wrapper TimeLimit."""
    spec = getattr(env, "spec", None)
    given = (getattr(spec, "kwargs", None) or {}).get("max_episode_steps")
    limit = getattr(spec, "max_episode_steps", None) if given is None else given
    while limit is None and env is not None:
        limit = getattr(env, "_max_episode_steps", None) if type(env).__name__ == "TimeLimit" else None
        env = getattr(env, "env", None)
    return limit
