"""The numbers of a report: mean and 95 % t-interval over runs, at the end and along the episodes."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from episafe.registry import REGISTRY
from episafe.reports.record_groups import Group, common_settings, first, grouped, is_bandit, notes, seeds, shortest
from episafe.runs.record import Record
from episafe.stats import t_interval
from episafe.storage.toml_settings import Scalar
from episafe.types import Array, IntArray, amounts

GRID = 400  # points of a curve; more cannot be seen
ENOUGH = 5  # runs that a band is drawn of; fewer are drawn one by one
DECADES = 3  # of rounds shown on a logarithmic axis; what came before is of no size
HAS_INCUMBENT = [name for name, entry in REGISTRY.items() if entry.plans and entry.falls_back]


@dataclass(frozen=True)
class Interval:
    """A mean over runs, and half the width of its 95 % t-interval; NaN for one run."""

    mean: float
    half_width: float

    @classmethod
    def over(cls, values: Sequence[float]) -> "Interval":
        """The interval of one number a run."""
        mean, half_width = t_interval(np.array(values, dtype=np.float64))
        return cls(float(mean), float(half_width))


@dataclass(frozen=True)
class Summary:
    """One row of the table: all runs of a group after `num_episodes` episodes.

    Attributes:
        regret: Σ (optimum − V^r), signed: below 0 where reward beyond the constrained optimum was taken unsafely.
        violation: Σ max{b − V^u, 0}, hard.
        cancelling_violation: max{Σ (b − V^u), 0}: safe episodes pay for unsafe ones.
        violating_episodes: episodes of a run with b − V^u > ROUNDING.
        worst_violation: largest b − V^u of a run.
        incumbent_episodes: episodes of a run in which the incumbent acted, alone or drawn from a mixture.
        mixed_episodes: episodes of a run in which a mixture was deployed.
        plans: plans made in a run.
        episodes_per_second: NaN where the record does not say how long it took.
        total_violating_episodes, violating_runs: the same count over all runs, and the runs that have any.
        largest_violation: of any episode of any run.
        seeds: of the problems, each once.
        settings: what all the runs were made with.
        notes: what a reader of the row must know.
    """

    group: Group
    num_runs: int
    num_episodes: int
    regret: Interval
    violation: Interval
    cancelling_violation: Interval
    violating_episodes: Interval
    worst_violation: Interval
    incumbent_episodes: Interval
    mixed_episodes: Interval
    plans: Interval
    episodes_per_second: Interval
    total_violating_episodes: int
    violating_runs: int
    largest_violation: float
    seeds: tuple[int, ...]
    settings: Mapping[str, Scalar]
    notes: tuple[str, ...]

    @property
    def has_incumbent(self) -> bool:
        """Whether the agent can deploy the incumbent, and so has a check whose level is worth naming."""
        known = self.group.agent in REGISTRY
        return self.group.agent in HAS_INCUMBENT or (not known and self.incumbent_episodes.mean > 0)


@dataclass(frozen=True, eq=False)
class Curve:
    """Mean over runs and its 95 % t-interval along the episodes.

    Attributes:
        episodes: counted from 1, at most GRID of them, the last one included, (n,).
        mean, low, high: (n,); low and high are NaN for fewer than ENOUGH runs.
        runs: every run, (m, n), where there are fewer than ENOUGH; else none, (0, n).
    """

    episodes: IntArray
    mean: Array
    low: Array
    high: Array
    runs: Array


Curves = dict[str, Curve]  # "regret", "violation" and "incumbent_episodes" of a group


def summarise(records: Iterable[Record]) -> list[Summary]:
    """One summary a group, in the order of reports; runs of a group are compared after the shortest one's episodes."""
    return [_summary(group, runs) for group, runs in grouped(records).items()]


def curves(records: Iterable[Record]) -> list[Curves]:
    """Curves of each group, in the order of reports, as long as the group's shortest run; intervals are cut to the
    values that are possible at all."""
    return [
        {
            "regret": _curve(runs, Record.regret, least=-math.inf if _violates(runs) else 0.0),
            "violation": _curve(runs, _violation, least=0.0),
            "incumbent_episodes": _curve(runs, _incumbent_episodes, least=0.0, most=1.0),
        }
        for runs in grouped(records).values()
    ]


