"""Run the reference results of the benchmark: write lab/reference.csv and the table of docs/research/benchmark.md.

    python benchmarks/reference.py FOLDER [--problems 100] [--workers 2]
    python benchmarks/reference.py --table          # print the table of the stored results

Runs that are in FOLDER are not run again; more problems continue what is there. Protocol: problems to report on, 1,000
episodes each. An agent with the name of a paper runs its published constants, on the problems that the paper ran.
NAME-tuned runs constants whose multiplier `benchmarks/tuning.py` chose on tuning problems, and plans again when the
information has grown (`Doubling(0.3)`). Sets in `COSTLY` have fewer problems, as the table says; pairs in `TOO_SLOW`
are left out.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from episafe.lab import benchmark
from episafe.lab.sweep import Sweep
from episafe.linear.constants import PUBLISHED

AGENTS = ("incumbent", "opse", "opse-tuned", "safe", "ghosh", "ghosh-tuned", "dope", "dope-tuned", "lsvi-ucb")
OF_A_PAPER = ("opse", "ghosh", "dope")
COSTLY = {"linear-active-d80": 10, "linear-active-h64": 10, "linear-active-h16": 20}  # problems for agents beside safe
TOO_SLOW = {("dope-tuned", "linear-active-d80"), ("dope-tuned", "linear-active-h64")}  # two minutes a run
CHEAP = ("incumbent", "safe")
PATH = Path(benchmark.__file__).parent / "reference.csv"


def reference_sweep(num_problems: int) -> Sweep:
    """Return all runs, problem by problem."""
    every = benchmark.benchmark([(name, {}) for name in AGENTS], benchmark.SETS, num_problems, 1_000)
    jobs = []
    for job in every.jobs:
        name = str(dict(job.env_options)["set"])
        one = benchmark.SETS[name]
        if job.agent in OF_A_PAPER and (one.env not in PUBLISHED or one.options or one.drawn):
            continue  # the paper did not run it
        if (job.agent, name) == ("dope", "linear"):
            continue  # nor this
        if (job.agent, name) in TOO_SLOW:
            continue
        if job.agent not in CHEAP and job.seed not in benchmark.seeds(name)[: COSTLY.get(name, num_problems)]:
            continue
        jobs.append(job)
    return Sweep(every.title, tuple(jobs))


def table(rows: Sequence[benchmark.Row]) -> str:
    """Return regret by set and agent as a Markdown table; "(n)": runs with a policy below a limit."""
    agents = [name for name in dict.fromkeys(row.agent for row in rows) if name != "incumbent"]
    by_name = {(row.set, row.agent): row for row in rows}
    lines = [f"| set | active | {' | '.join(agents)} |", "|---" * (2 + len(agents)) + "|"]
    for name in dict.fromkeys(row.set for row in rows):
        cells = [_cell(by_name.get((name, agent))) for agent in agents]
        row = by_name[name, "incumbent"]
        lines.append(f"| {name} | {row.active} of {row.problems} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(row: benchmark.Row | None) -> str:
    if row is None:
        return ""
    below = f" ({row.violating})" if row.violating else ""
    return f"{row.regret:.2f}{below}" + (f", n={row.problems}" if row.problems < 100 else "")


def main() -> None:
    """Run what is missing, then write the file from what is there."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--problems", type=int, default=100)
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    if given.folder is not None:
        sweep = reference_sweep(given.problems)
        failures = sweep.run(
            given.folder, given.workers, on_done=lambda done, total: print(f"\r{done}/{total}", end="")
        )
        print("".join(f"\n{name}: {reason}" for name, reason in failures.items()))
        rows = benchmark.rows(benchmark.results(sweep.records(given.folder)))
        benchmark.write_reference(sorted(rows, key=lambda row: list(benchmark.SETS).index(row.set)), PATH)
    print(table(benchmark.reference()))


if __name__ == "__main__":
    main()
