"""Choose the multipliers of the tuned agents: equal budgets, on the tuning problems of the benchmark.

    python benchmarks/tuning.py [--problems 5] [--workers 2]

Each agent has the same six multipliers of its bonus scales, the same problems, and 1,000 episodes. The least mean score
wins: the regret relative to the incumbent, and at least 1 for a run with a policy below a limit, as if the incumbent
had been deployed throughout. `linear/constants.py` holds the result. About 15 minutes of CPU.
"""

import argparse
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

import numpy as np

import episafe as es
from episafe.lab import benchmark
from episafe.lab.build import make_agent
from episafe.linear.constants import Constants

MULTIPLIERS = (0.001, 0.01, 0.1, 0.3, 1.0, 3.0)
SCALES = ("C_r", "C_u", "C_dagger", "B_dagger")
AGENTS = ("opse", "ghosh", "dope", "lsvi-ucb")
SLOW = ("linear-active-d80", "linear-active-h16", "linear-active-h64")
NUM_EPISODES = 1_000


class Trial(NamedTuple):
    """One agent with one multiplier on one tuning problem."""

    agent: str
    multiplier: float
    set: str
    seed: int


def options(trial: Trial, problem: es.LinearCMDP) -> dict[str, object]:
    """Return the options of the agent: its constants before tuning, times the multiplier."""
    if trial.agent == "lsvi-ucb":
        return {"bonus": trial.multiplier}
    base = Constants.tuned(problem)
    if trial.agent == "dope":
        base = base.replace(C_r=1.0, C_u=1.0)
    scaled = {name: trial.multiplier * getattr(base, name) for name in SCALES}
    return {"constants": "tuned", "replan": "doubling:0.3", **scaled}


def play(trial: Trial) -> tuple[float, float]:
    """Return relative regret, and whether a deployed policy was below a limit."""
    problem = benchmark.frozen_problem(trial.seed, trial.set)
    agent = make_agent(trial.agent, problem, NUM_EPISODES, options(trial, problem))
    record = es.run(problem, agent, NUM_EPISODES, trial.seed)
    _, optimum, incumbent, _ = benchmark.frozen()[trial.set, trial.seed]
    return (
        float(record.regret()[-1]) / ((optimum - incumbent) * NUM_EPISODES),
        float(record.violating().any()),
    )


def trials(num_problems: int) -> Iterator[Trial]:
    """Yield all runs of the choice."""
    for name in benchmark.SETS:
        if name not in SLOW:
            for seed in benchmark.seeds(name, tuning=True)[:num_problems]:
                yield from (Trial(agent, c, name, seed) for agent in AGENTS for c in MULTIPLIERS)


def main() -> None:
    """Print, for every agent and multiplier, the runs below a limit and the mean regret."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--problems", type=int, default=5)
    parser.add_argument("--workers", type=int, default=None)
    given = parser.parse_args()
    jobs = list(trials(given.problems))
    able = {
        (agent, one.set)
        for one in {job.set: job for job in jobs}.values()
        for agent in AGENTS
        if not benchmark.known_agent(agent)[0].needs(benchmark.frozen_problem(one.seed, one.set))
    }
    jobs = [one for one in jobs if (one.agent, one.set) in able]
    with ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) as pool:
        found = np.array(list(pool.map(play, jobs, chunksize=8)))
    print("agent      multiplier   runs  below a limit  mean regret  score")
    for agent in AGENTS:
        for c in MULTIPLIERS:
            of_one = found[[one.agent == agent and one.multiplier == c for one in jobs]]
            regret, below = of_one.mean(axis=0)
            score = np.maximum(of_one[:, 0], of_one[:, 1]).mean()
            print(f"{agent:10} {c:10g} {len(of_one):6} {below * len(of_one):14.0f} {regret:12.3f} {score:6.3f}")


if __name__ == "__main__":
    main()