def _summary(group: Group, runs: Sequence[Record]) -> Summary:
    num_episodes = shortest(runs)
    cut = [first(run, num_episodes) for run in runs]
    violating = [int(run.violating().sum()) for run in cut]
    worst = [float(run.violations().max()) for run in cut]
    return Summary(
        group,
        num_runs=len(runs),
        num_episodes=num_episodes,
        regret=Interval.over([run.regret()[-1] for run in cut]),
        violation=Interval.over([_violation(run)[-1] for run in cut]),
        cancelling_violation=Interval.over([np.sum(run.cancelling_violation()[-1]) for run in cut]),
        violating_episodes=Interval.over(violating),
        worst_violation=Interval.over(worst),
        incumbent_episodes=Interval.over([run.incumbent_acted().sum() for run in cut]),
        mixed_episodes=Interval.over([run.mixed().sum() for run in cut]),
        plans=Interval.over([run.plan_ids[-1] + 1 for run in cut]),
        episodes_per_second=Interval.over([_speed(run) for run in runs]),
        total_violating_episodes=sum(violating),
        violating_runs=sum(count > 0 for count in violating),
        largest_violation=max(worst),
        seeds=seeds(runs),
        settings=common_settings(runs),
        notes=notes(runs),
    )


def _speed(run: Record) -> float:
    seconds = float(run.settings.get("seconds", math.nan))
    return len(run.reward_values) / seconds if seconds > 0 else math.nan


Quantity = Callable[[Record], Array | IntArray]


def _curve(runs: Sequence[Record], quantity: Quantity, least: float = -math.inf, most: float = math.inf) -> Curve:
    """The interval is cut to [least, most · episodes]."""
    num_episodes = shortest(runs)
    points = np.linspace(1, num_episodes, GRID)
    if is_bandit(runs[0].settings):
        points = np.geomspace(max(1.0, num_episodes / 10**DECADES), num_episodes, GRID)
    episodes = np.unique(points.round().astype(np.int64))
    each = np.array([quantity(run)[episodes - 1] for run in runs], dtype=np.float64)
    mean, half_width = t_interval(each)
    if len(runs) < ENOUGH:
        unknown = np.full_like(mean, np.nan)
        return Curve(episodes, mean, unknown, unknown, each)
    low, high = np.maximum(mean - half_width, least), np.minimum(mean + half_width, most * episodes)
    return Curve(episodes, mean, low, high, each[:0])


def _incumbent_episodes(run: Record) -> IntArray:
    """Episodes so far in which the incumbent acted."""
    return np.cumsum(run.incumbent_acted(), dtype=np.int64)


def _violation(run: Record) -> Array:
    """The hard violation so far; with several constraints their sum."""
    return run.violation().reshape(len(run.sources), -1).sum(axis=1)


def _violates(runs: Sequence[Record]) -> bool:
    """Whether some run violates; one that does not has no regret below zero, up to rounding."""
    return any(bool(run.violating().any()) for run in runs)


def run_facts(record: Record) -> dict[str, Any]:
    """What one run reached, as plain values by their names."""
    said, utility = record.settings, record.utility_values.min(axis=0)
    kept: Any = said.get("incumbent_utility")
    if record.constraint_names:
        numbered = [said.get(f"incumbent_utility_{c}") for c, _ in enumerate(record.constraint_names, 1)]
        kept = None if None in numbered else numbered
    return {
        "environment": said.get("env", ""),
        "agent": said.get("agent", ""),
        "seed": said.get("seed", said.get("run_seed")),
        "episodes": len(record.reward_values),
        "optimum": record.optimum,
        "incumbent_reward": said.get("incumbent_reward"),
        "final_reward": float(record.reward_values[-1]),
        "threshold": amounts(record.threshold).tolist() if record.constraint_names else record.threshold,
        "incumbent_utility": kept,
        "smallest_utility": utility.tolist(),
        "regret": float(record.regret()[-1]),
        "violation": float(np.sum(record.violation()[-1])),
        "violating_episodes": int(record.violating().sum()),
        "incumbent_episodes": int(record.incumbent_acted().sum()),
        "incumbent_deployments": int(record.safe_deployments()[-1]),
        "mixed_episodes": int(record.mixed().sum()),
        "plans": int(record.plan_ids[-1]) + 1,
        "episodes_per_second": len(record.reward_values) / float(said["seconds"]),
    } | {name: said[name] for name in ("level", "alarms", "planning_failed") if name in said}
