"""The benchmark: frozen sets of problems, and one row of results per agent and set."""

import csv
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from episafe.core.errors import DamagedLog
from episafe.core.task import TableFeatures
from episafe.core.types import Array
from episafe.envs import make
from episafe.lab.build import known_agent
from episafe.lab.sweep import Job, Sweep
from episafe.problems.linear import LinearCMDP
from episafe.report.figures import mean_interval
from episafe.report.pages import benchmark_page
from episafe.simulation.record import Record

VERSION = "episafe-bench-1"
TUNING = 42_000  # seeds from here on are for choosing settings, those below for reporting
WINDOW = 100  # episodes over which a mean says that half of the way is made
PROBLEM = f"{__name__}:frozen_problem"


@dataclass(frozen=True)
class ProblemSet:
    """A hundred problems to report on, and twenty others to tune on.

    Attributes:
        env: the environment that the problems are drawn from.
        options: its options, for all problems.
        drawn: options that differ between problems, uniform between two ends.
    """

    env: str
    options: Mapping[str, Any] = field(default_factory=dict)
    drawn: Mapping[str, tuple[float, float]] = field(default_factory=dict)


RATES = {"fast_rate": (0.8, 0.95), "slow_rate": (0.05, 0.2), "departure_rate": (0.6, 0.9)}
LARGER = {"num_constraints": 2, "num_states": 8, "num_actions": 4, "horizon": 6}
SETS = {
    "tabular": ProblemSet("tabular"),
    "streaming": ProblemSet("streaming"),
    "linear": ProblemSet("linear"),
    "media": ProblemSet("media", drawn=RATES),
    "ring": ProblemSet("ring", drawn={"limit": (2.4, 4.0), "slack": (0.6, 2.2)}),
    "jobs": ProblemSet("jobs", drawn={"threshold": (3.0, 3.8), "slack": (0.2, 0.6)}),
    "rover": ProblemSet("rover", drawn={"slip": (0.05, 0.15), "limit": (0.3, 0.4)}),
    "box": ProblemSet("box", drawn={"limit": (0.098, 0.106), "slip": (0.099, 0.101)}),
    "cliff": ProblemSet("cliff", drawn={"slip": (0.0, 0.1), "limit": (1.5, 2.5)}),
    "riverswim": ProblemSet("riverswim", drawn={"limit": (8.0, 12.0), "slack": (3.0, 6.0)}),
    "dirichlet": ProblemSet("dirichlet"),
    "queue": ProblemSet("queue", drawn={"throughput": (0.3, 0.45), "slack": (3.0, 7.0)}),
    "stepmix": ProblemSet("stepmix"),
    "inventory": ProblemSet("inventory"),
    "battery": ProblemSet("battery"),
    "cloud": ProblemSet("cloud"),
    "tabular-two": ProblemSet("tabular", {"num_constraints": 2}),
    "larger-two": ProblemSet("tabular", LARGER),
    "tabular-tight": ProblemSet("tabular", {"threshold_scale": 0.95}),
    "streaming-tight": ProblemSet("streaming", {"threshold_scale": 0.95}),
    "media-tight": ProblemSet("media", {"slack": 0.25}, RATES),
}


@dataclass(frozen=True)
class Row:
    """One agent on one set: means over problems, with half-widths of 95 % intervals.

    Attributes:
        violating: problems in which some deployed policy is below a limit.
        violating_share: mean share of deployed policies that are.
        regret: relative to deploying the incumbent for ever: 1 is the incumbent, 0 the optimum from the first episode.
        half_way: median number of episodes until half of the way from the incumbent to the optimum is made.
    """

    set: str
    agent: str
    episodes: int
    problems: int
    violating: int
    violating_share: float
    regret: float
    regret_half_width: float
    half_way: float


@cache
def frozen() -> Mapping[tuple[str, int], tuple[str, float, float]]:
    """Return hash, optimum and incumbent's reward of every frozen problem, by set and seed."""
    text = files("episafe.lab").joinpath("problems.csv").read_text()
    rows = csv.DictReader(text.splitlines())
    return {
        (row["set"], int(row["seed"])): (row["hash"], float(row["optimum"]), float(row["incumbent_reward"]))
        for row in rows
    }


def seeds(name: str, *, tuning: bool = False) -> list[int]:
    """Return the seeds of a set: those to report on, or those to tune on."""
    return [seed for one, seed in frozen() if one == name and (seed >= TUNING) == tuning]


