"""A limit on bad episodes: "in at most 10 % of fortnights may more than 4 sales be lost", mean demand 2.

    python benchmarks/chance.py                  # 100 seeds of 300 episodes with Hindsight
    python benchmarks/chance.py observation 10   # by this certifier, so many seeds
    python benchmarks/chance.py levels           # how often each level breaks the limit; optimum and incumbent

Prints one row a seed and a summary. Nothing was tuned on these seeds, nor on this demand.
"""

import sys

import numpy as np

import episafe as es
from episafe.envs.inventory import Inventory

EPISODES, DELTA = 300, 0.05
MARKS = np.array([50, 100, 150, 200, 300]) - 1
CERTIFIERS = {"hindsight": es.certify.Hindsight, "observation": es.certify.Observation}


def lost(h, state, action, w):
    return max(w[0] - state[0] - state[1], 0)


def shop():
    return es.chance(Inventory(2.0), cost=lost, total_cost_at_most=4, probability=0.9, name="lost sales")


def levels():
    """Exact probabilities of breaking the limit."""
    problem = shop()
    for a, level in enumerate(Inventory().levels):
        policy = np.broadcast_to(np.eye(4)[a], problem.task.reward.shape)
        reward, kept = problem.evaluate(policy)
        print(f"always level {level}: reward {reward:.3f}, breaks the limit in {1 - kept:.1%} of fortnights")
    reward, kept = problem.evaluate(problem.task.safe_policy)
    print(f"incumbent: reward {reward:.3f}, breaks it in {1 - kept:.2%}; optimum {problem.optimal_value():.4f}, "
          f"by a linear program {problem.optimal_value('lp'):.4f}")  # fmt: skip


def runs(certifier="hindsight", count=100):
    problem = shop()
    incumbent, optimum = problem.evaluate(problem.task.safe_policy)[0], problem.optimal_value()
    ways, violating, least = [], 0, 1.0
    for seed in range(count):
        agent = es.OPSE(problem.task, es.Constants.proposing(), certifier=CERTIFIERS[certifier](DELTA))
        record = es.run(problem, agent, EPISODES, seed=seed)
        ways.append(((record.reward_values - incumbent) / (optimum - incumbent))[MARKS])
        violating, least = violating + int(record.violating().sum()), min(least, record.utility_values.min())
        print(f"seed {seed}: " + ", ".join(f"{way:.2f}" for way in ways[-1]) + f"; {violating} violating", flush=True)
    mean, low = np.mean(ways, axis=0), np.quantile(ways, 0.1, axis=0)
    print(f"{count} seeds, of the way to the optimum after {', '.join(map(str, MARKS + 1))} episodes: "
          f"mean {mean.round(2).tolist()}, lowest tenth {low.round(2).tolist()}, 0.6 reached by "
          f"{np.mean(np.array(ways)[:, -1] >= 0.6):.0%}; {violating} violating episodes of {count * EPISODES}, lowest "
          f"probability deployed {least:.3f}")  # fmt: skip


if __name__ == "__main__":
    asked = sys.argv[1:]
    levels() if asked[:1] == ["levels"] else runs(*asked[:1], *map(int, asked[1:]))
