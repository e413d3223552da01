"""Run the reference results of the benchmark: write lab/reference.csv.

    python benchmarks/reference.py FOLDER [--problems 100] [--workers 2]

Runs that are in FOLDER are not run again; more problems continue what is there. About four hours on two cores for 100.
Protocol: problems to report on, 1,000 episodes each. An agent with the name of a paper runs its published constants, on
the paper's three environments as the paper ran them; on sets of the same environments with other options it is called
"NAME constants=ENVIRONMENT". NAME-tuned runs `Constants.tuned` and plans again when the information has grown
(`Doubling(0.3)`). Multipliers of bonuses were chosen on tuning seeds; they stand in the name.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from episafe.lab import benchmark
from episafe.lab.sweep import Job, Sweep
from episafe.linear.constants import PUBLISHED

AGENTS = ("incumbent", "opse", "opse-tuned", "safe", "ghosh", "ghosh-tuned", "dope-tuned", "lsvi-ucb")
OF_A_PAPER = ("opse", "ghosh")
PATH = Path(benchmark.__file__).parent / "reference.csv"


def reference_sweep(num_problems: int) -> Sweep:
    """Return all runs, problem by problem."""
    every = benchmark.benchmark([(name, {}) for name in AGENTS], benchmark.SETS, num_problems, 1_000)
    jobs = list[Job]()
    for job in every.jobs:
        one = benchmark.SETS[dict(job.env_options)["set"]]
        if job.agent in OF_A_PAPER and one.env not in PUBLISHED:
            continue
        changed = job.agent in OF_A_PAPER and (one.options or one.drawn)
        jobs.append(replace(job, agent_options=(("constants", one.env),)) if changed else job)
    return Sweep(every.title, tuple(jobs))


def main() -> None:
    """Run what is missing, then write the file from the problems that every agent has."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--problems", type=int, default=100)
    parser.add_argument("--workers", type=int, default=None)
    given = parser.parse_args()
    sweep = reference_sweep(given.problems)
    failures = sweep.run(given.folder, given.workers, on_done=lambda done, total: print(f"\r{done}/{total}", end=""))
    print("".join(f"\n{name}: {reason}" for name, reason in failures.items()))
    rows = benchmark.rows(benchmark.results(sweep.records(given.folder)))
    benchmark.write_reference(sorted(rows, key=lambda row: list(benchmark.SETS).index(row.set)), PATH)


if __name__ == "__main__":
    main()
