"""A policy trained in a simulator goes live: PPO learns to heat a house, and reality differs from its simulator.

A deployment is one day. The utility of an hour is 1 if the house is warm; a day needs 20 warm hours in expectation.
Needs stable-baselines3.
"""

import gymnasium
import numpy as np

import episafe as es
from episafe.core.agent import Proposer

LIMIT, SLACK = 20.0, 3.0
COST = (0.0, 0.25, 0.5)  # of the three heating levels


class House(gymnasium.Env):
    """Heat a house for 24 hours: the reward is saved energy."""

    observation_space = gymnasium.spaces.Box(-4.0, 4.0, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, loss, penalty=0.0):
        """Lose this part of the difference to the outside temperature each hour; a cold hour costs the penalty."""
        self.loss, self.penalty = loss, penalty

    def reset(self, *, seed=None, options=None):
        """Start at midnight."""
        super().reset(seed=seed)
        self.hour, self.inside, self.cold = 0, 20.0 + self.np_random.normal(), self.np_random.normal(0.0, 2.0)
        return self.seen(), {}

    def outside(self):
        """Return the temperature outside at this hour."""
        return 4.0 + self.cold - 5.0 * np.cos(2 * np.pi * (self.hour - 3) / 24)

    def seen(self):
        """Return the hour, the temperature inside and the one outside, scaled."""
        return np.array([self.hour / 24, (self.inside - 20) / 3, (self.outside() - 5) / 10], np.float32)

    def step(self, action):
        """Heat for an hour at this level."""
        self.inside += 0.9 * action - self.loss * (self.inside - self.outside()) + self.np_random.normal(0.0, 0.2)
        self.hour += 1
        warm = float(19.0 <= self.inside <= 23.0)
        reward = 1.0 - COST[action] - self.penalty * (1.0 - warm)
        return self.seen(), reward, False, self.hour == 24, {"utility": warm}


def thermostat(h, observation):
    """Heat fully below 21 degrees, half below 22: warm, and not cheap."""
    inside = 20 + 3 * observation[1]
    return [0.0, 0.0, 1.0] if inside < 21 else [0.0, 1.0, 0.0] if inside < 22 else [1.0, 0.0, 0.0]


def trained(steps=60_000):
    """Return a policy that PPO learned in a simulator, which loses less heat than the house."""
    from stable_baselines3 import PPO

    simulator = House(loss=0.05, penalty=0.8)
    return PPO("MlpPolicy", simulator, gamma=0.97, n_steps=960, batch_size=240, seed=0).learn(steps)


def main(num_days=400, steps=60_000):
    network = es.stable_baselines(trained(steps))
    house = es.from_gymnasium(House(loss=0.06), horizon=24, incumbent=thermostat, threshold=LIMIT, slack=SLACK)
    only_the_network = Proposer()  # suggests nothing; leave it out, and a planner proposes policies too
    agent = es.SafeAgent(house, candidates={"network": network}, delta=0.05, proposer=only_the_network)
    record = es.run(house, agent, num_episodes=num_days, seed=0)
    for name, days in (("first", slice(0, 50)), ("last", slice(-50, None))):
        reward, utility = record.reward_totals[days].mean(), record.utility_totals[days].mean()
        print(f"{name:5} 50 days: {reward:.2f} saved, {utility:.1f} warm hours (limit {LIMIT:g})")
    print(f"proved with 95 % confidence: the network keeps at least {agent.bounds()['network'][0]:.1f} warm hours")
    print(f"worst day: {record.utility_totals.min():.0f} warm hours")
    return record


if __name__ == "__main__":
    main()
