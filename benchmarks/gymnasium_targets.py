"""FrozenLake, CliffWalking and Taxi with a cost: how far each gets, judged by the environment's own transition tables.

    python benchmarks/gymnasium_targets.py [NUM_SEEDS]

Prints the table of docs/own-environment.md: seeds 11, 12, …, with data shared over steps and without. The constants
were chosen on seeds 0 to 2. The learner sees `reset` and `step` only. Takes some minutes on one core.
"""

import sys
from pathlib import Path

import numpy as np

import episafe as es

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from gym_problems import TARGETS, shares

FIRST_SEED = 11


def measured(target, shared, seeds):
    """Of each seed: the last share, the first episode with at least half, and the least utility above b, (seeds, 3)."""
    found = []
    for seed in seeds:
        live, cmdp = target.make(shared)
        agent = es.OPSE(live.task, target.constants, target.replan)
        values, firsts = shares(live, cmdp, agent, target.num_episodes, seed)
        reached = firsts[values[:, 0] >= 0.5]
        found.append((values[-1, 0], reached[0] if len(reached) else np.inf, values[:, 1].min()))
    return np.array(found)


def main():
    seeds = range(FIRST_SEED, FIRST_SEED + (int(sys.argv[1]) if len(sys.argv) > 1 else 10))
    print("| | steps share | episodes | share at the end, least (mean) | half by episode | violating | least margin |")
    print("|---|---|---|---|---|---|---|")
    for name, target in TARGETS.items():
        for shared in (True, False):
            share, half, margin = measured(target, shared, seeds).T
            share_text = f"{share.min():.2f} ({share.mean():.2f})"
            half_text = f"{half.max():.0f}" if np.isfinite(half).all() else "–"
            print(
                f"| {name} | {'yes' if shared else 'no'} | {target.num_episodes:,} | {share_text} | {half_text} "
                f"| {(margin < 0).sum()} of {len(seeds)} | {margin.min():.3g} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
