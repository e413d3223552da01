"""Gymnasium's Pendulum, swung up with little effort: a continuous state in cells. `--full` for the figures."""

import sys

import gymnasium
import numpy as np

import episafe as es
from episafe.reports.outcome import Outcome, draw_outcomes

H, REPEAT = 25, 2  # decisions an episode, steps of the environment each: 2.5 s
TORQUES = (-2.0, 0.0, 2.0)
LOWEST = -REPEAT * (np.pi**2 + 0.1 * 8**2 + 0.001 * 2**2)  # of Pendulum's own reward, over one decision
BEST_KNOWN = 20.80  # by dynamic programming on a fine grid with the equations known: benchmarks/pendulum.py
FULL = "--full" in sys.argv


class Effort(gymnasium.Wrapper):
    """Pendulum with three torques, and a cost: 1 for a decision to push."""

    def __init__(self, env):
        super().__init__(env)
        self.action_space = gymnasium.spaces.Discrete(len(TORQUES))

    def step(self, action):
        total, torque = 0.0, np.array([TORQUES[action]], dtype=np.float32)
        for _ in range(REPEAT):
            state, reward, terminated, truncated, info = self.env.step(torque)
            total += float(reward)
        return state, total, terminated, truncated, {**info, "cost": float(TORQUES[action] != 0)}


def cell(state):
    """24 sectors of the angle by 16 ranges of the speed."""
    cosine, sine, speed = state
    return int((np.arctan2(sine, cosine) + np.pi) / (2 * np.pi) * 23.999), int((speed + 8) / 16 * 15.999)


problem = es.from_gymnasium(
    Effort(gymnasium.make("Pendulum-v1").unwrapped),
    features=es.features.OneHot(cell, size=24 * 16),
    horizon=H,
    cost_limit=10,  # push in at most 10 of 25 decisions, in expectation
    safe_policy=lambda h, state: [0.1, 0.8, 0.1],  # today: a push at random now and then, 5 of 25
    slack=5,
    reward_range=(LOWEST, 0),
    random_start=True,
    time_homogeneous=True,
)


def learn(seed):
    """The cells are not quite true of a continuous state. The certificate needs no model: its level is theorem."""
    constants = es.Constants.proposing().replace(C_r=0.1, C_theta=0.03, kappa=0.01)
    agent = es.OPSE(problem.task, constants, certifier=es.certify.Observation(delta=0.05))
    return es.run(problem, agent, 3_000 if FULL else 300, seed=seed), agent.plan()


if __name__ == "__main__":
    seeds, fresh = (range(5), 1_000) if FULL else (range(1), 100)  # fresh episodes, that no run has seen
    incumbent = es.estimate(problem, problem.task.safe_policy, fresh, seed=1_000)
    print(f"incumbent: {incumbent}, b = {problem.task.threshold:.2f} of {H}, best known reward {BEST_KNOWN}")
    found = [learn(seed) for seed in seeds]
    for seed, (_, plan) in zip(seeds, found, strict=True):
        last = es.estimate(problem, plan.policy, fresh, seed=2_000 + seed)
        share = (last.reward - incumbent.reward) / (BEST_KNOWN - incumbent.reward)
        print(f"seed {seed}, last plan: {last}, level {plan.level}, {share:.0%} of the way to the best known")
    records, pairs = [record for record, _ in found], [(incumbent.reward, incumbent.utility)] * len(found)
    row = Outcome("Pendulum, continuous state", records, pairs, [BEST_KNOWN] * len(found), "effort saved", "best known")
    print(draw_outcomes([row], H, "continuous.png"))
