"""Choose the multiplier of every safe agent on the tuning seeds of every set.

    python benchmarks/tune.py FOLDER [PROBLEMS] [EPISODES] [SET …]      # 5 problems of 1000 episodes by default

The multiplier is the least of 1, 3, 10, 30, 100, 300 times the registry's that violates on no tuning problem. Agents
without a theorem of zero violation keep the registry's. Records are kept in FOLDER and never made twice; a pair whose
first run takes longer than SLOW seconds is judged by that run alone. Prints the [multiplier] of benchmark.toml.
"""

import sys
from pathlib import Path

from episafe.benchmark.comparison import agents_for, has_multiplier, job
from episafe.benchmark.problem_sets import PROBLEM_SETS, problem_set
from episafe.experiments.executors import Here
from episafe.experiments.worker_pool import make_records
from episafe.registry import AGENTS
from episafe.runs.record import Record

LADDER = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
SLOW = 6.0  # seconds a run


def chosen(agent, one, folder, num_problems, num_episodes):
    """The least multiplier of the ladder without violation; NaN where all violate."""
    for factor in LADDER:
        jobs = [job(agent, one, seed, num_episodes, factor) for seed in problem_set(one).tuning_seeds[:num_problems]]
        if not violates(jobs, folder):
            return factor
    return float("nan")


def violates(jobs, folder):
    """Whether a problem violates; runs stop at the first that does, and after a slow one."""
    for each in jobs:
        make_records([each], folder, executor=Here())
        record = Record.load(folder / each.name)
        if record.violating().any():
            return True
        if record.settings["seconds"] > SLOW:
            return False
    return False


def main(folder, num_problems=5, num_episodes=1000, *sets):
    found = {}
    for one in sets or PROBLEM_SETS:
        for agent in agents_for(problem_set(one)):
            if AGENTS[agent].proved == "zero" and has_multiplier(agent):
                factor = chosen(agent, one, Path(folder), int(num_problems), int(num_episodes))
                print(f"{one} {agent} {factor:g}", file=sys.stderr, flush=True)
                if factor != 1:
                    found.setdefault(agent, {})[one] = factor
    print("[multiplier]")
    for agent, factors in found.items():
        print(f"{agent} = {{ {', '.join(f'{one} = {factor:g}' for one, factor in factors.items())} }}")


if __name__ == "__main__":
    main(*sys.argv[1:])
