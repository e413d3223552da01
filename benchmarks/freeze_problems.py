"""Freeze the problems of the benchmark: write lab/problems.csv, 100 problems to report on and 20 to tune on per set.

    python benchmarks/freeze_problems.py

Seeds whose incumbent is optimal are left out. Run it only for a new version of the benchmark: results refer to its
problems.
"""

from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

from episafe.lab.benchmark import SETS, TUNING, draw_problem, problem_hash
from episafe.problems.exact import policy_values, utility_greedy

FIRST, PATH = 41_000, Path(__file__).parent.parent / "src" / "episafe" / "lab" / "problems.csv"


def frozen_rows(name: str) -> list[str]:
    """Return the rows of a set: set, seed, hash, optimum, the incumbent's reward, whether the limit is active."""
    found = []
    for first, number in ((FIRST, 100), (TUNING, 20)):
        seed, last = first, first + number
        while seed < last:
            problem = draw_problem(name, seed)
            optimum, incumbent = problem.optimal_value(), problem.evaluate(problem.task.incumbent)[0]
            if optimum - incumbent > 1e-3 * optimum:
                task = problem.task
                free, _ = utility_greedy(problem.P, task.reward)
                largest = policy_values(problem.P, task.reward, task.reward, free, task.initial_state)[0]
                active = int(largest > optimum + 1e-9 * max(1.0, optimum))
                found.append(f"{name},{seed},{problem_hash(problem)},{optimum:.12g},{incumbent:.12g},{active}")
            else:
                last += 1
            seed += 1
    return found


def main() -> None:
    """Write the file and print the share of active problems of each set."""
    with ProcessPoolExecutor() as pool:
        per_set = list(pool.map(frozen_rows, SETS))
    PATH.write_text("\n".join(["set,seed,hash,optimum,incumbent,active", *np.concatenate(per_set).tolist()]) + "\n")
    for name, rows in zip(SETS, per_set, strict=True):
        print(f"{name}: {len(rows)} problems, {np.mean([row.endswith(',1') for row in rows]):.0%} active")


if __name__ == "__main__":
    main()
