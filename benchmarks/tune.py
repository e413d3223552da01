"""Choose the multiplier of every safe agent on the tuning seeds of every set.

    python benchmarks/tune.py FOLDER [AGENT …]      # all agents with a multiplier by default

The ladder is 0.3, 1, 3, 10, … times the registry's multiplier. The one chosen is the least from 1 on that violates on
no tuning problem, nor does the step below it: "none of 20" by itself leaves a rate of some percent. A problem is 10,000
episodes, as the full benchmark has, and there are 20; where they take more than SECONDS of the processor at one step of
the ladder, as many as fit. Agents without a theorem of zero violation keep the registry's. Records are kept in FOLDER
and never made twice. Prints the [multiplier] of benchmark.toml, and on how many problems each was chosen.
"""

import sys
from pathlib import Path

from episafe.benchmark.comparison import agents_for, has_multiplier, job
from episafe.benchmark.problem_sets import PROBLEM_SETS
from episafe.experiments.executors import Here
from episafe.experiments.worker_pool import make_records
from episafe.registry import AGENTS
from episafe.runs.record import Record

LADDER = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
EPISODES = 10_000
SECONDS = 10.0  # of the processor, for the problems of one step of the ladder


def chosen(agent, one, folder):
    """The multiplier, NaN where the ladder is too short, and on how many problems it was chosen."""
    below = 0
    for factor in LADDER:
        kept = num_kept(agent, one, folder, factor)
        if kept and below:
            return factor, min(kept, below)
        below = kept
    return float("nan"), 0


def num_kept(agent, one, folder, factor):
    """How many tuning problems were run, all without violation; 0 at the first that violates."""
    spent = 0.0
    for rank, seed in enumerate(one.tuning_seeds):
        if spent > SECONDS:
            return rank
        each = job(agent, one.name, seed, EPISODES, factor)
        make_records([each], folder, executor=Here())
        record = Record.load(folder / each.name)
        if record.violating().any():
            return 0
        spent += record.settings["seconds"]
    return len(one.tuning_seeds)


def main(folder, *agents):
    found = {}
    for one in PROBLEM_SETS.values():
        for agent in agents_for(one):
            if AGENTS[agent].proved == "zero" and has_multiplier(agent) and agent in (agents or AGENTS):
                factor, count = chosen(agent, one, Path(folder))
                print(f"{one.name} {agent} {factor:g} on {count} problems", file=sys.stderr, flush=True)
                if factor != 1:
                    found.setdefault(agent, {})[one.name] = factor
    print("[multiplier]")
    for agent, factors in found.items():
        print(f"{agent} = {{ {', '.join(f'{one} = {factor:g}' for one, factor in factors.items())} }}")


if __name__ == "__main__":
    main(*sys.argv[1:])
