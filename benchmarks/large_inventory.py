"""The large inventory, 135,751 states of which none is listed: reward of what is deployed after 300 and 1,000 episodes.

`Hindsight` with nothing but `move` and traces; and `Rollout` with the five constant levels as candidates. The last plan
is judged by 1,000 fresh episodes. Incumbent 7.10; b = 12.6.

    python benchmarks/large_inventory.py         # 5 seeds: five minutes
    python benchmarks/large_inventory.py 20 Hindsight
"""

import sys

import numpy as np

import episafe as es
from episafe.envs.gymnasium import RulesEnv
from episafe.envs.inventory import Inventory
from episafe.problems.policy import StepPolicy

AT, FRESH = (100, 300, 1000), 1000
SHOP = Inventory(mean_demand=6.0, max_demand=15, levels=(24, 28, 32, 36, 40), lead_time=3, variation=0.2)
LEVELS = {str(level): StepPolicy(np.tile(np.eye(5)[a], (14, 1))) for a, level in enumerate(SHOP.levels)}


def problem():
    env = RulesEnv(SHOP)
    return es.from_gymnasium(
        env, horizon=14, threshold=0.9 * 14, slack=1.3, move=env.move, time_homogeneous=True,
        features=es.features.OneHot(lambda s: (int(s[0] + s[1]) // 3, int(s[2] + s[3]) // 4), size=14 * 11),
        safe_policy=lambda h, state: SHOP.incumbent(h, tuple(state)),
    )  # fmt: skip


def judged(live, policy, seed):
    """Mean reward and utility of a plan, and the half width of the reward, by fresh episodes."""
    found = es.estimate(live, policy, FRESH, seed=seed)
    return found.reward, found.utility


def hindsight(seed):
    live = problem()
    agent, values = es.OPSE(live.task, es.Constants.proposing(), certifier=es.certify.Hindsight()), []
    for before, at in zip((0, *AT), AT, strict=False):
        es.run(live, agent, at - before, seed=100 * seed + at)
        values.append(judged(live, agent.plan().policy, 10_000 + seed))
    return values


def rollout(seed):
    """Totals alone: the levels are names to it."""
    live, rng, values = problem(), np.random.default_rng(seed), []
    live.seed(seed)
    agent = es.Rollout(12.6, 1.3, LEVELS, live.task.safe_policy, utility_max=14.0)
    session = es.open(None, agent=agent, false_alarm=0)
    for k in range(1, AT[-1] + 1):
        deployed = session.deploy(rng)
        episode = es.play(live, deployed.policy.policy, rng)
        report = es.Episode.of_totals(float(episode.utilities.sum()), float(episode.rewards.sum()))
        session.learn(report, deployment=deployed.id)
        if k in AT:
            mixture = agent.plan().policy
            each = np.array([judged(live, one.policy, 10_000 + seed) for one in mixture.components])
            values.append(tuple(mixture.weights @ each))
    return values


def main():
    num_seeds, only = int(sys.argv[1]) if len(sys.argv) > 1 else 5, sys.argv[2] if len(sys.argv) > 2 else ""
    print(f"reward (utility) after {AT} episodes, mean over {num_seeds} seeds; least reward, least utility")
    for name, play in (("Hindsight", hindsight), ("Rollout, five levels", rollout)):
        if only not in name:
            continue
        found = np.array([play(seed) for seed in range(num_seeds)])
        cells = [f"{r:.2f} ({u:.2f})" for r, u in found.mean(axis=0)]
        print(f"{name:22s}{', '.join(cells)}; least {found[..., 0].min(axis=0).round(2)}, {found[..., 1].min():.2f}")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
