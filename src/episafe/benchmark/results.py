"""What came of it: one row for each agent on each set, from records or from the reference results of the package."""

import csv
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from episafe.benchmark.comparison import (
    REFERENCE_EPISODES,
    BenchmarkJob,
    Comparison,
    comparison,
    multiplier,
    settings,
)
from episafe.registry import REGISTRY
from episafe.runs.record import Record, is_complete
from episafe.stats import t_interval
from episafe.types import Array

REFERENCE = "reference.csv"
ALIKE = 6  # digits to which two means are the same
WINDOW = 100  # episodes over which a mean says that half of the way is made; a tenth of the run where that is less


@dataclass(frozen=True)
class Run:
    """One run, in units that problems share.

    Attributes:
        regret: over that of the incumbent for ever: 1 is never to leave it, 0 to know the optimum from the first day.
        violating_share: of episodes that violate a constraint, by exact values.
        half_way: episodes until half of the way from the incumbent's reward to the optimum is made; inf for never.
        seconds, state_bytes: that it took, and what a checkpoint of the agent holds.
    """

    regret: float
    violating_share: float
    half_way: float
    seconds: float
    state_bytes: int

    @property
    def violates(self) -> bool:
        """Whether any episode does."""
        return self.violating_share > 0


@dataclass(frozen=True)
class Row:
    """An agent on a set: means over problems, with halves of 95 % t-intervals.

    Attributes:
        problems, episodes, multiplier: how it was run.
        violating, violating_share: problems in which some episode violates, and the mean share of episodes that do.
        regret: mean of `Run.regret`.
        behind: mean difference to the best agent that promises no violation and had none, paired by problem.
        half_way: median.
        seconds: of the processor for 10,000 episodes, in proportion to the fastest run: the first of a process reads
            compiled code, and what plans less and less often takes less.
        state_bytes: mean.
    """

    set: str
    agent: str
    episodes: int
    problems: int
    multiplier: float
    violating: int
    violating_share: float
    regret: float
    regret_half_width: float
    behind: float
    behind_half_width: float
    half_way: float
    seconds: float
    state_bytes: float

    @property
    def place(self) -> tuple[str, str, int]:
        """What a row is found by."""
        return self.set, self.agent, self.episodes


def read_run(record: Record) -> Run:
    """What counts of a record."""
    start = float(record.settings["incumbent_reward"])
    gap = record.optimum - start
    return Run(
        regret=float(record.regret()[-1]) / (gap * len(record.reward_values)),
        violating_share=float(record.violating().mean()),
        half_way=half_way(record.reward_values, start + gap / 2),
        seconds=float(record.settings["seconds"]),
        state_bytes=int(record.settings["state_bytes"]),
    )


