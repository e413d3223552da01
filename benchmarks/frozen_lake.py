"""FrozenLake 8×8, slippery, 60 steps: falls in at most 0.3 of the episodes, an incumbent that falls in 0.05.

The share of the way from incumbent to optimum (reaching the goal in 0.334 of the episodes), by the environment's own
tables, after 1,000, 2,000 and 3,000 episodes of `Observation`. The learner sees `reset` and `step` only. With the cost
of an episode stated (a fall ends it), and without; and with a candidate from a simulator that is wrong about the ice.

    python benchmarks/frozen_lake.py         # 5 seeds: ten minutes
    python benchmarks/frozen_lake.py 2 "and a simulator"
"""

import sys
from pathlib import Path

import gymnasium as gym
import numpy as np

import episafe as es

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from gym_problems import WithCost, exact, table

H, LIMIT, WANDERS = 60, 0.3, 0.135
EACH, PARTS = 1000, 3


def environment():
    return gym.make("FrozenLake-v1", map_name="8x8", is_slippery=True, max_episode_steps=H)


HOLES = {state for state, letter in enumerate(environment().unwrapped.desc.ravel()) if letter == b"H"}


def fell(state, action, following):
    return float(following in HOLES)


def incumbent(h, state):
    """Against the upper wall, but for a random action now and then: it hardly ever gets anywhere."""
    return (1 - WANDERS) * np.eye(4)[3] + WANDERS / 4


def lake(**stated):
    return es.from_gymnasium(
        WithCost(environment(), fell), features=es.features.OneHot(), horizon=H, cost_limit=LIMIT,
        safe_policy=incumbent, slack=0.24, time_homogeneous=True, **stated,
    )  # fmt: skip


class FromSimulator(es.Policy):
    """The optimum of a simulator whose ice is less slippery than the true one: half of the steps go where one means."""

    def __init__(self):
        env = environment().unwrapped
        for by_action in env.P.values():
            for a, steps in by_action.items():
                by_action[a] = [(p, *rest) for p, (_, *rest) in zip((0.25, 0.5, 0.25), steps, strict=False)]
        cmdp = exact(env, H, fell, LIMIT)
        self._table, self._row = cmdp.optimal_policy().table(), {s: i for i, s in enumerate(cmdp.labels)}

    def probabilities(self, h, state):
        return self._table[h, self._row[state]] if state in self._row else np.full(4, 0.25)

    def table(self):
        raise TypeError("it is asked state by state")


def played(seed, cmdp, candidate=None, **stated):
    """Reward and utility of what is deployed after each thousand episodes, (parts, 2), exact."""
    live, found = lake(**stated), []
    agent = es.OPSE(live.task, es.Constants.proposing(), certifier=es.certify.Observation(0.05))
    if candidate is not None:
        agent.add_candidate("simulator", candidate)
    for part in range(PARTS):
        es.run(live, agent, EACH, seed=1000 * seed + part)
        mixture = agent.plan().policy
        values = np.array([cmdp.evaluate(table(one, cmdp)) for one in mixture.components])
        found.append(mixture.weights @ values)
    return np.array(found)


ROWS = {
    "not stated": {},
    "episode_cost_max=1": {"episode_cost_max": 1.0},
    "and a simulator": {"episode_cost_max": 1.0, "candidate": FromSimulator()},
}


def main():
    num_seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    cmdp = exact(environment(), H, fell, LIMIT)
    optimum = cmdp.optimal_value()
    print(f"optimum {optimum:.3f}, incumbent 0.000; share of the way after {EACH}, {2 * EACH}, {3 * EACH} episodes")
    for name in sys.argv[2:] or ROWS:
        values = np.array([played(seed, cmdp, **ROWS[name]) for seed in range(num_seeds)])
        share, falls = values[..., 0] / optimum, H - values[..., 1]
        print(f"{name:20s} mean {share.mean(axis=0).round(2)}, least {share.min(axis=0).round(2)}, ", end="")
        print(f"most falls {falls.max():.3f}, violating {(falls > LIMIT + 1e-9).any(axis=1).sum()} of {num_seeds}")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
