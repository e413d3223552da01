"""How fast it is on this machine: agents on the paper's environments, and how time grows with K, S and d.

Timings are medians of repeats in one process. Where the time goes: simulating and learning is a run that plans once;
evaluating is the exact value of one policy, times the number of plans; planning is what remains. Counts (plans, bytes)
do not depend on the machine. `benchmarks/released.py` measures the paper's released code in the same run.
"""

import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from statistics import median
from typing import Any, TypeVar

import numpy as np
from rich.table import Table

from episafe import bandits
from episafe.agents.base import Agent
from episafe.agents.opse import OPSE
from episafe.envs import PAPER, make
from episafe.envs.large_linear import huge
from episafe.experiments.agent_choice import build_agent
from episafe.learning.constants import Constants
from episafe.learning.planner import SoftmaxPlanner, parse_replan
from episafe.runs.record import Record
from episafe.runs.run import run
from episafe.storage.toml_settings import versions
from episafe.tools.live_bench import live_speeds

GIVEN_BY_FUNCTIONS = Constants(1, 1, 1, 1, kappa=0.1, lam_max=300, num_halvings=20)
T = TypeVar("T")
SLOW = ("linear", "dope", "every")  # its plans take long
COSTS = {  # of each kind of measurement: how many, and about how long one takes beside the others, quick and in full
    "speed": (18, 0.1, 4.5), "rounds": (8, 0.1, 7.0), "length": (1, 0.1, 5.0), "functions": (1, 1.5, 15.0),
    "one λ": (2, 0.1, 1.0), "wide": (2, 3.5, 40.0), "live": (1, 5.5, 110.0),
}  # fmt: skip
REPEATS = 30  # of what is over at once
PER_MIB = 2**20 if sys.platform == "darwin" else 2**10  # ru_maxrss is in bytes there, in KiB elsewhere


