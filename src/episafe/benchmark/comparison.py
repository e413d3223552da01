"""What the benchmark runs: every agent on every problem set that it is for, at its tuned multiplier."""

import math
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from episafe.benchmark.problem_sets import PROBLEM_SETS, VERSION, ProblemSet, problem_set
from episafe.experiments.job import Job
from episafe.registry import AGENTS, BUILDS
from episafe.runs.record import Record

FILE = "benchmark.toml"
REFERENCE_EPISODES = 10_000  # that seconds of runs are told for
FRONTIER = ("tabular", "streaming")  # sets on which other multipliers are run
FACTORS = (0.1, 0.3, 1.0, 3.0, 10.0)  # of the chosen multiplier
MOST_ON_FRONTIER = 20  # problems


@dataclass(frozen=True)
class BenchmarkJob(Job):
    """An agent on one problem of a set; `env` is the name of the set."""

    def problem(self) -> Any:
        """The problem, checked against what was frozen."""
        return problem_set(self.env).problem(self.seed)

    def compiled_as(self) -> tuple[str, str]:
        """Features, one-hot or not, and signals, told or not, have different kernels."""
        one = problem_set(self.env)
        return ("features" if one.env == "linear" else one.kind), self.agent

    def record(self) -> Record:
        """Run the job; its seconds are those of the processor, whatever else the machine does, drawing included."""
        start = time.process_time()
        made = super().record()
        return made.noting(seconds=time.process_time() - start)

    def facts(self, agent: Any) -> dict[str, Any]:
        """How large the agent is after the run: what a checkpoint of it holds."""
        return {"state_bytes": sum(array.nbytes for array in agent.state().values())}


@cache
def settings() -> Mapping[str, Any]:
    """What stands in benchmark.toml."""
    return tomllib.loads(files("episafe.benchmark").joinpath(FILE).read_text())


def agents_for(one: ProblemSet) -> list[str]:
    """The agents that a set is for, in the order of the registry: all but those that cannot do what it asks."""
    said = settings()
    able = {"learned signals": said["learned"], "two constraints": said["several"]}.get(one.kind)
    named = [
        name for name in AGENTS if name not in said["left_out"] and one.name in said["only"].get(name, PROBLEM_SETS)
    ]
    return [name for name in named if able is None or name in able]


def multiplier(agent: str, one: str) -> float:
    """The multiplier of all bonuses that was chosen for an agent on the tuning seeds of a set."""
    return float(settings()["multiplier"].get(agent, {}).get(one, 1.0))


def has_multiplier(agent: str) -> bool:
    """Whether an agent has bonuses to multiply: certified ones have not, and what never plans neither."""
    entry = AGENTS[agent]
    return "bonus" in BUILDS[agent].options or (entry.reads_constants and not entry.only_proposes)


def job(agent: str, one: str, seed: int, num_episodes: int, factor: float | None = None) -> BenchmarkJob:
    """An agent on one problem, at its multiplier or at another."""
    said, factor = settings(), multiplier(agent, one) if factor is None else factor
    replan = "every" if agent in said["every"] else "" if agent in said["own"] else said["replan"]
    tuned = agent in said["tuned"] and problem_set(one).kind != "two constraints"  # whose slacks the rule cannot read
    constants = "tuned" if tuned else "published"
    name = f"{one}-{agent}-{num_episodes}-{factor:g}-{seed}"
    return BenchmarkJob(
        name, one, agent, seed, num_episodes, replan=replan, constants=constants, multiplier=factor,
        cost=float(num_episodes),
    )  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """Which pairs of agent and set are run, on how many problems, and which are not, with the reason."""

    num_episodes: int
    problems: Mapping[tuple[str, str], int]
    left_out: Mapping[tuple[str, str], str]

    def jobs(self) -> list[BenchmarkJob]:
        """All jobs, problem by problem, so that one that is stopped early has something of everything."""
        return [
            job(agent, one, problem_set(one).seeds[rank], self.num_episodes)
            for rank in range(max(self.problems.values(), default=0))
            for (agent, one), count in self.problems.items()
            if rank < count
        ]

    def frontier_jobs(self) -> list[BenchmarkJob]:
        """Agents with a multiplier at others around it, on as many problems of two sets."""
        return [
            job(agent, one, problem_set(one).seeds[rank], self.num_episodes, factor * multiplier(agent, one))
            for (agent, one), count in self.problems.items()
            if one in FRONTIER and has_multiplier(agent)
            for rank in range(min(count, MOST_ON_FRONTIER))
            for factor in FACTORS
        ]

    def size(self) -> str:
        """What there is, in words."""
        agents, sets = ({pair[i] for pair in self.problems} for i in range(2))
        most, fewest = max(self.problems.values(), default=0), min(self.problems.values(), default=0)
        counts = f"{most}" if most == fewest else f"{fewest} to {most}"
        length = f"{counts} problems of {self.num_episodes:,} episodes"
        return f"{len(agents)} agents on {len(sets)} sets of {VERSION}, {length}"


def comparison(quick: bool, seconds: Mapping[tuple[str, str], float]) -> Comparison:
    """The quick comparison, or the full one; `seconds` that a run of 10,000 episodes takes, where that was measured."""
    said = settings()["quick" if quick else "full"]
    problems, left_out = dict[tuple[str, str], int](), dict[tuple[str, str], str]()
    for one in PROBLEM_SETS.values():
        for agent in agents_for(one):
            pair = agent, one.name
            takes = seconds.get(pair, 0.0) * said["episodes"] / REFERENCE_EPISODES
            if takes > said["most_seconds"]:
                left_out[pair] = f"slower than {said['most_seconds']:g} s a run"
                continue
            affordable = said["budget"] / takes if takes > 1 else math.inf
            problems[pair] = int(max(min(affordable, said["problems"]), 1))
    return Comparison(said["episodes"], problems, left_out)