def frozen_problem(seed: int, set: str) -> LinearCMDP:
    """Return a problem of a set; raise DamagedLog if it is not the problem that was frozen."""
    if (set, seed) not in frozen():
        raise ValueError(f"the set {set!r} has no problem {seed}; the sets are {', '.join(SETS)}")
    one = SETS[set]
    rng = np.random.default_rng([seed, *set.encode()])
    drawn: dict[str, Any] = {name: round(float(rng.uniform(*ends)), 6) for name, ends in one.drawn.items()}
    problem = make(one.env, seed, **one.options, **drawn)
    if problem_hash(problem) != frozen()[set, seed][0]:
        raise DamagedLog(f"{VERSION} {set} {seed} is not the frozen problem: install the version that made the results")
    problem.origin |= {"problem_set": f"{VERSION}/{set}"}
    return problem


def problem_hash(problem: LinearCMDP) -> str:
    """Return a hash of transitions, signals, features, thresholds and start, rounded to float32."""
    task = problem.task
    parts = [problem.P, task.reward, *(one.utility for one in task.constraints), task.thresholds]
    parts += [np.array([task.initial_state, task.time_homogeneous])]
    parts += [task.features.phi] if isinstance(task.features, TableFeatures) else []
    digest = hashlib.sha256()
    for part in parts:
        plain = np.ascontiguousarray(part, dtype=np.float32) + np.float32(0)  # −0 becomes 0
        digest.update(f"{plain.shape}".encode() + plain.tobytes())
    return digest.hexdigest()[:16]


def benchmark(
    agents: Sequence[tuple[str, Mapping[str, Any]]], sets: Iterable[str], num_problems: int, num_episodes: int
) -> Sweep:
    """Return the sweep of agents with their options on the first problems of some sets.

    Combinations that an agent cannot play are left out.
    """
    names = list(sets)
    if unknown := [name for name in names if name not in SETS]:
        raise ValueError(f"no problem set {', '.join(unknown)}; there are {', '.join(SETS)}")
    able = {
        (agent, name)
        for agent, _ in agents
        for name in names
        if not (facts := known_agent(agent)[0]) or not facts.needs(frozen_problem(seeds(name)[0], name))
    }
    jobs = [
        Job(PROBLEM, agent, seeds(name)[rank], num_episodes, (("set", name),), tuple(options.items()), agent)
        for rank in range(num_problems)
        for name in names
        for agent, options in agents
        if (agent, name) in able
    ]
    return Sweep(VERSION, tuple(jobs))


def rows(records: Iterable[Record]) -> list[Row]:
    """Return one row per agent and set."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        name = str(record.settings["problem_set"]).partition("/")[2]
        groups.setdefault((name, str(record.settings["setting"])), []).append(record)
    return [_row(name, agent, group) for (name, agent), group in groups.items()]


def _row(name: str, agent: str, group: list[Record]) -> Row:
    regrets, halves, shares = [], [], []
    for record in group:
        _, optimum, incumbent = frozen()[name, int(record.settings["problem_seed"])]
        K = len(record.reward_values)
        regrets.append(float(record.regret()[-1]) / ((optimum - incumbent) * K))
        halves.append(half_way(record.reward_values, (optimum + incumbent) / 2))
        shares.append(float(record.violating().mean()))
    mean, half = mean_interval(np.array(regrets))
    violating = sum(share > 0 for share in shares)
    episodes = len(group[0].reward_values)
    return Row(
        name, agent, episodes, len(group), violating, float(np.mean(shares)), mean, half, float(np.median(halves))
    )


def half_way(values: Array, level: float) -> float:
    """Return the first episode (from 1) at which the mean of the next `WINDOW` values reaches `level`, or inf."""
    window = max(min(WINDOW, len(values) // 10), 1)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    reached = np.flatnonzero((sums[window:] - sums[:-window]) / window >= level)
    return float(reached[0] + 1) if len(reached) else math.inf


def reference() -> list[Row]:
    """Return the reference results that come with the package."""
    return read_rows(files("episafe.lab").joinpath("reference.csv").read_text())


def read_rows(text: str) -> list[Row]:
    """Return the rows of a CSV text, as `write_rows` wrote them."""
    kinds: dict[str, Any] = {one.name: float for one in fields(Row)}
    kinds |= {"set": str, "agent": str, "episodes": int, "problems": int, "violating": int}
    return [Row(**{name: kinds[name](row[name]) for name in kinds}) for row in csv.DictReader(text.splitlines())]


def write_rows(found: Sequence[Row], path: Path) -> None:
    """Write rows as CSV, with six digits."""
    lines = [",".join(one.name for one in fields(Row))]
    for row in found:
        lines.append(",".join(f"{v:.6g}" if isinstance(v, float) else str(v) for v in asdict(row).values()))
    path.write_text("\n".join(lines) + "\n")


def write_results(found: Sequence[Row], folder: Path) -> Path:
    """Write results.csv and benchmark.html, with the reference results beside; return the path of the page."""
    write_rows(found, folder / "results.csv")
    page = folder / "benchmark.html"
    page.write_text(benchmark_page(found, reference(), VERSION), encoding="utf-8")
    return page
