"""A Gymnasium environment nobody here wrote, with a limit on its expected cost, learned without one unsafe policy."""

import gymnasium
import numpy as np

import episafe as es

H, HOLES = 8, (5, 7, 11, 12)


class Careful(gymnasium.Wrapper):
    """FrozenLake that reports a cost: 1 for falling into a hole."""

    def step(self, action):
        state, reward, terminated, truncated, info = self.env.step(action)
        return state, reward, terminated, truncated, {**info, "cost": float(state in HOLES)}


problem = es.from_gymnasium(
    Careful(gymnasium.make("FrozenLake-v1", max_episode_steps=H, is_slippery=False)),
    features=es.features.OneHot(),
    horizon=H,
    cost_limit=0.5,  # fall in at most every other episode, in expectation
    safe_policy=lambda h, state: [1.0, 0.0, 0.0, 0.0],  # walk against the left wall: it never falls, nor gets anywhere
    slack=0.5,
)
# C_u = 0 is enough where transitions have no noise: the estimate n/(n + ridge)·V of a next value V is never above it
constants = es.Constants(
    C_r=0.1, C_u=0, C_dagger=0.1, B_dagger=1, kappa=0.01, lam_max=300, num_halvings=25, ridge=0.1, C_theta=0.1
)
agent = es.OPSE(problem.task, constants, replan=es.Doubling(0.5))

rng = np.random.default_rng(0)
problem.seed(0)
rewards, costs = [], []
for _ in range(3_000):  # the same as es.run(problem, agent, 3_000), step by step
    plan = agent.plan()
    episode = es.play(problem, plan.policy, rng)
    agent.learn(episode, plan_id=plan.id)
    rewards.append(episode.rewards.sum())
    costs.append(H - episode.utilities.sum())

for name, part in (("first", slice(500)), ("last", slice(-500, None))):
    print(f"{name} 500 episodes: goal reached in {np.mean(rewards[part]):.0%}, fell in {np.mean(costs[part]):.1%}")
print(f"now: {plan.source}, utility at least {plan.utility_bound:.2f} of {H}, threshold {problem.task.threshold}")
