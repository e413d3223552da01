"""The limits of a live problem: what is kept of which signal, raw and scaled to [0, 1], and its own time limit."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from episafe.checks import TOLERANCE, as_number, as_slack
from episafe.errors import Infeasible, InvalidProblem
from episafe.gym.autoreset import sub_environments
from episafe.gym.step_reader import LIMIT, OTHER, Range, read_range

Pair = tuple[float, float]
ONE_NAME = ""  # of a limit on the one signal, which is no mapping
# what is kept in raw units, the threshold or the cost limit; the slack; the ranges of reward and signal; and the worst
# total of an episode, the least utility or the largest cost, None where nobody states it
Limit = tuple[float, float | None, tuple[Range, Range], float | None]
LEAST = {"utility": "least_total", "cost": "episode_cost_max"}
# what says nothing of a limit on a signal, and what to give in its place
INSTEAD = {
    "utility": {"cost_range": "utility_range", "episode_cost_max": "least_total"},
    "cost": {"utility_range": "cost_range", "least_total": "episode_cost_max"},
}


def scale_limit(limit: Limit, horizon: int) -> tuple[float, float | None, float]:
    """b, ξ and the least total of utilities in [0, 1].

    Σ(u − low)/width ≥ (b − H·low)/width, and H − (c − H·low)/width for costs.
    """
    kept, raw_slack, (_, scale), worst = limit
    name, low, high = scale
    b, slack = scale_total(kept, scale, horizon), raw_slack and raw_slack / (high - low)
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
    least = 0.0 if worst is None else max(scale_total(worst, scale, horizon), 0.0)
    if worst is not None and least >= b:
        raise InvalidProblem(
            f"no episode can break the limit {kept:g}, as none has a worse total {name} than {worst:g}, so nothing "
            f"would be kept: give what an episode has at the very worst, in the units of the {name}"
        )
    return b, slack, least


def scale_total(total: float, scale: Range, horizon: int) -> float:
    """A total of an episode in raw units, of utilities or costs, as one of utilities in [0, 1] a step."""
    share = (total - horizon * scale.low) / (scale.high - scale.low)
    return horizon - share if scale.name == "cost" else share


def raw_total(total: float, scale: Range, horizon: int) -> float:
    """The inverse of `scale_total`."""
    share = horizon - total if scale.name == "cost" else total
    return horizon * scale.low + share * (scale.high - scale.low)


class Units(NamedTuple):
    """The units that a limit was stated in: those of its signal, or of the task itself, where `scale` is None."""

    scale: Range | None
    horizon: int

    @property
    def signal(self) -> str:
        """What the limit is on, "utility" or "cost"."""
        return "utility" if self.scale is None else self.scale.name

    def raw(self, total: float) -> float:
        """A total of the task in these units."""
        return total if self.scale is None else raw_total(total, self.scale, self.horizon)

    def scaled(self, kept: Any, slack: Any, threshold: float, least_total: float) -> tuple[Any, Any]:
        """Another limit and another slack as b and ξ of the task; None for one that is not given, and stays.

        Args:
            kept, slack: in these units.
            threshold, least_total: of the task, as they were.
        """
        if self.scale is None or (kept is None and slack is None):
            return kept, slack
        new = None if kept is None else as_number(LIMIT[self.signal], kept)
        worst = self.raw(least_total) if new is not None and least_total > 0 else None
        stated = self.raw(threshold) if new is None else new, as_slack(slack), (self.scale, self.scale), worst
        b, xi, _ = scale_limit(stated, self.horizon)
        return None if new is None else b, xi


def units_of(task: Any) -> tuple[Units, ...]:
    """The units of each constraint's limit."""
    reading, m = getattr(task, "reading", None), task.num_constraints
    if reading is None:
        return (Units(None, 0),) * m
    scales = reading.scales[1:]
    if len(scales) != m:
        raise ValueError(
            f"the task has {m} of {len(scales)} limits of its environment: take the task that has them all"
        )
    return tuple(Units(scale, task.horizon - int(task.random_start)) for scale in scales)