def half_way(values: Array, level: float) -> float:
    """The first episode, from 1, whose mean with those that follow, WINDOW in all, is at least `level`; inf if none."""
    K = len(values)
    window = max(min(WINDOW, K // 10), 1)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    reached = np.flatnonzero((sums[window:] - sums[:-window]) / window >= level)
    return float(reached[0] + 1) if len(reached) else math.inf


def rows(jobs: Iterable[BenchmarkJob], folder: Path) -> list[Row]:
    """A row for each agent on each set, of the records of these jobs that are there."""
    return rows_of(_made(jobs, folder))


def _made(jobs: Iterable[BenchmarkJob], folder: Path) -> Iterator[tuple[BenchmarkJob, Run]]:
    """The jobs whose records are there, each with what counts of it."""
    for job in jobs:
        if is_complete(folder / job.name):
            yield job, read_run(Record.load(folder / job.name))


def rows_of(made: Iterable[tuple[BenchmarkJob, Run]]) -> list[Row]:
    """A row for each agent on each set, of runs of one length."""
    runs = dict[tuple[str, str], dict[int, Run]]()
    first = dict[tuple[str, str], BenchmarkJob]()
    for job, run in made:
        first.setdefault((job.env, job.agent), job)
        runs.setdefault((job.env, job.agent), {})[job.seed] = run
    best = {env: best_safe({agent: of for (at, agent), of in runs.items() if at == env}) for env, _ in runs}
    return [_row(first[pair], of, runs.get((pair[0], best[pair[0]]), {})) for pair, of in runs.items()]


def points(jobs: Iterable[BenchmarkJob], folder: Path) -> list[dict[str, Any]]:
    """Regret and violation at every multiplier that was run, and which is the chosen one."""
    found = dict[tuple[str, str, float], list[Run]]()
    for job, run in _made(jobs, folder):
        found.setdefault((job.env, job.agent, job.multiplier), []).append(run)
    return [
        {
            "set": one,
            "agent": agent,
            "multiplier": factor,
            "chosen": factor == multiplier(agent, one),
            "problems": len(runs),
            "regret": float(np.mean([run.regret for run in runs])),
            "violating_share": float(np.mean([run.violating_share for run in runs])),
        }
        for (one, agent, factor), runs in found.items()
    ]


def best_safe(runs: Mapping[str, Mapping[int, Run]]) -> str:
    """The agent of least mean regret among those that promise never to violate, and did not; the incumbent if alike."""
    promising = {agent: of for agent, of in runs.items() if REGISTRY[agent].proved == "zero"}  # luck is no promise
    kept = {agent: of for agent, of in promising.items() if not any(run.violates for run in of.values())}
    means = {agent: float(np.mean([run.regret for run in of.values()])) for agent, of in kept.items()}
    return min(means, key=lambda agent: (round(means[agent], ALIKE), agent != "incumbent"), default="")


def _row(job: BenchmarkJob, runs: Mapping[int, Run], best: Mapping[int, Run]) -> Row:
    regret, half = t_interval(np.array([run.regret for run in runs.values()]))
    behind = [run.regret - best[seed].regret for seed, run in runs.items() if seed in best]
    mean, mean_half = t_interval(np.array(behind)) if behind else (math.nan, math.nan)
    a_run = REFERENCE_EPISODES / job.num_episodes
    return Row(
        job.env, job.agent, job.num_episodes, len(runs), job.multiplier,
        sum(run.violates for run in runs.values()), float(np.mean([run.violating_share for run in runs.values()])),
        float(regret), float(half), float(mean), float(mean_half),
        float(np.median([run.half_way for run in runs.values()])),
        a_run * min(run.seconds for run in runs.values()),
        float(np.mean([run.state_bytes for run in runs.values()])),
    )  # fmt: skip


def to_csv(found: Sequence[Row]) -> str:
    """The rows as a file that `from_csv` reads; six digits, which is more than their intervals support."""
    names = [each.name for each in fields(Row)]
    lines = [[f"{v:.6g}" if isinstance(v, float) else str(v) for v in asdict(row).values()] for row in found]
    return "\n".join([",".join(names), *(",".join(line) for line in lines), ""])


def from_csv(text: str) -> list[Row]:
    """The rows that `to_csv` wrote."""
    kinds: dict[str, Callable[[str], Any]] = dict.fromkeys(("episodes", "problems", "violating"), int)
    kinds |= {"set": str, "agent": str}
    lines = csv.DictReader(text.splitlines())
    read = [{name: kinds.get(name, float)(value) for name, value in line.items()} for line in lines]
    return [Row(**line) for line in read]


@cache
def reference() -> tuple[Row, ...]:
    """The reference results that come with the package; docs/benchmark.md says what they cover."""
    place = files("episafe.benchmark").joinpath(REFERENCE)
    return tuple(from_csv(place.read_text())) if place.is_file() else ()


def reference_seconds(num_episodes: int = REFERENCE_EPISODES) -> dict[tuple[str, str], float]:
    """Seconds of a run of 10,000 episodes by agent and set, as measured for the reference.

    By runs that are nearly as long as `num_episodes`: many agents plan less and less often.
    """
    nearest_last = sorted(reference(), key=lambda row: -abs(math.log(row.episodes / num_episodes)))
    return {(row.agent, row.set): row.seconds for row in nearest_last}


def planned(quick: bool) -> Comparison:
    """The quick comparison, or the full one, by the seconds of the reference."""
    return comparison(quick, reference_seconds(settings()["quick" if quick else "full"]["episodes"]))
