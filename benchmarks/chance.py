"""A limit on bad episodes: "in at most 10 % of fortnights may more than 4 sales be lost", mean demand 2.

    python benchmarks/chance.py                  # 100 seeds of 300 episodes with Hindsight, δ = 5 %
    python benchmarks/chance.py observation 10   # by this certifier, so many seeds
    python benchmarks/chance.py hindsight 100 1  # with δ = 1 %
    python benchmarks/chance.py levels           # how often each level breaks the limit; optimum and incumbent
    python benchmarks/chance.py coverage 500     # runs of a small problem with a wrong bound; controls that must fail
    python benchmarks/chance.py sequence 20000   # the confidence sequence alone: how often a yes-or-no mean is missed

Prints one row a seed and a summary. Nothing was tuned on these seeds, nor on this demand.
"""

import math
import sys

import numpy as np
from hindsight import Kiosk, chosen_after, count_wrong, live

import episafe as es
from episafe.certify.hindsight import BET_WEIGHTS, FIRST, GROWTH, REPLAYED
from episafe.envs.inventory import Inventory
from episafe.kernels.wealth import BETS

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


def runs(certifier="hindsight", count=100, percent=5):
    problem, delta = shop(), percent / 100
    incumbent, optimum = problem.evaluate(problem.task.safe_policy)[0], problem.optimal_value()
    ways, violating, broken, least = [], 0, 0, 1.0
    for seed in range(count):
        agent = es.OPSE(problem.task, es.Constants.proposing(), certifier=CERTIFIERS[certifier](delta))
        record = es.run(problem, agent, EPISODES, seed=seed)
        ways.append(((record.reward_values - incumbent) / (optimum - incumbent))[MARKS])
        violating, least = violating + int(record.violating().sum()), min(least, record.utility_values.min())
        broken += int(record.violating().any())
        print(f"seed {seed}: " + ", ".join(f"{way:.2f}" for way in ways[-1]) + f"; {violating} violating", flush=True)
    mean, low = np.mean(ways, axis=0), np.quantile(ways, 0.1, axis=0)
    print(f"{count} seeds, of the way to the optimum after {', '.join(map(str, MARKS + 1))} episodes: "
          f"mean {mean.round(2).tolist()}, lowest tenth {low.round(2).tolist()}, 0.6 reached by "
          f"{np.mean(np.array(ways)[:, -1] >= 0.6):.0%}; {violating} violating episodes of {count * EPISODES}, in "
          f"{broken} runs, lowest probability deployed {least:.3f}")  # fmt: skip


def kiosk(num_omens=2):
    """Four days of a kiosk: in at most a fifth of the episodes may more than one paper be missing."""
    rules = Kiosk(num_omens=num_omens)
    return es.chance(rules, cost=missing, total_cost_at_most=1, probability=0.8, name="missing papers")


def missing(h, state, action, w):
    return w[0] - min(action, w[0])


def coverage(num_runs=500):
    """Runs in which any bound was ever wrong; δ = 0.05 allows one in twenty. The controls must have far more."""
    cmdp, omens = kiosk(), kiosk(30)
    settings = {
        "as it is, 100 episodes": lambda s: live(cmdp, cmdp.task, s, 100),
        "a proposal judged by other traces": lambda s: chosen_after(omens, s, 30, after=False),
        "control: by those that chose it": lambda s: chosen_after(omens, s, 30, after=True),
        "control: chance persists, 0.98": lambda s: live(cmdp, cmdp.task, s, 100, regime=0.98),
    }
    count_wrong(settings, num_runs)


def sequence(num_runs=20_000):
    """How often the wealth against the true mean reaches 1/δ_j within 300 episodes, summed over candidates j.

    Written here anew: candidate j begins when `Hindsight` proposes it, and has the mean that is bet against. Of totals
    that are yes or no, and of the mean of 14 such, as the service of a fortnight is.
    """
    begins = [FIRST]
    while begins[-1] * GROWTH <= EPISODES:
        begins.append(math.ceil(GROWTH * begins[-1]))
    rng = np.random.default_rng(0)
    for parts in (1, 14):
        for mean in (0.8, 0.85, 0.9, 0.95):
            rate = 0.0
            for j, first in enumerate(begins, 1):
                wealth = np.ones((num_runs, len(BETS)))
                reached = np.zeros(num_runs, dtype=bool)
                for _ in range(EPISODES - first):
                    wealth *= 1 + BETS * (rng.binomial(parts, mean, num_runs) / parts / mean - 1)[:, None]
                    reached |= wealth @ BET_WEIGHTS >= j * (j + 1) / (REPLAYED * DELTA)
                rate += reached.mean()
            print(f"{'yes or no' if parts == 1 else f'mean of {parts}':12s} {mean}: {rate:.4f} a run", flush=True)


if __name__ == "__main__":
    asked = sys.argv[1:]
    others = {"levels": levels, "coverage": coverage, "sequence": sequence}
    if asked and asked[0] in others:
        others[asked[0]](*map(int, asked[1:]))
    else:
        runs(*asked[:1], *map(int, asked[1:]))