def scale_end(scales: tuple[Range, ...]) -> tuple[float, ...]:
    """Reward and utilities a step in the absorbing state: raw zeros, scaled."""
    found = []
    for name, low, high in scales:
        zero = (0.0 - low) / (high - low)
        if not 0 <= zero <= 1:
            raise InvalidProblem(
                f"{name}_range [{low:g}, {high:g}] leaves out 0, which is what an episode gets after it has ended: "
                "widen it"
            )
        found.append(1.0 - zero if name == "cost" else zero)
    return tuple(found)


def read_limits(
    threshold: Any,
    cost_limit: Any,
    slack: Any,
    reward_range: Pair,
    utility_range: Any,
    cost_range: Any,
    least_total: Any = None,
    episode_cost_max: Any = None,
) -> dict[str, Limit]:
    """The limits from what a user gives: one, by no name, or by the names of mappings, thresholds before cost limits.

    With mappings, ranges and worst totals are mappings too, or one for all of their kind.
    """
    given = {"utility": (threshold, utility_range, least_total), "cost": (cost_limit, cost_range, episode_cost_max)}
    reward = read_range("reward", reward_range)
    if not any(isinstance(kept, Mapping) for kept, _, _ in given.values()):
        return {ONE_NAME: _one_limit(given, as_slack(slack), reward)}
    limits: dict[str, Limit] = {}
    for signal, (kept, ranges, worst) in given.items():
        if kept is not None and not isinstance(kept, Mapping):
            raise InvalidProblem(f"{LIMIT[signal]} is {kept!r} beside limits by name: give {{name: limit}}")
        for name, limit in (kept or {}).items():
            if not isinstance(name, str) or not name or name in limits:
                raise InvalidProblem(f"the limit {name!r} must have a name of its own, a word: rename one")
            own, scale = as_slack(_of(slack, name, "slack")), _of(ranges, name, f"{signal}_range")
            limits[name] = _limit(signal, (limit, scale, _of(worst, name, LEAST[signal])), own, reward)
    _refuse_strangers(limits, slack=slack, utility_range=utility_range, cost_range=cost_range,
                      least_total=least_total, episode_cost_max=episode_cost_max)  # fmt: skip
    return limits


def _of(given: Any, name: str, what: str) -> Any:
    """What is given for a name; None where nothing is. A slack is never one for all."""
    if isinstance(given, Mapping):
        return given.get(name)
    if what == "slack" and given is not None:
        raise InvalidProblem(f"slack is {given!r}, and limits have names: give {{name: slack}}, None where not known")
    return given


def _refuse_strangers(limits: Mapping[str, Limit], **given: Any) -> None:
    for what, values in given.items():
        for name in values if isinstance(values, Mapping) else ():
            if name not in limits:
                raise InvalidProblem(f"{what} has {name!r}, and no limit has that name: there are {', '.join(limits)}")
            signal = limits[name][2][1].name
            if what in INSTEAD[signal]:
                raise InvalidProblem(
                    f"{what} has {name!r}, and its limit is on the {signal}: give {INSTEAD[signal][what]}"
                )


Given = tuple[Any, Any, Any]  # of one signal: what is kept, its range, and its worst total; None where not given


def _one_limit(given: Mapping[str, Given], slack: float | None, reward: Range) -> Limit:
    """The limit on one of both signals; a range, or a worst total, of the other is refused."""
    kept = [signal for signal, (limit, _, _) in given.items() if limit is not None]
    if len(kept) != 1:
        raise InvalidProblem(
            'give exactly one of threshold (a lower limit on info["utility"]) and cost_limit (an upper limit on '
            'info["cost"])'
        )
    signal, other = kept[0], OTHER[kept[0]]
    _, scale, worst = given[other]
    if scale is not None:
        raise InvalidProblem(f"{other}_range is given, but the limit is on the {signal}: give {signal}_range")
    if worst is not None:
        raise InvalidProblem(f"{LEAST[other]} is given, but the limit is on the {signal}: give {LEAST[signal]}")
    return _limit(signal, given[signal], slack, reward)


def _limit(signal: str, given: Given, slack: float | None, reward: Range) -> Limit:
    limit, scale, worst = given
    kept, found = as_number(LIMIT[signal], limit), read_range(signal, (0.0, 1.0) if scale is None else scale)
    return kept, slack, (reward, found), None if worst is None else as_number(LEAST[signal], worst)


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