def measure(quick: bool, on_progress: Callable[[float], None] = lambda share: None) -> dict[str, Any]:
    """Everything that `episafe bench` prints, as plain values; `on_progress` hears what share of the time is over."""
    costs = {kind: many[1 if quick else 2] for kind, many in COSTS.items()}
    done, total = 0.0, sum(COSTS[kind][0] * cost for kind, cost in costs.items())

    def counting(kind: str, measured: T) -> T:
        nonlocal done
        done += costs[kind]
        on_progress(done / total)
        return measured

    episodes, repeats = (1_000, 1) if quick else (10_000, 5)
    rules = ("every", "doubling:0.3")
    speeds = [
        counting("speed", _speed(*of, episodes // 20 if of == SLOW else episodes, repeats))
        for of in product(PAPER, ("opse", "ghosh", "dope"), rules)
    ]
    sets = product(("finite", "ball", "ellipsoid", "contexts"), rules)
    rounds = [counting("rounds", _rounds_speed(*of, quick)) for of in sets]
    lengths = [1_000, 10_000] if quick else [10_000, 100_000, 1_000_000]
    states = [30, 100] if quick else [30, 100, 300, 1_000]
    dims = [3, 10] if quick else [5, 10, 20, 40]
    large = [100, 10_000, 1_000_000]
    wide = [50, 100] if quick else [100, 200, 400]
    functions = partial(_functions, num_episodes=300 if quick else 3_000)
    varied: list[tuple[str, str, list[int], Callable[[int], float]]] = [
        ("length", "episodes K (linear, doubling)", lengths, _listed),
        ("functions", "states S (given by functions, doubling)", large, functions),
        ("one λ", "states S (linear, seconds per λ)", states, partial(_per_lam, "num_states")),
        ("one λ", "features d (linear, seconds per λ)", dims, partial(_per_lam, "dim")),
        ("wide", "features d (2000 states, A = 10, seconds per λ)", wide, partial(_wide, points=1)),
        ("wide", "features d (2000 states, A = 10, per λ, 16 at once)", wide, partial(_wide, points=16)),
    ]
    growths = [counting(kind, _growth(what, sizes, seconds_at)) for kind, what, sizes, seconds_at in varied]
    return {
        "speeds": speeds,
        "bandit_speeds": rounds,
        "live_speeds": counting("live", live_speeds(quick)),
        "growths": growths,
        "machine": {"cpu": _cpu(), "cores": os.cpu_count(), **versions()},
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / PER_MIB,
    }


def tables(found: dict[str, Any]) -> list[Table]:
    """What `measure` returned, for people."""
    columns = ("per s", "time", "plans", "KiB", "regret", "violation")
    replan = "replan: every episode, or by 0.3 more information"
    title = f"Speed: episodes per s; {replan}; time: % planning, simulating, evaluating"
    speeds = Table("on", "agent", "replan", *columns, title=title, box=None, padding=(0, 2, 0, 0))  # or it is too wide
    for row in found["speeds"]:
        parts = [row["planning"], row["simulating"], row["evaluating"]]
        shares = " ".join(f"{100 * part / sum(parts):.0f}" for part in parts)
        rate, plans, kib = (f"{row[name]:,.0f}" for name in ("episodes_per_second", "plans", "learner_kib"))
        figures = (rate, shares, plans, kib, f"{row['regret']:.0f}", f"{row['violation']:.3g}")
        speeds.add_row(row["env"], row["agent"], row["replan"].replace("doubling:", "by "), *figures)
    rounds = Table("bandit", "replan", "rounds/s", "plans", "violation", title="Speed of OPLB-SP")
    for row in found["bandit_speeds"]:
        rate, plans = f"{row['rounds_per_second']:,.0f}", f"{row['plans']:,}"
        rounds.add_row(row["env"], row["replan"], rate, plans, f"{row['violation']:.3g}")
    none = "" if found["live_speeds"] else "not measured: Gymnasium is not installed (pip install episafe[gym])"
    title = "Live step: ours and the bare environment, µs"
    live = Table("environment", "agent", "steps", "plans", "ours", "bare", title=title, caption=none)
    for row in found["live_speeds"]:
        counts = (f"{row[name]:,}" for name in ("num_steps", "plans"))
        live.add_row(row["env"], row["agent"], *counts, f"{row['ours']:.1f}", f"{row['bare']:.1f}")
    growths = Table("time against", "sizes", "seconds", "exponent", title="Growth")
    for row in found["growths"]:
        sizes, seconds = (", ".join(f"{x:.3g}" for x in row[name]) for name in ("sizes", "seconds"))
        growths.add_row(row["what"], sizes, seconds, f"{row['exponent']:.2f}")
    return [speeds, rounds, live, growths]


def machine_line(found: dict[str, Any]) -> str:
    """Where it was measured and by what, in one line."""
    machine = found["machine"]
    names = ("episafe", "source", "python", "numpy", "numba")
    by = ", ".join(f"{name} {machine[f'{name}_version']}" for name in names)
    return (
        f"measured on {machine['cpu']}, {machine['cores']} cores, by {by}; {found['peak_memory_mib']:.0f} MiB at most"
    )


def _speed(env: str, agent: str, replan: str, num_episodes: int, repeats: int) -> dict[str, Any]:
    """One agent on one environment."""
    cmdp = make(env)

    def once(rule: str, length: int, seed: int) -> tuple[float, Record, Agent]:
        learner = build_agent(agent, cmdp, replan=parse_replan(rule))
        return *_timed(lambda: run(cmdp, learner, length, seed)), learner

    once(replan, 2, 0)  # compiles, or loads what is compiled
    runs = [once(replan, num_episodes, seed) for seed in range(repeats)]
    seconds, record, learner = median(taken for taken, *_ in runs), runs[0][1], runs[0][2]
    plans = int(record.plan_ids[-1]) + 1
    simulating = min(once("doubling:1e9", num_episodes, seed)[0] for seed in range(repeats))
    evaluating = plans * _shortest(lambda: cmdp.evaluate(learner.plan().policy))
    return {
        "env": env,
        "agent": agent,
        "replan": replan,
        "num_episodes": num_episodes,
        "seconds": seconds,
        "episodes_per_second": num_episodes / seconds,
        "planning": max(seconds - simulating - evaluating, 0.0),
        "simulating": simulating,
        "evaluating": evaluating,
        "plans": plans,
        "learner_kib": _bytes_of(learner) / 2**10,
        "regret": float(record.regret()[-1]),
        "violation": float(max(record.violation()[-1] for _, record, _ in runs)),
    }


def _rounds_speed(env: str, replan: str, quick: bool) -> dict[str, Any]:
    """OPLB-SP with the determinant radius on one bandit (finite: d = 5, n = 50)."""
    bandit = bandits.make(env)
    num_rounds = 2_000 if quick else 20_000 if replan == "every" else 100_000

    def once(length: int, seed: int) -> tuple[float, Record]:
        learner = bandits.OPLBSP(bandit.task, num_rounds, radius="determinant", replan=parse_replan(replan))
        return _timed(lambda: bandits.run(bandit, learner, length, seed))

    once(2, 0)  # compiles, or loads what is compiled
    runs = [once(num_rounds, seed) for seed in range(1 if quick else 5)]
    return {
        "env": env,
        "replan": replan,
        "num_rounds": num_rounds,
        "rounds_per_second": num_rounds / median(taken for taken, _ in runs),
        "plans": int(runs[0][1].plan_ids[-1]) + 1,
        "violation": float(max(record.violation()[-1] for _, record in runs)),
    }


def _growth(what: str, sizes: Sequence[int], seconds_at: Callable[[int], float]) -> dict[str, Any]:
    """Seconds against a size, and the exponent fitted on log axes."""
    seconds = [seconds_at(size) for size in sizes]
    exponent = float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
    return {"what": what, "sizes": list(sizes), "seconds": seconds, "exponent": exponent}


def _listed(num_episodes: int) -> float:
    cmdp, constants = make("linear"), Constants(1, 1, 1, 1, kappa=0.001, lam_max=300, num_halvings=30)
    agent = build_agent("opse", cmdp, constants, parse_replan("doubling:0.3"))
    return _timed(lambda: run(cmdp, agent, num_episodes))[0]


def _functions(num_states: int, num_episodes: int) -> float:
    """Seconds for episodes of a problem given by functions, after as many that fill the visited sets."""
    cmdp = huge(num_states)
    agent = OPSE(cmdp.task, GIVEN_BY_FUNCTIONS, parse_replan("doubling:0.3"))
    run(cmdp, agent, num_episodes)
    return _timed(lambda: run(cmdp, agent, num_episodes, seed=1))[0]


def _per_lam(option: str, size: int) -> float:
    """Seconds to evaluate one λ after 2000 episodes of the incumbent and of exploration."""
    cmdp = make("linear", 0, "released", **{option: size})
    agent = build_agent("opse", cmdp, replan=parse_replan("doubling:0.3"))
    run(cmdp, agent, 2_000)
    planner: SoftmaxPlanner = agent.planner  # type: ignore[attr-defined]  # OPSE has one
    planner.decide()
    return _shortest(lambda: planner.utility_bound(1.0))


def _wide(dim: int, points: int) -> float:
    """Seconds per λ with 2000 states seen at each of two steps, one λ at a time or `points` in one pass."""
    rng = np.random.default_rng(0)
    cmdp = huge(10**6, support=1, dim=dim, num_actions=10, horizon=2)
    planner = SoftmaxPlanner(cmdp.task, GIVEN_BY_FUNCTIONS, pessimistic=True)
    for _ in range(2_000):
        planner.observe(rng.integers(10**6, size=3).tolist(), rng.integers(10, size=2))
    planner.decide()
    lams = np.linspace(0, 5, points)
    return _shortest(lambda: planner.utility_bounds(lams) if points > 1 else planner.utility_bound(1.0)) / points


def _shortest(function: Callable[[], object]) -> float:
    """Seconds of one call, the least of some."""
    function()
    return min(_timed(function)[0] for _ in range(REPEATS))


def _timed(function: Callable[[], T]) -> tuple[float, T]:
    """Seconds of one call, and what it returned."""
    start = time.perf_counter()
    found = function()
    return time.perf_counter() - start, found


def _bytes_of(agent: Agent) -> int:
    """Bytes of the arrays that an agent has learned and plans in."""
    planner = getattr(agent, "planner", None)
    if planner is None:
        return sum(value.nbytes for value in vars(agent).values() if isinstance(value, np.ndarray))
    known = planner.regression
    arrays = [*known.support, *known.model, *known.work[:-1], *known.work.rest]
    return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
