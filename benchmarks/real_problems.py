"""How far `Observation` has come on inventory, battery and cloud after so many episodes, on seeds not tuned on.

The share of the way from incumbent to optimum, (V^r of what is deployed − incumbent)/(optimum − incumbent), by exact
values: the mean of the last ten episodes before the column's, over the seeds. One setting for all.

    python benchmarks/real_problems.py            # 20 seeds
    python benchmarks/real_problems.py 5
"""

import sys

import numpy as np

import episafe as es

AT = (30, 100, 300, 1000)


def shares(name: str, seed: int) -> tuple[list[float], bool]:
    """The share of the way at each number of episodes, and whether any deployed mixture was below b."""
    cmdp = es.make(name, seed=seed)
    agent = es.OPSE(cmdp.task, es.Constants.proposing(), certifier=es.certify.Observation(0.05))
    record = es.run(cmdp, agent, AT[-1], seed=seed)
    incumbent = cmdp.evaluate(cmdp.task.safe_policy)[0]
    way = (record.reward_values - incumbent) / (cmdp.optimal_value() - incumbent)
    violates = bool((record.utility_values < cmdp.task.threshold - 1e-9).any())
    return [float(way[k - 10 : k].mean()) for k in AT], violates


def main() -> None:
    """One row a problem."""
    num_seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    print(f"{'':10s} " + " ".join(f"{k:>12d}" for k in AT) + "   violating")
    for name in ("inventory", "battery", "cloud"):
        found = [shares(name, seed) for seed in range(num_seeds)]
        rows = np.array([way for way, _ in found])
        middle, error = rows.mean(axis=0), 1.96 * rows.std(axis=0, ddof=1) / np.sqrt(num_seeds)
        cells = " ".join(f"{m:6.2f} ± {e:.2f}" for m, e in zip(middle, error, strict=True))
        print(f"{name:10s} {cells}   {sum(violates for _, violates in found)} of {num_seeds}", flush=True)


if __name__ == "__main__":
    main()
