"""The benchmark: frozen sets of problems, one result per run, and one row of results per agent and set."""

import csv
import hashlib
import json
import math
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from episafe.core.errors import DamagedLog
from episafe.core.files import write_atomically
from episafe.core.task import TableFeatures
from episafe.core.types import Array
from episafe.envs import make
from episafe.lab.build import known_agent
from episafe.lab.sweep import Job, Settings, Sweep
from episafe.problems.linear import LinearCMDP
from episafe.report.pages import benchmark_page
from episafe.simulation.record import Record

VERSION = "episafe-bench-2"
TUNING = 42_000  # seeds from here on are for choosing settings, those below for reporting
WINDOW = 100  # episodes over which a mean says that half of the way is made
LEVEL = 1 - 0.05 / 20  # of each interval: those of up to 20 agents hold together with probability 95 % (Bonferroni)
FEWEST = 10  # problems from which a bootstrap interval is shown
RESAMPLES = 4_000  # of the bootstrap
VERIFIED = 0.1  # share of the runs of a results file that `verify` runs again
AGREES = 1e-6  # difference of a repeated result that counts as none
RESULTS = "results.json"
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
ACTIVE = {"active": True, "threshold_scale": 0.8}  # the limit changes the optimum of every problem
SETS = {
    "tabular": ProblemSet("tabular"),
    "streaming": ProblemSet("streaming"),
    "linear": ProblemSet("linear"),
    "linear-active": ProblemSet("linear", ACTIVE),
    "linear-active-d20": ProblemSet("linear", {**ACTIVE, "dim": 20}),
    "linear-active-d80": ProblemSet("linear", {**ACTIVE, "dim": 80, "num_states": 400}),
    "linear-active-h16": ProblemSet("linear", {**ACTIVE, "horizon": 16}),
    "linear-active-h64": ProblemSet("linear", {**ACTIVE, "horizon": 64}),
    "misspecified-01": ProblemSet("linear", {**ACTIVE, "misspecification": 0.01}),
    "misspecified-05": ProblemSet("linear", {**ACTIVE, "misspecification": 0.05}),
    "misspecified-10": ProblemSet("linear", {**ACTIVE, "misspecification": 0.1}),
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
class Result:
    """One agent on one problem.

    Attributes:
        violating: share of the deployed policies that are below a limit.
        acting_below: share of episodes in which the component that acted is itself below a limit; NaN where unknown.
        incumbent: share of episodes in which the incumbent acted.
        regret: relative to deploying the incumbent: 1 is the incumbent, 0 the optimum from the first episode.
        half_way: number of episodes until half of the way from the incumbent to the optimum is made.
        seconds: time of the run.
        level: of the guarantee: "theorem", "window" or "heuristic".
    """

    set: str
    agent: str
    seed: int
    episodes: int
    violating: float
    acting_below: float
    incumbent: float
    regret: float
    half_way: float
    seconds: float
    level: str


@dataclass(frozen=True)
class Row:
    """One agent on one set.

    Attributes:
        active: problems whose limit changes the optimum.
        violating: problems in which some deployed policy is below a limit.
        violating_share, acting_below, incumbent: means of the fields of `Result`.
        regret, regret_low, regret_high: interquartile mean over problems, with its bootstrap interval at `LEVEL`;
            the interval is NaN if there are fewer than `FEWEST` problems.
        half_way, seconds: medians over problems.
        level: as in `Result`.
    """

    set: str
    agent: str
    episodes: int
    problems: int
    active: int
    violating: int
    violating_share: float
    acting_below: float
    incumbent: float
    regret: float
    regret_low: float
    regret_high: float
    half_way: float
    seconds: float
    level: str


@cache
def frozen() -> Mapping[tuple[str, int], tuple[str, float, float, bool]]:
    """Return what is stored of every frozen problem, by set and seed.

    It is a hash, the optimum, the incumbent's reward, and whether the limit is active: whether it lowers the optimum.
    """
    text = files("episafe.lab").joinpath("problems.csv").read_text()
    return {
        (row["set"], int(row["seed"])): (
            row["hash"], float(row["optimum"]), float(row["incumbent"]), row["active"] == "1"
        )
        for row in csv.DictReader(text.splitlines())
    }  # fmt: skip


def seeds(name: str, *, tuning: bool = False) -> list[int]:
    """Return the seeds of a set: those to report on, or those to tune on."""
    return [seed for one, seed in frozen() if one == name and (seed >= TUNING) == tuning]


def draw_problem(name: str, seed: int) -> LinearCMDP:
    """Return the problem of a set and a seed."""
    one = SETS[name]
    rng = np.random.default_rng([seed, *name.encode()])
    drawn: dict[str, Any] = {option: round(float(rng.uniform(*ends)), 6) for option, ends in one.drawn.items()}
    return make(one.env, seed, **one.options, **drawn)


def frozen_problem(seed: int, set: str) -> LinearCMDP:
    """Return a problem of a set; raise DamagedLog if it is not the problem that was frozen."""
    if (set, seed) not in frozen():
        raise ValueError(f"the set {set!r} has no problem {seed}; the sets are {', '.join(SETS)}")
    problem = draw_problem(set, seed)
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
    """Return the sweep of agents with their options on the first problems of some sets, but for `unplayable` pairs."""
    names = list(sets)
    left_out = unplayable([agent for agent, _ in agents], names)
    jobs = [
        Job(PROBLEM, agent, seeds(name)[rank], num_episodes, (("set", name),), tuple(options.items()))
        for rank in range(num_problems)
        for name in names
        for agent, options in agents
        if (agent, name) not in left_out
    ]
    return Sweep(VERSION, tuple(jobs))


def unplayable(agents: Iterable[str], sets: Iterable[str]) -> dict[tuple[str, str], str]:
    """Return the pairs of agent and set that cannot be run, each with its reason."""
    names = list(sets)
    if unknown := [name for name in names if name not in SETS]:
        raise ValueError(f"no problem set {', '.join(unknown)}; there are {', '.join(SETS)}")
    firsts, found = {name: frozen_problem(seeds(name)[0], name) for name in names}, dict[tuple[str, str], str]()
    for agent in agents:
        facts = known_agent(agent)[0]
        for name, problem in firsts.items():
            if facts is not None and (reason := facts.needs(problem)):
                found[agent, name] = reason
    return found


def results(records: Iterable[Record]) -> list[Result]:
    """Return one result per record."""
    return [_result(record) for record in records]


def _result(record: Record) -> Result:
    told, K = record.settings, len(record.reward_values)
    name, seed = str(told["problem_set"]).partition("/")[2], int(told["problem_seed"])
    _, optimum, incumbent, _ = frozen()[name, seed]
    below = record.acting_below()
    return Result(
        set=name,
        agent=str(told["setting"]),
        seed=seed,
        episodes=K,
        violating=float(record.violating().mean()),
        acting_below=math.nan if below is None else float(below.mean()),
        incumbent=float(record.incumbent_acted().mean()),
        regret=float(record.regret()[-1]) / ((optimum - incumbent) * K),
        half_way=half_way(record.reward_values, (optimum + incumbent) / 2),
        seconds=float(told["seconds"]),
        level=str(told["level"]),
    )


def rows(found: Iterable[Result]) -> list[Row]:
    """Return one row per agent and set."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for one in found:
        groups.setdefault((one.set, one.agent), []).append(one)
    return [_row(group) for group in groups.values()]


def _row(group: Sequence[Result]) -> Row:
    mean, low, high = interquartile_mean(np.array([one.regret for one in group]))
    return Row(
        set=group[0].set,
        agent=group[0].agent,
        episodes=group[0].episodes,
        problems=len(group),
        active=sum(frozen()[one.set, one.seed][3] for one in group),
        violating=sum(one.violating > 0 for one in group),
        violating_share=float(np.mean([one.violating for one in group])),
        acting_below=float(np.mean([one.acting_below for one in group])),
        incumbent=float(np.mean([one.incumbent for one in group])),
        regret=mean,
        regret_low=low,
        regret_high=high,
        half_way=float(np.median([one.half_way for one in group])),
        seconds=float(np.median([one.seconds for one in group])),
        level=group[0].level,
    )


def interquartile_mean(values: Array) -> tuple[float, float, float]:
    """Return the mean of the middle half of the values, and the ends of its bootstrap interval at `LEVEL`.

    The ends are NaN for fewer than `FEWEST` values, of which a bootstrap says too little.
    """
    n, rng = len(values), np.random.default_rng(0)
    cut = n // 4
    if n < FEWEST:
        return float(np.sort(values)[cut : n - cut].mean()), math.nan, math.nan
    resampled = np.sort(values[rng.integers(n, size=(RESAMPLES, n))], axis=1)[:, cut : n - cut].mean(axis=1)
    low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return float(np.sort(values)[cut : n - cut].mean()), low, high


def half_way(values: Array, level: float) -> float:
    """Return the first episode (from 1) at which the mean of the next `WINDOW` values reaches `level`, or inf."""
    window = max(min(WINDOW, len(values) // 10), 1)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    reached = np.flatnonzero((sums[window:] - sums[:-window]) / window >= level)
    return float(reached[0] + 1) if len(reached) else math.inf


def reference() -> list[Row]:
    """Return the reference results that come with the package."""
    text = files("episafe.lab").joinpath("reference.csv").read_text()
    kinds: dict[str, Any] = {one.name: one.type for one in fields(Row)}
    return [Row(**{name: kinds[name](row[name]) for name in kinds}) for row in csv.DictReader(text.splitlines())]


def write_reference(found: Sequence[Row], path: Path) -> None:
    """Write rows as CSV, with six digits."""
    lines = [",".join(one.name for one in fields(Row))]
    for row in found:
        lines.append(",".join(f"{v:.6g}" if isinstance(v, float) else str(v) for v in asdict(row).values()))
    path.write_text("\n".join(lines) + "\n")


def write_results(sweep: Sweep, folder: Path, left_out: Mapping[tuple[str, str], str] = {}) -> Path:
    """Write results.json, and benchmark.html with the reference results beside; return the path of the page.

    Args:
        sweep: runs of `benchmark`.
        folder: where their records are.
        left_out: `unplayable` pairs, for the page.
    """
    found, agents = list[Result](), dict[str, Any]()
    for job in sweep.jobs:
        for one in results(Sweep(VERSION, (job,)).records(folder)):
            agents[one.agent] = {"agent": job.agent, "options": dict(job.agent_options)}
            found.append(one)
    told: dict[str, Any] = {"benchmark": VERSION, "episafe": version("episafe"), "agents": agents}
    told["results"] = found
    write_atomically(folder / RESULTS, msgspec.json.format(msgspec.json.encode(told), indent=1) + b"\n")  # NaN is null
    page = folder / "benchmark.html"
    page.write_text(benchmark_page(rows(found), reference(), VERSION, left_out), encoding="utf-8")
    return page


def read_results(path: Path) -> tuple[list[Result], dict[str, Any]]:
    """Return the results of a results.json and the options of its agents; raise ValueError if it is not one."""
    told = json.loads(path.read_text())
    if not isinstance(told, dict) or told.get("benchmark") != VERSION:
        made_by = told.get("benchmark") if isinstance(told, dict) else None
        raise ValueError(f"{path} has results of {made_by!r}, this is {VERSION}: run the benchmark again")
    unknown: dict[str, Any] = {"half_way": math.inf, "acting_below": math.nan}
    try:
        agents = dict(told["agents"])
        found = [Result(**{k: unknown[k] if v is None else v for k, v in one.items()}) for one in told["results"]]
        missing = {one.agent for one in found} - agents.keys()
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a file of results ({error}): give the results.json of a benchmark") from error
    if missing or not found:
        raise ValueError(f"{path} has no results, or lacks the options of {', '.join(missing) or 'its agents'}")
    return found, agents


def verify(path: Path, workers: int | None = None) -> tuple[int, list[str]]:
    """Run a random tenth of the runs of a results.json again; return how many, and where they differ."""
    stated, agents = read_results(path)
    chosen = np.random.default_rng().choice(len(stated), max(round(VERIFIED * len(stated)), 1), replace=False)
    jobs = []
    for one in (stated[i] for i in chosen):
        agent = agents[one.agent]
        options: Settings = tuple(agent["options"].items())
        jobs.append(Job(PROBLEM, agent["agent"], one.seed, one.episodes, (("set", one.set),), options, one.agent))
    sweep = Sweep(VERSION, tuple(jobs))
    with tempfile.TemporaryDirectory() as folder:
        failures = sweep.run(folder, workers)
        again = {(one.set, one.agent, one.seed): one for one in results(sweep.records(folder))}
    faults = [f"{name}: {reason}" for name, reason in failures.items()]
    for one in (stated[i] for i in chosen):
        found = again.get((one.set, one.agent, one.seed))
        if found is not None and not _agree(one, found):
            faults.append(
                f"{one.set} {one.seed}, {one.agent}: regret {found.regret:.6g}, but the file has {one.regret:.6g}"
            )
    return len(chosen), faults


def _agree(one: Result, other: Result) -> bool:
    """Return whether two results of the same run are the same, up to rounding; the time does not count."""
    a, b = ([x.violating, x.acting_below, x.incumbent, x.regret, x.half_way] for x in (one, other))
    return bool(np.allclose(a, b, rtol=AGREES, atol=AGREES, equal_nan=True))
