"""How fast it is on this machine: agents on the paper's environments, and how time grows with K, S and d.

Timings are medians of repeats in one process, on one core where the system allows; ratios are left to the reader who
measured both sides in one run. Counts (plans, visited states) do not depend on the machine.
"""

import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median

import numpy as np

from episafe import bandits
from episafe.envs import ENVIRONMENTS, make
from episafe.experiments.catalogue import build_agent, parse_replan
from episafe.learning.constants import Constants
from episafe.learning.softmax import SoftmaxPlanner
from episafe.problems.cmdp import LinearCMDP
from episafe.runs.record import Record
from episafe.runs.runner import run
from episafe.runs.settings import versions

BANDITS = ("finite", "ball", "ellipsoid", "contexts")
DOUBLING = "doubling:0.3"
PER_MIB = 2**20 if sys.platform == "darwin" else 2**10  # ru_maxrss is in bytes there, in KiB elsewhere


@dataclass(frozen=True)
class Speed:
    """One agent on one environment."""

    env: str
    agent: str
    replan: str
    num_episodes: int
    seconds: float
    episodes_per_second: float
    plans: int
    regret: float
    violation: float


@dataclass(frozen=True)
class Growth:
    """Seconds against a size, and the exponent fitted on log axes."""

    what: str
    sizes: list[int]
    seconds: list[float]
    exponent: float


def measure(quick: bool) -> dict[str, object]:
    """Everything that `episafe bench` prints, as plain values."""
    episodes, repeats = (1_000, 1) if quick else (10_000, 5)
    speeds = [
        _speed(env, agent, replan, _affordable(env, agent, replan, episodes), repeats)
        for env in ENVIRONMENTS
        for agent in ("opse", "ghosh", "dope")
        for replan in ("every", DOUBLING)
    ]
    lengths = [1_000, 10_000] if quick else [10_000, 100_000, 1_000_000]
    states = [30, 100] if quick else [30, 100, 300, 1_000]
    dims = [3, 10] if quick else [5, 10, 20, 40]
    growths = [
        _growth("episodes K (linear, doubling)", lengths, lambda K: _timed(make("linear"), K)),
        _growth("states S (linear, seconds per λ)", states, lambda S: _per_lam("num_states", S)),
        _growth("features d (linear, seconds per λ)", dims, lambda d: _per_lam("dim", d)),
    ]
    return {
        "speeds": [asdict(row) for row in speeds],
        "bandit_speeds": [
            asdict(_bandit_speed(env, replan, quick)) for env in BANDITS for replan in ("every", DOUBLING)
        ],
        "growths": [asdict(row) for row in growths],
        "machine": {"cpu": _cpu(), "cores": os.cpu_count(), **versions()},
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / PER_MIB,
    }


def _affordable(env: str, agent: str, replan: str, num_episodes: int) -> int:
    """Fewer episodes where each plan takes milliseconds."""
    return num_episodes // 20 if (env, agent, replan) == ("linear", "dope", "every") else num_episodes


def _speed(env: str, agent: str, replan: str, num_episodes: int, repeats: int) -> Speed:
    cmdp = make(env)

    def once(length: int, seed: int) -> tuple[float, Record]:
        learner = build_agent(agent, cmdp, replan=parse_replan(replan))
        start = time.perf_counter()
        record = run(cmdp, learner, length, seed)
        return time.perf_counter() - start, record

    once(2, 0)  # compiles, or loads what is compiled
    runs = [once(num_episodes, seed) for seed in range(repeats)]
    seconds, record = median(taken for taken, _ in runs), runs[0][1]
    return Speed(
        env=env,
        agent=agent,
        replan=replan,
        num_episodes=num_episodes,
        seconds=seconds,
        episodes_per_second=num_episodes / seconds,
        plans=int(record.plan_ids[-1]) + 1,
        regret=float(record.regret()[-1]),
        violation=float(max(record.violation()[-1] for _, record in runs)),
    )


def _bandit_speed(env: str, replan: str, quick: bool) -> Speed:
    """OPLB-SP with the determinant radius on one bandit (finite: d = 5, n = 50)."""
    bandit = bandits.make(env)
    num_rounds = 2_000 if quick else 20_000 if replan == "every" else 100_000

    def once(length: int, seed: int) -> tuple[float, Record]:
        learner = bandits.OPLBSP(bandit.task, num_rounds, radius="determinant", replan=parse_replan(replan))
        start = time.perf_counter()
        record = bandits.run(bandit, learner, length, seed)
        return time.perf_counter() - start, record

    once(2, 0)  # compiles, or loads what is compiled
    runs = [once(num_rounds, seed) for seed in range(1 if quick else 5)]
    seconds, record = median(taken for taken, _ in runs), runs[0][1]
    return Speed(
        env=env,
        agent="oplbsp",
        replan=replan,
        num_episodes=num_rounds,
        seconds=seconds,
        episodes_per_second=num_rounds / seconds,
        plans=int(record.plan_ids[-1]) + 1,
        regret=float(record.regret()[-1]),
        violation=float(max(record.violation()[-1] for _, record in runs)),
    )


def _growth(what: str, sizes: Sequence[int], seconds_at: Callable[[int], float]) -> Growth:
    seconds = [seconds_at(size) for size in sizes]
    exponent = float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
    return Growth(what, list(sizes), seconds, exponent)


def _timed(cmdp: LinearCMDP, num_episodes: int) -> float:
    constants = Constants(1, 1, 1, 1, kappa=0.001, lam_max=300, num_halvings=30)
    agent = build_agent("opse", cmdp, constants, parse_replan("doubling:0.3"))
    start = time.perf_counter()
    run(cmdp, agent, num_episodes)
    return time.perf_counter() - start


def _per_lam(option: str, size: int) -> float:
    """Seconds to evaluate one λ after 2000 episodes of the incumbent and of exploration."""
    cmdp = make("linear", 0, "released", **{option: size})
    agent = build_agent("opse", cmdp, replan=parse_replan("doubling:0.3"))
    run(cmdp, agent, 2_000)
    planner: SoftmaxPlanner = agent.planner  # type: ignore[attr-defined]  # OPSE has one
    planner.decide()
    taken = []
    for _ in range(100):
        start = time.perf_counter()
        planner.utility_bound(1.0)
        taken.append(time.perf_counter() - start)
    return median(taken)


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
