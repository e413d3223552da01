"""An environment of one's own: a warehouse robot that is paid for parcels and must not overheat.

Any Gymnasium environment with finite actions works, if it reports `info["cost"]` or `info["utility"]` at every step.
"""

import gymnasium
import numpy as np

import episafe as es

STEPS = 20


class Robot(gymnasium.Env):
    """Speed 0, 1 or 2 in each step. Fast steps deliver more and heat the motor; a hot motor costs 1 per step."""

    observation_space = gymnasium.spaces.Dict(
        {"heat": gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32), "queue": gymnasium.spaces.Discrete(6)}
    )
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.heat, self.queue, self.step_number = 0.2, 3, 0
        return self.observe(), {}

    def observe(self):
        return {"heat": np.array([self.heat], dtype=np.float32), "queue": self.queue}

    def step(self, action):
        delivered = min(action, self.queue)
        self.queue = min(self.queue - delivered + int(self.np_random.integers(3)), 5)
        self.heat = float(np.clip(self.heat + 0.15 * (action - 1) + 0.05 * self.np_random.normal(), 0.0, 1.0))
        self.step_number += 1
        info = {"cost": float(self.heat > 0.7)}
        return self.observe(), delivered / 2, False, self.step_number == STEPS, info


def careful(h, observation):
    """Return today's rule: mostly slow, whatever the queue."""
    return [0.3, 0.6, 0.1]


def by_temperature(h, observation):
    """Return a candidate: fast while the motor is cool."""
    if observation["heat"][0] < 0.5:
        return [0.0, 0.2, 0.8]
    return [0.6, 0.4, 0.0]


def main(num_episodes=1_000, seed=0):
    problem = es.from_gymnasium(
        Robot(),
        horizon=STEPS,
        incumbent=careful,
        cost_limit=2.0,  # at most 2 hot steps per episode in expectation
        action_names=("slow", "normal", "fast"),
        units={"reward": "pairs of parcels"},
    )
    print(
        f"slack of the incumbent, measured in {problem.origin['slack_episodes']} episodes: {problem.task.slacks[0]:.2f}"
    )
    print(f"features: {problem.origin['features']}")
    agent = es.SafeAgent(problem, delta=0.05, candidates={"by temperature": by_temperature})
    record = es.run(problem, agent, num_episodes, seed)
    last = max(num_episodes // 5, 1)
    for name, part in (("first", slice(last)), ("last", slice(-last, None))):
        hot = problem.raw_totals([record.utility_totals[part].mean()])[0]
        print(
            f"{name} {last} episodes: reward {record.reward_totals[part].mean():.2f}, hot steps {hot:.2f} of 2 allowed"
        )
    bound = agent.bounds()["by temperature"]
    print(f"proved with 95 % confidence: by temperature has at most {problem.raw_totals(bound)[0]:.2f} hot steps")
    return record


if __name__ == "__main__":
    main()
